"""Problems whose carries travel a chosen number of columns.

Uniform problems hardly test long carries: among ten thousand, none travels past more than three nines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.columns.schoolbook import schoolbook
from models.tasks.domain import Domain
from models.tasks.number_digits import DIGITS, digit_rows


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


def chain_length(pairs: Int[Tensor, "n 2"]) -> Int[Tensor, " n"]:
    """Columns that the longest-travelling carry passes: 0 none, 1 generated and consumed, 1 + k past k nines."""
    a, b = (digit_rows(numbers, DIGITS + 1).long().T for numbers in pairs.T)
    return schoolbook(a, b)["chain"].max(1).values


def digits_with_long_carries(columns: int, base: int, draw: Callable[[int], Tensor]) -> Int[Tensor, "n 2 column"]:
    """Digits of two operands in which carries travel far: in a problem whose rate r is uniform in [0, 0.95], a column
    adds up to base - 1, and so passes a carry on, with probability r. Half of the other columns make a carry, and the
    rest have uniform digits.

    ``draw(i)`` gives draw number i of every problem, uniform in [0, 1).
    """
    rate, found = 0.95 * draw(0), []
    for column in range(columns):
        passes, u, v, makes = (draw(4 * column + i) for i in (1, 2, 3, 4))
        a, b = (u * base).long(), (v * base).long()
        b = torch.where(passes < rate, base - 1 - a, b)
        making = (passes >= rate) & (makes < 0.5)
        first = 1 + (u * (base - 1)).long()
        a, b = torch.where(making, first, a), torch.where(making, base - first + (v * first).long(), b)
        found.append(torch.stack((a, b), 1))
    return torch.stack(found, 2)


@cache
def _pairs_of_kind(base: int) -> list[Int[np.ndarray, "pair 2"]]:
    """Pairs of digits that kill a carry, pass it on, and make one."""
    pairs = np.indices((base, base)).reshape(2, -1).T
    kind = np.sign(pairs.sum(1) - base + 1)
    return [pairs[kind == one] for one in (-1, 0, 1)]


def sums_with_long_carries(domain: Domain, n: int, seed: int) -> Int[Tensor, "n *operands"]:
    """Problems of a domain of two numbers of equal width, as :func:`carry_rich_digits` draws them."""
    leading_zeros, rng = not any(domain.lowest), np.random.default_rng(seed)
    digits = carry_rich_digits(domain.width(), n, rng, leading_zeros, domain.base)
    return domain.problems(torch.from_numpy(digits).transpose(1, 2).flatten(1))


def carry_rich(columns: int, n: int, rng: np.random.Generator, base: int = 10) -> Int[np.ndarray, "n 2"]:
    """Two-operand sums with long carry chains, as numbers; see :func:`carry_rich_digits`."""
    digits = carry_rich_digits(columns, n, rng, base=base)
    return np.einsum("ncd,c->nd", digits, base ** np.arange(columns, dtype=np.int64))


def carry_rich_digits(
    columns: int, n: int, rng: np.random.Generator, leading_zeros: bool = True, base: int = 10
) -> Int[np.ndarray, "n column 2"]:
    """Two-operand sums with long carry chains: each problem draws how often a column passes a carry on.

    A column's sum is 9 (in another base, its highest digit) with probability p ~ U(0, 0.95), one p per problem, else
    below or above it with equal chance. Its two digits are uniform among those with such a sum. Uniform decimal digits
    have p = 0.1. Units come first. Without ``leading_zeros`` the last column has no zeros.
    """
    passes = rng.uniform(0, 0.95, (n, 1))
    draw = rng.random((n, columns))
    kind = np.where(draw < passes, 1, np.where(draw < (1 + passes) / 2, 0, 2))  # index into _pairs_of_kind
    digits = np.empty((n, columns, 2), dtype=np.int64)
    for index, pairs in enumerate(_pairs_of_kind(base)):
        where = kind == index
        digits[where] = pairs[rng.integers(len(pairs), size=int(where.sum()))]
    if not leading_zeros:
        for index, pairs in enumerate(_pairs_of_kind(base)):
            where = kind[:, -1] == index
            without = pairs[(pairs > 0).all(1)]
            digits[where, -1] = without[rng.integers(len(without), size=int(where.sum()))]
    return digits
