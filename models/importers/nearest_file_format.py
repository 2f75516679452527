"""The format that a file of tensors is nearest to, for the refusal of one that no reader takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from itertools import product
from typing import Any, NamedTuple

from torch import Tensor

from models.importers.named_tensors import BUFFERS, state_of

_LENS = (
    *("embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U", "ln_final.w", "ln_final.b"),
    *(f"blocks.0.attn.{kind}_{letter}" for kind in "Wb" for letter in "QKVO"),
    *(f"blocks.0.mlp.{kind}_{end}" for kind in "Wb" for end in ("in", "out")),
    *(f"blocks.0.ln{norm}.{kind}" for norm in (1, 2) for kind in "wb"),
)
_PARTS = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
_GPT = (
    *(f"transformer.{name}.weight" for name in ("wte", "wpe", "ln_f")),
    *(f"transformer.h.0.{part}.{kind}" for part in _PARTS for kind in ("weight", "bias")),
    *("transformer.ln_f.bias", "lm_head.weight"),
)
_LINEAR = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_LLAMA = (
    *("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
    *(f"model.layers.0.{part}.{kind}" for part in _LINEAR for kind in ("weight", "bias")),
    *(f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    *(f"model.layers.0.self_attn.{letter}_norm.weight" for letter in "qk"),
    *("model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight"),
)
_NEOX_PARTS = (
    *("input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense"),
    *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
)
_NEOX = (
    *("gpt_neox.embed_in.weight", "embed_out.weight", "lm_head.weight"),
    *(f"gpt_neox.final_layer_norm.{kind}" for kind in ("weight", "bias")),
    *(f"gpt_neox.layers.0.{part}.{kind}" for part in _NEOX_PARTS for kind in ("weight", "bias")),
)
#: Names that a file of their format may do without.
_OPTIONAL = re.compile(r"bias$|\.b_|\bln|\.mlp\.W_|W_pos$|lm_head|embed_out|[qk]_norm")
_TAKEN_OFF = "model."  # a wrapper's to state_of, and a part of the names of Llama's family
#: The names of a format's tensors, with layer 0 for every layer.
FORMATS = {
    "a TransformerLens state dict": _LENS,
    "a nanoGPT or minGPT checkpoint": _GPT,
    "a Hugging Face folder of Llama's family, which needs its config.json": _LLAMA,
    "a Hugging Face folder of GPT-NeoX, which needs its config.json": _NEOX,
}


class Nearest(NamedTuple):
    """The format with which most names agree, the first ``tensor`` that differs, with its shape, and the name that it
    may stand for; of a file that only lacks tensors, ``tensor`` is None and ``like`` the first that is missing, empty
    for one that has them all."""

    format: str
    same: int
    names: int
    tensor: str | None
    shape: tuple[int, ...]
    like: str

    @property
    def whole(self) -> bool:
        """Whether every name is one of the format's, and none is missing."""
        return self.tensor is None and not self.like

    def __str__(self) -> str:
        if self.whole:
            return f"it has the {self.names} names of {self.format}"
        if self.tensor is None:
            return f"nearest is {self.format}, of which {self.like} is missing"
        return (
            f"nearest is {self.format}, with {self.same} of {self.names} names; the first tensor that differs is "
            f"{self.tensor} of shape {list(self.shape)}, perhaps {self.like}"
        )


def nearest(content: Mapping[str, Any]) -> Nearest | None:
    """The format that a file's tensors are nearest to; None where no name is like any format's."""
    state = {name: value for name, value in state_of(content).items() if isinstance(value, Tensor)}
    state = {name: value for name, value in state.items() if not name.endswith(BUFFERS)}
    plain = {name: re.sub(r"(?<=\.)\d+(?=\.)", "0", name) for name in state}
    kind, before = max(product(FORMATS, ("", _TAKEN_OFF)), key=lambda each: _likeness(*each, set(plain.values())))
    if not state or _likeness(kind, before, set(plain.values())) < 0.5 * len(set(plain.values())):
        return None
    plain = {name: before + own for name, own in plain.items()}
    same = sum(own in FORMATS[kind] for own in plain.values())
    first = next((name for name, own in plain.items() if own not in FORMATS[kind]), None)
    if first is None:
        needed = (name for name in FORMATS[kind] if not _OPTIONAL.search(name))
        return Nearest(kind, same, len(state), None, (), next((n for n in needed if n not in plain.values()), ""))
    like = max(FORMATS[kind], key=lambda name: _alike(plain[first], name))
    return Nearest(kind, same, len(state), first, tuple(state[first].shape), like)


def _likeness(kind: str, before: str, names: Collection[str]) -> float:
    """How many names, with ``before`` put before them, a format has; those that are only like one of its own count as
    much as they are like it. Nothing is put before names where that makes none of them the format's."""
    own = FORMATS[kind]
    if before and not any(before + name in own for name in names):
        return 0.0
    return sum(
        1.0 if before + name in own else max((_alike(before + name, other) for other in own), default=0.0)
        for name in names
    )


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
