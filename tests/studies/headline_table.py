"""The table of the papers' numbers, made once for all tests that read it: it asks every stored result."""

from __future__ import annotations

from functools import cache

from studies.claims import Headlines, table
from tests.shape_checks import unchecked_shapes


@cache
def whole_table() -> Headlines:
    """Every paper's; what its rows are made of has tests of its own, which check shapes."""
    with unchecked_shapes():
        return table()
