"""From verdicts on windows (:mod:`interp.proofs.windows`) to diagrams that can be counted, refined where open.

Tables of two columns hold most of what decides an answer. Windows that are still open there are made longer, one column
at a time and only they, so that no table of three columns (two million entries a target) is ever needed.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from interp.proofs.branching import Search
from interp.proofs.counting import NODES, OPEN, RIGHT, WRONG, Diagram, diagram_of_windows, symbols
from interp.proofs.leaves import Leaves
from interp.proofs.windows import WindowVerdicts, verdicts

_SYMBOLS = symbols(10)
_PAIR = 10 * _SYMBOLS.x + _SYMBOLS.y
_END = np.array([OPEN, RIGHT, WRONG], dtype=np.int32)  # by verdict 0, 1, -1


def window_diagrams(search: Search, tables: WindowVerdicts, most: int) -> list[Diagram]:
    """The verdicts of some tables as diagrams, open windows being made longer.

    Precondition: tables of at least two columns where the target has two, which say what token stands at its query.
    Postcondition: what a diagram says of a problem is what ``search`` proved of a window that it lies in.

    Cost: at most ``most`` windows are judged, 100 for each open one, and 20 us to 1 ms each (those that attention moves
    much are cut in parts). Targets with few open windows come first; where a target's next column would take more
    windows than are left, its open ones stay open.
    """
    order = sorted(range(len(tables.tables)), key=lambda target: int((tables.tables[target] == 0).sum()))
    found: dict[int, Diagram] = {}
    for target in order:
        table, low = tables.tables[target], tables.columns(target).start
        below, most = _longer(search, target, table, low, most)
        found[target] = diagram_of_windows(table, target, below=below)
    return [found[target] for target in range(len(order))]


def _longer(
    search: Search, target: int, table: Int[np.ndarray, "2 *pairs"], low: int, most: int
) -> tuple[list[Int[np.ndarray, "_ symbol"]], int]:
    """Levels of the columns below a table's windows, and how many more windows may be judged."""
    queries = list(search.queries(target))
    carry, *pairs = np.unravel_index(np.flatnonzero(table == 0), table.shape)
    leaves = Leaves(low, carry, np.stack(pairs, 1))
    found: list[np.ndarray] = []
    while leaves.low and len(leaves):
        column = leaves.low - 1
        possible = np.stack([_SYMBOLS.possible(column, c) for c in (0, 1)])[leaves.carry]
        row, symbol = np.nonzero(possible)
        if len(row) > most:
            break
        most -= len(row)
        added = _PAIR[symbol, None]
        longer = Leaves(column, _SYMBOLS.carry_in[symbol], np.concatenate((added, leaves.pairs[row]), 1))
        verdict = np.zeros(len(row), dtype=np.int8)
        for query in queries:
            own = np.flatnonzero(query.holds(longer))
            verdict[own] = verdicts(search, query, longer[own])
        level = np.full(possible.shape, -1, dtype=np.int32)
        level[row, symbol] = _END[verdict]
        if found:  # the open windows above are this level's nodes, in the same order
            found[-1][found[-1] == OPEN] = NODES + np.arange(len(leaves))
        found.append(level)
        leaves = longer[np.flatnonzero(verdict == 0)]
    return found, most
