"""The format that a file of tensors is nearest to, for the refusal of one that no reader takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from models.importers.named_tensors import state_of

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
    *(f"model.layers.0.{part}.weight" for part in (*_LINEAR, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")),
    *("model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight"),
)
_BUFFERS = (".mask", ".IGNORE", ".masked_bias", ".attn.bias", ".rotary_sin", ".rotary_cos", ".inv_freq")
#: The names of a format's tensors, with layer 0 for every layer.
FORMATS = {
    "a TransformerLens state dict": _LENS,
    "a nanoGPT or minGPT checkpoint": _GPT,
    "a Hugging Face folder of Llama's family, which needs its config.json": _LLAMA,
}


class Nearest(NamedTuple):
    """The format with which most names agree, the first ``tensor`` that differs, with its shape, and the name that it
    may stand for; of a file that only lacks tensors, ``tensor`` is None and ``like`` the first that is missing."""

    format: str
    same: int
    names: int
    tensor: str | None
    shape: tuple[int, ...]
    like: str

    def __str__(self) -> str:
        if self.tensor is None:
            return f"nearest is {self.format}, of which {self.like} is missing"
        return (
            f"nearest is {self.format}, with {self.same} of {self.names} names; the first tensor that differs is "
            f"{self.tensor} of shape {list(self.shape)}, perhaps {self.like}"
        )


def nearest(content: Mapping[str, Any]) -> Nearest | None:
    """The format that a file's tensors are nearest to; None where no name is like any format's."""
    state = {name: value for name, value in state_of(content).items() if isinstance(value, Tensor)}
    state = {name: value for name, value in state.items() if not name.endswith(_BUFFERS)}
    plain = {name: re.sub(r"(?<=\.)\d+(?=\.)", "0", name) for name in state}
    likeness = {
        kind: sum(max((_alike(own, name) for name in names), default=0.0) for own in plain.values())
        for kind, names in FORMATS.items()
    }
    kind = max(likeness, key=lambda name: likeness[name])
    if not state or likeness[kind] < 0.5 * len(state):
        return None
    same = sum(own in FORMATS[kind] for own in plain.values())
    first = next((name for name, own in plain.items() if own not in FORMATS[kind]), None)
    if first is None:
        missing = next(name for name in FORMATS[kind] if name not in plain.values())
        return Nearest(kind, same, len(state), None, (), missing)
    like = max(FORMATS[kind], key=lambda name: _alike(plain[first], name))
    return Nearest(kind, same, len(state), first, tuple(state[first].shape), like)


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
