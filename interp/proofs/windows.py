"""Verdicts on windows of columns: is every problem of a window answered rightly at a target, or every one wrongly?

The windows of target i are its own column and those below it; the carry into the lowest stands for everything below.
With tables of depth 1, 2 and 3 the share of problems that are answered rightly can be bounded by counting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from interp.proofs.branching import CHUNK, Search
from interp.proofs.leaves import Leaves, Query
from models.errors import UserError
from models.tasks.addition import DIGITS

DEEPEST = 3
_PAIR_SUM = np.add.outer(range(10), range(10)).reshape(-1)
_SUM = _PAIR_SUM + np.array([[0], [1]])  # [carry, pair]


@dataclass(frozen=True, eq=False)
class WindowVerdicts:
    """One table a target, with axes [carry into the lowest column, pair of the lowest column, ..., of the highest].

    The window's columns are ``max(0, top - depth + 1) .. top`` with ``top = min(target, 9)``, a pair is 10 x + y. 1:
    every problem of the window is answered rightly at the target (teacher-forced); -1: every one wrongly; 0: neither is
    known. Where the lowest column is 0 there is no carry into it: the rows of carry 1 are 0, as are windows without a
    problem.
    """

    depth: int
    tables: tuple[np.ndarray, ...]

    def columns(self, target: int) -> range:
        """The window's columns."""
        top = min(target, DIGITS - 1)
        return range(max(0, top - self.depth + 1), top + 1)


def window_verdicts(search: Search, depth: int, progress: bool = False) -> WindowVerdicts:
    """Judge every window of ``depth`` columns of every target.

    What a shorter window was found to be, all of its extensions are; only those of open ones are judged again. At depth
    1 the query's own token is not yet known at most targets: a window is right there if it is with every token.

    Postcondition: as :class:`WindowVerdicts` says, in the search's arithmetic, for each problem and each window that it
    lies in. Cost: at depth 1, 20,000 leaves; deeper, about 100 leaves for each open one (at most 2 10^6 a target at
    depth 3), some 50 us a leaf; 2 MB a table. Columns above the window stay free, and may leave windows open for good.

    Raises:
        UserError: a depth other than 1, 2 or 3, or attention without terms.
    """
    if depth not in range(1, DEEPEST + 1):
        raise UserError(f"Windows have 1 to {DEEPEST} columns, not {depth}.")
    if search.attention.obstacle is not None:
        raise UserError(f"{search.adder.model.name} has no verdicts on windows: {search.attention.obstacle}.")
    targets = tqdm(range(len(search.adder.layout.queries)), disable=not progress, unit="target", desc="windows")
    return WindowVerdicts(depth, tuple(table_of(search, target, depth) for target in targets))


def table_of(search: Search, target: int, depth: int) -> Int[np.ndarray, "2 *pairs"]:
    """One table of :func:`window_verdicts`."""
    queries = list(search.queries(target))
    tokens = {query.token: index for index, query in enumerate(queries)}
    top = min(target, DIGITS - 1)
    by_token = np.zeros((len(queries), 2, 100), dtype=np.int8)
    possible = np.zeros((len(queries), 2, 100), dtype=bool)
    for index, query in enumerate(queries):
        roots = query.roots()
        place = (index, roots.carry, roots.pairs[:, 0])
        possible[place], by_token[place] = True, verdicts(search, query, roots)
    # One verdict for all tokens, where all agree.
    table = ((by_token == 1) | ~possible).all(0).astype(np.int8) - ((by_token == -1) | ~possible).all(0)
    for columns in range(2, min(depth, top + 1) + 1):
        low = top - columns + 1
        if columns == 2 and target < DIGITS:  # the column below says which token stands at the query
            index = np.array([tokens.get(z, 0) for z in range(10)])
            table = by_token[index[_SUM % 10], _SUM // 10]
        else:
            table = table[_SUM // 10]
        _judge_open(search, queries, table, low)
    if top - depth + 1 <= 0:
        table[1] = 0
    return table


def _judge_open(search: Search, queries: list[Query], table: Int[np.ndarray, "2 *pairs"], low: int) -> None:
    """Judge the windows that are open in a table, and write down what they are."""
    open_ = np.flatnonzero(table == 0)
    for start in range(0, len(open_), 10 * CHUNK):
        places = open_[start : start + 10 * CHUNK]
        carry, *pairs = np.unravel_index(places, table.shape)
        leaves = Leaves(low, carry, np.stack(pairs, 1))
        for query in queries:
            own = np.flatnonzero(query.holds(leaves))
            table.flat[places[own]] = verdicts(search, query, leaves[own])


def verdicts(search: Search, query: Query, leaves: Leaves) -> Int[np.ndarray, " n"]:
    """1, -1 or 0 for each leaf."""
    lower, upper = search.judge(query, leaves)
    return (lower > 0).astype(np.int8) - (upper < 0).astype(np.int8)
