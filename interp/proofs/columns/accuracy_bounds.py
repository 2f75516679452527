"""``interp.accuracy_bounds``: exact bounds on the share of all pairs that an adder or a subtractor gets right."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Summary, probe
from interp.core.results import Provenance, Result
from interp.core.views import Picture, Points, Series
from interp.proofs.columns.adder_weights import AdderWeights, one_layer_adder, read_adder, require_unchanged
from interp.proofs.columns.class_prover import rounding_of, weights_out_of_range
from interp.proofs.columns.column_rule import SUMS, ColumnRule, over_all_pairs
from interp.proofs.columns.half_spaces import half_space_diagrams
from interp.proofs.columns.pair_counting import Counts, Diagram, count
from interp.proofs.columns.window_search import Search
from interp.proofs.columns.window_verdicts import window_diagrams, window_verdicts
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.verdict.verdict import ArithmeticName
from interp.proofs.verdict.verdict_files import read_fields, written_fields
from models.errors import UserError
from models.number_format import percent
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name

LITTLE = Fraction(1, 10**6)  # a share of wrong pairs below which a bound alone is not worth a sentence
WIDTH = 1e-6  # default distance between the bounds on the share of right pairs
#: All windows of this many columns are judged; then, round by round, at most so many longer ones.
DEPTH, LONGER = 2, (0, 20_000, 100_000)
#: Up to this many boxes get extra effort, at 6 us to 30 us each. Trained models need 20,000 to a million.
MOST_BOXES = 2_000_000
#: A target is refined if it holds more than this share of the open pairs.
SHARE = 0.01
#: One or several diagrams per target. The worst verdict that they give on a pair counts.
Verdicts = Sequence[Sequence[Diagram]]
#: Refinement ends when a round leaves more than this share of the pairs open that the previous round left.
ENOUGH = 0.9


@dataclass(frozen=True, eq=False)
class AccuracyBounds(Result):
    """The exact numbers of pairs, out of all 10^20 (or of what else ``rule`` has), that are proved right, proved wrong,
    and left open.

    A pair is right if its whole answer is: all targets teacher-forced, which is exact match under greedy decoding.

    Attributes:
        arithmetic: what the proofs are about: "interval" (real numbers) or "float32" (the model as it runs).
        method: where the verdicts come from, and how far they were refined.
        requested: the width asked for.
        chains: pairs by the length of their longest chain of carries or borrows, from 0 on.
        targets: pairs by target ("s0" ... "s10", "EOS"), each teacher-forced.
        rule: what is added or subtracted.
    """

    model: str
    fingerprint: str
    arithmetic: ArithmeticName
    method: str
    requested: float
    chains: Counts
    targets: dict[str, Counts]
    seconds: float
    rule: ColumnRule = SUMS

    @property
    def provenance(self) -> Provenance:  # pyright: ignore[reportIncompatibleVariableOverride]
        return over_all_pairs(self.rule, self.arithmetic)

    @property
    def lower(self) -> Fraction:
        """At least this share of all pairs is answered rightly."""
        return Fraction(sum(self.chains.right), self.rule.size)

    @property
    def upper(self) -> Fraction:
        """At most this share of all pairs is answered rightly."""
        return 1 - Fraction(sum(self.chains.wrong), self.rule.size)

    @property
    def width(self) -> Fraction:
        return self.upper - self.lower

    @property
    def reached(self) -> bool:
        """Whether the bounds are as narrow as requested."""
        return self.width <= Fraction(self.requested)

    @property
    def says_little(self) -> bool:
        """Whether no pair is proved right, and fewer than one in a million is known to be wrong."""
        return self.lower == 0 and 1 - self.upper < LITTLE

    def wrong(self) -> str:
        """The share of wrong pairs in words, rounded outwards."""
        low, high = 1 - self.upper, 1 - self.lower
        if self.says_little:
            return "not bounded: no pair is proved right, and hardly any is known to be wrong"
        if high == 0:
            return "right on all pairs"
        if low == high:
            if self.rule.ordered:  # no finite decimal
                return f"wrong on exactly {sum(self.chains.wrong):,} of {self.rule.all_pairs}"
            exact = Decimal(sum(self.chains.wrong)).scaleb(-2 * self.rule.digits)
            if high < Fraction(1, 100):
                return f"wrong on exactly {exact.normalize():f} of all pairs"
            return f"wrong on exactly {(100 * exact).normalize():f}% of all pairs"
        # Print as many digits as it takes to tell the two apart.
        digits = min(2 + max(0, math.ceil(math.log10(high / (high - low)))), 2 * self.rule.digits)
        if low == 0:
            return f"wrong on at most {percent(high, digits, up=True)} of all pairs"
        if high == 1:
            return f"wrong on at least {percent(low, digits)} of all pairs"
        return f"wrong on between {percent(low, digits)} and {percent(high, digits, up=True)} of all pairs"

    def sentence(self) -> str:
        asked = "" if self.reached else f"; the width of {self.requested:g} asked for was not reached"
        worst, counts = max(self.targets.items(), key=lambda item: item[1].wrong[0] + item[1].open[0])
        wrongs = counts.wrong[0] + counts.open[0]
        at = f", most at {worst} (at most {percent(Fraction(wrongs, self.rule.size), 3, up=True)})" if wrongs else ""
        caveat = f"; {self.rule.caveat}" if self.rule.caveat else ""
        return f"{self.model} is {self.wrong()}{at}: {self.method}{asked}{caveat}"

    def to_dataframe(self) -> pd.DataFrame:
        """One row for all pairs, per target and per chain length: exact numbers of pairs, and the share of errors."""
        parts = [("all pairs", "all", *(sum(x) for x in (self.chains.right, self.chains.open, self.chains.wrong)))]
        parts += [("target", name, c.right[0], c.open[0], c.wrong[0]) for name, c in self.targets.items()]
        lengths = zip(self.chains.right, self.chains.open, self.chains.wrong, strict=True)
        parts += [(f"{self.rule.carry} chain", str(length), *numbers) for length, numbers in enumerate(lengths)]
        rows = [
            {
                "part": part, "name": name, "pairs": r + o + w, "right": r, "open": o, "wrong": w,
                "error_low": w / (r + o + w), "error_high": (w + o) / (r + o + w),
            }
            for part, name, r, o, w in parts
            if r + o + w  # no borrow travels through all columns
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def encloses(self, other: AccuracyBounds) -> bool:
        """Whether these bounds follow from ``other``: no count claimed here exceeds the one proved there."""
        mine, theirs = ([x.chains, *x.targets.values()] for x in (self, other))
        if list(self.targets) != list(other.targets):
            return False
        return all(
            len(a.right) == len(b.right) == len(a.wrong) == len(a.open)
            and a.sizes == b.sizes
            and all(x <= y for x, y in zip((*a.right, *a.wrong), (*b.right, *b.wrong), strict=True))
            for a, b in zip(mine, theirs, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """The bounds as JSON. Numbers of pairs are text, as readers of JSON round integers of this size."""
        own = {name: x for name, x in written_fields(self).items() if name != "rule" or self.rule != SUMS}
        return own | {"right_at_least": float(self.lower), "wrong_at_least": float(1 - self.upper)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> AccuracyBounds:
        """The bounds that :meth:`to_dict` wrote. Raises UserError for anything else."""
        try:
            found = read_fields(cls, value, ("rule",))
            if not (math.isfinite(found.requested) and math.isfinite(found.seconds) and found.targets):
                raise ValueError("numbers that are none, or no target")
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"These are no stored accuracy bounds: {error!r}.") from None


# ---- finding them


@probe(
    "On what share of all inputs is it right, between two exact numbers?",
    needs=[one_layer_adder],
    summary=Summary(
        "right on all inputs, at least",
        "share",
        lambda found: Estimate(float(found.lower), note=f"at most {float(found.upper):.6g}"),
        1e-6,
        asked_by=(),
    ),
)
def accuracy_bounds(
    model: HookedModel,
    *,
    tolerance: float = WIDTH,
    arithmetic: ArithmeticName = "interval",
    task: TaskLike | None = None,
) -> AccuracyBounds:
    """Bound the share of all pairs that a one-layer adder or subtractor answers rightly, rigorously from both sides.

    Verdicts (right for certain, wrong for certain, open) are found for sets of pairs, target by target, as finely as it
    takes until open pairs are at most a share ``tolerance``; :func:`interp.proofs.columns.pair_counting.count` counts
    them. Where the last refinement is not enough, the result says so (``reached``); its bounds hold all the same.

    Postcondition: right_at_least <= share of pairs with the right token strictly first at every target <= 1 -
    wrong_at_least, over real numbers ("interval") or for the model as it runs ("float32"). In float32 pairs whose
    margin is within the rounding stay open, however fine the sets are.

    Cost: one CPU thread, 2 to 30 s (:mod:`interp.proofs.columns.half_spaces`); up to a minute for a model that is
    nowhere near an adder, most of whose pairs stay open.

    Args:
        tolerance: how far apart the bounds may be.
        arithmetic: "interval" or "float32"; a grid in floats bounds nothing.

    Raises:
        UserError: a model that no method can judge, a tolerance outside [0, 1], or another arithmetic.
    """
    check_tolerance(tolerance)
    if arithmetic == "float":
        raise UserError("A grid in floats proves no bound on the accuracy; ask for 'interval' or 'float32'.")
    adder = read_adder(model, task)
    found = bounds_of(adder, rounding_of(arithmetic, model, adder), arithmetic, float(tolerance))
    require_unchanged(adder)
    return found


def check_tolerance(tolerance: Any) -> None:
    """Raises UserError for anything but a number from 0 to 1."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= 1:
        raise UserError(f"tolerance is a share of all pairs from 0 to 1, not {tolerance!r}.")


