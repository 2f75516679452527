"""Count pairs by one linear functional of what attention writes, where windows of columns leave too many open.

Attention with one head writes N / D with sums over positions (:mod:`interp.proofs.columns.ratio_attention`). In a
class, let all points x of its box with ``u . x >= level`` be answered rightly. Then a pair is right if

    sum_j w_j(t_j) (u . c_j(t_j) - level) >= 0,

which is a sum over columns, whatever columns attention looks at. An automaton over columns, with the sum so far in
bins, finds such pairs (:class:`interp.proofs.columns.pair_counting.Diagram`). Windows cannot do that where far columns
matter. In the same way, ``u . x < level`` may contain only wrong answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.column_windows import WindowBounds
from interp.proofs.columns.pair_counting import NODES, OPEN, RIGHT, WRONG, Diagram, reduced, symbols
from interp.proofs.columns.small_margins import gradient_at
from interp.proofs.columns.window_search import Search
from interp.proofs.verdict.time_limit import check_time

#: How often the cells of a class's box are cut, how many of them are kept, and how finely a level is searched (as a
#: share of the functional's range).
ROUNDS, MOST_CELLS, FINE = 24, 2000, 2.0**-11
#: At most this many windows of one column are treated one by one.
MOST_APART = 60
#: With more nodes than this on one level of a diagram, their sums are put into bins.
MOST_NODES, ABOVE = 1000, 24  # (above the target's own column)
_BITS = 50
_N = 200  # symbols


@dataclass(frozen=True, eq=False)
class OpenWindows:
    """The windows (symbols) of one column, for one token at the query, that are not proved as a whole."""

    token: int
    symbols: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """The sum over columns that decides the problems of one kind.

    Attributes:
        fixed: what delimiters and the query's own token add.
        added: what each symbol of each column adds.
        least, most: the least and most that the columns below each one may add, by the carry out of the last of them.
    """

    fixed: int
    added: Int[np.ndarray, "column symbol"]
    least: Int[np.ndarray, "end carry"]
    most: Int[np.ndarray, "end carry"]


def half_space_diagrams(search: Search, target: int, apart: bool = False) -> list[Diagram] | None:
    """Two diagrams of a target, to be counted together: RIGHT or OPEN, and WRONG or RIGHT (which says nothing there).

    With ``apart``, every window of one column has its own half-space, in place of every class; if there are more than
    ``MOST_APART`` of them, the result is None. Neither way is always better.

    Precondition: one head. Postcondition: a pair for which the first says RIGHT is right at this target, in the
    search's arithmetic, and one for which the second says WRONG is wrong. Cost: some 10^4 cells of boxes per class, 1
    to 5 s per target.
    """
    kinds: list[OpenWindows] = []
    sums: tuple[list[ColumnSums], list[ColumnSums]] = [], []
    found = []
    for query in search.queries(target):
        check_time()
        unsplit = query.unsplit_windows()
        lower, _ = search.bounds_of_windows(query, unsplit)
        found.append((query, unsplit[~(lower > 0)]))
    if apart and sum(len(windows) for _, windows in found) > MOST_APART:
        return None
    for query, windows in found:
        carry, total = query.class_of(windows)
        low, high = query.box(windows)
        key = np.arange(len(windows)) if apart else carry * 20 + total
        for one in np.unique(key):
            rows = np.flatnonzero(key == one)
            box, answer = (low[rows].min(0), high[rows].max(0)), int(query.answer(windows[rows[:1]])[0])
            u = _direction(search, query, windows[rows[:1]], *box)
            kinds.append(OpenWindows(query.token, windows.carry[rows] * 100 + windows.pairs[rows, 0]))
            sums[0].append(_sums(query, u, _level(search, query, answer, *box, u), 1))
            sums[1].append(_sums(query, u, -_level(search, query, answer, *box, -u, wrong=True), -1))
    ends = ((RIGHT, OPEN), (RIGHT, WRONG))
    rule = search.adder.layout.rule
    return [DiagramBuilder(rule, target, kinds, own, *end).diagram() for own, end in zip(sums, ends, strict=True)]


def _direction(
    search: Search, query: WindowBounds, window: object, low: np.ndarray, high: np.ndarray
) -> Float[np.ndarray, " r"]:
    """The margin's gradient where it is smallest on the box, to first order; any direction gives a valid bound."""
    centre, radius = (low + high)[None] / 2, (high - low)[None] / 2
    first = gradient_at(search.adder, query, window, centre, radius)  # pyright: ignore[reportArgumentType]
    found = gradient_at(search.adder, query, window, centre - radius * np.sign(first), radius)[0]  # pyright: ignore
    found = found if np.isfinite(found).all() and found.any() else first[0]
    size = float(np.abs(found).max())
    return found / size if np.isfinite(size) and size > 0 else np.eye(len(found))[0]


