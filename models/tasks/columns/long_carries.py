"""Problems whose carries travel a chosen number of columns.

Uniform problems hardly test long carries: among ten thousand, none travels past more than three nines.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.named.ten_digits import DIGITS, chain_length


def uniform_below(high: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """A uniform integer in 0..high-1 for each bound."""
    return (torch.rand(len(high), generator=generator, dtype=torch.float64) * high).long()


def plant_carry(start: Int[Tensor, " n"], nines: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, "n 2"]:
    """Sums in which column ``start`` generates a carry and the next ``nines`` columns (digit sum 9) pass it on.

    All other digits are uniform, so the carry may travel further and others may be there too. ``start + nines`` is
    at most 9.
    """
    n = len(start)
    a, b = torch.randint(10, (2, n, DIGITS), generator=generator)
    column = torch.arange(DIGITS)
    past = (column > start[:, None]) & (column <= (start + nines)[:, None])
    b = torch.where(past, 9 - a, b)
    first = 1 + uniform_below(torch.full((n,), 9), generator)  # generating: a in 1..9, b in 10-a..9
    generating = column == start[:, None]
    a = torch.where(generating, first[:, None], a)
    b = torch.where(generating, (9 - uniform_below(first, generator))[:, None], b)
    powers = 10**column
    return torch.stack(((a * powers).sum(1), (b * powers).sum(1)), 1)


def problems_of_chain_length(length: int, n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
    """``n`` problems whose longest carry chain is exactly ``length`` (0 to 10).

    A chain of that length is planted at a uniform place, all other digits are uniform, and problems with a longer
    chain are drawn again; for length 0 the digit pairs are uniform among those that sum to at most 9.

    Raises:
        UserError: a length that ten columns cannot have.
    """
    if not 0 <= length <= DIGITS:
        raise UserError(f"Carry chains of ten digits have length 0 to {DIGITS}, not {length}.")
    if length == 0:
        pairs = torch.tensor([(a, b) for a in range(10) for b in range(10 - a)])
        digits = pairs[torch.randint(len(pairs), (n, DIGITS), generator=generator)]
        return (digits * 10 ** torch.arange(DIGITS)[:, None]).sum(1)
    kept = torch.empty(0, 2, dtype=torch.int64)
    while len(kept) < n:
        start = uniform_below(torch.full((n,), DIGITS + 1 - length), generator)
        drawn = plant_carry(start, torch.full((n,), length - 1), generator)
        kept = torch.cat((kept, drawn[chain_length(drawn) == length]))
    return kept[:n]


def carry_heavy(n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
    """Problems with a carry from a uniform column c past k columns whose digits add up to nine, k uniform in 0..9-c;
    all other digits are uniform."""
    start = uniform_below(torch.full((n,), DIGITS), generator)
    return plant_carry(start, uniform_below(DIGITS - start, generator), generator)
