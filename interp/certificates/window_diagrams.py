"""From verdicts on windows (:mod:`interp.certificates.windows`) to diagrams that can be counted, refined where open.

Tables of two columns hold most of what decides an answer. Windows that are still open there are made longer, one column
at a time and only they, so that no table of three columns (two million entries a target) is ever needed.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from interp.certificates.branching import Search
from interp.certificates.counting import NODES, OPEN, RIGHT, WRONG, Diagram, diagram_of_windows, symbols
from interp.certificates.leaves import Leaves
from interp.certificates.windows import WindowVerdicts, verdicts

_SYMBOLS = symbols(10)
_PAIR = 10 * _SYMBOLS.x + _SYMBOLS.y
_END = np.array([OPEN, RIGHT, WRONG], dtype=np.int32)  # by verdict 0, 1, -1


def window_diagrams(search: Search, tables: WindowVerdicts, most: int) -> list[Diagram]:
    """The verdicts of some tables as diagrams, open windows being made longer.

    Precondition: tables of at least two columns where the target has two, which say what token stands at its query.
    Postcondition: what a diagram says of a problem is what ``search`` proved of a window that it lies in.

    Cost: at most ``most`` windows are judged a target and column, some 20 us each; 100 for each open one.
    """
    return [
        diagram_of_windows(table, target, below=_longer(search, target, table, tables.columns(target).start, most))
        for target, table in enumerate(tables.tables)
    ]


def _longer(
    search: Search, target: int, table: Int[np.ndarray, "2 *pairs"], low: int, most: int
) -> list[Int[np.ndarray, "_ symbol"]]:
    """Levels of the columns below a table's windows, for as many of its open ones as may be judged."""
    queries = list(search.queries(target))
    carry, *pairs = np.unravel_index(np.flatnonzero(table == 0), table.shape)
    leaves = Leaves(low, carry, np.stack(pairs, 1))
    found: list[np.ndarray] = []
    while leaves.low and len(leaves) and most >= 100:
        column = leaves.low - 1
        # The first ones: those behind them stay open.
        leaves = leaves[: most // 100]
        if found:
            later = found[-1] >= NODES + len(leaves)
            found[-1] = np.where(later, np.int32(OPEN), found[-1])
        possible = np.stack([_SYMBOLS.possible(column, c) for c in (0, 1)])[leaves.carry]
        row, symbol = np.nonzero(possible)
        longer = Leaves(
            column, _SYMBOLS.carry_in[symbol], np.concatenate((_PAIR[symbol, None], leaves.pairs[row]), 1)
        )  # fmt: skip
        verdict = np.zeros(len(row), dtype=np.int8)
        for query in queries:
            own = np.flatnonzero(query.holds(longer))
            verdict[own] = verdicts(search, query, longer[own])
        level = np.full(possible.shape, -1, dtype=np.int32)
        level[row, symbol] = _END[verdict]
        open_ = np.flatnonzero(verdict == 0)
        if column:
            level[row[open_], symbol[open_]] = NODES + np.arange(len(open_))
        found.append(level)
        leaves = longer[open_]
    if found and leaves.low:
        found[-1] = np.where(found[-1] >= NODES, np.int32(OPEN), found[-1])
    return found
