"""Addition of two numbers below 100, in the format of minGPT's adder project (ToyGPT).

A sequence is ``a1 a0 b1 b0 s0 s1 s2``: the operands most significant digit first, the sum reversed, no delimiters. Six
tokens go in; the queries at b0, s0 and s1 predict s0, s1 and s2. There are only 10,000 problems, so that a model can be
tried on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.notation import pairs_below
from models.tasks.base import Role, Task
from models.tasks.domain import Domain
from models.tasks.places import OUTPUT, OWN, PREVIOUS
from models.tasks.schoolbook import schoolbook
from models.tasks.ten_digits import as_problems, digit_rows, to_digits

LIMIT = 100
ANSWER_DIGITS = 3
TEST_SIZE, SPLIT_SEED = 500, 1337
#: Where each operand's units and tens stand: (a0, b0), (a1, b1).
OPERAND_POSITIONS = ((1, 3), (0, 2))
FIRST_QUERY = 3


def all_problems() -> Int[Tensor, "n 2"]:
    """All 10,000 pairs, in the order of 100 a + b."""
    index = torch.arange(LIMIT * LIMIT)
    return torch.stack((index // LIMIT, index % LIMIT), 1)


@cache
def _split() -> tuple[Tensor, Tensor]:
    order = torch.randperm(LIMIT * LIMIT, generator=torch.Generator().manual_seed(SPLIT_SEED))
    shuffled = all_problems()[order]
    return shuffled[:TEST_SIZE], shuffled[TEST_SIZE:]


def held_out_problems() -> Int[Tensor, "n 2"]:
    """The 500 pairs held out: the first of torch's permutation with seed 1337, as in minGPT."""
    return _split()[0].clone()


def training_problems() -> Int[Tensor, "n 2"]:
    """The other 9,500."""
    return _split()[1].clone()


class TwoDigitAddition(Task):
    """Two-digit addition: ``a1 a0 b1 b0``, then the sum's units, tens and hundreds."""

    name = "two-digit-addition"
    vocabulary = "0123456789"
    notation = pairs_below(LIMIT)
    d_vocab = 10
    input_length = 6
    domain: Domain = Domain.of((2, 2))

    @cached_property
    def roles(self) -> Sequence[Role]:
        operands = [Role("operand", f"{'ab'[i]}{c}", c, i) for i in (0, 1) for c in (1, 0)]
        return (*operands, *self.target_roles)

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        return tuple(Role("answer", f"s{i}", i) for i in range(ANSWER_DIGITS))

    @cached_property
    def query_positions(self) -> Sequence[int]:
        return tuple(range(FIRST_QUERY, FIRST_QUERY + ANSWER_DIGITS))

    def as_problems(self, problems: Any) -> Int[Tensor, "n 2"]:
        return as_problems(problems, LIMIT)

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        """The 500 pairs that are never trained on."""
        return "the 500 pairs held out", held_out_problems()

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n 2"]:
        """Training pairs, drawn without replacement, as all pairs outside the test set are trained on.

        The first n - n // 2 are uniform; the rest have a carry into the tens that a tens sum of nine passes on or, once
        those are used up, a carry into the tens.
        """
        pool = training_problems()
        if not 1 <= n <= len(pool):
            raise UserError(f"There are {len(pool):,} pairs outside the test set; {n} cannot be drawn from them.")
        pool = pool[torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))]
        natural, rest = pool[: n - n // 2], pool[n - n // 2 :]
        hardest_first = self.chain_length(rest).argsort(descending=True, stable=True)
        return torch.cat((natural, rest[hardest_first[: n // 2]]))

    def encode(self, problems: Any) -> Int[Tensor, "n 6"]:
        """Both operands and the first two digits of the true sum (teacher forcing)."""
        pairs = self.as_problems(problems)
        return torch.cat((self.encode_prompt(pairs), self.targets(pairs)[:, :-1]), 1)

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n 4"]:
        pairs = self.as_problems(problems)
        return torch.cat([to_digits(pairs[:, i], 2).flip(1) for i in (0, 1)], 1)

    def targets(self, problems: Any) -> Int[Tensor, "n 3"]:
        """Units, tens and hundreds of the sum."""
        return to_digits(self.as_problems(problems).sum(1), ANSWER_DIGITS)

    def encode_rows(self, problems: Int[Tensor, "n 2"]) -> tuple[Tensor, Tensor]:
        """Tokens [6, n] and targets [3, n] as uint8, without checks."""
        a, b = (digit_rows(problems[:, i], 2).flip(0).to(torch.uint8) for i in (0, 1))
        answer = digit_rows(problems.sum(1), ANSWER_DIGITS).to(torch.uint8)
        return torch.cat((a, b, answer[:-1])), answer

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        """Numbers from answer digits, units first."""
        digits = torch.as_tensor(answer_tokens)[..., :ANSWER_DIGITS].long()
        powers = 10 ** torch.arange(digits.shape[-1], device=digits.device)
        return (digits * powers).sum(-1).reshape(-1).tolist()

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """Schoolbook addition over three columns; the names are :func:`models.tasks.schoolbook.schoolbook`'s."""
        pairs = self.as_problems(problems)
        return schoolbook(to_digits(pairs[:, 0], ANSWER_DIGITS), to_digits(pairs[:, 1], ANSWER_DIGITS))

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """Columns that the longest-travelling carry passes: 0 none, 1 made and consumed, 2 past a tens sum of nine."""
        return self.variables(problems)["chain"].max(1).values

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """Positions (up to the query's own) by their meaning to answer digit ``target``; every one in one group."""
        own = list(OPERAND_POSITIONS[target]) if target < len(OPERAND_POSITIONS) else []
        previous = list(OPERAND_POSITIONS[target - 1]) if target >= 1 else []
        groups = {
            OWN: own,
            PREVIOUS: previous,
            OUTPUT: [FIRST_QUERY + target] if target >= 1 else [],
        }
        return self.with_rest(groups, FIRST_QUERY + target)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
        """Pairs of independent uniform integers in [0, 100)."""
        return torch.randint(LIMIT, (n, 2), generator=generator, device=generator.device)
