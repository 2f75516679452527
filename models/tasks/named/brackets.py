"""Balanced brackets: does a string of n brackets close every bracket that it opens?

This is not arithmetic, but a running sum decides it: the depth ends at zero and is never negative.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import MOST
from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.formats.string_task import TokenFunction, function


def _depth(brackets: Int[Tensor, "n length"]) -> Int[Tensor, "n length"]:
    """How many brackets are open after each one."""
    return (1 - 2 * brackets).cumsum(1)


@typed
def BalancedBrackets(length: int = 16) -> TokenFunction:
    """Strings of ``length`` brackets, of which 0 opens and 1 closes; the answer is 1 if the string is balanced.

    Its variables are the depth after each bracket, the "lowest" depth so far, and as "chain" the depth or 0.
    """
    if not 2 <= length <= MOST:
        raise UserError(f"A string has two brackets or more, not {length}.")
    variables = {
        "depth": _depth,
        "lowest": lambda brackets: _depth(brackets).cummin(1).values,
        "chain": lambda brackets: _depth(brackets).clamp_min(0),
    }
    return function("01", length, "balanced", name=f"balanced-brackets-{length}", variables=variables)
