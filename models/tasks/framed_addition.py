"""Ten-digit addition in the prompts of public AdderBoard models: tokens of one's own before, between and after.

A sequence is ``before a between b after s``; a frame says what the three are, whether the operands and the answer start
with their most significant digit, and how many tokens there are. The answer's eleven digits end it: there is no EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.addition import DIGITS, FixedWidthAddition, as_problems, digit_rows, to_digits
from models.tasks.base import Role


@dataclass(frozen=True)
class Frame:
    """What stands around the digits.

    Attributes:
        before, between, after: tokens before a, between a and b, and between b and the answer.
        operands_down, answer_down: whether the most significant digit comes first.
        vocabulary: the text of each token, the ten digits first.
    """

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = (0,)
    after: tuple[int, ...] = (0,)
    operands_down: bool = False
    answer_down: bool = False
    vocabulary: str = "0123456789"

    def __post_init__(self) -> None:
        tokens = (*self.before, *self.between, *self.after)
        if not all(0 <= token < len(self.vocabulary) for token in tokens) or not self.between or not self.after:
            raise UserError(
                f"A frame has tokens from 0 to {len(self.vocabulary) - 1}, at least one between the operands and one "
                f"after them, not {self.before}, {self.between} and {self.after}."
            )

    @property
    def name(self) -> str:
        """A name that tells frames apart, such as "00-up": counts of tokens before, between, after, and the orders."""
        sizes = "-".join(str(len(part)) for part in (self.before, self.between, self.after))
        orders = "".join("down" if down else "up" for down in (self.operands_down, self.answer_down))
        used = "".join(self.vocabulary[token] for token in (*self.before, *self.between, *self.after))
        return f"{sizes}-{orders}-{used}"


class FramedAddition(FixedWidthAddition):
    """The task of one frame. Target i is the digit of column i, or of column 10 - i if the answer starts at the top."""

    def __init__(self, frame: Frame):
        self.frame = frame
        self.name = f"ten-digit-addition-framed-{frame.name}"
        self.vocabulary = frame.vocabulary
        self.d_vocab = len(frame.vocabulary)
        self.most_significant_first = frame.operands_down
        self.plus_token, self.equals_token = frame.between[0], frame.after[-1]
        self.first = len(frame.before)  # of a
        self.second = self.first + DIGITS + len(frame.between)  # of b
        self.answer = self.second + DIGITS + len(frame.after)
        self.input_length = self.answer + DIGITS

    def target_column(self, target: int) -> int:
        """The column of a target, and the target of a column."""
        return DIGITS - target if self.frame.answer_down else target

    def operand_position(self, operand: int, column: int) -> int:
        return (self.second if operand else self.first) + self._place(column)

    @cached_property
    def roles(self) -> Sequence[Role]:
        text = self.vocabulary
        columns = [self._place(i) for i in range(DIGITS)]
        a, b = ([Role("operand", f"{name}{i}", i, index) for i in columns] for index, name in enumerate("ab"))
        before, between, after = (
            tuple(Role("delimiter", text[token]) for token in part)
            for part in (self.frame.before, self.frame.between, self.frame.after)
        )
        return (*before, *a, *between, *b, *after, *self.target_roles)

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        return tuple(Role("answer", f"s{i}", i) for i in map(self.target_column, range(DIGITS + 1)))

    @cached_property
    def query_positions(self) -> Sequence[int]:
        return tuple(range(self.answer - 1, self.answer + DIGITS))

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        pairs = as_problems(problems)
        return torch.cat((self.encode_prompt(pairs), self.targets(pairs)[:, :-1]), 1)

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n pos"]:
        pairs = as_problems(problems)
        a, b = (self._written(digit_rows(pairs[:, i], DIGITS)).long().T for i in (0, 1))
        parts = (self.frame.before, a, self.frame.between, b, self.frame.after)
        return torch.cat(
            [p if isinstance(p, Tensor) else torch.tensor(p, dtype=torch.long).expand(len(a), -1) for p in parts], 1
        )

    def targets(self, problems: Any) -> Int[Tensor, "n 11"]:
        digits = to_digits(as_problems(problems).sum(1), DIGITS + 1)
        return digits.flip(1) if self.frame.answer_down else digits

    def encode_rows(self, problems: Int[Tensor, "n 2"]) -> tuple[Tensor, Tensor]:
        return self.encode(problems).T.to(torch.uint8), self.targets(problems).T.to(torch.uint8)

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        digits = torch.as_tensor(answer_tokens).reshape(-1, DIGITS + 1)
        return super().decode(digits.flip(1) if self.frame.answer_down else digits)

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        own = self.target_column(target)
        operands = lambda column: [self.operand_position(i, column) for i in (0, 1)]  # noqa: E731
        delimiters = [i for i, role in enumerate(self.roles) if role.kind == "delimiter"]
        groups = {
            "own operands": operands(own) if own < DIGITS else [],
            "previous operands": operands(own - 1) if 0 < own <= DIGITS else [],
            "previous output": [self.answer + target - 1] if target else [],
            "delimiters": delimiters if target else delimiters[:-1],
        }
        return self.with_rest(groups, self.answer - 1 + target)
