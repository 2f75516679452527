"""The configuration of the one transformer: a frozen dataclass with field names as in TransformerLens.

Everything that is *not* a weight is a switch here; everything that is a weight comes from a weight map
(:mod:`models.weight_maps`). The switches cover the five papers:

    MicroAdder            RMS pre-norm, learned positions, dot-product scores with an explicit scale
    456-parameter adder   RMS (or LN) pre-norm, learned positions, erf GELU
    Position Coupling     RMS before *and* after each sublayer with eps outside the root, coupled / rotary /
                          FIRE / no positions, unscaled scores, gated tanh-GELU MLP
    AddLM                 negative-L1 scores, softmax over the top 16 keys, ReLU
    ToyGPT                LN pre / post / none, learned / rotary / no positions, tanh GELU, dropout
    public AdderBoard     rotary angles of any period, query-key norms, fixed biases on scores, "softmax1", a gain in
                          place of the last norm, a layer that is mixed in by a share (docs/board.md)

``attn_window`` belongs to none of them: coupled positions whose heads see only near ids, as the construction of the
Position Coupling paper needs. ``norm_groups`` neither: a circuit in which every reader has a stream of its own
(:func:`interp.circuit_as_model`) normalises these streams apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import product
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from models.calls.argument_kinds import shown
from models.errors import UserError, unknown_name

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
PositionKind = Literal["standard", "coupled", "rotary", "fire", "none"]
ScoreKind = Literal["dot", "neg_l1", "max_plus"]
Dtype = Literal["float32", "float64", "bfloat16", "float16"]


#: Switches that came later, with the values that turn them off. They are not stored for a model that does not use them.
LATER: dict[str, Any] = {
    "d_vocab_out": None,
    "rotary_scaling_factor": 1.0,
    "rotary_dim": None,
    "rotary_frequencies": None,
    "parallel_attn_mlp": False,
    "use_qk_norm": False,
    "attn_bias": False,
    "attn_softmax": "softmax",
    "final_gain": False,
    "layer_mix": False,
    "attn_window": None,
    "norm_groups": 1,
}


@cache
def _choices(cls: type) -> dict[str, tuple[Any, ...]]:
    """The fields of a class that are Literals (or None), with their values. Cached, as type hints are slow to read."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        parts = get_args(hint) if NoneType in get_args(hint) else (hint,)
        literals = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
        if literals:
            found[name] = (*literals, None) if NoneType in parts else tuple(literals)
    return found


def check_choices(options: Any) -> None:
    """Raise a UserError, with the closest match, if a Literal field of a dataclass has a value that is not allowed."""
    for name, choices in _choices(type(options)).items():
        value = getattr(options, name)
        if not isinstance(value, (str, int, NoneType)) or value not in choices:
            raise unknown_name(name, value if isinstance(value, str) else shown(value), map(str, choices))


#: What a field of a type takes, in words; NumPy's numbers count as Python's.
_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a finite number"),
}


