"""Published MicroAdder checkpoints (github.com/evindor/MicroAdder, MIT).

Two generations of the public code wrote them: the later one has flat tensor names (``q_proj.weight``), the earlier one
names by block (``blocks.0.attn.q_proj.weight``). Both store tied numbers several times, frozen constants and the causal
mask. The free parameters are extracted, and everything else is checked against what our weight map says it must be.

The stored configuration decides, and every model of the compression ladder that it can describe is converted: its
switches become :class:`MicroAdderOptions`, whose free parameters are then looked for. A model that is a rung of the
ladder gets the rung's name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.errors import UserError
from models.families.microadder import MicroAdderWeights
from models.families.microadder_ladder import LADDER
from models.families.microadder_options import MicroAdderOptions
from models.files.checkpoint import assign_parameters

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

# Switches of the public code with only one setting that can be imported; a configuration may leave them out.
COMMON: dict[str, Any] = {
    "n_layers": 1,
    "max_seq_len": 34,
    "qk_source": "pos",
    "qk_input": "pos",
    "num_kv_heads": 0,
    "alibi": False,
    "softmax1": False,
    "share_layers": False,
    "attn_mode": "split",
    "token_init": "spiral",
    "q_proj_rank": 0,
    "q_proj_mode": "full",
    "freeze_pad": False,
    "freeze_tok_arc": "",
    "equals_spiral_idx": -1.0,
}

# Switches that are translated: each setting of the public code, with the options that it stands for.
TRANSLATED: dict[str, dict[Any, dict[str, Any]]] = {
    "vocab_size": {10: {"delimiters": False}, 14: {"delimiters": True}},
    "pos_mode": {"learned": {"columns": "table"}, "spiral_correct": {"columns": "spiral"}},
    "pos_correction_mode": {mode: {"correction": mode} for mode in ("none", "linear", "full")},
    "freeze_special": {
        "none": {"plus": "learned", "equals": "learned", "eos": "learned"},
        "eos": {"plus": "learned", "equals": "learned", "eos": "zero"},
        "plus_eos": {"plus": "zero", "equals": "learned", "eos": "zero"},
        "all": {"plus": "zero", "equals": "zero", "eos": "zero"},
    },
    "freeze_z_hi": {False: {"z_hi": "learned"}, True: {"z_hi": "zero"}},
    "freeze_spiral": {"": {"freeze_spiral": False}, "amp,phase,slope,offset": {"freeze_spiral": True}},
    "tie_qk": {value: {"tie_qk": value} for value in (False, True)},
    "q_phase": {value: {"q_angle": value} for value in (False, True)},
    "tie_vo": {False: {"values": "own"}, True: {"values": "head"}},
    "ffn_bias": {value: {"mlp_bias": value} for value in (False, True)},
    "tie_fc2_head": {value: {"tie_fc2": value} for value in (False, True)},
    "norm_mode": {"full": {"norm": "separate"}, "shared": {"norm": "shared"}, "fixed": {"norm": "fixed"}},
    "tok_emb_mode": {"learned": {"tokens": "table"}, "parametric": {"tokens": "ellipse"}},
}

# Defaults for switches that a configuration does not name: what its generation of the code did.
EARLIER: dict[str, Any] = {
    "vocab_size": 14,
    "pos_mode": "learned",
    "pos_correction_mode": "full",
    "freeze_special": "none",
    "freeze_z_hi": False,
    "freeze_spiral": "",
    "tie_qk": False,
    "q_phase": False,
    "tie_vo": False,
    "tie_tok_arc_ab": False,
    "ffn_bias": True,
    "tie_fc2_head": False,
    "norm_mode": "full",
    "tok_emb_mode": "learned",
    "attn_out_rank": 0,
    "n_heads": 2,
    "ffn_dim": 2,
}
LATER: dict[str, Any] = EARLIER | {
    "vocab_size": 10,
    "pos_mode": "spiral_correct",
    "pos_correction_mode": "none",
    "freeze_special": "plus_eos",
    "tie_qk": True,
    "q_phase": True,
    "tie_vo": True,
    "tie_tok_arc_ab": True,
    "ffn_bias": False,
    "tok_emb_mode": "parametric",
    "attn_out_rank": 1,
    "n_heads": 1,
}
SIZES = ("d_model", "tok_dim", "pos_dim", "n_heads", "head_dim", "qk_dim", "ffn_dim", "attn_out_rank")

_SPECIALS = ("plus", "equals", "eos")
_MASK = "causal_mask"


def convert(checkpoint: Mapping[str, Any], source: Path) -> ArithmeticTransformer:
    """The model that a recognised checkpoint holds.

    Raises:
        UserError: another configuration, or tensors that do not agree with the configuration.
    """
    from models.transformer.arithmetic_transformer import ArithmeticTransformer

    config, state = checkpoint["config"], checkpoint["model_state_dict"]
    options = options_of(config, source)
    name = next((rung.name for rung in LADDER if same_function(rung.options, options)), "")
    name = name or f"microadder-{options.n_parameters}-imported"
    held = sum(tensor.untyped_storage().nbytes() for tensor in state.values() if isinstance(tensor, Tensor))
    if sum(math.prod(shape) for shape in options.shapes().values()) > held:  # before anything of these sizes is made
        raise UserError(f"{source} has fewer numbers than its configuration says.")
    weight_map = MicroAdderWeights(options)
    wanted = dict(weight_map.named_parameters())
    frozen = dict(weight_map.named_buffers())
    by_block = any(str(key).startswith("blocks.") for key in state)
    places, zeros = stored_places(options, by_block)
    stored = _take(state, places, {*zeros, "blocks.0.attn.causal_mask" if by_block else _MASK}, source)
    for place in zeros:
        if state[place].any():
            raise UserError(f"{source} stores a {place} that is not zero, which this model freezes at zero.")
    for key, tensor in frozen.items():
        if not _equal(stored.pop(key), tensor):
            raise UserError(f"{source} stores another {key} than the {tensor.item():g} at which {name} freezes it.")
    assign_parameters(
        weight_map, {key: _as_ours(key, tensor, wanted[key], options) for key, tensor in stored.items()}, source
    )
    return ArithmeticTransformer(weight_map, options.task(), name=name)


def same_function(a: MicroAdderOptions, b: MicroAdderOptions) -> bool:
    """Whether two options turn the same numbers into the same weights; their initial values may differ."""
    starts = {"early_spiral": False, "start_angle": 0.0, "start_axes": 1.0}
    frozen = a.freeze_spiral and b.freeze_spiral
    return replace(a, **(starts | {"early_spiral": frozen and a.early_spiral})) == replace(
        b, **(starts | {"early_spiral": frozen and b.early_spiral})
    )


def options_of(config: Mapping[str, Any], source: Path) -> MicroAdderOptions:
    """The options that a stored configuration describes.

    Raises:
        UserError: settings that this project has no weight map for; they are named.
    """
    scalars = (bool, int, float, str, type(None))
    for key in {*COMMON, *EARLIER, *SIZES} & config.keys():
        if not isinstance(config[key], scalars):
            raise UserError(f"{source} has a {type(config[key]).__name__} as its setting {key}.")
    later = config.get("norm_mode") == "weighted"
    given = (LATER if later else EARLIER) | dict(config)
    if later:
        given["norm_mode"] = "shared"
    spiral = str(given["freeze_spiral"] or "")
    order = "amp,phase,slope,offset"
    given["freeze_spiral"] = ",".join(sorted(spiral.split(","), key=order.find)) if spiral else ""
    odd = [f"{key}={config[key]!r}" for key, value in COMMON.items() if config.get(key, value) != value]
    switches: dict[str, Any] = {}
    for key, settings in TRANSLATED.items():
        if given[key] in settings:
            switches |= settings[given[key]]
        else:
            odd.append(f"{key}={given[key]!r}")
    if given["tie_tok_arc_ab"] and switches.get("tokens") == "ellipse":
        switches["tokens"] = "arc"
    sizes = [given.get("tok_dim"), given.get("pos_dim"), given["n_heads"], given.get("head_dim"), given["ffn_dim"]]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        odd.append(f"sizes {sizes}")
    elif given.get("d_model", sizes[0] + sizes[1]) != sizes[0] + sizes[1]:
        odd.append(f"d_model={given['d_model']!r}")
    if not odd:
        token_dim, position_dim, n_heads, head_dim, d_mlp = sizes
        try:
            return MicroAdderOptions(
                token_dim=token_dim,
                position_dim=position_dim,
                n_heads=n_heads,
                head_dim=head_dim,
                qk_dim=given.get("qk_dim") or head_dim,  # 0 or absent means head_dim
                d_mlp=d_mlp,
                out_rank=given["attn_out_rank"] or None,
                early_spiral=switches["norm"] == "separate",  # affects only the initial values
                **switches,
            )
        except UserError as error:
            odd.append(str(error))
    raise UserError(
        f"{source} holds a MicroAdder of another configuration ({', '.join(odd)}), for which there is no weight map."
    )


def stored_places(options: MicroAdderOptions, by_block: bool) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Where each number is stored (our name -> the file's names, which are copies), and what is stored as zero.

    ``special_pos:equals`` is the row of equals in a table of several places.
    """
    attn, ffn = ("blocks.0.attn.", "blocks.0.ffn.") if by_block else ("", "")
    norms = ("blocks.0.ln1", "blocks.0.ln2", "ln_f") if by_block else ("norm1", "norm2", "norm_f")
    norm_weights = tuple(f"{norm}.weight" for norm in norms)
    factored = options.out_rank is not None
    known: dict[str, tuple[str, ...]] = {
        "tok_table": ("tok_emb.weight",),
        "arc_A": ("tok_arc_A", "tok_arc_B") if by_block and options.tokens == "arc" else ("tok_arc_A",),
        "pos_columns": ("digit_pos",),
        "pos_correction_slope": ("pos_corr_slope",),
        "pos_correction_intercept": ("pos_corr_intercept",),
        "pos_z_hi": ("z_hi_pos",),
        "q_angle": (f"{attn}q_phase_angle",),
        "W_qk": (f"{attn}q_proj.weight",) if options.tie_qk else (f"{attn}k_proj.weight",),
        "W_q": (f"{attn}q_proj.weight",),
        "W_v": (f"{attn}v_proj.weight",),
        "W_out": (f"{attn}out_proj.weight",),
        "out_A": (f"{attn}out_proj.A",),
        "out_B": (f"{attn}out_proj.B",),
        "W_head": ("head_proj.weight",),
        "norm_w": norm_weights,
        "norm1_w": norm_weights[:1],
        "norm2_w": norm_weights[1:2],
        "norm_f_w": norm_weights[2:],
    }
    known |= {name: (f"tok_{name}",) for name in ("arc_B", "arc_start", "arc_stride")}
    known |= {
        f"{kind}_{fc}": (f"{ffn}{fc}.{word}",)
        for fc in ("fc1", "fc2")
        for kind, word in (("W", "weight"), ("b", "bias"))
    }
    learned = [name for name in _SPECIALS if getattr(options, name) == "learned"]
    table = {3: "special_pos", 2: "special_pos_learned", 1: "special_pos_equals"}.get(len(learned), "")
    known |= {f"pos_{name}": (f"{table}:{name}",) for name in learned}
    names = [*options.shapes()]
    if options.columns == "spiral" and options.freeze_spiral:
        names += [f"spiral_{name}" for name in ("amp", "phase", "slope", "offset")]
    zeros = (
        {f"_{name}_pos" for name in _SPECIALS if getattr(options, name) == "zero"} if learned else {"_frozen_special"}
    )
    if options.z_hi == "zero":
        zeros.add("z_hi_pos")
    assert factored or "W_out" in names
    return {name: known.get(name, (name,)) for name in names}, zeros


