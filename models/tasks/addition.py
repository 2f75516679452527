"""Addition of two ten-digit numbers: what its formats share, and MicroAdder's format.

A sequence is ``a + b = s0..s10 EOS`` in 34 tokens, ten per operand, the answer least significant digit first. 33 tokens
go in; the query at 21 + i predicts s_i and the query at 32 predicts EOS. Formats differ in the order of an operand's
digits and in the tokens of plus, equals and EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.arguments import checked
from models.errors import UserError
from models.notation import pairs_below
from models.tasks import ten_digits
from models.tasks.adderboard import adderboard, validation_problems
from models.tasks.base import Role, Task
from models.tasks.domain import Domain
from models.tasks.places import DELIMITERS, OUTPUT, OWN, PREVIOUS
from models.tasks.ten_digits import DIGITS, LIMIT, as_problems, digit_rows

PLUS, EQUALS, ANSWER, EOS = 10, 21, 22, 33  # positions
_POWERS = 10 ** torch.arange(DIGITS + 1)


class FixedWidthAddition(Task):
    """Ten-digit addition, ``before a between b after s EOS``; a subclass says how operands and delimiters look."""

    input_length = 33
    plus_token, equals_token, eos_token = 0, 0, 0
    most_significant_first = False  # the operands
    answer_down = False  # whether the answer starts with its most significant digit
    ended = True  # by EOS, which is predicted
    delimiter_labels: Sequence[Sequence[str]] = ((), ("+",), ("=",))
    notation = pairs_below(LIMIT)
    domain: Domain = Domain.of((DIGITS, DIGITS))

    @cached_property
    def delimiters(self) -> Sequence[Sequence[int]]:
        """The tokens before a, between the operands, and before the answer."""
        return (), (self.plus_token,), (self.equals_token,)

    @cached_property
    def starts(self) -> Sequence[int]:
        """Where a, b and the answer start."""
        before, between, after = map(len, self.delimiters)
        return before, before + DIGITS + between, before + 2 * DIGITS + between + after

    @cached_property
    def roles(self) -> Sequence[Role]:
        columns = [self._place(i) for i in range(DIGITS)]  # column of each place; the order is its own inverse
        a, b = ([Role("operand", f"{name}{i}", i, index) for i in columns] for index, name in enumerate("ab"))
        before, between, after = ([Role("delimiter", label) for label in part] for part in self.delimiter_labels)
        return (*before, *a, *between, *b, *after, *self.target_roles)

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        answer = (Role("answer", f"s{i}", i) for i in map(self.target_column, range(DIGITS + 1)))
        return (*answer, Role("eos", "EOS")) if self.ended else tuple(answer)

    @cached_property
    def query_positions(self) -> Sequence[int]:
        first = self.starts[2] - 1
        return tuple(range(first, first + DIGITS + 1 + self.ended))

    def _place(self, column: int) -> int:
        return DIGITS - 1 - column if self.most_significant_first else column

    @checked
    def target_column(self, target: int) -> int:
        """The column of a target, and the target of a column."""
        return DIGITS - target if self.answer_down else target

    @checked
    def operand_position(self, operand: int, column: int) -> int:
        """The position of an operand's digit in a column (0 is units).

        Raises:
            UserError: there is no such operand or column.
        """
        if operand not in (0, 1) or column not in range(DIGITS):
            raise UserError(f"{self.name} has operands 0 and 1 of {DIGITS} digits; none is {column} of {operand}.")
        return self.starts[operand] + self._place(column)

    def as_problems(self, problems: Any) -> Int[Tensor, "n 2"]:
        return as_problems(problems)

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        """Both operands, the delimiters and the digits of the true sum (teacher forcing)."""
        return self._rows(as_problems(problems), torch.int64)[0].T.contiguous()

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n pos"]:
        return self._prompt(as_problems(problems), torch.int64).T.contiguous()

    def _prompt(self, pairs: Int[Tensor, "n 2"], dtype: torch.dtype) -> Integer[Tensor, "pos n"]:
        a, b = (digit_rows(pairs[:, i], DIGITS).to(dtype) for i in (0, 1))
        a, b = (x.flip(0) if self.most_significant_first else x for x in (a, b))
        before, between, after = (self._constant(part, a) for part in self.delimiters)
        return torch.cat((before, a, between, b, after))

    @staticmethod
    def _constant(tokens: Sequence[int], like: Tensor) -> Integer[Tensor, "pos n"]:
        return torch.tensor(tokens, dtype=like.dtype, device=like.device)[:, None].expand(-1, like.shape[1])

    def targets(self, problems: Any) -> Int[Tensor, "n target"]:
        """The eleven digits of the sum, and EOS."""
        return self._targets(as_problems(problems), torch.int64).T

    def _targets(self, pairs: Int[Tensor, "n 2"], dtype: torch.dtype) -> Integer[Tensor, "target n"]:
        answer = digit_rows(pairs.sum(1), DIGITS + 1).to(dtype)
        answer = answer.flip(0) if self.answer_down else answer
        return torch.cat((answer, self._constant([self.eos_token], answer))) if self.ended else answer

    def _rows(self, pairs: Int[Tensor, "n 2"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        targets = self._targets(pairs, dtype)
        return torch.cat((self._prompt(pairs, dtype), targets[:-1])), targets

    def encode_rows(self, problems: Int[Tensor, "n 2"]) -> tuple[Tensor, Tensor]:
        """Tokens [pos, n] and targets [target, n] as uint8, without checks."""
        return self._rows(problems, torch.uint8)

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        """Numbers from answer digits (a trailing EOS column is ignored); -1 where a token is not a digit."""
        digits = torch.as_tensor(answer_tokens)[..., : DIGITS + 1].long()
        if digits.shape[-1] <= DIGITS:
            raise UserError(f"An answer of {self.name} has {DIGITS + 1} digits, not {digits.shape[-1]}.")
        digits = digits.flip(-1) if self.answer_down else digits
        number = (digits * _POWERS.to(digits.device)).sum(-1)
        return torch.where((digits < 10).all(-1), number, -1).reshape(-1).tolist()

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """Schoolbook addition, column by column (eleven columns; column 10 holds the last carry).

        a, b: digits. digit_sum: a + b. carry_in, carry_out: 0 or 1. s: answer digit. generate: a + b >= 10;
        propagate: a + b = 9. chain: number of columns that the carry into a column has travelled (0 without one).
        """
        return ten_digits.columns(as_problems(problems))

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """Columns that the longest-travelling carry passes: 0 none, 1 generated and consumed, 1 + k past k nines."""
        return ten_digits.chain_length(as_problems(problems))

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """Positions (up to the query's own) by their meaning to answer digit ``target``; every one in one group."""
        own, query = self.target_column(target), self.starts[2] - 1 + target
        operands = lambda column: [self.operand_position(i, column) for i in (0, 1)]  # noqa: E731
        groups: dict[str, list[int]] = {
            OWN: operands(own) if own < DIGITS else [],
            PREVIOUS: operands(own - 1) if 0 < own <= DIGITS else [],
            OUTPUT: [query] if target else [],
            DELIMITERS: [i for i, role in enumerate(self.roles) if role.kind == "delimiter"],
        }
        return self.with_rest(groups, query)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
        """Pairs of independent uniform integers in [0, 10^10)."""
        return torch.randint(LIMIT, (n, 2), generator=generator, device=generator.device)

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        """AdderBoard's 10,010 problems."""
        return "AdderBoard", adderboard()

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n 2"]:
        """Half uniform, half with a carry of any length, none in AdderBoard in either order."""
        return validation_problems(n, seed)


class TenDigitAddition(FixedWidthAddition):
    """MicroAdder's format: least significant digit first; plus, equals and EOS are token 0, known by place."""

    name = "ten-digit-addition"
    vocabulary = "0123456789"
    d_vocab = 10


class UnendedAddition(TenDigitAddition):
    """MicroAdder's format without EOS: an answer is eleven digits, so that nothing reads the last of them."""

    name = "ten-digit-addition-unended"
    input_length = 32
    ended = False


class DelimitedAddition(TenDigitAddition):
    """MicroAdder's format in 14 tokens: plus is token 10, equals 11, EOS 12, and 13 is a padding that never occurs."""

    name = "ten-digit-addition-delimited"
    d_vocab = 14
    plus_token, equals_token, eos_token = 10, 11, 12
    vocabulary = "0123456789+=$_"
