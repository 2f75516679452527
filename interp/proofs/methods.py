"""The methods that a one-layer adder can be judged by. Each looks at the weights and says whether it applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.core.model import HookedModel
from interp.core.sites import model_name
from interp.proofs import branching, constant_attention
from interp.proofs.balls import FLOAT32, LARGEST_WEIGHT, REAL, Arithmetic
from interp.proofs.branching import ClassProof, Search
from interp.proofs.columns import Classes, all_classes, numbers_of_problems
from interp.proofs.decision import Decision, Proof, float_margins
from interp.proofs.hunting import hunt
from interp.proofs.one_layer import OneLayerAdder
from interp.proofs.ratio_attention import read_ratio_attention
from interp.proofs.rungs import ArithmeticName
from interp.proofs.watch import watched
from models.errors import UserError, unknown_name

STORED = 1 - 1e-9  # of a lower bound in float64: another order of summation may find it that much lower
UNPROVED = Proof(False, float("nan"), ())
GRID = 33  # points of a class's range where margins are hunted for


class NotApplicable(Exception):
    """Why a method cannot judge a model, in words."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model as a method sees it: classes with their extreme inputs, hunted margins, and how to prove one class.

    Attributes:
        hunted: the smallest margin of each class in float64, on a grid: where to look first, and no bound.
        prove: (class, level) -> :class:`Proof` that its margins are above the level.
        verify: (cuts of all classes, their ranges' ends [n, end], levels, which classes) -> a proof of each, without
            search: whether its margins are above its level on every piece that its cuts make (a level may be NaN, for
            a class of which only problems are counted).
        obstacle: why no class can be proved in this arithmetic (None: they can).
        grid: whether ``hunted`` looked at all of a class's range, and not at single problems.
    """

    classes: Classes
    hunted: Float[np.ndarray, " n"]
    prove: Callable[[int, float], Proof]
    verify: Callable[
        [Sequence[tuple[int, ...]], Int[np.ndarray, "n end"], Sequence[float], Bool[np.ndarray, " n"]], list[Proof]
    ]
    obstacle: str | None = None
    grid: bool = True


@dataclass(frozen=True)
class Method:
    """``read(adder, arithmetic)`` gives a :class:`Case` or raises :class:`NotApplicable`."""

    name: str
    read: Callable[[OneLayerAdder, Arithmetic], Case]


def _constant_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> Case:
    if adder.centred:
        raise NotApplicable("decision functions of one number are bounded for RMS norms, and these are LayerNorms")
    real = constant_attention.read_attention(adder, REAL)
    reason = constant_attention.obstacle(real)
    if reason is not None:
        raise NotApplicable(reason)
    enclosed = constant_attention.read_attention(adder, arithmetic) if arithmetic.unit else real
    classes = all_classes(adder.layout, enclosed.terms)
    hunted = float_margins(adder, enclosed, classes, GRID).min(1)
    decision = Decision(adder, enclosed, arithmetic)
    reason = out_of_range(adder, enclosed) if arithmetic.unit else None

    def prove(index: int, level: float) -> Proof:
        low, high = classes.ends[index].tolist()
        return decision.prove(*_fixed(classes, index), low, high, level)

    def verify(
        cuts: Sequence[tuple[int, ...]], ends: np.ndarray, levels: Sequence[float], chosen: np.ndarray
    ) -> list[Proof]:
        found = [UNPROVED] * len(classes)
        for index in watched(np.flatnonzero(chosen).tolist(), "checking", "class"):
            (low, high), level = ends[index].tolist(), levels[index]
            if level > 0 and decision.verify(*_fixed(classes, index), (low, *cuts[index], high), level):
                found[index] = Proof(True, level, cuts[index])
        return found

    return Case(classes, hunted, prove, verify, reason)


def _fixed(classes: Classes, index: int) -> tuple[int, int, int]:
    """Target, the query's token and the right answer of a class."""
    return int(classes.target[index]), int(classes.token[index]), int(classes.answer[index])


def out_of_range(adder: OneLayerAdder, attention: constant_attention.ScalarAttention) -> str | None:
    """Why rounding cannot be bounded for a model whose attention is read, None if it can."""
    if (reason := weights_out_of_range(adder)) is not None:
        return reason
    return None if np.isfinite(attention.off_direction) else "attention may overflow"


def weights_out_of_range(adder: OneLayerAdder) -> str | None:
    """The bounds on float32's operations are for weights of moderate size; see :mod:`interp.proofs.balls`."""
    weights = [getattr(adder, name) for name in ("W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_U")]
    weights += [adder.ln1, adder.ln2, adder.ln_final, adder.ln1_b, adder.ln2_b, adder.ln_final_b]
    weights += [getattr(adder, name) for name in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U")]
    if max(float(np.abs(w).max()) for w in weights) >= LARGEST_WEIGHT:
        return f"a weight is larger than {LARGEST_WEIGHT:g}, beyond what the bounds on rounding are stated for"
    return None


class _Branches:
    """Proofs by branch and bound: query by query, all of its classes at once."""

    def __init__(self, search: Search, classes: Classes):
        self.search, self.classes, self.numbers = search, classes, numbers_of_problems(classes)
        self.proofs: dict[tuple[int, int], dict[tuple[int, int], ClassProof]] = {}

    def _keys(self, index: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Target and token, carry and total."""
        c = self.classes
        return (int(c.target[index]), int(c.token[index])), (int(c.carry[index]), int(c.total[index]))

    def prove(self, index: int, level: float) -> Proof:
        query, own = self._keys(index)
        if query not in self.proofs:  # the first level asked for is what all are aimed at
            self.proofs[query] = branching.prove(self.search, self.search.query(*query), aim=level)
        proof = self._proof(self.proofs[query][own], index, STORED)
        return proof if proof.lowest > level else replace(proof, proved=False, lowest=float("nan"))

    def verify(
        self, cuts: Sequence[tuple[int, ...]], ends: np.ndarray, levels: Sequence[float], chosen: np.ndarray
    ) -> list[Proof]:
        by_query: dict[tuple[int, int], list[int]] = {}
        for index in np.flatnonzero(chosen).tolist():
            by_query.setdefault(self._keys(index)[0], []).append(index)
        proofs = [UNPROVED] * len(self.classes)
        for query, indices in watched(by_query.items(), "checking", "query", len(by_query)):
            splits = np.array([code for index in indices for code in cuts[index]], dtype=np.int64)
            aims = {self._keys(index)[1]: max(0.0, np.nan_to_num(levels[index])) for index in indices}
            found = branching.prove(self.search, self.search.query(*query), splits, aims)
            for index in indices:
                proofs[index] = self._proof(found.get(self._keys(index)[1]), index, 1.0)
        return proofs

    def _proof(self, found: ClassProof | None, index: int, share: float) -> Proof:
        if found is None:
            return UNPROVED
        counts = (found.certified, found.refuted, found.open)
        if found.certified != self.numbers[index]:
            return Proof(False, float("nan"), found.splits, counts, found.wrong)
        return Proof(True, found.lowest * share, found.splits, counts)


def _branch_and_bound(adder: OneLayerAdder, arithmetic: Arithmetic) -> Case:
    real = read_ratio_attention(adder, REAL)
    if real.obstacle is not None:
        raise NotApplicable(real.obstacle)
    enclosed = read_ratio_attention(adder, arithmetic) if arithmetic.unit else real
    reason = (weights_out_of_range(adder) or enclosed.obstacle) if arithmetic.unit else None
    found = hunt(adder, real)
    branches = _Branches(Search(adder, arithmetic, enclosed), found.classes)
    return Case(found.classes, found.margins, branches.prove, branches.verify, reason, grid=False)


def rung_of(name: str, model: HookedModel, adder: OneLayerAdder) -> Arithmetic:
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


METHODS = (
    Method(constant_attention.NAME, _constant_attention),
    Method("branch and bound over columns", _branch_and_bound),
)


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