def _take(
    state: Mapping[str, Any], places: Mapping[str, tuple[str, ...]], others: set[str], source: Path
) -> dict[str, Tensor]:
    """Every number once, after a check that copies agree and nothing is missing or left over."""
    expected = {place.partition(":")[0] for copies in places.values() for place in copies} | others
    missing, unknown = expected - state.keys(), {str(key) for key in state.keys() - expected}
    if missing or unknown:
        parts = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        parts += [f"has the unknown {', '.join(sorted(unknown))}"] if unknown else []
        raise UserError(f"{source} {' and '.join(parts)}: its tensors do not agree with its configuration.")
    for name in sorted(expected):
        if not isinstance(state[name], Tensor):
            raise UserError(f"{source} holds a {type(state[name]).__name__} where the tensor {name} should be.")
    for first, *copies in places.values():
        for copy in copies:
            if not _equal(state[first], state[copy]):
                raise UserError(
                    f"{source} stores {first} and {copy}, which should be one tensor, with different values."
                )
    return {key: _row(state, copies[0]) for key, copies in places.items()}


def _row(state: Mapping[str, Tensor], place: str) -> Tensor:
    """A stored tensor, or one row of a table of places."""
    table, _, name = place.partition(":")
    tensor = state[table]
    if not name or tensor.ndim != 2 or len(tensor) == 1:
        return tensor
    row = _SPECIALS.index(name)
    return tensor[row] if row < len(tensor) else tensor


def _as_ours(key: str, tensor: Tensor, wanted: Tensor, options: MicroAdderOptions) -> Tensor:
    """A stored tensor in our shape: without extra axes of length 1, and transposed if the file has [out, in]."""
    if key in ("W_fc2", "W_out") and tensor.ndim == 2:
        return tensor.mT
    squeezed = key.startswith("pos_") or key in ("q_angle", "out_A", "out_B")
    if squeezed and tensor.ndim != wanted.ndim and tensor.numel() == wanted.numel():
        return tensor.reshape(wanted.shape)
    return tensor


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
