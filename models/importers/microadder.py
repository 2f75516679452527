"""Published MicroAdder checkpoints (github.com/evindor/MicroAdder, MIT).

Two generations of the public code wrote them: the later one names its tensors flatly (``q_proj.weight``), the
earlier one by block (``blocks.0.attn.q_proj.weight``). Both store tied numbers several times, frozen constants and
the causal mask; the 57, 67 or 74 free numbers are taken out, and everything else is checked against what our weight
map says it must be.

The rung of the compression ladder is decided by the stored configuration. A further rung is one row in ``RUNGS``
and, where it has other tensors, their names in the two layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models import registry
from models.checkpoint import assign_parameters
from models.errors import UserError

if TYPE_CHECKING:
    from models.transformer import ArithmeticTransformer

FROZEN_SPIRAL = "amp,phase,slope,offset"


@dataclass(frozen=True)
class Rung:
    """The switches that tell the rungs of the ladder apart, under one name for both generations of the code."""

    qk_dim: int = 4
    freeze_spiral: str = FROZEN_SPIRAL
    tie_fc2_head: bool = False
    norms: str = "shared"  # one weight vector for all three norms; "full": three
    tie_values_head: bool = True
    circular_arc: bool = True  # A = B
    position_correction: str = "none"
    freeze_special: str = "plus_eos"


RUNGS: dict[Rung, str] = {
    Rung(tie_fc2_head=True): "microadder-57",
    Rung(): "microadder-67",
    Rung(qk_dim=5, freeze_spiral=""): "microadder-74",
}

# What all rungs have in common, where the configuration says it at all.
COMMON: dict[str, Any] = {
    "d_model": 5,
    "tok_dim": 2,
    "pos_dim": 3,
    "n_heads": 1,
    "n_layers": 1,
    "head_dim": 5,
    "ffn_dim": 2,
    "ffn_bias": False,
    "vocab_size": 10,
    "max_seq_len": 34,
    "qk_source": "pos",
    "qk_input": "pos",
    "tie_qk": True,
    "q_phase": True,
    "attn_out_rank": 1,
    "num_kv_heads": 0,
    "alibi": False,
    "softmax1": False,
    "share_layers": False,
    "attn_mode": "split",
    "pos_mode": "spiral_correct",
    "token_init": "spiral",
    "tok_emb_mode": "parametric",
    "q_proj_rank": 0,
    "q_proj_mode": "full",
    "freeze_pad": False,
    "freeze_z_hi": False,
    "freeze_tok_arc": "",
    "equals_spiral_idx": -1.0,
}

# The settings that :func:`_rung` reads.
SWITCHES = ("norm_mode", "freeze_spiral", "qk_dim", "tie_fc2_head", "tie_vo", "tie_tok_arc_ab")
SWITCHES += ("pos_correction_mode", "freeze_special")


@dataclass(frozen=True)
class Layout:
    """Where one generation of the code keeps each parameter, and what else it stores."""

    parameters: Mapping[str, tuple[str, ...]]  # our name -> its names there; several are redundant copies
    ignored: tuple[str, ...]  # constants of the code, not of the model


_SPIRAL = {f"spiral_{name}": (f"spiral_{name}",) for name in ("amp", "phase", "slope", "offset")}
_ZERO = ("_plus_pos", "_eos_pos")  # frozen at zero

FLAT = Layout(
    parameters={
        "arc_A": ("tok_arc_A",),
        "arc_start": ("tok_arc_start",),
        "arc_stride": ("tok_arc_stride",),
        "pos_equals": ("special_pos_equals",),
        "pos_z_hi": ("z_hi_pos",),
        "q_angle": ("q_phase_angle",),
        "W_qk": ("q_proj.weight",),
        "out_A": ("out_proj.A",),
        "out_B": ("out_proj.B",),
        "W_fc1": ("fc1.weight",),
        "W_fc2": ("fc2.weight",),
        "W_head": ("head_proj.weight",),
        "norm_w": ("norm1.weight", "norm2.weight", "norm_f.weight"),
        **_SPIRAL,
    },
    ignored=("causal_mask",),
)

BLOCKS = Layout(
    parameters=dict(FLAT.parameters)
    | {
        "arc_A": ("tok_arc_A", "tok_arc_B"),
        "q_angle": ("blocks.0.attn.q_phase_angle",),
        "W_qk": ("blocks.0.attn.q_proj.weight",),
        "out_A": ("blocks.0.attn.out_proj.A",),
        "out_B": ("blocks.0.attn.out_proj.B",),
        "W_fc1": ("blocks.0.ffn.fc1.weight",),
        "W_fc2": ("blocks.0.ffn.fc2.weight",),
        "norm_w": ("blocks.0.ln1.weight", "blocks.0.ln2.weight", "ln_f.weight"),
    },
    ignored=("blocks.0.attn.causal_mask",),
)

# Stored with an extra axis of one, [1, n] or [n, 1], or transposed.
RESHAPED = ("pos_equals", "pos_z_hi", "q_angle", "out_A", "out_B")
TRANSPOSED = ("W_fc2",)


def recognises(checkpoint: dict[str, Any]) -> bool:
    """Whether a checkpoint says that it is a MicroAdder."""
    config, state = checkpoint.get("config"), checkpoint.get("model_state_dict")
    return isinstance(state, dict) and isinstance(config, dict) and {"tok_dim", "pos_dim"} <= config.keys()


def convert(checkpoint: dict[str, Any], source: Path) -> ArithmeticTransformer:
    """The model that a recognised checkpoint holds.

    Raises:
        UserError: another configuration, or tensors that do not agree with the configuration.
    """
    config, state = checkpoint["config"], checkpoint["model_state_dict"]
    layout = BLOCKS if any(str(key).startswith("blocks.") for key in state) else FLAT
    name = _model_name(config, source)
    model = registry.build(name)
    wanted = dict(model.weight_map.named_parameters())
    frozen = {key: tensor for key, tensor in model.weight_map.named_buffers() if key in layout.parameters}
    stored = _take(state, layout, wanted.keys() | frozen.keys(), source)
    for key, tensor in frozen.items():
        if not _equal(stored.pop(key), tensor):
            raise UserError(f"{source} stores another {key} than the {tensor.item():g} at which {name} freezes it.")
    tensors = {}
    for key, tensor in stored.items():
        if key in RESHAPED and tensor.numel() == wanted[key].numel():
            tensor = tensor.reshape(wanted[key].shape)
        tensors[key] = tensor.mT if key in TRANSPOSED and tensor.ndim == 2 else tensor
    assign_parameters(model.weight_map, tensors, source)
    return model


def _take(state: Mapping[str, Any], layout: Layout, keys: set[str], source: Path) -> dict[str, Tensor]:
    """Each parameter once, after checking that copies agree, zeros are zero, and nothing is missing or left over."""
    names = {key: layout.parameters[key] for key in keys}
    expected = {name for copies in names.values() for name in copies} | {*_ZERO, *layout.ignored}
    missing, unknown = expected - state.keys(), {str(key) for key in state.keys() - expected}
    if missing or unknown:
        parts = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        parts += [f"has the unknown {', '.join(sorted(unknown))}"] if unknown else []
        raise UserError(f"{source} {' and '.join(parts)}: its tensors do not agree with its configuration.")
    for name in sorted(expected):
        if not isinstance(state[name], Tensor):
            raise UserError(f"{source} holds a {type(state[name]).__name__} where the tensor {name} should be.")
    for name in _ZERO:
        if state[name].any():
            raise UserError(f"{source} stores a {name} that is not zero, which this model freezes at zero.")
    for first, *copies in names.values():
        for copy in copies:
            if not _equal(state[first], state[copy]):
                raise UserError(
                    f"{source} stores {first} and {copy}, which should be one tensor, with different values."
                )
    return {key: state[copies[0]] for key, copies in names.items()}


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def _model_name(config: Mapping[str, Any], source: Path) -> str:
    """The registered model of a configuration; the error names the switches that differ from the closest rung."""
    scalars = (bool, int, float, str, type(None))
    for key in {*COMMON, *SWITCHES} & config.keys():
        if not isinstance(config[key], scalars):
            raise UserError(f"{source} has a {type(config[key]).__name__} as its setting {key}.")
    odd = [f"{key}={config[key]!r}" for key, value in COMMON.items() if config.get(key, value) != value]
    rung = _rung(config)
    if not odd and rung in RUNGS:
        return RUNGS[rung]
    names = [field.name for field in fields(Rung)]
    differences = [[name for name in names if getattr(rung, name) != getattr(known, name)] for known in RUNGS]
    odd += [f"{name}={getattr(rung, name)!r}" for name in min(differences, key=len)]
    importable = ", ".join(RUNGS.values())
    raise UserError(
        f"{source} holds a MicroAdder of another configuration ({', '.join(odd)}), for which there is no weight map "
        f"yet; {importable} can be imported."
    )


def _rung(config: Mapping[str, Any]) -> Rung:
    """The rung's switches; where a generation of the code had no switch, what it did."""
    norm_mode = config.get("norm_mode")
    flat = norm_mode == "weighted"  # the later code, which always ties values and arc, and shares the norm
    spiral = str(config.get("freeze_spiral", ""))
    return Rung(
        qk_dim=config.get("qk_dim") or config.get("head_dim", 0),  # 0 and absent stand for head_dim
        freeze_spiral=",".join(sorted(spiral.split(","), key=FROZEN_SPIRAL.find)) if spiral else "",
        tie_fc2_head=bool(config.get("tie_fc2_head", False)),
        norms="shared" if flat else str(norm_mode),
        tie_values_head=flat or bool(config.get("tie_vo", False)),
        circular_arc=flat or bool(config.get("tie_tok_arc_ab", False)),
        position_correction=str(config.get("pos_correction_mode", "none")),
        freeze_special="plus_eos" if flat else str(config.get("freeze_special")),
    )
