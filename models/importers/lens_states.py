"""State dicts of TransformerLens models: ``HookedTransformer`` 2 and 3, the native bridge of 4, with or without config,
and the two layouts before them, which most public grokking models have: they are recognised by their shapes.

A state dict tells every size. What it does not tell (the activation function, rotary positions, an epsilon, the scale)
comes from a config in the same file, under "config" or "cfg", from a ``config.json`` beside it, or from the caller.
Folded models have norms without gains ("LNPre"): their gains are one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import torch
from torch import Tensor

from models.errors import NotSaid, UserError
from models.files.checkpoint import read_json
from models.importers.named_tensors import (
    BUFFERS,
    NamedTensors,
    head_biases,
    heads_of,
    output_of,
    overridden,
    said_heads,
    state_of,
    tensors_in,
    without_missing,
)
from models.importers.stock import configs_of
from models.number_format import shown
from models.transformer.config import Activation, TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes

#: QuantaMaths' names of files: digits, layers, heads, steps and seed. Its models have ReLU and layer norms.
_QUANTA_MATHS = re.compile(r"(?:ins\d_)?(?:add|sub|mix)_d\d+_l\d+_h\d+_t\d+K_s\d+")
_QUANTA_CONFIG = {"act_fn": "relu"}


def is_lens_state(content: Mapping[str, Any]) -> bool:
    """Whether this is a state dict with TransformerLens' names, by itself or in a checkpoint."""
    state = state_of(content)
    return "embed.W_E" in state or ("embed.weight" in state and "blocks.0.attn.q.weight" in state)


#: The native bridge's names of modules, and ours; its matrices are [out, in].
_NATIVE = {
    "embed.weight": "embed.W_E",
    "pos_embed.weight": "pos_embed.W_pos",
    "unembed.weight": "unembed.W_U",
    "unembed.bias": "unembed.b_U",
}
_NATIVE_PARTS = {"q": "Q", "k": "K", "v": "V", "o": "O", "in": "in", "gate": "gate", "out": "out"}


def _from_native(state: Mapping[str, Tensor], n_heads: Any, path: Path) -> dict[str, Tensor]:
    """A native bridge's state dict with HookedTransformer's names and shapes; another one as it is."""
    if "embed.W_E" in state:
        return dict(state)
    n_heads = said_heads(n_heads, len(state["blocks.0.attn.q.weight"]), path)
    found = {}
    for name, value in state.items():
        *before, part, kind = name.split(".")
        if name in _NATIVE:
            found[_NATIVE[name]] = value.T if name == "unembed.weight" else value
        elif before and before[-1] in ("attn", "mlp") and part in _NATIVE_PARTS:
            ours = f"{'.'.join(before)}.{'W' if kind == 'weight' else 'b'}_{_NATIVE_PARTS[part]}"
            if part == "o" and kind == "weight":
                value = output_of(value, n_heads)
            elif before[-1] == "attn" and part != "o":
                value = heads_of(value, n_heads) if kind == "weight" else head_biases(value, n_heads)
            elif kind == "weight":
                value = value.T
            found[ours] = value
        else:
            found[name.removesuffix("eight").removesuffix("ias")] = value  # a norm's w and b
    return found


_NOW = "HookedTransformer"
#: The axes of matrices, layout by layout: d_model (d), d_vocab (v), outputs (o), positions (n), heads (h), d_head (k),
#: d_mlp (m), and heads and d_head in one (z).
_AXES = {"b_U": "o", "b_Q": "hk", "b_K": "hk", "b_V": "hk", "b_O": "d", "b_in": "m", "b_out": "d"}
_OLD = {"W_E": "dv", "W_Q": "hkd", "W_K": "hkd", "W_V": "hkd", "W_in": "md", "W_gate": "md", "W_out": "dm"}
LAYOUTS = {
    _NOW: _AXES | {"W_E": "vd", "W_pos": "nd", "W_U": "do", "W_Q": "hdk", "W_K": "hdk", "W_V": "hdk", "W_O": "hkd",
                   "W_in": "dm", "W_gate": "dm", "W_out": "md"},
    "EasyTransformer": _AXES | _OLD | {"W_pos": "dn", "W_U": "od", "W_O": "hdk"},
    "Nanda's grokking models": _AXES | _OLD | {"W_pos": "nd", "W_U": "do", "W_O": "dz"},
}  # fmt: skip
_OLD_NORMS = {".w_ln": ".w", ".b_ln": ".b"}