def _level(
    search: Search,
    query: WindowBounds,
    answer: int,
    low: Float[np.ndarray, " r"],
    high: Float[np.ndarray, " r"],
    u: Float[np.ndarray, " r"],
    wrong: bool = False,
) -> float:
    """The smallest level found such that all points of the box with ``u . x >= level`` are answered rightly (with
    ``wrong``: wrongly).

    The box is cut into cells, the highest first; what is not proved of a cell lies below its top.
    """
    lows, highs = low[None], high[None]
    fine = FINE * float(np.abs(u) @ (high - low))
    known, left = -np.inf, -np.inf  # the highest point known to fail, and the highest top of a cell set aside
    for _ in range(ROUNDS):
        check_time()
        middle = (lows + highs) / 2
        below, above = search.bounds_without_halving(query, np.full(len(lows), answer), lows, highs)
        keep = ~(above < 0 if wrong else below > 0)
        lows, highs, middle = lows[keep], highs[keep], middle[keep]
        if not len(lows):
            break
        at_below, at_above = search.bounds_without_halving(query, np.full(len(lows), answer), middle, middle)
        bad = ~(at_above < 0 if wrong else at_below > 0)
        known = max(known, float((middle[bad] @ u).max(initial=-np.inf)))
        tops = np.maximum(lows * u, highs * u).sum(1)
        order = np.argsort(-tops)
        chosen = order[:MOST_CELLS]
        left = max(left, float(tops[order[MOST_CELLS:]].max(initial=-np.inf)))
        chosen = chosen[tops[chosen] > max(known, left) + fine]
        rest = np.setdiff1d(order[:MOST_CELLS], chosen)
        left = max(left, float(tops[rest].max(initial=-np.inf)))
        lows, highs = lows[chosen], highs[chosen]
        if not len(lows):
            break
        side = (np.abs(u) * (highs - lows) + 2.0**-6 * (highs - lows)).argmax(1)[:, None]
        cut = np.take_along_axis((lows + highs) / 2, side, 1)
        first, second = highs.copy(), lows.copy()
        np.put_along_axis(first, side, cut, 1)
        np.put_along_axis(second, side, cut, 1)
        lows, highs = np.concatenate((lows, second)), np.concatenate((first, highs))
    if len(lows):
        left = max(left, float(np.maximum(lows * u, highs * u).sum(1).max()))
    # Outside the box there is nothing.
    left = max(left, float(np.minimum(low * u, high * u).sum()) - fine)
    return left + 2.0**-40 * (abs(left) + float(np.abs(u) @ np.maximum(np.abs(low), np.abs(high))))


def _sums(query: WindowBounds, u: Float[np.ndarray, " r"], level: float, sign: int) -> ColumnSums:
    """``w (u . c - level)`` in integers, rounded down (``sign`` 1) or up (-1) by more than rounding may do."""
    r, weights, coords = len(u), query.weights[0], query.coords[0]
    beyond = query.sides[0, ..., 2 * r :]
    value = coords @ u - level
    if beyond.shape[-1]:
        value = value - sign * (beyond @ np.abs(u))
    value = weights * value
    size = float((weights * (np.abs(coords) @ np.abs(u) + abs(level) + beyond.sum(-1))).max())
    slack = 4 * (2 * r + 8)
    scale = 2.0**_BITS / size if size > 0 else 0.0  # attention that writes nothing has level 0 everywhere
    f = np.floor(value * scale).astype(np.int64) - sign * slack
    f[weights == 0] = 0
    layout, position = query.layout, query.layout.queries[query.target]
    fixed = sum(int(f[j, allowed[0]]) for j, allowed in enumerate(layout.tokens[:position]) if len(allowed) == 1)
    known, n_columns = symbols(layout.rule), layout.rule.digits
    added = np.zeros((n_columns, _N), dtype=np.int64)
    for column in range(n_columns):
        x, y = layout.operands[:, column]
        added[column] = f[x, known.x] + f[y, known.y]
        if query.shows(column):
            added[column] += f[layout.answers[column], known.written]
    ends = []
    for better, worst in ((np.minimum, 2**62), (np.maximum, -(2**62))):
        reach = np.full((n_columns + 1, 2), worst)
        reach[0, 0] = 0
        for column in range(query.top + 1):
            allowed = known.possible(column)
            for carry in (0, 1):
                here = np.flatnonzero(allowed & (known.carry_out == carry) & (reach[column][known.carry_in] != worst))
                if len(here):
                    reach[column + 1, carry] = better.reduce(added[column, here] + reach[column][known.carry_in[here]])
        ends.append(reach)
    return ColumnSums(fixed + int(f[position, query.token]), added, *ends)


