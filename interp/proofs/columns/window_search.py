"""Branch and bound: windows of columns are split until all their problems are answered rightly, or all wrongly.

For a window (:mod:`interp.proofs.columns.column_windows`), the ratio's extremes along each direction of the attention's
output make a box, and :class:`interp.proofs.columns.lead_enclosure.LeadEnclosure` bounds the margins over it. A window
that is proved neither right nor wrong is split: first its box in halves, then its window by one more column, on the
side whose columns move attention most. A box forgets how its coordinates depend on each other, and first-order bounds
lose the square of its size; both only cost splits. A window stays open if it holds problems of both kinds, if a margin
is smaller than what rounding is allowed to do, or if a limit below is reached first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.lead_enclosure import Regions, downstream_of
from interp.proofs.columns.ratio_attention import RatioAttention, read_ratio_attention
from interp.proofs.columns.small_margins import least_problems
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import roundings
from interp.proofs.verdict.time_limit import check_time

CHUNK = 10_000  # windows, or parts of their boxes, that are judged at a time
#: How often a window's box is halved before its window is split.
HALVINGS = 6
#: Splitting ends at this many columns of a window, and at this many windows of one query.
LONGEST, MOST_WINDOWS = 5, 100_000


@dataclass(frozen=True)
class ClassProof:
    """What was found about one class (target, token, carry, total).

    Attributes:
        lowest: a lower bound of the margins of its proved windows; inf without such a window (NaN where it has to bound
            the whole class and some window is not proved).
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

    Bounding boxes takes most of the time; ``boxes`` counts them. After more than ``most_boxes``,
    :meth:`bounds_of_windows` no longer halves the boxes of windows, and what is undecided then stays so.
    """

    def __init__(
        self,
        adder: AdderWeights,
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

    def query(self, target: int, token: int) -> WindowBounds:
        return WindowBounds(self.attention, self.adder.layout, target, token)

    def queries(self, target: int) -> Iterator[WindowBounds]:
        """One query for each token that can stand where the target is predicted."""
        for token in self.attention.tokens[target]:
            yield self.query(target, token)

    def bounds_of_windows(
        self, query: WindowBounds, windows: Windows, target_margin: float | Float[np.ndarray, " n"] = 0.0
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Lower and upper bounds of the margins of each window's problems. A bound that does not exist is NaN.

        Precondition: every window holds a problem. Postcondition: the margin at the query's target, of every problem of
        a window, as the arithmetic computes it, lies between its bounds. ``target_margin``, not below 0, is the lower
        bound that is worth an effort; halving stops there.
        """
        lower, upper = np.full((2, len(windows)), np.nan)
        target_margin = np.broadcast_to(target_margin, len(windows))
        for start in range(0, len(windows), CHUNK):
            rows = slice(start, start + CHUNK)
            boxes = query.box(windows[rows])
            lower[rows], upper[rows] = self.bounds_of_boxes(
                query, query.answer(windows[rows]), *boxes, target_margin[rows].copy()
            )
        return lower, upper

    def bounds_of_boxes(
        self,
        query: WindowBounds,
        answer: Int[np.ndarray, " n"],
        low: Float[np.ndarray, "n r"],
        high: Float[np.ndarray, "n r"],
        target_margin: Float[np.ndarray, " n"],
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Bounds over boxes. An undecided part of a box is halved along its longest side. Halving stops where it cannot
        help: where the centre of a part is undecided, or another part of the box says the opposite."""
        lower, upper = np.full(len(answer), np.inf), np.full(len(answer), -np.inf)
        owner = np.arange(len(answer))
        for halvings in range(HALVINGS + 1):
            below, above = self.bounds_without_halving(query, answer[owner], low, high)
            decided = (below > target_margin[owner]) | (above < 0)
            if halvings == HALVINGS or self.exhausted:
                decided[:] = True
            middle = (low[~decided] + high[~decided]) / 2
            at_below, at_above = self.bounds_without_halving(query, answer[owner[~decided]], middle, middle)
            cannot_improve = np.zeros(len(answer), dtype=bool)
            cannot_improve[owner[~decided][~((at_below > 0) | (at_above < 0))]] = True
            target_margin[owner[~decided][~(at_below > target_margin[owner[~decided]])]] = 0.0  # too high
            right, wrong = (np.zeros(len(answer), dtype=bool) for _ in range(2))
            right[owner[below > 0]] = right[owner[~decided][at_below > 0]] = True
            wrong[owner[above < 0]] = wrong[owner[~decided][at_above < 0]] = True
            decided |= (cannot_improve | (right & wrong) | (lower <= 0) & (upper >= 0))[owner]
            # A NaN stays once it is there: np.minimum and np.maximum pass it on.
            np.minimum.at(lower, owner[decided], below[decided])
            np.maximum.at(upper, owner[decided], above[decided])
            if decided.all():
                break
            owner, low, high = owner[~decided], low[~decided], high[~decided]
            side = (high - low).argmax(1)[:, None]
            middle = np.take_along_axis((low + high) / 2, side, 1)
            first, second = high.copy(), low.copy()
            np.put_along_axis(first, side, middle, 1)
            np.put_along_axis(second, side, middle, 1)
            owner, low, high = np.tile(owner, 2), np.concatenate((low, second)), np.concatenate((first, high))
        return lower, upper

    def bounds_without_halving(
        self,
        query: WindowBounds,
        answer: Int[np.ndarray, " n"],
        low: Float[np.ndarray, "n r"],
        high: Float[np.ndarray, "n r"],
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
    query: WindowBounds, answer: Int[np.ndarray, " n"], low: Float[np.ndarray, "n r"], high: Float[np.ndarray, "n r"]
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


def prove_query(
    search: Search,
    query: WindowBounds,
    splits: Int[np.ndarray, " split"] | None = None,
    target_margin: float | Mapping[tuple[int, int], float] = 0.0,
    most: int = MOST_WINDOWS,
) -> dict[tuple[int, int], ClassProof]:
    """Prove, refute or leave open every class of a query (by carry and total).

    Without ``splits``, windows are bounded and open ones split until ``LONGEST`` or ``most`` is reached. With them,
    exactly the windows named are split, unjudged, and all others judged. ``target_margin`` is the lower bound of a
    class to try for: by halving boxes and, where there are several heads, whose boxes are loose, by splitting windows
    as well.

    Postcondition: the windows that were counted are a partition of the query's problems (a split replaces a window by
    all of its extensions by one column); certified are those of windows with a lower bound above 0, refuted with an
    upper bound below 0. Cost: memory for ``CHUNK`` windows and the extensions of as many as make one chunk.
    """
    found = _Tally(query)
    stack, judged = [query.unsplit_windows()], 0
    while stack:
        check_time()
        windows = stack.pop()
        if splits is None:
            judged += len(windows)
            lower, upper = search.bounds_of_windows(query, windows, _target_margins(query, windows, target_margin))
            worth = _target_margins(query, windows, target_margin) if len(query.weights) > 1 else 0.0
            undecided = ~((lower > worth) | (upper < 0))
            may_split = judged < most and windows.pairs.shape[1] < min(LONGEST, query.rule.digits)
            chosen = undecided if may_split else np.zeros(len(windows), dtype=bool)
            upwards = np.full(len(windows), _upwards(query, windows))
            found.add(windows[~chosen], lower[~chosen], upper[~chosen])
        else:
            codes = [split_codes(windows, np.full(len(windows), up)) for up in (False, True)]
            below, upwards = (np.isin(code, splits) for code in codes)
            below &= windows.low > 0  # at an end no column is left below, or above
            upwards &= windows.high < query.rule.digits - 1
            chosen = below | upwards
            rest = windows[~chosen]
            lower, upper = search.bounds_of_windows(query, rest, _target_margins(query, rest, target_margin))
            found.add(windows[~chosen], lower, upper)
        found.split(windows[chosen], upwards[chosen])
        for up in (False, True):
            parents = windows[chosen & (upwards == up)]
            for start in range(0, len(parents), CHUNK // 100):
                some = parents[start : start + CHUNK // 100]
                stack.append(query.above_of(some) if up else query.below_of(some))
    return found.proofs()


def split_codes(windows: Windows, upwards: Bool[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """One number for each window that is split; its last digit says whether by the column above (1) or below (0)."""
    return windows.codes() * 10 + upwards


def _target_margins(
    query: WindowBounds, windows: Windows, target_margin: float | Mapping[tuple[int, int], float]
) -> float | Float[np.ndarray, " n"]:
    if not isinstance(target_margin, Mapping):
        return target_margin
    keys = zip(*(x.tolist() for x in query.class_of(windows)), strict=True)
    return np.array([target_margin.get(key, 0.0) for key in keys])


def _upwards(query: WindowBounds, windows: Windows) -> bool:
    """Whether the columns above the window move attention more than those below."""
    if windows.low == 0 or windows.high == query.rule.digits - 1:
        return windows.high < query.rule.digits - 1
    r, middle = query.coords.shape[-1], query.levels.shape[-1] // 2
    # The largest sum along a direction and the largest one against it give the distance between the ends.
    below = query.below[:, windows.low, :, :, middle]
    below = np.where(np.isfinite(below), below, 0.0).max(1) - query.below[:, 0, 0, :, middle]
    above = query.above[:, windows.high + 1, :, :, middle]
    above = np.where(np.isfinite(above), above, 0.0).max(1)
    return bool((above[:, :r] + above[:, r : 2 * r]).sum() > (below[:, :r] + below[:, r : 2 * r]).sum())


class _Tally:
    """Counts problems, bounds and splits by class."""

    def __init__(self, query: WindowBounds):
        self.query = query
        self.counts: dict[tuple[int, int], list[int]] = {}
        self.lowest: dict[tuple[int, int], float] = {}
        self.splits: dict[tuple[int, int], list[int]] = {}
        self.wrong: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, windows: Windows, lower: Float[np.ndarray, " n"], upper: Float[np.ndarray, " n"]) -> None:
        kinds = np.where(lower > 0, 0, np.where(upper < 0, 1, 2))
        problems, outs = self.query.problems(windows), windows.carries()[:, -1]
        for key, rows in self._by_class(windows):
            counts = self.counts.setdefault(key, [0, 0, 0])
            for carry, out in product((0, 1), repeat=2):
                chosen = (windows.carry[rows] == carry) & (outs[rows] == out)
                numbers = np.bincount(kinds[rows][chosen], minlength=3)
                for kind in range(3):
                    counts[kind] += int(numbers[kind]) * problems[carry][out]
            proved = lower[rows][kinds[rows] == 0]
            self.lowest[key] = min(self.lowest.get(key, np.inf), float(proved.min(initial=np.inf)))
            if key not in self.wrong and (kinds[rows] == 1).any():
                self.wrong[key] = self._problem(windows[rows[kinds[rows] == 1][:1]])

    def split(self, windows: Windows, upwards: Bool[np.ndarray, " n"]) -> None:
        codes = split_codes(windows, upwards)
        for key, rows in self._by_class(windows):
            self.splits.setdefault(key, []).extend(codes[rows].tolist())

    def _problem(self, windows: Windows) -> tuple[int, int]:
        """A problem of the one window given."""
        terms = np.zeros((1, *self.query.weights.shape[1:]))
        a, b = least_problems(self.query, windows, terms)[0] @ 10 ** np.arange(self.query.rule.digits)
        return int(a), int(b)

    def _by_class(self, windows: Windows) -> Iterator[tuple[tuple[int, int], Int[np.ndarray, " m"]]]:
        carry, total = self.query.class_of(windows)
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
