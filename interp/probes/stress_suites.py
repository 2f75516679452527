"""Stress suites: problems on which a ten-digit adder may fail and which uniform test sets do not contain.

A uniform pair of ten-digit numbers has a carry chain longer than four columns once in ten thousand, and practically
never fewer than eight digits; a model can be right on 100,000 of them and wrong where it matters.
``interp.score(model, by="suite")`` scores each of these suites by itself:

    uniform               both operands uniform in [0, 10^10): the reference
    carry-chain length    problems whose longest chain has exactly this length, 0 to 10
    (:mod:`models.tasks.columns.long_carries`) full carry chains     the units make a carry and all nine other columns
    (digit sum 9) pass it on runs of nines         10^k - 1 and a number of up to k digits that is not 0, in either
    order digit counts          both operands uniform in [0, 10^k); every such pair for k = 1 and 2
    edge cases            every ordered pair of 0, 1, 9, powers of ten and their half, numbers of one repeated digit,
                          and the neighbours of all these

Curricula train on numbers with few digits; on these the suites show what is remembered, not what generalises. Scores
are of whole answers (greedy decoding and teacher forcing agree on them). Each case has its own strength of evidence:
exhaustive where all its problems were tried, else sampled, with a Clopper-Pearson interval for its own distribution.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from interp.core.results import Strength
from models.tasks import DIGITS, LIMIT, plant_carry, problems_of_chain_length, uniform_below

SHARE = 10  # in a suite of several cases, each case gets ``n / SHARE`` problems


def edge_numbers() -> list[int]:
    """0, 1, 9, powers of ten and their halves, numbers of one repeated digit, and the neighbours of all these."""
    found = {0, 1, 9}
    for k in range(DIGITS):
        found |= {10**k, 5 * 10**k} | {d * (10 ** (k + 1) - 1) // 9 for d in (1, 4, 5, 8, 9)}
    return sorted(x for x in {number + step for number in found for step in (-1, 0, 1)} if 0 <= x < LIMIT)


def full_chains(n: int, generator: torch.Generator) -> Tensor:
    """``n`` pairs whose units make a carry that all nine other columns pass on."""
    return plant_carry(torch.zeros(n, dtype=torch.int64), torch.full((n,), DIGITS - 1), generator)


def runs_of_nines(k: int, n: int, generator: torch.Generator) -> Tensor:
    """``n`` pairs of 10^k - 1 and a uniform number in 1..10^k - 1, in either order."""
    other = 1 + uniform_below(torch.full((n,), 10**k - 1), generator)
    pairs = torch.stack((torch.full((n,), 10**k - 1), other), 1)
    return torch.where((torch.rand(n, generator=generator) < 0.5)[:, None], pairs, pairs.flip(1))


def suites(n: int, seed: int) -> list[tuple[str, str, Strength, Tensor]]:
    """(suite, case, strength, problems) of every case: ``n`` problems if it is alone in its suite, else ``n / 10``."""
    generator, part = torch.Generator().manual_seed(seed), n // SHARE

    def below(k: int) -> tuple[Strength, Tensor]:
        if 10**k * 10**k <= 10**4:
            return "exhaustive", torch.cartesian_prod(torch.arange(10**k), torch.arange(10**k))
        return "sampled", torch.randint(10**k, (part, 2), generator=generator)

    found: list[tuple[str, str, Strength, Tensor]] = []
    found.append(("uniform", "ten digits", "sampled", torch.randint(LIMIT, (n, 2), generator=generator)))
    drawn: Callable[[int], Tensor] = lambda length: problems_of_chain_length(length, part, generator)  # noqa: E731
    for length in range(DIGITS + 1):
        found.append(("carry-chain length", str(length), "sampled", drawn(length)))
    found.append(("full carry chains", "all ten columns", "sampled", full_chains(n, generator)))
    for k in range(1, DIGITS + 1):
        found.append(("runs of nines", f"{k} nine{'s' * (k > 1)}", "sampled", runs_of_nines(k, part, generator)))
    found += [("digit counts", f"{k} digit{'s' * (k > 1)}", *below(k)) for k in range(1, DIGITS + 1)]
    edges = torch.tensor(edge_numbers())
    found.append(("edge cases", "every ordered pair", "exhaustive", torch.cartesian_prod(edges, edges)))
    return found
