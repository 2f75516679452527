"""The methods that a one-layer adder can be judged by. Each looks at the weights and says whether it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float

from interp.certificates import constant_attention
from interp.certificates.balls import FLOAT32, LARGEST_WEIGHT, REAL, Arithmetic
from interp.certificates.columns import Classes, all_classes
from interp.certificates.decision import Decision, Proof, float_margins
from interp.certificates.one_layer import OneLayerAdder
from interp.certificates.rungs import ArithmeticName
from interp.sites import model_name
from models.errors import UserError, unknown_name

GRID = 33  # points of a class's range where margins are hunted for


class NotApplicable(Exception):
    """Why a method cannot judge a model, in words."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model as a method sees it: classes with their extreme inputs, hunted margins, and how to prove one class.

    Attributes:
        hunted: the smallest margin of each class in float64, on a grid: where to look first, and no bound.
        prove: (class, level) -> :class:`Proof` that its margins are above the level.
        verify: (class, ends of pieces in order, level) -> whether margins are above the level on every piece.
        obstacle: why no class can be proved in this arithmetic (None: they can).
    """

    classes: Classes
    hunted: Float[np.ndarray, " n"]
    prove: Callable[[int, float], Proof]
    verify: Callable[[int, tuple[int, ...], float], bool]
    obstacle: str | None = None


@dataclass(frozen=True)
class Method:
    """``read(adder, arithmetic)`` gives a :class:`Case` or raises :class:`NotApplicable`."""

    name: str
    read: Callable[[OneLayerAdder, Arithmetic], Case]


def _constant_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> Case:
    if adder.centred:
        raise NotApplicable("its decision function is bounded for RMS norms, and these are LayerNorms")
    real = constant_attention.read_attention(adder, REAL)
    reason = constant_attention.obstacle(real)
    if reason is not None:
        raise NotApplicable(reason)
    enclosed = constant_attention.read_attention(adder, arithmetic) if arithmetic.unit else real
    classes = all_classes(adder.layout, enclosed.terms)
    hunted = float_margins(adder, enclosed, classes, GRID).min(1)
    decision = Decision(adder, enclosed, arithmetic)
    reason = out_of_range(adder, np.isfinite(enclosed.off_direction)) if arithmetic.unit else None

    def prove(index: int, level: float) -> Proof:
        low, high = classes.ends[index].tolist()
        return decision.prove(*_fixed(classes, index), low, high, level)

    def verify(index: int, ends: tuple[int, ...], level: float) -> bool:
        return decision.verify(*_fixed(classes, index), ends, level)

    return Case(classes, hunted, prove, verify, reason)


def _fixed(classes: Classes, index: int) -> tuple[int, int, int]:
    """Target, the query's token and the right answer of a class."""
    return int(classes.target[index]), int(classes.token[index]), int(classes.answer[index])


def out_of_range(adder: OneLayerAdder, attention_is_finite: bool | np.bool_) -> str | None:
    """The bounds on float32's operations are for weights of moderate size; see :mod:`interp.certificates.balls`."""
    weights = [getattr(adder, name) for name in ("W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_U")]
    weights += [adder.ln1, adder.ln2, adder.ln_final]
    weights += [getattr(adder, name) for name in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U")]
    if max(float(np.abs(w).max()) for w in weights) >= LARGEST_WEIGHT:
        return f"a weight is larger than {LARGEST_WEIGHT:g}, beyond what the bounds on rounding are stated for"
    if not attention_is_finite:
        return "attention may overflow"
    return None


def rung_of(name: str, model: Any, adder: OneLayerAdder) -> Arithmetic:
    """The arithmetic of a name, if ``model``, read as ``adder``, can be judged in it.

    Raises:
        UserError: no such arithmetic, or float32 for a model that is not this project's or not in float32.
    """
    rung = arithmetic_of(name)
    if rung.unit:
        if adder.model is not model:
            raise UserError(
                f"float32 rounding is bounded for this project's own forward pass; a {type(model).__name__} can be "
                "judged in 'interval' arithmetic."
            )
        if adder.model.config.dtype != "float32" or adder.model.dtype != torch.float32:
            raise UserError(f"float32 rounding is bounded for float32 models, and this one is in {adder.model.dtype}.")
    return rung


def arithmetic_of(name: str) -> Arithmetic:
    if name not in get_args(ArithmeticName):
        raise unknown_name("arithmetic", name, get_args(ArithmeticName))
    return FLOAT32 if name == "float32" else REAL


METHODS = (Method(constant_attention.NAME, _constant_attention),)


def choose(adder: OneLayerAdder, arithmetic: Arithmetic) -> tuple[str, Case]:
    """The first method that applies, and the model as it sees it.

    Raises:
        UserError: none does; the sentence says why.
    """
    reasons = []
    for method in METHODS:
        try:
            return method.name, method.read(adder, arithmetic)
        except NotApplicable as error:
            reasons.append(str(error))
    raise UserError(f"No method can judge {model_name(adder.model)}: {'; '.join(reasons)}.")
