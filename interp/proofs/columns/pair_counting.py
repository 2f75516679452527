"""Count exactly how many pairs a model answers rightly, from what is known about each of its answer digits.

What is known about one target is a *diagram*: an automaton that reads the columns of a problem from the highest to the
lowest, each as (carry into it, x, y), and ends in RIGHT, WRONG or OPEN, where OPEN says nothing. A problem is right if
all targets are: a first wrong digit makes a greedily decoded answer wrong, so that "all targets right, teacher forced"
is exact match. :func:`count` runs all diagrams in parallel and keeps the number of pairs in each state. Counts are
integers and never pass through a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.columns.column_rule import SUMS, ColumnRule
from interp.proofs.verdict.verdict_files import LargeCount
from models import UserError

RIGHT, OPEN, WRONG = 0, 1, 2  # ends of a diagram; of several targets, the largest end decides
NODES = 3  # the first number of a state that is not an end
_UNREACHABLE = -1
_HALF = 31  # counts are split at this bit in the last column


@dataclass(frozen=True, eq=False)
class Symbols:
    """What a diagram reads in one column, ``carry_in * base^2 + base x + y``, and what the rule makes of it.

    Attributes:
        written: the answer digit. carry_out: the carry out of the column. makes: whether the digits make a carry, and
            do not only pass one on.
    """

    carry_in: Int[np.ndarray, " symbol"]
    x: Int[np.ndarray, " symbol"]
    y: Int[np.ndarray, " symbol"]
    written: Int[np.ndarray, " symbol"]
    carry_out: Int[np.ndarray, " symbol"]
    makes: Bool[np.ndarray, " symbol"]

    def possible(self, column: int, carry_out: int | None = None) -> Bool[np.ndarray, " symbol"]:
        """The symbols that can occur in a column, all or those with one carry out. Column 0 has no carry in."""
        found = (self.carry_in == 0) | (column > 0)
        return found if carry_out is None else found & (self.carry_out == carry_out)


@cache
def symbols(rule: ColumnRule = SUMS) -> Symbols:
    pair, carry_in, carry_out, written = (v.reshape(-1, 2).T.reshape(-1) for v in rule.columns)
    x, y = pair // rule.base, pair % rule.base
    return Symbols(carry_in, x, y, written, carry_out, rule.makes(rule.total(x, y)))


@dataclass(frozen=True, eq=False)
class Diagram:
    """The verdict on one target, as an automaton over columns from the highest to the lowest.

    Attributes:
        root: the state before the highest column: an end, or ``NODES`` + a row of its level.
        levels: for column 0, 1, ...: the state after each symbol, by node; -1 for a symbol that no problem has there.
    """

    root: int
    levels: tuple[Int[np.ndarray, "_ symbol"], ...]


def reduced(root: int, levels: Sequence[Int[np.ndarray, "_ symbol"]]) -> Diagram:
    """The same verdicts with fewer nodes: equal nodes are merged, and a node with one outcome becomes that outcome.

    Postcondition: every problem ends where it ended before. Lemma: a node's verdicts are a function of its row, so
    that, from column 0 up, equal rows may share a node, and a row whose possible entries are all one end may be that
    end.
    """
    kept: list[np.ndarray] = []
    names = np.arange(NODES)  # new names of the states of the level below
    for level in levels:
        rows = np.where(level < 0, _UNREACHABLE, names[np.maximum(level, 0)]).astype(np.int32)
        most = rows.max(1, initial=_UNREACHABLE)
        least = np.where(rows < 0, np.iinfo(np.int32).max, rows).min(1, initial=np.iinfo(np.int32).max)
        single = (most < NODES) & (least >= most)
        unique, index = _unique_rows(rows[~single])
        states = np.maximum(most, RIGHT).astype(np.int64)  # a node that nothing leads to may be anything
        states[~single] = NODES + index
        kept.append(unique)
        names = np.concatenate((np.arange(NODES), states))
    return Diagram(int(names[root]), tuple(kept))


def _unique_rows(rows: Int[np.ndarray, "n symbol"]) -> tuple[Int[np.ndarray, "m symbol"], Int[np.ndarray, " n"]]:
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    rows = np.ascontiguousarray(rows)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, first, index = np.unique(as_bytes, return_index=True, return_inverse=True)
    return rows[first], index.reshape(-1)


def diagram_of_windows(
    table: Int[np.ndarray, "..."],
    target: int,
    rule: ColumnRule = SUMS,
    below: Sequence[Int[np.ndarray, "_ symbol"]] = (),
) -> Diagram:
    """Turn a table of window verdicts into a diagram.

    Args:
        table: [carry into the window's lowest column, its symbol base x + y, ..., the highest column's]: 1 right, -1
            wrong, 0 open. The window ends at column ``min(target, digits - 1)``.
        rule: what a column does, and how many there are.
        below: levels of the columns below the window, the next one first, as in :class:`Diagram`. The first has a row
            for each of the table's first open windows, in the table's order, which says what becomes of them.
    """
    top, base = min(target, rule.digits - 1), rule.base
    depth = table.ndim - 1
    known = symbols(rule)
    lowest = top - depth + 1
    states = np.array([OPEN, RIGHT, WRONG], dtype=np.int32)[table]  # by verdict 0, 1, -1
    levels: list[np.ndarray] = [np.zeros((0, 2 * base**2), dtype=np.int32)] * lowest
    for column, level in zip(range(lowest - 1, -1, -1), below, strict=False):
        levels[column] = level
    if below:
        states.flat[np.flatnonzero(table == 0)[: len(below[0])]] = NODES + np.arange(len(below[0]))
    for column in range(lowest, top):
        # One node for each carry out of the column and each choice of digits in the columns above it.
        rows = states.reshape(2 * base**2, -1).T
        above = rows.shape[0]
        nodes = [np.where(known.possible(column, carry), rows, _UNREACHABLE) for carry in (0, 1)]
        levels.append(np.concatenate(nodes))
        states = NODES + np.arange(2 * above, dtype=np.int32).reshape(2, *table.shape[column - lowest + 2 :])
    levels.append(np.where(known.possible(top), states.reshape(1, -1), _UNREACHABLE))
    for _ in range(top + 1, rule.digits):
        levels.append(np.full((1, 2 * base**2), NODES, dtype=np.int32))
    return reduced(NODES, levels)


@dataclass(frozen=True)
class Counts:
    """Exact numbers of pairs by verdict and carry-chain length (only length 0 where chains were not told apart)."""

    right: tuple[LargeCount, ...]
    open: tuple[LargeCount, ...]
    wrong: tuple[LargeCount, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """All pairs, by chain length."""
        return tuple(map(sum, zip(self.right, self.open, self.wrong, strict=True)))

    @property
    def total(self) -> int:
        return sum(self.sizes)


def count(diagrams: Sequence[Diagram], rule: ColumnRule = SUMS, by_chain: bool = False) -> Counts:
    """Count how many of all pairs of a rule are right at all targets, wrong at some, or neither.

    Precondition: every diagram has one level per column and is right about its target. Postcondition: exactly ``right``
    pairs end in RIGHT in every diagram and exactly ``wrong`` in WRONG in some diagram; so the number of pairs that the
    model answers rightly lies in [right, right + open].

    Lemma (transfer matrix): below any column, what happens depends on the columns above only through the carry that
    they need and the diagrams' states. A pair's columns read from the top, with the carry out of each, are one path
    of states, and the number of paths into a state is the sum over its predecessors. The longest carry chain joins the
    state as (r, m): if a carry is needed, it passes r more columns above (of sum base - 1, or of difference 0); m is
    the longest chain so far. A column that generates the carry ends a chain of length r + 1, as
    :mod:`models.tasks.columns.schoolbook` defines it. At the top stand the carries that the rule lets out of the last
    column.

    No overflow: after k columns all counts sum to at most 2 base^(2k), which is below 2^63 up to the last column but
    one (2e18 for ten decimal columns). The last column is summed in two halves of the bits, joined as Python integers.

    Cost: states x base^2 per column, times (r, m) pairs with ``by_chain``: tens of milliseconds for small diagrams,
    seconds for a table of three columns without any structure.

    Raises:
        UserError: more pairs than 64-bit counts can hold before the last column.
    """
    columns, base = rule.digits, rule.base
    if columns < 1 or 2 * base ** (2 * (columns - 1)) >= 2**63:
        raise UserError(f"Pairs of {columns} digits in base {base} are more than can be counted in 64 bits.")
    known = symbols(rule)
    carry = np.array(rule.ends)
    nodes = np.array([[diagram.root for diagram in diagrams]] * len(carry), dtype=np.int64).reshape(len(carry), -1)
    outcome = np.where(nodes < NODES, nodes, RIGHT).max(1, initial=RIGHT)
    nodes = np.where((nodes < NODES) | (outcome == WRONG)[:, None], RIGHT, nodes)
    chains = _Chains(columns) if by_chain else _Chains(0)
    counts = np.zeros((len(carry), len(chains)), dtype=np.int64)
    counts[:, 0] = 1
    for column in reversed(range(columns)):
        sources, reads, after = [], [], []
        for c in (0, 1):
            rows, read = np.flatnonzero(carry == c), np.flatnonzero(known.possible(column, c))
            sources.append(np.repeat(rows, len(read)))
            reads.append(np.tile(read, len(rows)))
        source, read = np.concatenate(sources), np.concatenate(reads)
        worst, key, size = outcome[source], np.zeros(len(source), dtype=np.int64), 1
        active = [i for i, diagram in enumerate(diagrams) if len(diagram.levels[column])]
        for i in active:
            table = diagrams[i].levels[column]
            ends = np.repeat(np.arange(NODES), table.shape[1]).reshape(NODES, -1)
            after.append(np.concatenate((ends, table))[nodes[source, i], read])
            worst = np.maximum(worst, np.where(after[-1] < NODES, after[-1], RIGHT))
            width = NODES + (len(diagrams[i].levels[column - 1]) if column else 0)
            if size * width >= 2**60:
                distinct, key = np.unique(key, return_inverse=True)
                size = len(distinct)
            key, size = key * width + np.where(after[-1] < NODES, RIGHT, after[-1]), size * width
        key = (np.where(worst == WRONG, 0, key) * 3 + worst) * 2 + known.carry_in[read]
        _, first, target = np.unique(key, return_index=True, return_inverse=True)
        counts = chains.advance(counts, source, target.reshape(-1), len(first), known, read, exact=column == 0)
        carry, outcome = known.carry_in[read[first]], worst[first]
        nodes = np.zeros((len(first), len(diagrams)), dtype=np.int64)
        for i, reached in zip(active, after, strict=True):
            nodes[:, i] = np.where((reached[first] < NODES) | (outcome == WRONG), RIGHT, reached[first])
    found = [chains.lengths(counts[outcome == verdict]) for verdict in (RIGHT, OPEN, WRONG)]
    assert not nodes.any() and not carry.any()
    result = Counts(*found)
    assert result.total == rule.size, "pairs were lost"
    return result


class _Chains:
    """The longest carry chain as part of a state. Columns of the counts are (r, m), or one column without chains."""

    def __init__(self, columns: int):
        self.states = [(r, m) for r in range(columns + 1) for m in range(columns + 1 - r)]
        index = {state: i for i, state in enumerate(self.states)}
        self.generated = [index[0, max(m, r + 1)] if columns > r else 0 for r, m in self.states]
        self.passed = [index.get((r + 1, m), 0) for r, m in self.states]
        self.apart = [index[0, m] for _, m in self.states]
        self.longest = columns

    def __len__(self) -> int:
        return len(self.states)

    def advance(
        self,
        counts: Int[np.ndarray, "state chain"],
        source: Int[np.ndarray, " move"],
        target: Int[np.ndarray, " move"],
        n_targets: int,
        known: Symbols,
        read: Int[np.ndarray, " move"],
        exact: bool,
    ) -> np.ndarray:
        """The counts after one more column. ``exact`` gives Python integers, for counts that 64 bits may not hold."""
        from scipy.sparse import coo_matrix  # imported here, as few programs need it

        out = known.carry_out[read]
        generates = known.makes[read] & (out == 1)
        passes = ~known.makes[read] & (out == 1)
        found = np.zeros((n_targets, len(self)), dtype=object if exact else np.int64)
        for moves, to in ((generates, self.generated), (passes, self.passed), (out == 0, self.apart)):
            ones = np.ones(int(moves.sum()), dtype=np.int64)
            matrix = coo_matrix((ones, (target[moves], source[moves])), shape=(n_targets, len(counts))).tocsr()
            if exact:
                assert len(read) < 2**_HALF
                low, high = matrix @ (counts & (2**_HALF - 1)), matrix @ (counts >> _HALF)
                moved = low.astype(object) + high.astype(object) * 2**_HALF
            else:
                moved = matrix @ counts
            for i, column in enumerate(to):
                found[:, column] += moved[:, i]
        return found

    def lengths(self, counts: np.ndarray) -> tuple[int, ...]:
        """Counts by chain length, over all states; no chain is open after the lowest column."""
        found = [0] * (self.longest + 1)
        for (_, m), value in zip(self.states, counts.sum(0) if len(counts) else [0] * len(self), strict=True):
            found[m] += int(value)
        return tuple(found)