def layout_of(state: Mapping[str, Tensor]) -> str:
    """The first of :data:`LAYOUTS` whose axes have one size each in all tensors; the first of all if none fits."""
    return next((name for name, axes in LAYOUTS.items() if _sizes(state, axes) is not None), _NOW)


def _sizes(state: Mapping[str, Tensor], axes: Mapping[str, str]) -> dict[str, int] | None:
    """The size of each axis; None if two tensors contradict each other."""
    sizes: dict[str, int] = {}
    for name, value in state.items():
        letters = axes.get(name.rsplit(".", 1)[-1])
        if letters is None:
            continue
        if len(letters) != value.ndim or any(
            sizes.setdefault(letter, n) != n for letter, n in zip(letters, value.shape, strict=True)
        ):
            return None
    return sizes if sizes.get("z") in (None, sizes.get("h", 0) * sizes.get("k", 0)) else None


def _as_now(state: Mapping[str, Tensor], layout: str) -> dict[str, Tensor]:
    """A state dict of a layout as HookedTransformer has it."""
    axes, found = LAYOUTS[layout], {}
    sizes = _sizes(state, axes) or {}
    for name, value in state.items():
        *_, own = name.rsplit(".", 1)
        letters, wanted = axes.get(own, ""), LAYOUTS[_NOW].get(own, "")
        if "z" in letters:
            value = value.unflatten(letters.index("z"), (sizes["h"], sizes["k"]))
            letters = letters.replace("z", "hk")
        if letters != wanted:
            value = value.permute([letters.index(letter) for letter in wanted])
        for old, new in _OLD_NORMS.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        found[name] = value
    return found


def _layers(names: list[str]) -> int:
    return 1 + max((int(name.split(".")[1]) for name in names if name.startswith("blocks.")), default=-1)


def _grokking(said: dict[str, Any], path: Path) -> dict[str, Any]:
    """A config with what Nanda's grokking models call ``act_type``. Raises UserError for attention that is partly
    uniform, as in the models of Clock and Pizza."""
    if said.get("attn_coeff", 1) not in (None, 1):
        raise UserError(f"{path} has attn_coeff={said['attn_coeff']!r}: attention that is partly uniform is not read.")
    kind = said.get("act_type")
    return {"act_fn": kind.lower(), **said} if isinstance(kind, str) else said


def says_scale(content: Mapping[str, Any], path: Path, config: Mapping[str, Any]) -> bool:
    """Whether a state dict with TransformerLens' names, or the caller's config, says what scores are divided by."""
    return "attn_scale" in _said(content, path) | dict(config)