def bounds_of(
    adder: AdderWeights,
    rounding: Rounding,
    arithmetic: ArithmeticName,
    tolerance: float,
    wrong: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> AccuracyBounds:
    """:func:`accuracy_bounds` for weights that were read before. ``wrong``: pairs the model got wrong, by target.

    Raises:
        UserError: attention that cannot be read, or weights beyond the bounds on rounding.
    """
    start = time.perf_counter()
    rule = adder.layout.rule
    method, diagrams, counts = _narrowest(adder, rounding, Fraction(tolerance) * rule.size)
    wrong = wrong or {}
    return AccuracyBounds(
        model=model_name(adder.model),
        fingerprint=adder.fingerprint,
        arithmetic=arithmetic,
        method=method,
        requested=tolerance,
        chains=with_failures(counts, _lengths(adder, {pair for pairs in wrong.values() for pair in pairs})),
        targets={
            rule.label(target): with_failures(count(own, rule), [0] * len(set(wrong.get(target, ()))))
            for target, own in enumerate(diagrams)
        },
        seconds=time.perf_counter() - start,
        rule=rule,
    )


def with_failures(counts: Counts, lengths: Sequence[int]) -> Counts:
    """Count pairs that were seen to fail as wrong rather than open. ``lengths``: the chain length of each such pair.

    Pairs that already count as wrong may be the same ones, so that only what exceeds their number is moved.
    """
    found, open_ = list(counts.wrong), list(counts.open)
    for length in set(lengths):
        more = min(max(0, lengths.count(length) - found[length]), open_[length])
        found[length], open_[length] = found[length] + more, open_[length] - more
    return Counts(counts.right, tuple(open_), tuple(found))


def _lengths(adder: AdderWeights, pairs: Set[tuple[int, int]]) -> list[int]:
    return adder.model.task.chain_length(torch.tensor(sorted(pairs))).tolist() if pairs else []


def _narrowest(adder: AdderWeights, rounding: Rounding, wanted: Fraction) -> tuple[str, Verdicts, Counts]:
    """Refine verdicts on all targets until at most ``wanted`` pairs are open; returns those with the fewest open."""
    best, before = None, math.inf
    for method, diagrams in _refined(adder, rounding):
        counts = count([diagram for own in diagrams for diagram in own], adder.layout.rule, by_chain=True)
        found = sum(counts.open)
        if best is None or found < sum(best[2].open):
            best = method, diagrams, counts
        if found <= wanted or found > ENOUGH * before:
            break
        before = found
    assert best is not None  # there is always a first round
    return best


def _refined(adder: AdderWeights, rounding: Rounding) -> Iterator[tuple[str, Verdicts]]:
    """Yield verdicts that become finer with each round."""
    search, rule = Search(adder, rounding, most_boxes=MOST_BOXES), adder.layout.rule
    reason = search.attention.obstacle
    if reason is None and rounding.unit32:
        reason = weights_out_of_range(adder)
    if reason is not None:
        raise UserError(f"The accuracy of {model_name(adder.model)} cannot be bounded: {reason}.")
    tables = window_verdicts(search, DEPTH)
    best = [[diagram] for diagram in window_diagrams(search, tables, LONGER[0])]
    yield f"windows of {DEPTH} columns", best
    if adder.W_V.shape[0] == 1 and not search.exhausted:
        for apart in (False, True):
            least = SHARE * sum(_open(own, rule) for own in best)
            found = [
                half_space_diagrams(search, i, apart) if _open(own, rule) > least else None
                for i, own in enumerate(best)
            ]
            best = [_closed((own, new or own), rule) for own, new in zip(best, found, strict=True)]
            yield f"windows of {DEPTH} columns, half-spaces of attention", best
    for most in () if search.exhausted else LONGER[1:]:
        longer = [[diagram] for diagram in window_diagrams(search, tables, most)]
        best = [_closed(pair, rule) for pair in zip(best, longer, strict=True)]
        yield f"windows of {DEPTH} columns, half-spaces of attention, up to {most:,} longer windows", best


def _open(diagrams: Sequence[Diagram], rule: ColumnRule) -> int:
    return count(diagrams, rule).open[0]


def _closed(choices: Sequence[Sequence[Diagram]], rule: ColumnRule) -> Sequence[Diagram]:
    """The choice that leaves the fewest pairs open."""
    return min(choices, key=lambda diagrams: _open(diagrams, rule))


@drawing(AccuracyBounds)
def bounds_view(result: AccuracyBounds) -> Picture:
    """Proved bounds on the share of errors, by output digit and by longest carry chain, on a log scale: between two
    bounds, at most an upper bound where no error is proved, and at the foot where none is possible."""
    table = result.to_dataframe()
    low, high = table.error_low.to_numpy(dtype=float), table.error_high.to_numpy(dtype=float)
    positive = np.concatenate((low[low > 0], high[high > 0], [1e-3] * (not (high > 0).any())))
    foot = 10.0 ** (np.floor(np.log10(positive.min())) - 1)
    table["at"] = np.where(low > 0, low, np.where(high > 0, high, foot))
    kinds = {"between": low > 0, "at most": (low <= 0) & (high > 0), "no error is possible": high <= 0}
    views = []
    for part, title, x in (
        ("target", "by output digit", "target, teacher-forced"),
        ("carry chain", "by longest carry chain", "columns the carry travels"),
    ):
        series = []
        for name, chosen in kinds.items():
            rows = table[(table.part == part) & chosen]
            of = Series.of(rows, "name", "at", name, said=("pairs", "wrong", "open"), control=name != "between")
            ends = {"low": rows["at"].to_numpy(), "high": np.maximum(rows.error_high, rows["at"]).to_numpy(float)}
            series += [replace(of, **ends) if name == "between" else of] if len(rows) else []
        y = "" if views else "share of pairs answered wrongly"
        views.append(Points(x, y, title, series, "log"))
    return Picture(views, title=result.sentence(), shared="y")
