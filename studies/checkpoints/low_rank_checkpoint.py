"""Published checkpoints of the 456-parameter adder's family (github.com/yinglunz/A-456-Parameter-Transformer-...).

The public code stores the configuration under ``model_config`` and the tensors under ``model_state``. Full matrices are
transposed, as in torch's linear layers, and the tied token embedding is stored twice. The ranks in the configuration
decide which of our models it is; everything else in it must be what all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models import registry
from models.errors import UserError
from models.families.low_rank_adder import D_MLP, D_MODEL, D_VOCAB, OPTIONS, POSITIONS, LowRankOptions
from models.files.checkpoint import assign_parameters

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

COMMON: dict[str, Any] = {
    "n_layer": 1,
    "d_model": D_MODEL,
    "n_head": 1,
    "d_ff": D_MLP,
    "dropout": 0.0,
    "max_seq_len": POSITIONS,
    "vocab_size": D_VOCAB,
}
# The configuration's other entries, with the public code's defaults.
SWITCHES: dict[str, Any] = {"pos_rank": 0, "qkv_rank": 0, "attn_out_rank": 0, "ffn_rank": 0}
SWITCHES |= {"use_rmsnorm": False, "tie_qkv": "none"}
TIED = "shareA_tieKV"
EMBEDDING, HEAD = "token_emb.weight", "lm_head.weight"
NORMS = {"ln1": "blocks.0.ln1", "ln2": "blocks.0.ln2", "ln_final": "ln_f"}
MATRICES = {"out": "blocks.0.attn.proj", "mlp_in": "blocks.0.mlp.fc1", "mlp_out": "blocks.0.mlp.fc2"}


def convert(checkpoint: Mapping[str, Any], source: Path) -> ArithmeticTransformer:
    """The model that a recognised checkpoint holds.

    Raises:
        UserError: another configuration, or tensors that do not agree with the configuration.
    """
    name = _model_name(checkpoint["model_config"], source)
    stored = _Stored(checkpoint["model_state"], source)
    tensors = _tensors(stored, OPTIONS[name])
    if not torch.equal(stored.take(HEAD), tensors["W_E"]):
        raise UserError(f"{source} stores {HEAD} and {EMBEDDING}, which should be one tensor, with different values.")
    stored.check_empty()
    model = registry.build(name)
    assign_parameters(model.weight_map, tensors, source)
    return model


class _Stored:
    """The tensors of a checkpoint, each of which is taken once."""

    def __init__(self, state: Mapping[Any, Any], source: Path):
        self.left, self.source = {str(key): value for key, value in state.items()}, source

    def take(self, name: str, dims: int = 2) -> Tensor:
        if name not in self.left:
            raise UserError(f"{self.source} lacks {name}: its tensors do not agree with its configuration.")
        tensor = self.left.pop(name)
        if not isinstance(tensor, Tensor):
            raise UserError(f"{self.source} holds a {type(tensor).__name__} where the tensor {name} should be.")
        if tensor.ndim != dims:
            raise UserError(f"{self.source} holds {name} with {tensor.ndim} axes; it should have {dims}.")
        return tensor

    def check_empty(self) -> None:
        if self.left:
            unknown = ", ".join(sorted(self.left))
            raise UserError(
                f"{self.source} has the unknown {unknown}: its tensors do not agree with its configuration."
            )


def _tensors(stored: _Stored, options: LowRankOptions) -> dict[str, Tensor]:
    """Our parameters by name, from ``stored``."""
    found = {"W_E": stored.take(EMBEDDING)}
    for ours, theirs in NORMS.items():
        found[f"{ours}_w"] = stored.take(f"{theirs}.weight", 1)
        if options.normalization_type == "LN":
            found[f"{ours}_b"] = stored.take(f"{theirs}.bias", 1)

    def matrix(ours: str, theirs: str, rank: int | None, transposed: bool = True) -> None:
        if rank is not None:
            found.update({f"{ours}.{factor}": stored.take(f"{theirs}.{factor}") for factor in "AB"})
        else:
            full = stored.take(f"{theirs}.weight")
            found[f"{ours}.W"] = full.T if transposed else full

    matrix("pos", "pos_emb", options.position_rank, transposed=False)
    if options.tie_kv:
        found["qkv.A"] = stored.take("blocks.0.attn.qkv_A")
        halves = [stored.take(f"blocks.0.attn.qkv_{name}") for name in ("Bq", "Bkv")]
        if len({half.shape[0] for half in halves}) > 1:
            raise UserError(f"{stored.source} stores B_q and B_kv of different ranks.")
        found["qkv.B"] = torch.cat(halves, 1)
    else:
        matrix("qkv", "blocks.0.attn.qkv", options.qkv_rank)
    for (ours, theirs), rank in zip(
        MATRICES.items(), (options.out_rank, options.mlp_rank, options.mlp_rank), strict=True
    ):
        matrix(ours, theirs, rank)
    return found


def _model_name(config: Mapping[str, Any], source: Path) -> str:
    """The name of the registered model with this configuration."""
    known = COMMON | SWITCHES
    scalars = (bool, int, float, str)
    for key, value in config.items():
        if not isinstance(value, scalars):
            raise UserError(f"{source} has a {type(value).__name__} as its setting {key}.")
    odd = [f"{key}={value!r}" for key, value in config.items() if key not in known]
    odd += [f"{key}={config[key]!r}" for key, value in COMMON.items() if config.get(key, value) != value]
    chosen = {key: config.get(key, value) for key, value in SWITCHES.items()}
    names = [name for name, options in OPTIONS.items() if _switches(options) == chosen]
    if names and not odd:
        return names[0]
    odd += [] if names else [f"{key}={value!r}" for key, value in chosen.items()]
    raise UserError(
        f"{source} holds a low-rank adder of another configuration ({', '.join(odd)}), for which there is no model; "
        f"{', '.join(OPTIONS)} can be imported."
    )


def _switches(options: LowRankOptions) -> dict[str, Any]:
    """The configuration that the public code would store for one of our models."""
    return {
        "pos_rank": options.position_rank or 0,
        "qkv_rank": options.qkv_rank or 0,
        "attn_out_rank": options.out_rank or 0,
        "ffn_rank": options.mlp_rank or 0,
        "use_rmsnorm": options.normalization_type == "RMS",
        "tie_qkv": TIED if options.tie_kv else "none",
    }