class DiagramBuilder:
    """Builds one target's diagram from the highest column down: ``high`` for sums of at least 0, else ``low``.

    An example of two digits, with bins of width 3. From the root, whose sum is 0, the symbols of the tens' column lead
    to sums such as -7, -3, 0, 2 and 9. The units may add from -3 to 4. So -7 is ``low`` at once and 9 is ``high``; the
    other three fall into bins -1, 0 and 0, which are two nodes: one for sums from -3 to -3, one for sums from 0 to 2.
    From the second one a symbol of the units that adds 1 leads to sums from 1 to 3, all ``high``; one that adds -1 to
    sums from -1 to 1, which the bin does not decide: ``unknown``.
    """

    def __init__(
        self, rule: ColumnRule, target: int, kinds: list[OpenWindows], sums: list[ColumnSums], high: int, low: int
    ):
        self.rule, self.known = rule, symbols(rule)
        self.target, self.high, self.low, self.sums = target, high, low, sums
        tokens = max((kind.token for kind in kinds), default=0) + 1
        self.numbers = np.full((max(tokens, 10), _N), -1)  # kinds by token and symbol; -1 for proved windows
        for index, kind in enumerate(kinds):
            self.numbers[kind.token, kind.symbols] = index
        self.only = kinds[0].token if kinds else 0
        self.added = np.array([one.added for one in self.sums])  # [kind, column, symbol]
        self.least, self.most = (np.array([getattr(one, end) for one in self.sums]) for end in ("least", "most"))
        #: The verdict on a pair whose bin does not decide.
        self.unknown = OPEN if low == OPEN else RIGHT

    def diagram(self) -> Diagram:
        if not self.sums:
            return Diagram(RIGHT, tuple(np.zeros((0, _N), dtype=np.int32) for _ in range(self.rule.digits)))
        levels: list[np.ndarray] = []
        known, digits = self.known, self.rule.digits
        column = min(self.target, digits - 1)
        low, high = (np.array([[one.fixed for one in self.sums]]) for _ in range(2))  # [node, kind]
        for above in reversed(range(column + 1, digits)):
            low, high = self._column_above(levels, low, high, above)
        node, symbol, own = np.repeat(np.arange(len(low)), _N), np.tile(np.arange(_N), len(low)), None
        if 0 < self.target < digits:  # read the own column; the one below decides the token at the query
            open_ = (self.numbers >= 0).any(0)
            level = np.full((len(low), _N), RIGHT, dtype=np.int32)
            level[:, open_] = NODES + np.arange(len(low) * open_.sum()).reshape(len(low), -1)
            levels.insert(0, level)
            own, column = np.tile(np.flatnonzero(open_), len(low)), column - 1
            low, high = (np.repeat(x, open_.sum(), 0) for x in (low, high))
            node, symbol = np.nonzero(known.carry_in[own][:, None] == known.carry_out)
        kept = known.possible(column)[symbol]
        node, symbol = node[kept], symbol[kept]
        index = self._kind(symbol) if own is None else self._kind(symbol, own[node])
        level = np.full((len(low), _N), -1, dtype=np.int32)
        level[node, symbol] = RIGHT  # for windows that are proved
        node, symbol, index = (x[index >= 0] for x in (node, symbol, index))
        more = self.added[index, column, symbol]
        if own is not None:
            more = more + self.added[index, self.target, own[node]]
        nodes = self._fill(level, node, symbol, index, low[node, index] + more, high[node, index] + more, column)
        levels.insert(0, level)
        for below in reversed(range(column)):
            kind, least, most, needed = nodes
            level = np.full((len(kind), _N), -1, dtype=np.int32)
            node, symbol = np.nonzero(known.possible(below) & (needed[:, None] == known.carry_out))
            more = self.added[kind[node], below, symbol]
            nodes = self._fill(level, node, symbol, kind[node], least[node] + more, most[node] + more, below)
            levels.insert(0, level)
        return reduced(NODES, levels)

    def _column_above(
        self,
        levels: list[np.ndarray],
        low: Int[np.ndarray, "node kind"],
        high: Int[np.ndarray, "node kind"],
        column: int,
    ) -> tuple[Int[np.ndarray, "node_above kind"], Int[np.ndarray, "node_above kind"]]:
        """Read a column above the target's own, where the kind is not known yet: sums of every kind, in a few bins."""
        more = self.added[:, column].T  # [symbol, kind]
        lows, highs = ((x[:, None] + more).reshape(-1, len(self.sums)) for x in (low, high))
        spread = np.ptp(lows, axis=0)
        mean = (lows / np.maximum(spread, 1)).mean(1)
        mean -= mean.min()
        bins = np.floor(mean / max(float(mean.max()), 1e-9) * (ABOVE - 1e-6)).astype(int)
        _, number = np.unique(bins, return_inverse=True)
        number = number.reshape(-1)
        below = np.full((number.max() + 1, len(self.sums)), np.iinfo(np.int64).max)
        above = np.full_like(below, np.iinfo(np.int64).min)
        np.minimum.at(below, number, lows)
        np.maximum.at(above, number, highs)
        levels.insert(0, (NODES + number).reshape(len(low), _N).astype(np.int32))
        return below, above

    def _kind(self, symbol: Int[np.ndarray, " n"], own: Int[np.ndarray, " n"] | None = None) -> Int[np.ndarray, " n"]:
        """The number of the kind, by the symbol of the lowest column that decides it; -1 for proved windows."""
        if own is not None:
            return self.numbers[self.known.written[symbol], own]
        written, after = self.known.written[symbol], self.rule.digits + 1
        tokens = {0: self.only, after: self.known.carry_out[symbol]}.get(self.target, written)
        return self.numbers[tokens, symbol]

    def _fill(
        self,
        level: Int[np.ndarray, "node symbol"],
        node: Int[np.ndarray, " n"],
        symbol: Int[np.ndarray, " n"],
        index: Int[np.ndarray, " n"],
        low: Int[np.ndarray, " n"],
        high: Int[np.ndarray, " n"],
        column: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Fill in where each symbol leads from each node; returns the nodes below: kind, ends of the sum, carry."""
        check_time()
        needed = self.known.carry_in[symbol]
        least, most = low + self.least[index, column, needed], high + self.most[index, column, needed]
        verdict = np.where(least >= 0, self.high, np.where(most < 0, self.low, self.unknown))
        going = np.flatnonzero((least < 0) & (most >= 0)) if column else np.zeros(0, dtype=int)
        level[node, symbol] = verdict
        if not len(going):
            return (np.zeros(0, dtype=np.int64),) * 4  # pyright: ignore[reportReturnType]
        kind = index[going] * 2 + needed[going]
        bins, width = low[going], 1
        most_nodes = max(MOST_NODES, 2 * len(np.unique(kind)))  # wide enough bins always come down to this
        while len(np.unique(np.stack((kind, bins // width), 1), axis=0)) > most_nodes:
            width = max(4 * width, int(np.ptp(bins)) >> 16)
        _, first, number = np.unique(np.stack((kind, bins // width), 1), axis=0, return_index=True, return_inverse=True)
        number = number.reshape(-1)
        below, above = low[going][first].copy(), high[going][first].copy()
        np.minimum.at(below, number, low[going])
        np.maximum.at(above, number, high[going])
        level[node[going], symbol[going]] = NODES + number
        return index[going][first], below, above, needed[going][first]
