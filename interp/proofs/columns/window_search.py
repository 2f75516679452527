"""Branch and bound: windows of columns are split until all their problems are answered rightly, or all wrongly.

For a leaf (:mod:`interp.proofs.columns.column_windows`), the ratio's extremes along each direction of the attention's
output make a box, and :class:`interp.proofs.columns.lead_enclosure.Downstream` bounds the margins over it. A leaf that
is proved neither right nor wrong is split: first its box in halves, then its window by one more column, on the side
whose columns move attention most. A box forgets how its coordinates depend on each other, and first-order bounds lose
the square of its size; both only cost splits. A leaf stays open if it holds problems of both kinds, if a margin is
smaller than what rounding is allowed to do, or if a limit below is reached first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.proofs.columns.adder_weights import OneLayerAdder
from interp.proofs.columns.column_windows import Leaves, Query
from interp.proofs.columns.lead_enclosure import Regions, downstream_of
from interp.proofs.columns.ratio_attention import RatioAttention, read_ratio_attention
from interp.proofs.columns.small_margins import least_problems
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import roundings
from interp.proofs.verdict.time_limit import check_time

CHUNK = 10_000  # leaves, or parts of their boxes, that are judged at a time
#: How often a leaf's box is halved before its window is split.
HALVINGS = 6
#: Splitting ends at this many columns of a window, and at this many leaves of one query.
LONGEST, MOST_LEAVES = 5, 100_000


@dataclass(frozen=True)
class ClassProof:
    """What was found about one class (target, token, carry, total).

    Attributes:
        lowest: a lower bound of the margins of its proved leaves; inf without such a leaf (NaN where it has to bound
            the whole class and some leaf is not proved).
        certified, refuted, open: numbers of problems, which add up to the class.
        splits: the windows that were split, as :func:`split_codes` writes them. They let the proof be checked without
            a search.
        wrong: one of the refuted problems, or None if there is none.
    """

    lowest: float
    certified: int
    refuted: int
    open: int
    splits: tuple[int, ...]
    wrong: tuple[int, int] | None = None

    @property
    def proved(self) -> bool:
        """Whether ``lowest`` is a positive number."""
        return 0 < self.lowest < np.inf

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.certified, self.refuted, self.open


class Search:
    """Bounds of margins over windows of columns, for one adder in one arithmetic.

    Bounding boxes takes most of the time; ``boxes`` counts them. After more than ``most_boxes``, :meth:`judge` no
    longer halves the boxes of leaves, and what is undecided then stays so.
    """

    def __init__(
        self,
        adder: OneLayerAdder,
        arithmetic: Rounding,
        attention: RatioAttention | None = None,
        most_boxes: int | float = np.inf,
    ):
        self.adder = adder
        self.attention = read_ratio_attention(adder, arithmetic) if attention is None else attention
        self.downstream = downstream_of(adder, arithmetic)
        self.boxes, self.most_boxes = 0, most_boxes

    @property
    def exhausted(self) -> bool:
        """Whether more boxes were bounded than ``most_boxes``."""
        return self.boxes > self.most_boxes

    def query(self, target: int, token: int) -> Query:
        return Query(self.attention, self.adder.layout, target, token)

    def queries(self, target: int) -> Iterator[Query]:
        """One query for each token that can stand where the target is predicted."""
        for token in self.attention.tokens[target]:
            yield self.query(target, token)

    def judge(
        self, query: Query, leaves: Leaves, aim: float | Float[np.ndarray, " n"] = 0.0
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Lower and upper bounds of the margins of each leaf's problems; NaN where there is no bound.

        Precondition: every leaf holds a problem. Postcondition: the margin at the query's target, of every problem of a
        leaf, as the arithmetic computes it, lies between its bounds. ``aim``, not below 0, is the lower bound that is
        worth an effort; halving stops there.
        """
        lower, upper = np.full((2, len(leaves)), np.nan)
        aim = np.broadcast_to(aim, len(leaves))
        for start in range(0, len(leaves), CHUNK):
            rows = slice(start, start + CHUNK)
            boxes = query.box(leaves[rows])
            lower[rows], upper[rows] = self.judge_boxes(query, query.answer(leaves[rows]), *boxes, aim[rows].copy())
        return lower, upper

    def judge_boxes(
        self,
        query: Query,
        answer: Int[np.ndarray, " n"],
        low: Float[np.ndarray, "n r"],
        high: Float[np.ndarray, "n r"],
        aim: Float[np.ndarray, " n"],
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Bounds over boxes. An undecided part of a box is halved along its longest side. Halving stops where it cannot
        help: where the centre of a part is undecided, or another part of the box says the opposite."""
        lower, upper = np.full(len(answer), np.inf), np.full(len(answer), -np.inf)
        owner = np.arange(len(answer))
        for halvings in range(HALVINGS + 1):
            below, above = self.margins(query, answer[owner], low, high)
            settled = (below > aim[owner]) | (above < 0)
            if halvings == HALVINGS or self.exhausted:
                settled[:] = True
            middle = (low[~settled] + high[~settled]) / 2
            at_below, at_above = self.margins(query, answer[owner[~settled]], middle, middle)
            hopeless = np.zeros(len(answer), dtype=bool)
            hopeless[owner[~settled][~((at_below > 0) | (at_above < 0))]] = True
            aim[owner[~settled][~(at_below > aim[owner[~settled]])]] = 0.0  # too high
            right, wrong = (np.zeros(len(answer), dtype=bool) for _ in range(2))
            right[owner[below > 0]] = right[owner[~settled][at_below > 0]] = True
            wrong[owner[above < 0]] = wrong[owner[~settled][at_above < 0]] = True
            settled |= (hopeless | (right & wrong) | (lower <= 0) & (upper >= 0))[owner]
            # A NaN stays once it is there: np.minimum and np.maximum pass it on.
            np.minimum.at(lower, owner[settled], below[settled])
            np.maximum.at(upper, owner[settled], above[settled])
            if settled.all():
                break
            owner, low, high = owner[~settled], low[~settled], high[~settled]
            side = (high - low).argmax(1)[:, None]
            middle = np.take_along_axis((low + high) / 2, side, 1)
            first, second = high.copy(), low.copy()
            np.put_along_axis(first, side, middle, 1)
            np.put_along_axis(second, side, middle, 1)
            owner, low, high = np.tile(owner, 2), np.concatenate((low, second)), np.concatenate((first, high))
        return lower, upper

    def margins(
        self, query: Query, answer: Int[np.ndarray, " n"], low: Float[np.ndarray, "n r"], high: Float[np.ndarray, "n r"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Lower and upper bounds of margins over boxes of attention's coordinates, without halving any.

        Raises:
            TimeUp: the time is up.
        """
        check_time()
        self.boxes += len(answer)
        found = [self.downstream.margins(regions(query, answer[:0], low[:0], high[:0]))]
        for start in range(0, len(answer), CHUNK):
            rows = slice(start, start + CHUNK)
            found.append(self.downstream.margins(regions(query, answer[rows], low[rows], high[rows])))
        lower, upper = (np.concatenate(part) for part in zip(*found, strict=True))
        return lower, upper


def regions(
    query: Query, answer: Int[np.ndarray, " n"], low: Float[np.ndarray, "n r"], high: Float[np.ndarray, "n r"]
) -> Regions:
    """The attention outputs whose coordinates on the basis lie in a box, with the query's error around them."""
    # The sums and products before and below are off by r and a few units of 2^-53, relative to the largest coordinates.
    rounding = (
        roundings(len(query.basis) + 28)
        * np.abs(query.levels).max((0, 2))[: low.shape[1]].sum()
        * np.abs(query.basis).max(0)
    )
    n = len(answer)
    return Regions(
        target=np.full(n, query.target),
        token=np.full(n, query.token),
        answer=answer,
        center=(low + high) / 2 @ query.basis,
        basis=query.basis,
        radius=(high - low) / 2,
        error=np.broadcast_to(query.error + len(query.weights) * rounding, (n, len(query.error))),
    )


def prove(
    search: Search,
    query: Query,
    splits: Int[np.ndarray, " split"] | None = None,
    aim: float | Mapping[tuple[int, int], float] = 0.0,
    most: int = MOST_LEAVES,
) -> dict[tuple[int, int], ClassProof]:
    """Prove, refute or leave open every class of a query (by carry and total).

    Without ``splits``, leaves are judged and open ones split until ``LONGEST`` or ``most`` is reached. With them,
    exactly the leaves named are split, unjudged, and all others judged. ``aim`` is the lower bound of a class to try
    for: by halving boxes and, where there are several heads, whose boxes are loose, by splitting windows as well.

    Postcondition: the leaves that were counted are a partition of the query's problems (a split replaces a leaf by all
    of its extensions by one column); certified are those of leaves with a lower bound above 0, refuted with an upper
    bound below 0. Cost: memory for ``CHUNK`` leaves and the extensions of as many as make one chunk.
    """
    found = _Tally(query)
    stack, judged = [query.roots()], 0
    while stack:
        check_time()
        leaves = stack.pop()
        if splits is None:
            judged += len(leaves)
            lower, upper = search.judge(query, leaves, _aims(query, leaves, aim))
            worth = _aims(query, leaves, aim) if len(query.weights) > 1 else 0.0
            undecided = ~((lower > worth) | (upper < 0))
            may_split = judged < most and leaves.pairs.shape[1] < min(LONGEST, query.rule.digits)
            chosen = undecided if may_split else np.zeros(len(leaves), dtype=bool)
            upwards = np.full(len(leaves), _upwards(query, leaves))
            found.add(leaves[~chosen], lower[~chosen], upper[~chosen])
        else:
            codes = [split_codes(leaves, np.full(len(leaves), up)) for up in (False, True)]
            below, upwards = (np.isin(code, splits) for code in codes)
            below &= leaves.low > 0  # at an end no column is left below, or above
            upwards &= leaves.high < query.rule.digits - 1
            chosen = below | upwards
            rest = leaves[~chosen]
            lower, upper = search.judge(query, rest, _aims(query, rest, aim))
            found.add(leaves[~chosen], lower, upper)
        found.split(leaves[chosen], upwards[chosen])
        for up in (False, True):
            parents = leaves[chosen & (upwards == up)]
            for start in range(0, len(parents), CHUNK // 100):
                some = parents[start : start + CHUNK // 100]
                stack.append(query.above_of(some) if up else query.below_of(some))
    return found.proofs()


def split_codes(leaves: Leaves, upwards: Bool[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """One number for each window that is split; its last digit says whether by the column above (1) or below (0)."""
    return leaves.codes() * 10 + upwards


def _aims(
    query: Query, leaves: Leaves, aim: float | Mapping[tuple[int, int], float]
) -> float | Float[np.ndarray, " n"]:
    if not isinstance(aim, Mapping):
        return aim
    keys = zip(*(x.tolist() for x in query.class_of(leaves)), strict=True)
    return np.array([aim.get(key, 0.0) for key in keys])


def _upwards(query: Query, leaves: Leaves) -> bool:
    """Whether the columns above the window move attention more than those below."""
    if leaves.low == 0 or leaves.high == query.rule.digits - 1:
        return leaves.high < query.rule.digits - 1
    r, middle = query.coords.shape[-1], query.levels.shape[-1] // 2
    # The largest sum along a direction and the largest one against it give the distance between the ends.
    below = query.below[:, leaves.low, :, :, middle]
    below = np.where(np.isfinite(below), below, 0.0).max(1) - query.below[:, 0, 0, :, middle]
    above = query.above[:, leaves.high + 1, :, :, middle]
    above = np.where(np.isfinite(above), above, 0.0).max(1)
    return bool((above[:, :r] + above[:, r : 2 * r]).sum() > (below[:, :r] + below[:, r : 2 * r]).sum())


class _Tally:
    """Counts problems, bounds and splits by class."""

    def __init__(self, query: Query):
        self.query = query
        self.counts: dict[tuple[int, int], list[int]] = {}
        self.lowest: dict[tuple[int, int], float] = {}
        self.splits: dict[tuple[int, int], list[int]] = {}
        self.wrong: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, leaves: Leaves, lower: Float[np.ndarray, " n"], upper: Float[np.ndarray, " n"]) -> None:
        kinds = np.where(lower > 0, 0, np.where(upper < 0, 1, 2))
        problems, outs = self.query.problems(leaves), leaves.carries()[:, -1]
        for key, rows in self._by_class(leaves):
            counts = self.counts.setdefault(key, [0, 0, 0])
            for carry, out in product((0, 1), repeat=2):
                chosen = (leaves.carry[rows] == carry) & (outs[rows] == out)
                numbers = np.bincount(kinds[rows][chosen], minlength=3)
                for kind in range(3):
                    counts[kind] += int(numbers[kind]) * problems[carry][out]
            proved = lower[rows][kinds[rows] == 0]
            self.lowest[key] = min(self.lowest.get(key, np.inf), float(proved.min(initial=np.inf)))
            if key not in self.wrong and (kinds[rows] == 1).any():
                self.wrong[key] = self._problem(leaves[rows[kinds[rows] == 1][:1]])

    def split(self, leaves: Leaves, upwards: Bool[np.ndarray, " n"]) -> None:
        codes = split_codes(leaves, upwards)
        for key, rows in self._by_class(leaves):
            self.splits.setdefault(key, []).extend(codes[rows].tolist())

    def _problem(self, leaves: Leaves) -> tuple[int, int]:
        """A problem of the one leaf given."""
        terms = np.zeros((1, *self.query.weights.shape[1:]))
        a, b = least_problems(self.query, leaves, terms)[0] @ 10 ** np.arange(self.query.rule.digits)
        return int(a), int(b)

    def _by_class(self, leaves: Leaves) -> Iterator[tuple[tuple[int, int], Int[np.ndarray, " m"]]]:
        carry, total = self.query.class_of(leaves)
        classes, index = np.unique(np.stack((carry, total), 1), axis=0, return_inverse=True)
        for row, (c, t) in enumerate(classes.tolist()):
            yield (c, t), np.flatnonzero(index.reshape(-1) == row)

    def proofs(self) -> dict[tuple[int, int], ClassProof]:
        return {
            key: ClassProof(
                self.lowest[key], *counts, splits=tuple(sorted(self.splits.get(key, ()))), wrong=self.wrong.get(key)
            )
            for key, counts in sorted(self.counts.items())
        }
