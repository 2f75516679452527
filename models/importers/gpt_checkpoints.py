"""Checkpoints of nanoGPT and minGPT, which have GPT-2's names and matrices [out, in], and GPT-2's own, [in, out]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.importers.hugging_face import gpt2_weights
from models.importers.named_tensors import BUFFERS, NamedTensors, overridden, said_heads, state_of, tensors_in
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights

_ARGUMENTS = ("model_args", "hyper_parameters")


def is_gpt_checkpoint(checkpoint: Mapping[str, Any]) -> bool:
    """Whether this is a state dict with GPT-2's names, by itself (minGPT), under "model" (nanoGPT) or wrapped."""
    state = state_of(checkpoint)
    return "transformer.wte.weight" in state or {"wte.weight", "h.0.attn.c_attn.weight"} <= state.keys()


def read_gpt(
    checkpoint: Mapping[str, Any], path: Path, config: Mapping[str, Any] | None, notes: list[str] | None = None
) -> tuple[TransformerConfig, Weights]:
    """The config and the effective weights of a checkpoint.

    nanoGPT keeps ``model_args``. minGPT and a state dict of GPT-2 keep tensors only; how many heads there are must then
    be said, and the activation function is the tanh approximation of GELU. Whether matrices are [out, in] or, as
    GPT-2's own, [in, out] is seen from their shapes.

    Args:
        config: changes of the config's fields, such as ``{"n_heads": 3}``.
        notes: what was left out and assumed is added to it.

    Raises:
        UserError: no number of heads, or the first tensor that is missing, left over or of another shape.
    """
    tensors = NamedTensors(tensors_in(state_of(checkpoint), path), path)
    tensors.skip(BUFFERS)
    # nanoGPT's arguments, which PyTorch Lightning keeps as hyperparameters
    args = next((dict(checkpoint[key]) for key in _ARGUMENTS if isinstance(checkpoint.get(key), Mapping)), None)
    at = "transformer." if "transformer.wte.weight" in tensors else ""
    d_vocab, d = tensors.shape(f"{at}wte.weight")
    linear = tensors.shape(f"{at}h.0.attn.c_attn.weight")[0] != d  # [3 d, d] and not [d, 3 d]
    heads = said_heads((config or {}).get("n_heads", (args or {}).get("n_head")), d, path)
    layers = 0
    while f"{at}h.{layers}.ln_1.weight" in tensors:
        layers += 1
    cfg = TransformerConfig(
        n_layers=layers, d_model=d, n_heads=heads, d_head=d // heads,
        d_mlp=tensors.shape(f"{at}h.0.mlp.c_fc.weight")[0 if linear else 1], d_vocab=d_vocab,
        n_ctx=tensors.shape(f"{at}wpe.weight")[0], act_fn="gelu_new" if args is None else "gelu",
        normalization_type="LN", dtype=str(tensors.dtype).removeprefix("torch."),  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    cfg = overridden(cfg, config)
    weights = gpt2_weights(tensors, cfg, linear=linear)
    tensors.finish(notes)
    if notes is not None and "act_fn" not in (config or {}):
        unsaid = f"{'minGPT' if linear else 'GPT-2'}'s, as the file has no model_args"
        kind = unsaid if args is None else "nanoGPT's"
        notes.append(f"the activation function was not checked: {cfg.act_fn} is {kind}")
    return cfg, weights
