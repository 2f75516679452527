"""Addition of two numbers of equal width as a format, and of ten-digit numbers in MicroAdder's formats.

A sequence of MicroAdder's is ``a + b = s0..s10 EOS`` in 34 tokens, ten per operand, the answer least significant digit
first. 33 tokens go in; the query at 21 + i predicts s_i and the query at 32 predicts EOS. Formats differ in the order
of an operand's digits and in the tokens of plus, equals and EOS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.arguments import checked_method
from models.errors import UserError
from models.notation import Notation, pairs_below
from models.tasks.base import Task
from models.tasks.formatted_task import FormattedTask
from models.tasks.ten_digit_problems import ten_digit_test_set, validation_problems
from models.tasks.ten_digits import DIGITS, as_problems

PLUS, EQUALS, ANSWER, EOS = 10, 21, 22, 33  # positions


class PairAddition(FormattedTask):
    """Addition of two numbers of equal width, all pairs of them; problems may be texts such as "57+48"."""

    #: Problems rich in carries are drawn as for every addition of two numbers of equal width.
    sample_carry_rich = None  # pyright: ignore[reportAssignmentType]
    problem_text = Task.problem_text  # with a plus, which not every format writes

    def __init__(self, format: str, name: str, **more: Any):
        super().__init__(format, "a + b", variables="addition", name=name, **more)

    @property
    def limit(self) -> int:
        """Operands are below it."""
        return self.base ** self.numbers_fields[0].width

    @cached_property
    def notation(self) -> Notation:  # pyright: ignore[reportIncompatibleVariableOverride]
        return pairs_below(self.limit)

    def as_problems(self, problems: Any) -> Int[Tensor, "n 2"]:
        return as_problems(problems, self.limit)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
        """Pairs of independent uniform integers in [0, limit)."""
        return torch.randint(self.limit, (n, 2), generator=generator, device=generator.device)


class FixedWidthAddition(PairAddition):
    """Ten-digit addition, ``before a between b after s EOS``; a subclass says how operands and delimiters look."""

    @cached_property
    def ended(self) -> bool:
        """Whether EOS is predicted after the answer."""
        return bool(self._ending)

    @cached_property
    def delimiters(self) -> Sequence[Sequence[int]]:
        """The tokens before a, between the operands, and before the answer."""
        at = [self.parts.index(field) for field in (*self.numbers_fields, self.answer_field)]
        between = [self.parts[start:end] for start, end in zip([0, *[i + 1 for i in at]], at, strict=False)]
        return tuple(
            tuple(self.ids[token] for part in parts if isinstance(part, str) for token in self._literals[part])
            for parts in between
        )

    @property
    def plus_token(self) -> int:
        return self.delimiters[1][0]

    @property
    def equals_token(self) -> int:
        return self.delimiters[2][-1]

    @property
    def eos_token(self) -> int:
        """The token of EOS; 0 in a format without one."""
        return self.ids[self._ending[0]] if self.ended else 0

    @property
    def most_significant_first(self) -> bool:
        """Whether operands start with their most significant digit."""
        return not self.numbers_fields[0].reversed

    @property
    def answer_down(self) -> bool:
        """Whether the answer starts with its most significant digit."""
        return not self.answer_field.reversed

    @checked_method
    def target_column(self, target: int) -> int:
        """The column of a target, and the target of a column."""
        return DIGITS - target if self.answer_down else target

    @checked_method
    def operand_position(self, operand: int, column: int) -> int:
        """The position of an operand's digit in a column (0 is units).

        Raises:
            UserError: there is no such operand or column.
        """
        wanted = ("operand", operand, column)
        found = [i for i, role in enumerate(self.roles) if (role.kind, role.index, role.column) == wanted]
        if not found:
            raise UserError(f"{self.name} has operands 0 and 1 of {DIGITS} digits; none is {column} of {operand}.")
        return found[0]

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        """AdderBoard's 10,010 problems."""
        return "AdderBoard", ten_digit_test_set()

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n 2"]:
        """Half uniform, half with a carry of any length, none in AdderBoard in either order."""
        return validation_problems(n, seed)


class TenDigitAddition(FixedWidthAddition):
    """MicroAdder's format: least significant digit first; plus, equals and EOS are token 0, known by place."""

    def __init__(self, name: str = "ten-digit-addition", ending: str = "<EOS>", ids: Mapping[str, int] | None = None):
        format = f"{{a:{DIGITS}r}}+{{b:{DIGITS}r}}={{s:{DIGITS + 1}r}}{ending}"
        digits = {str(digit): digit for digit in range(10)}
        super().__init__(format, name, vocabulary=digits | dict(ids or {"+": 0, "=": 0, "<EOS>": 0}))


class UnendedAddition(TenDigitAddition):
    """MicroAdder's format without EOS: an answer is eleven digits, so that nothing reads the last of them."""

    def __init__(self) -> None:
        super().__init__("ten-digit-addition-unended", ending="")


class DelimitedAddition(TenDigitAddition):
    """MicroAdder's format in 14 tokens: plus is token 10, equals 11, EOS 12, and 13 is a padding that never occurs."""

    def __init__(self) -> None:
        super().__init__("ten-digit-addition-delimited", ids={"+": 10, "=": 11, "$": 12, "<EOS>": 12, "_": 13})