def _said(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    for name in ("config", "cfg"):
        if isinstance(content.get(name), Mapping):
            return _grokking(dict(content[name]), path)
    beside = path.with_name("config.json")
    if beside.is_file():
        found = read_json(beside)
        return dict(found) if "act_fn" in found else {}
    return dict(_QUANTA_CONFIG) if _QUANTA_MATHS.search(path.stem) else {}


def read_lens_state(
    content: Mapping[str, Any],
    path: Path,
    config: Mapping[str, Any] | None,
    loss: Callable[[TransformerConfig, Weights], float] | None,
    notes: list[str] | None = None,
) -> tuple[TransformerConfig, Weights]:
    """The config and the effective weights of a TransformerLens state dict.

    Args:
        config: fields of TransformerLens' config, or of ours, that the file does not say or says wrongly.
        loss: what a model costs on its task, for the refusal of a file that does not say its activation function; None
            without a task.
        notes: what was left out and assumed is added to it.

    Raises:
        UserError: no activation function for a model with MLPs, with what each costs; a part that cannot be expressed,
            or the first tensor that is missing, left over or of another shape.
    """
    given, state = dict(config or {}), tensors_in(state_of(content), path)
    said = _said(content, path) | given
    if "norm_placement" in said and said.keys() <= {each.name for each in fields(TransformerConfig)}:
        return _read_own(said, state, path)
    state = _from_native(state, said.get("n_heads"), path)
    if (layout := layout_of(state)) != _NOW:
        state = _as_now(state, layout)
    tensors = NamedTensors(state, path if layout == _NOW else f"{path} (in the layout of {layout})")
    tensors.skip(BUFFERS)
    d_vocab, d = tensors.shape("embed.W_E")
    n_heads, _, d_head = tensors.shape("blocks.0.attn.W_Q")
    with_mlp = "blocks.0.mlp.W_in" in tensors
    if with_mlp and said.get("act_fn") is None:
        names = get_args(Activation)
        costs = (
            {}
            if loss is None
            else {name: loss(*read_lens_state(content, path, given | {"act_fn": name}, loss)) for name in names}
        )
        listed = ", ".join(f"{shown(cost, 3)} with {name}" for name, cost in costs.items())
        raise NotSaid(
            f"{path} does not say the activation function of its MLPs, the field act_fn of config=: "
            f"{', '.join(names)}." + f" The loss on the task, in nats, is {listed}; a small loss does not "
            "show that the model was trained with it." * bool(costs),
            "act_fn",
            names,
        )
    gains = "ln_final.w" in tensors or "blocks.0.ln1.w" in tensors
    norm = ("LN" if "ln_final.b" in tensors or "blocks.0.ln1.b" in tensors else "RMS") if gains else None
    table = "pos_embed.W_pos" in tensors
    known: dict[str, Any] = {"eps": 1e-5, "attn_scale": -1.0, "rotary_dim": None} | said
    known |= {
        "n_layers": _layers(list(state)), "d_model": d, "n_heads": n_heads, "d_head": d_head, "d_vocab": d_vocab,
        "d_mlp": tensors.shape("blocks.0.mlp.W_in")[1] if with_mlp else 0, "attn_only": not with_mlp,
        "gated_mlp": "blocks.0.mlp.W_gate" in tensors, "d_vocab_out": tensors.shape("unembed.W_U")[1],
        "act_fn": said.get("act_fn") or "gelu", "normalization_type": said.get("normalization_type", norm),
        "positional_embedding_type": said.get("positional_embedding_type", "standard" if table else "rotary"),
        "n_ctx": tensors.shape("pos_embed.W_pos")[0] if table else said.get("n_ctx", 1024),
        "dtype": tensors.dtype,
    }  # fmt: skip
    cfg = overridden(next(iter(configs_of(SimpleNamespace(**known), shared_keys=True))), _ours(given))
    heads = int(known.get("n_key_value_heads") or n_heads)
    weights: dict[str, Tensor] = {}
    for key, shape in weight_shapes(cfg).items():
        theirs, own = key, shape
        if heads != n_heads and key.rsplit(".", 1)[1] in ("W_K", "W_V", "b_K", "b_V"):
            theirs, own = key.replace(".W_", "._W_").replace(".b_", "._b_"), (heads, *shape[1:])
        value = tensors.maybe(theirs, *own)
        if value is not None:
            weights[key] = value if own == shape else value.repeat_interleave(n_heads // heads, 0)
        elif "ln" in key and key.endswith(".w"):
            weights[key] = torch.ones(shape, dtype=tensors.dtype)
        elif "ln" in key or is_bias(key):
            weights[key] = torch.zeros(shape, dtype=tensors.dtype)
        else:
            raise UserError(f"{tensors.source} has no tensor {theirs}, of shape {list(own)}.")
    tensors.finish(notes)
    if notes is not None:
        if layout != _NOW:
            notes.append(f"the layout is that of {layout}")
        assumed = [("attn_scale", f"attention scores are divided by {shown(cfg.score_scale, 4)}")]
        assumed += [("eps", f"eps is {cfg.eps:g}")] if cfg.normalization_type else []
        unsaid = [text for name, text in assumed if name not in said]
        notes += [f"not said by the file, and not checked: {', '.join(unsaid)}"] if unsaid else []
    return cfg, weights


def _read_own(said: Mapping[str, Any], state: Mapping[str, Tensor], path: Path) -> tuple[TransformerConfig, Weights]:
    """A model of this project: its weights under the names that are TransformerLens', and its own config, which says
    more than TransformerLens' can.

    Raises:
        UserError: a value that a field cannot have, or the first tensor that is missing, left over or of another shape.
    """
    tensors = NamedTensors(state, path)
    known = {"dtype": str(tensors.dtype).removeprefix("torch.")}
    try:
        cfg = TransformerConfig(**{**said, **known})
    except TypeError as error:  # without a field that has no default
        raise UserError(f"The config of {path} is not whole ({error}).") from None
    found = {
        key: tensors.maybe(key, *shape) if is_bias(key) else tensors.take(key, *shape)
        for key, shape in weight_shapes(cfg).items()
    }
    tensors.finish()
    return cfg, without_missing(found)


def _ours(given: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's fields that only our config has."""
    return {name: value for name, value in given.items() if name in ("rotary_adjacent_pairs", "attn_scale", "dtype")}