@cache
def _numbers(cls: type) -> dict[str, tuple[type, bool]]:
    """The fields of a class that are a bool, an int or a float, each with whether it may be None."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        parts = {hint, *get_args(hint)}
        kind = next((part for part in parts if part in _KINDS), None)
        if kind is not None and parts - {hint} <= {kind, NoneType}:
            found[name] = (kind, NoneType in parts)
    return found


def check_numbers(options: Any) -> None:
    """Check that each bool, int and float field of a frozen dataclass holds one, and make NumPy's numbers Python's.

    Raises:
        UserError: it holds something else, or a number that is not finite.
    """
    for name, (kind, optional) in _numbers(type(options)).items():
        value = getattr(options, name)
        if (optional and value is None) or (type(value) is kind and (kind is not float or math.isfinite(value))):
            continue
        abstract, words = _KINDS[kind]
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(options, name, value)
        right = isinstance(value, abstract) and isinstance(value, bool) == (kind is bool)
        if not right or not math.isfinite(value):  # a whole number where a float is meant stays one
            raise UserError(f"{name} must be {words}, not {shown(value)}.")


@dataclass(frozen=True)
class TransformerConfig:
    """Shape and switches of a decoder.

    ``d_head`` is the width of values and of queries and keys; a weight map whose queries are narrower pads
    with zero columns and states the scale of the scores in ``attn_scale`` (MicroAdder: 4 of 5 columns used,
    ``attn_scale=2``), so that every model keeps TransformerLens' shapes.
    """

    n_layers: int
    d_model: int
    n_heads: int
    d_head: int
    d_mlp: int
    d_vocab: int
    n_ctx: int
    act_fn: Activation = "gelu"  # "gelu" is exact (erf), "gelu_new" the tanh approximation
    gated_mlp: bool = False
    normalization_type: Literal["LN", "RMS"] | None = "RMS"
    # "post" normalises the residual stream itself, after the sum; "none" leaves only the final norm
    norm_placement: Literal["pre", "post", "both", "none"] = "pre"
    norm_eps_outside: bool = False  # x / (rms + eps) instead of x / sqrt(rms^2 + eps)
    eps: float = 1e-5
    final_norm: bool = True
    positional_embedding_type: PositionKind = "standard"
    n_position_levels: int = 1  # coupled positions: one table per level, looked up by the task's position ids
    n_position_ids: int | None = None  # rows of each of those tables, id 0 included; None means n_ctx
    rotary_base: float = 10000.0
    rotary_adjacent_pairs: bool = True  # interleaved pairs (GPT-J); False pairs the two halves (NeoX)
    fire_c: float = 0.1
    fire_L0: float = 256.0
    fire_normaliser: Literal["max", "min"] = "max"  # FIRE's definition has max; the public code has min
    rotary_scaling_factor: float = 1.0  # positions are divided by it before they are turned into angles
    rotary_dim: int | None = None  # how many of a head's dimensions are rotated, the first ones; None means all
    rotary_frequencies: tuple[float, ...] | None = None  # radians per position of each pair, in place of rotary_base
    parallel_attn_mlp: bool = False  # the MLP reads what attention reads, as in GPT-NeoX
    use_qk_norm: bool = False  # queries and keys of each head go through RMS norms, before rotation
    attn_bias: bool = False  # each layer adds fixed numbers ``attn.bias`` to its scores, -inf where a key is hidden
    attn_softmax: Literal["softmax", "softmax1"] = "softmax"  # softmax1: exp(s) / (1 + sum exp(s))
    final_gain: bool = False  # without norms: the last residual stream times ``ln_final.w``, entry by entry
    norm_groups: int = 1  # RMS norms: every group of d_model / norm_groups entries is normalised by itself
    layer_mix: bool = False  # a layer returns x + mix (layer(x) - x), with a number ``mix`` of its own
    attn_scores: ScoreKind = "dot"
    attn_scale: float | None = None  # scores are divided by this; None means sqrt(d_head), 1.0 means unscaled
    attn_top_k: int | None = None  # softmax over the k best keys only (ties keep more)
    #: Coupled positions: see only keys whose ids are at most this far away in each level, or at these offsets of ids.
    attn_window: int | tuple[tuple[int, ...], ...] | None = None
    d_vocab_out: int | None = None  # how many tokens are predicted, if they differ from those that are read
    dropout: float = 0.0  # in training mode only: embeddings, patterns and sublayer outputs
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self)
        for name in (
            "n_layers",
            "d_model",
            "n_heads",
            "d_head",
            "d_vocab",
            "n_ctx",
            "n_position_levels",
            "norm_groups",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("d_vocab_out", "attn_top_k", "n_position_ids"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1 where it is given, not {getattr(self, name)}.")
        if self.d_model % self.norm_groups:
            raise UserError(f"d_model {self.d_model} cannot be split into norm_groups={self.norm_groups}.")
        if self.norm_groups > 1 and self.normalization_type != "RMS":
            raise UserError(f"norm_groups are for RMS norms, not {self.normalization_type!r}.")
        if self.d_mlp < 0:
            raise UserError(f"d_mlp must be 0 (no MLPs) or more, not {self.d_mlp}.")
        if self.eps < 0:
            raise UserError(f"eps must be 0 or more, not {self.eps}.")
        for name in ("attn_scale", "rotary_base", "rotary_scaling_factor", "fire_c", "fire_L0"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise UserError(f"{name} must be positive, not {getattr(self, name)}.")
        if self.positional_embedding_type == "rotary" and self.d_head % 2:
            raise UserError(f"Rotary positions need an even d_head, not {self.d_head}.")
        turned = self.rotated
        if self.positional_embedding_type == "rotary" and (not 1 < turned <= self.d_head or turned % 2):
            raise UserError(f"rotary_dim must be even and between 2 and d_head, not {self.rotary_dim}.")
        if self.rotary_frequencies is not None:
            if not isinstance(self.rotary_frequencies, (list, tuple)):
                raise UserError(f"rotary_frequencies are numbers in a tuple, not {shown(self.rotary_frequencies)}.")
            object.__setattr__(self, "rotary_frequencies", tuple(self.rotary_frequencies))  # JSON has lists
            if len(self.rotary_frequencies) != turned // 2 or not all(
                isinstance(each, Real) and math.isfinite(each) for each in self.rotary_frequencies
            ):
                raise UserError(f"rotary_frequencies are {turned // 2} finite numbers, one per rotated pair.")
        if self.final_gain and self.normalization_type is not None:
            raise UserError("final_gain is for models without norms; with norms, the last one has a gain.")
        self._check_window()
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"dropout must be in [0, 1), not {self.dropout}.")

    def _check_window(self) -> None:
        window, levels = self.attn_window, self.n_position_levels
        if window is None:
            return
        if self.positional_embedding_type != "coupled":
            raise UserError("attn_window tells how far position ids are apart: it needs coupled positions.")
        if isinstance(window, int):
            if window < 0:
                raise UserError(f"attn_window is a distance, and not negative as {window}.")
            return
        window = tuple(tuple(offset) for offset in window)  # JSON has lists
        object.__setattr__(self, "attn_window", window)
        if (0,) * levels not in window or any(len(offset) != levels for offset in window):
            raise UserError(
                f"attn_window as offsets of ids has {levels} for each, one per level, and {(0,) * levels} among them: "
                "a token sees itself."
            )

    @property
    def window_offsets(self) -> tuple[tuple[int, ...], ...]:
        """The ids of the keys that ``attn_window`` shows, minus the query's. Empty without a window."""
        if self.attn_window is None or not isinstance(self.attn_window, int):
            return self.attn_window or ()
        return tuple(product(range(-self.attn_window, self.attn_window + 1), repeat=self.n_position_levels))

    @property
    def later_switches(self) -> tuple[str, ...]:
        """The later switches (used by none of the papers) that are on. Fast paths that do not list them refuse them."""
        return tuple(k for k, off in LATER.items() if k != "d_vocab_out" and getattr(self, k) != off)

    @property
    def rotated(self) -> int:
        """How many dimensions of a head rotary positions turn."""
        return self.d_head if self.rotary_dim is None else self.rotary_dim

    @property
    def score_scale(self) -> float:
        """What attention scores are divided by."""
        return math.sqrt(self.d_head) if self.attn_scale is None else self.attn_scale

    @property
    def position_rows(self) -> int:
        """How many rows a table of learned positions has."""
        return self.n_ctx if self.n_position_ids is None else self.n_position_ids

    @property
    def has_pre_norm(self) -> bool:
        return self.normalization_type is not None and self.norm_placement in ("pre", "both")

    @property
    def has_post_norm(self) -> bool:
        return self.normalization_type is not None and self.norm_placement in ("post", "both")

    @property
    def has_final_norm(self) -> bool:
        """Whether there is a last norm, or a gain in its place."""
        return self.final_gain or (self.final_norm and self.normalization_type is not None)

    @property
    def residual_stream_adds_up(self) -> bool:
        """Whether embeddings and sublayer outputs sum to the last residual stream (false with post-norm or a mix)."""
        return not self.has_post_norm and not self.layer_mix

    @property
    def n_logits(self) -> int:
        """How many tokens are predicted."""
        return self.d_vocab if self.d_vocab_out is None else self.d_vocab_out

    def to_dict(self) -> dict[str, Any]:
        """The config as JSON, with later switches only where they are set, so that older fingerprints stay valid."""
        return {name: value for name, value in asdict(self).items() if name not in LATER or value != LATER[name]}

    def replace(self, **changes: Any) -> TransformerConfig:
        return replace(self, **changes)


#: Any value of a field, in a table of what a formula covers.
ANY = object()
#: Fields that change no formula: sizes, precision, and numbers that belong to a switch of their own.
PLAIN: dict[str, Any] = dict.fromkeys(
    (
        "n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "d_vocab_out", "n_ctx", "n_position_levels",
        "n_position_ids", "rotary_base", "rotary_adjacent_pairs", "fire_c", "fire_L0", "fire_normaliser", "eps",
        "attn_scale", "dropout", "dtype",
    ),
    ANY,
)  # fmt: skip


def uncovered(cfg: Any, covers: Mapping[str, Any]) -> list[str]:
    """The switches of a config that a formula does not cover, as "name=value".

    ``covers`` has the values that it knows by field, or :data:`ANY`. A field that it does not name must have its
    default, so that a switch that is added later is refused wherever nobody has looked at it.
    """
    found = []
    for field in fields(cfg):
        known, value = covers.get(field.name, (field.default,)), getattr(cfg, field.name)
        if known is not ANY and value not in known:
            found.append(f"{field.name}={value!r}")
    return found
