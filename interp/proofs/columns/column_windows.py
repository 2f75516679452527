"""Windows of columns, the pieces of a search: which problems they hold, and what attention can write on them.

A *window* fixes the target, the token at its query, the carry into a window of neighbouring columns, and the digit
pairs of these columns. A dynamic programme with the carry as its state bounds the columns below, and another those
above, which are free apart from where their carry ends (:class:`interp.proofs.columns.column_rule.ColumnRule`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.digit_layout import TokenLayout
from interp.proofs.columns.ratio_attention import QueryTerms, RatioAttention

LEVELS = 64  # number of values of a coordinate at which the sums are bounded


@dataclass(frozen=True, eq=False)
class Windows:
    """n windows of one query, all of the same columns ``low .. high``.

    Attributes:
        rule: what a column does.
        carry: the carry into the lowest column.
        pairs: 10 x + y of each column, lowest first.
    """

    rule: ColumnRule
    low: int
    carry: Int[np.ndarray, " n"]
    pairs: Int[np.ndarray, "n column"]

    def __len__(self) -> int:
        return len(self.carry)

    @property
    def high(self) -> int:
        return self.low + self.pairs.shape[1] - 1

    def __getitem__(self, rows: Int[np.ndarray, " m"] | Bool[np.ndarray, " n"] | slice) -> Windows:
        return Windows(self.rule, self.low, self.carry[rows], self.pairs[rows])

    def carries(self) -> Int[np.ndarray, "n carry"]:
        """The carry into each column of the window, and the carry out of the last one."""
        found = [self.carry]
        for total in self.totals().T:
            found.append(self.rule.out(total, found[-1]))
        return np.stack(found, 1)

    def totals(self) -> Int[np.ndarray, "n column"]:
        """The sum or difference of each column's digits."""
        return self.rule.total(self.pairs // 10, self.pairs % 10)

    def written(self) -> Int[np.ndarray, "n column"]:
        """The answer digit of each column."""
        return self.rule.digit(self.totals(), self.carries()[:, :-1])

    def codes(self) -> Int[np.ndarray, " n"]:
        """One number per window: low, columns, carry and pairs (one decimal digit each, two per pair)."""
        code = (self.low * 10 + self.pairs.shape[1] % 10) * 10 + self.carry.astype(np.int64)
        for pair in self.pairs.T:
            code = code * 100 + pair
        return code


class WindowBounds:
    """All windows for one target and token at its query: how many problems they hold, and the extremes of attention.

    Lemma (Dinkelbach): for every coordinate k of the basis and both signs, ``f(level) = max over a window's problems of
    sum_j w_j (+-coords_jk - level)`` is convex and falls, and its root is the largest ``+-coordinate`` of N / D. The
    chord between two levels where f changes its sign lies above f, so that its root is an upper bound. What columns
    outside the window add to f is tabulated once, by level and carry into or out of the window; a window adds its own
    terms.

    Cost: heads x 2 r x LEVELS x 200 additions per column to build it; about 0.2 us per window, coordinate and level to
    bound a window.
    """

    def __init__(self, attention: RatioAttention, layout: TokenLayout, target: int, token: int):
        self.layout, self.rule, self.target, self.token = layout, layout.rule, target, token
        self.top = min(target, self.rule.digits - 1)
        terms = attention.queries[target, token]
        self.weights, self.coords, self.error = terms.weights, attention.coords, terms.error
        self.basis = attention.basis
        heads = len(self.weights)
        self.count = self._count()
        #: The exact number of digit choices in a column and those above it, [column][carry into it].
        self.free = [self.rule.free(self.rule.digits - column) for column in range(self.rule.digits + 1)]
        stands = self.weights > 0
        self.sides = np.concatenate((self.coords, -self.coords, *self._apart(terms)), -1)  # [head, pos, token, side]
        n_sides = self.sides.shape[-1]
        #: Rounding of f, in units of 2^-53: up to 35 terms, each rounded twice and summed, and two sums: 128 is ample.
        self.slack = np.empty(heads)
        self.levels = np.empty((heads, n_sides, LEVELS))
        self.below, self.above = np.full((2, heads, self.rule.digits + 1, 2, n_sides, LEVELS), -np.inf)
        for h in range(heads):
            reached = self.sides[h][stands[h]]
            # The first and last level are themselves bounds: N / D is a mean of coordinates.
            least, most = reached.min(0), reached.max(0)
            self.levels[h] = np.linspace(least, most, LEVELS, axis=-1)
            self.levels[h, :, 0], self.levels[h, :, -1] = least, most
            largest = float(np.abs(reached).max())
            self.slack[h] = 2.0**-46 * self.weights[h].max(-1).sum() * largest
            self._tabulate(h, self.weights[h][..., None, None] * (self.sides[h][..., None] - self.levels[h]))

    def _apart(self, terms: QueryTerms) -> list[Float[np.ndarray, "head pos token r"]]:
        """``spread |coords - r|``, whose mean bounds what rounding does to a coordinate; empty without a spread.

        r may be any number; here it is a mean of the coordinates.
        """
        if terms.spread is None:
            return []
        weights = self.weights[..., None]
        mean = (weights * self.coords).sum((1, 2)) / weights.sum((1, 2))
        distance = np.abs(self.coords - mean[:, None, None])
        return [terms.spread[..., None] * distance * (1 + 2.0**-50)]  # three roundings

    def _tabulate(self, h: int, f: Float[np.ndarray, "pos token dir level"]) -> None:
        layout, query = self.layout, self.layout.queries[self.target]
        fixed = [(j, allowed[0]) for j, allowed in enumerate(layout.tokens[:query]) if len(allowed) == 1]
        self.below[h, 0, 0] = sum((f[j, t] for j, t in fixed), f[query, self.token])
        pair, carry, out, written = self.rule.columns
        for column in range(self.top + 1):
            x, y = layout.operands[:, column]
            cost = f[x, pair // 10] + f[y, pair % 10]
            if self.shows(column):
                cost = cost + f[layout.answers[column], written]
            stands = self.may_stand(column)
            for c in (0, 1):
                chosen = np.flatnonzero(stands & (out == c))
                if len(chosen):
                    self.below[h, column + 1, c] = (cost[chosen] + self.below[h, column, carry[chosen]]).max(0)
        self.above[h, -1, list(self.rule.ends)] = 0.0
        for column in reversed(range(self.top + 1, self.rule.digits)):
            x, y = layout.operands[:, column]
            if self.rule.all_end:  # whatever the carry, the largest digits are free
                self.above[h, column] = self.above[h, column + 1] + f[x, :10].max(0) + f[y, :10].max(0)
                continue
            for c, end in product((0, 1), repeat=2):
                chosen = pair[(carry == c) & (out == end)]
                found = (self.above[h, column + 1, end] + f[x, chosen // 10] + f[y, chosen % 10]).max(0)
                np.maximum(self.above[h, column, c], found, out=self.above[h, column, c])

    def may_stand(self, column: int) -> Bool[np.ndarray, " 200"]:
        """Which digit pairs and carries (pair-major) a column can have if the query's token stands there."""
        _, _, out, written = self.rule.columns
        if self.target == self.rule.digits + 1 and column == self.rule.digits - 1:
            return np.equal(out, self.token)
        return np.equal(written, self.token) if column == self.target - 1 else np.ones(len(out), dtype=bool)

    def shows(self, column: int) -> bool:
        """Whether a column's answer digit is read before the query."""
        return column <= self.target - 2

    def _count(self) -> list[list[int]]:
        """The exact number of digit choices below a column that give each carry into it, [column][carry]."""
        counts = [[1, 0]]
        _, carry, out, _ = self.rule.columns
        for column in range(self.top + 1):
            stands = self.may_stand(column)
            ways = np.zeros((2, 2), dtype=int)
            np.add.at(ways, (out[stands], carry[stands]), 1)
            counts.append([sum(int(ways[out, c]) * counts[-1][c] for c in (0, 1)) for out in (0, 1)])
        return counts

    def problems(self, windows: Windows) -> list[list[int]]:
        """How many problems a window holds, [carry into its window][carry out of it]."""
        return [[below * above for above in self.free[windows.high + 1]] for below in self.count[windows.low]]

    # ---- windows

    def unsplit_windows(self) -> Windows:
        """The windows that are the target's own column (the last column for the targets after it)."""
        empty = Windows(self.rule, self.top + 1, np.array([0, 1]), np.zeros((2, 0), dtype=int))
        if self.target >= self.rule.digits:
            return self.below_of(empty)
        pairs, carry = np.tile(np.arange(100), 2), np.repeat([0, 1], 100)
        return self._possible(Windows(self.rule, self.top, carry, pairs[:, None]))

    def below_of(self, windows: Windows) -> Windows:
        """Each window extended by one column below its window, which makes about 100 windows of one."""
        column = windows.low - 1
        pair, carry, out, _ = self.rule.columns
        row, choice = np.nonzero(self.may_stand(column) & (windows.carry[:, None] == out))
        pairs = np.concatenate((pair[choice, None], windows.pairs[row]), 1)
        return self._possible(Windows(self.rule, column, carry[choice], pairs))

    def above_of(self, windows: Windows) -> Windows:
        """Each window extended by one column above its window, which makes up to 100 windows of one."""
        pairs = np.tile(np.arange(100), len(windows))[:, None]
        longer = np.hstack((np.repeat(windows.pairs, 100, 0), pairs))
        return self._possible(Windows(self.rule, windows.low, np.repeat(windows.carry, 100), longer))

    def holds(self, windows: Windows) -> Bool[np.ndarray, " n"]:
        """Which windows hold a problem with this token at the query."""
        carries = windows.carries()
        found = self._ends(windows, carries)
        for index, pair in enumerate(windows.pairs.T):
            found &= self.may_stand(windows.low + index)[pair * 2 + carries[:, index]]
        return found

    def _ends(self, windows: Windows, carries: Int[np.ndarray, "n carry"]) -> Bool[np.ndarray, " n"]:
        """Which windows have problems, as far as the carries into and out of them say."""
        below = np.array([number > 0 for number in self.count[windows.low]])
        above = np.array([number > 0 for number in self.free[windows.high + 1]])
        return below[windows.carry] & above[carries[:, -1]]

    def _possible(self, windows: Windows) -> Windows:
        return windows[self._ends(windows, windows.carries())]

    def answer(self, windows: Windows) -> Int[np.ndarray, " n"]:
        """The right token at the target."""
        if self.target == self.rule.written:
            assert self.layout.eos is not None
            return np.full(len(windows), self.layout.eos)
        own = self.target - windows.low
        return windows.carries()[:, own] if self.target == self.rule.digits else windows.written()[:, own]

    def class_of(self, windows: Windows) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Carry and total of each window's class, as in :class:`interp.proofs.columns.column_classes.Classes`."""
        carries = windows.carries()
        if self.target >= self.rule.digits:
            return carries[:, self.rule.digits - windows.low], np.full(len(windows), -1)
        own = self.target - windows.low
        return carries[:, own], windows.totals()[:, own]

    # ---- what attention writes

    def box(self, windows: Windows) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "n r"]]:
        """Least and largest coordinates of what attention writes on the basis, over each window's problems.

        Postcondition: for every problem of a window, ``sum_h N_h / D_h`` lies between them, for the stored terms and
        for whatever rounding may do to each weight (``spread``). The extremes of several heads are added up, which
        ignores how the heads depend on each other; longer windows make up for that.
        """
        total = np.zeros((len(windows), self.levels.shape[1]))
        for h in range(len(self.weights)):
            total += self._head(h, windows)
        r = self.coords.shape[-1]
        beyond = np.zeros(r) if total.shape[1] == 2 * r else np.maximum(total[:, 2 * r :], 0) * (1 + 2.0**-40)
        return -total[:, r : 2 * r] - beyond, total[:, :r] + beyond

    def _head(self, h: int, windows: Windows) -> Float[np.ndarray, "n side"]:
        layout, n = self.layout, len(windows)
        weight, sums = np.zeros(n), np.zeros((n, self.sides.shape[-1]))
        weighted = self.weights[h][..., None] * self.sides[h]
        for index, column in enumerate(range(windows.low, windows.high + 1)):
            x, y = layout.operands[:, column]
            standing = [(x, windows.pairs[:, index] // 10), (y, windows.pairs[:, index] % 10)]
            if self.shows(column):
                standing.append((layout.answers[column], windows.written()[:, index]))
            for position, token in standing:
                weight += self.weights[h, position, token]
                sums += weighted[position, token]
        outside = self.below[h, windows.low][:, None] + self.above[h, windows.high + 1]  # [carry in, out, side, level]
        out = windows.carries()[:, -1]
        found = np.empty_like(sums)
        for k, levels in enumerate(self.levels[h]):

            def f(level: Int[np.ndarray, " n"], k: int = k, levels: np.ndarray = levels) -> Float[np.ndarray, " n"]:
                rest = outside[windows.carry, out, k, level]
                return sums[:, k] - levels[level] * weight + rest + self.slack[h]

            low, high = np.zeros(n, dtype=int), np.full(n, LEVELS - 1)
            for _ in range(LEVELS.bit_length()):
                middle = (low + high) // 2
                positive = f(middle) > 0
                low, high = np.where(positive, middle, low), np.where(positive, high, middle)
            at_low, at_high = f(low), f(high)
            changes = (at_low > 0) & (at_high <= 0)
            share = np.where(changes, at_low / np.where(changes, at_low - at_high, 1.0), 1.0)
            root = levels[low] + (levels[high] - levels[low]) * share
            root = root + 2.0**-48 * np.abs(levels[[0, -1]]).max()
            # Neither end of the levels needs f, and nothing lies below the first. f is a number, as coordinates are
            # finite (:func:`interp.proofs.columns.ratio_attention.attention_of_keys` refuses others); and its slack is
            # that of the largest weights of all, so that f is positive at every level of a window whose weights nearly
            # vanish.
            found[:, k] = np.where(at_low > 0, np.minimum(root, levels[high]), levels[low])
        return found
