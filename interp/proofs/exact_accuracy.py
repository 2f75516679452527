"""``interp.accuracy_bounds``: a rigorous lower and upper bound on the share of all 10^20 pairs that are right."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

import torch

from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.sites import model_name
from interp.proofs import constant_attention
from interp.proofs.accuracy_bounds import PAIRS, AccuracyBounds
from interp.proofs.balls import REAL, Arithmetic
from interp.proofs.branching import Search
from interp.proofs.counting import Counts, Diagram, count
from interp.proofs.half_spaces import half_space_diagrams
from interp.proofs.methods import NotApplicable, out_of_range, rung_of, weights_out_of_range
from interp.proofs.one_layer import OneLayerAdder, read_adder
from interp.proofs.rungs import ArithmeticName
from interp.proofs.scalar_verdicts import ScalarVerdicts
from interp.proofs.window_diagrams import window_diagrams
from interp.proofs.windows import window_verdicts
from models.errors import UserError
from models.tasks.addition import DIGITS, FixedWidthAddition

WIDTH = 1e-6  # of the bounds on the share of right pairs, by default
#: How finely the attention scalar is told apart (method 1), round by round.
FINENESS = (2.0**-6, 2.0**-12, 2.0**-18)
#: Columns of the windows that are all judged (other methods), and how many longer ones, by round.
DEPTH, LONGER = 2, (0, 20_000, 100_000)
#: A target is looked at again if it holds more than this share of what is open.
SHARE = 0.01
#: Of each target one diagram or several: the worst of what they say of a pair holds.
Verdicts = Sequence[Sequence[Diagram]]
#: A way is given up where a round leaves more than this share of the pairs open that the one before did.
ENOUGH = 0.9


@probe("On what share of all inputs is it right, between two exact numbers?", needs=[task_of(FixedWidthAddition)])
def accuracy_bounds(
    model: HookedModel, *, width: float = WIDTH, arithmetic: ArithmeticName = "interval", task: Any = None
) -> AccuracyBounds:
    """Bound the share of all 10^20 pairs that a one-layer adder answers rightly, rigorously from both sides.

    Verdicts (right for certain, wrong for certain, open) are found for sets of pairs, target by target, as finely as it
    takes until open pairs are at most a share ``width``; :func:`interp.proofs.counting.count` counts them. Where
    the last refinement is not enough, the result says so (``reached``); its bounds hold all the same.

    Postcondition: right_at_least <= share of pairs with the right token strictly first at every target <= 1 -
    wrong_at_least, over real numbers ("interval") or for the model as it runs ("float32"). In float32 pairs whose
    margin is within the rounding stay open, however fine the sets are.

    Cost: one CPU thread, 1 to 2 s in intervals and 4 s with rounding where attention is constant; up to a minute where
    it depends on tokens (:mod:`interp.proofs.half_spaces`).

    Args:
        width: how far apart the bounds may be.
        arithmetic: "interval" or "float32"; a grid in floats bounds nothing.

    Raises:
        UserError: a model that no method can judge, a width outside [0, 1], or another arithmetic.
    """
    check_width(width)
    if arithmetic == "float":
        raise UserError("A grid in floats proves no bound on the accuracy; ask for 'interval' or 'float32'.")
    adder = read_adder(model, task)
    try:
        return bounds_of(adder, rung_of(arithmetic, model, adder), arithmetic, float(width))
    except NotApplicable as error:
        raise UserError(f"The accuracy of {model_name(model)} cannot be bounded: {error}.") from None


def check_width(width: Any) -> None:
    """Raises UserError for anything but a number from 0 to 1."""
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0 <= width <= 1:
        raise UserError(f"width is a share of all pairs from 0 to 1, not {width!r}.")


def bounds_of(
    adder: OneLayerAdder,
    rung: Arithmetic,
    arithmetic: ArithmeticName,
    width: float,
    wrong: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> AccuracyBounds:
    """The same for weights that were read. ``wrong``: pairs that the model itself got wrong, by target.

    Raises:
        NotApplicable: no method bounds this model's accuracy.
    """
    start = time.perf_counter()
    method, diagrams, counts = _narrowest(adder, rung, Fraction(width) * PAIRS)
    names = [f"s{i}" for i in range(DIGITS + 1)] + ["EOS"]
    wrong = wrong or {}
    return AccuracyBounds(
        model=model_name(adder.model),
        fingerprint=adder.fingerprint,
        arithmetic=arithmetic,
        method=method,
        requested=width,
        chains=with_failures(counts, _lengths(adder, {pair for pairs in wrong.values() for pair in pairs})),
        targets={
            name: with_failures(count(own), [0] * len(set(wrong.get(target, ()))))
            for target, (name, own) in enumerate(zip(names, diagrams, strict=False))
        },
        seconds=time.perf_counter() - start,
    )


def with_failures(counts: Counts, lengths: Sequence[int]) -> Counts:
    """Counts in which different pairs that were seen to fail (by chain length) are wrong, and no longer open.

    Those that are counted as wrong already may be the same ones.
    """
    found, open_ = list(counts.wrong), list(counts.open)
    for length in set(lengths):
        more = min(max(0, lengths.count(length) - found[length]), open_[length])
        found[length], open_[length] = found[length] + more, open_[length] - more
    return Counts(counts.right, tuple(open_), tuple(found))


def _lengths(adder: OneLayerAdder, pairs: Set[tuple[int, int]]) -> list[int]:
    return adder.model.task.chain_length(torch.tensor(sorted(pairs))).tolist() if pairs else []


def _narrowest(adder: OneLayerAdder, rung: Arithmetic, wanted: Fraction) -> tuple[str, Verdicts, Counts]:
    """Verdicts on all targets with at most ``wanted`` open pairs, or with the fewest that were found.

    Raises:
        NotApplicable: no way leads to verdicts on this model.
    """
    reasons, best = [], None
    for way in (_by_scalar, _by_windows):
        before = math.inf
        try:
            for method, diagrams in way(adder, rung):
                counts = count([diagram for own in diagrams for diagram in own], by_chain=True)
                found = sum(counts.open)
                if best is None or found < sum(best[2].open):
                    best = method, diagrams, counts
                if found <= wanted:
                    return best
                if found > ENOUGH * before:
                    break
                before = found
        except NotApplicable as error:
            reasons.append(str(error))
    if best is None:
        raise NotApplicable("; ".join(reasons))
    return best


def _by_scalar(adder: OneLayerAdder, rung: Arithmetic) -> Iterator[tuple[str, Verdicts]]:
    if adder.centred:
        raise NotApplicable("its decision function is bounded for RMS norms, and these are LayerNorms")
    reason = constant_attention.obstacle(constant_attention.read_attention(adder, REAL))
    if reason is not None:
        raise NotApplicable(reason)
    attention = constant_attention.read_attention(adder, rung)
    if rung.unit and (reason := out_of_range(adder, attention)) is not None:
        raise NotApplicable(reason)
    verdicts = ScalarVerdicts(adder, attention, rung)
    for fineness in FINENESS:
        found = [[diagram] for diagram in verdicts.diagrams(fineness)]
        yield f"{constant_attention.NAME}, attention told apart to {fineness:.1g}", found


def _by_windows(adder: OneLayerAdder, rung: Arithmetic) -> Iterator[tuple[str, Verdicts]]:
    search = Search(adder, rung)
    reason = search.attention.obstacle
    if reason is None and rung.unit:
        reason = weights_out_of_range(adder)
    if reason is not None:
        raise NotApplicable(reason)
    tables = window_verdicts(search, DEPTH)
    best = [[diagram] for diagram in window_diagrams(search, tables, LONGER[0])]
    yield f"windows of {DEPTH} columns", best
    if search.adder.W_V.shape[0] == 1:
        for apart in (False, True):
            least = SHARE * sum(_open(own) for own in best)
            found = [
                half_space_diagrams(search, i, apart) if _open(own) > least else None for i, own in enumerate(best)
            ]
            best = [min((own, new or own), key=_open) for own, new in zip(best, found, strict=True)]
            yield f"windows of {DEPTH} columns, half-spaces of attention", best
    for most in LONGER[1:]:
        longer = [[diagram] for diagram in window_diagrams(search, tables, most)]
        best = [min(pair, key=_open) for pair in zip(best, longer, strict=True)]
        yield f"windows of {DEPTH} columns, half-spaces of attention, up to {most:,} longer windows", best


def _open(diagrams: Sequence[Diagram]) -> int:
    return count(diagrams).open[0]
