"""Verdicts on windows of columns: is every problem of a window answered rightly at a target, or every one wrongly?

The windows of target i are its own column and those below it; the carry into the lowest stands for everything below.
With tables of depth 1, 2 and 3 the share of problems that are answered rightly can be bounded by counting.

Tables of two columns hold most of what decides an answer. :func:`window_diagrams` makes windows that are still open
there longer, one column at a time, so that a table of three columns (two million entries per target) is never needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.column_windows import WindowBounds, Windows
from interp.proofs.columns.pair_counting import NODES, OPEN, RIGHT, WRONG, Diagram, diagram_of_windows, symbols
from interp.proofs.columns.window_search import CHUNK, Search

_END = np.array([OPEN, RIGHT, WRONG], dtype=np.int32)  # by verdict 0, 1, -1


@dataclass(frozen=True, eq=False)
class WindowVerdicts:
    """One table per target, with axes [carry into the lowest column, pair of the lowest column, ..., of the highest].

    The window's columns are ``max(0, top - depth + 1) .. top`` with ``top = min(target, digits - 1)``, and a pair is
    10 x + y. An entry is 1 if every problem of the window is answered rightly at the target (teacher-forced), -1 if
    every one is answered wrongly, and 0 if neither is known. Column 0 has no carry in: if it is the lowest, the rows of
    carry 1 are 0, as are windows without a problem.
    """

    rule: ColumnRule
    depth: int
    tables: tuple[np.ndarray, ...]

    def columns(self, target: int) -> range:
        """The window's columns."""
        top = min(target, self.rule.digits - 1)
        return range(max(0, top - self.depth + 1), top + 1)


def window_verdicts(search: Search, depth: int) -> WindowVerdicts:
    """Judge every window of ``depth`` columns of every target.

    All extensions of a window have its verdict, so that only extensions of open windows are judged again. At depth 1
    the query's own token is not yet known at most targets; a window is right there if it is right with every token.

    Postcondition: as :class:`WindowVerdicts` says, in the search's arithmetic, for each problem and each window that it
    lies in. Cost: at depth 1, 20,000 windows; deeper, about 100 windows for each open one (at most 2 10^6 per target at
    depth 3), at some 50 us per window; 2 MB per table. Columns above the window stay free, and may leave windows open
    for good.

    Precondition: attention with terms, and a depth of 1, 2 or 3.
    """
    tables = tuple(table_of(search, target, depth) for target in range(len(search.adder.layout.queries)))
    return WindowVerdicts(search.adder.layout.rule, depth, tables)


def table_of(search: Search, target: int, depth: int) -> Int[np.ndarray, "2 *pairs"]:
    """One table of :func:`window_verdicts`."""
    queries = list(search.queries(target))
    tokens = {query.token: index for index, query in enumerate(queries)}
    rule = search.adder.layout.rule
    known, top = symbols(rule), min(target, rule.digits - 1)
    written, out = (x.reshape(2, 100) for x in (known.written, known.carry_out))  # [carry, pair]
    by_token = np.zeros((len(queries), 2, 100), dtype=np.int8)
    possible = np.zeros((len(queries), 2, 100), dtype=bool)
    for index, query in enumerate(queries):
        unsplit = query.unsplit_windows()
        place = (index, unsplit.carry, unsplit.pairs[:, 0])
        possible[place], by_token[place] = True, verdicts(search, query, unsplit)
    # Where the verdicts for all tokens agree, they become one.
    table = ((by_token == 1) | ~possible).all(0).astype(np.int8) - ((by_token == -1) | ~possible).all(0)
    for columns in range(2, min(depth, top + 1) + 1):
        low = top - columns + 1
        if columns == 2 and target < rule.digits:  # the column below decides the token at the query
            index = np.array([tokens.get(z, 0) for z in range(10)])
            table = by_token[index[written], out]
        else:
            table = table[out]
        _judge_open(search, queries, table, low)
    if top - depth + 1 <= 0:
        table[1] = 0
    return table


def _judge_open(search: Search, queries: list[WindowBounds], table: Int[np.ndarray, "2 *pairs"], low: int) -> None:
    """Judge the windows that are open in a table, and write their verdicts into it."""
    open_ = np.flatnonzero(table == 0)
    for start in range(0, len(open_), 10 * CHUNK):
        places = open_[start : start + 10 * CHUNK]
        carry, *pairs = np.unravel_index(places, table.shape)
        windows = Windows(search.adder.layout.rule, low, carry, np.stack(pairs, 1))
        for query in queries:
            own = np.flatnonzero(query.holds(windows))
            table.flat[places[own]] = verdicts(search, query, windows[own])


def verdicts(search: Search, query: WindowBounds, windows: Windows) -> Int[np.ndarray, " n"]:
    """The verdict on each window: 1 right, -1 wrong, 0 open."""
    lower, upper = search.bounds_of_windows(query, windows)
    return (lower > 0).astype(np.int8) - (upper < 0).astype(np.int8)


# ---- diagrams


def window_diagrams(search: Search, tables: WindowVerdicts, most: int) -> list[Diagram]:
    """The verdicts of some tables as diagrams, in which open windows are made longer.

    Precondition: tables of at least two columns where the target has two, as these decide the token at its query.
    Postcondition: what a diagram says of a problem is what ``search`` proved of a window that it lies in.

    Cost: at most ``most`` windows are judged, 100 for each open one, at 20 us to 1 ms each (windows in which attention
    varies much are cut into parts). Targets with few open windows come first; where a target's next column would take
    more windows than are left, its open ones stay open.
    """
    order = sorted(range(len(tables.tables)), key=lambda target: int((tables.tables[target] == 0).sum()))
    found: dict[int, Diagram] = {}
    for target in order:
        table, low = tables.tables[target], tables.columns(target).start
        below, most = _longer(search, target, table, low, most)
        found[target] = diagram_of_windows(table, target, tables.rule, below)
    return [found[target] for target in range(len(order))]


def _longer(
    search: Search, target: int, table: Int[np.ndarray, "2 *pairs"], low: int, most: int
) -> tuple[list[Int[np.ndarray, "_ symbol"]], int]:
    """The levels of the columns below a table's windows, and how many more windows may still be judged."""
    queries = list(search.queries(target))
    carry, *pairs = np.unravel_index(np.flatnonzero(table == 0), table.shape)
    rule = search.adder.layout.rule
    known = symbols(rule)
    windows = Windows(rule, low, carry, np.stack(pairs, 1))
    # A window without a problem is open, too, and nothing leads to it.
    holds = np.any([query.holds(windows) for query in queries], axis=0)
    found: list[np.ndarray] = []
    while windows.low and len(windows):
        column = windows.low - 1
        possible = np.stack([known.possible(column, c) for c in (0, 1)])[windows.carry] & holds[:, None]
        row, symbol = np.nonzero(possible)
        if len(row) > most:
            break
        most -= len(row)
        added = (10 * known.x + known.y)[symbol, None]
        longer = Windows(rule, column, known.carry_in[symbol], np.concatenate((added, windows.pairs[row]), 1))
        verdict = np.zeros(len(row), dtype=np.int8)
        for query in queries:
            own = np.flatnonzero(query.holds(longer))
            verdict[own] = verdicts(search, query, longer[own])
        level = np.full(possible.shape, -1, dtype=np.int32)
        level[row, symbol] = _END[verdict]
        if found:  # the open windows above are this level's nodes, in the same order
            found[-1][found[-1] == OPEN] = NODES + np.arange(len(windows))
        found.append(level)
        windows = longer[np.flatnonzero(verdict == 0)]
        holds = np.ones(len(windows), dtype=bool)
    return found, most
