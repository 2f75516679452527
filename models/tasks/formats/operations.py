"""Operations of two numbers that are tried where nobody says which it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class BinaryOperation:
    """What may be done with two numbers.

    Attributes:
        answer: as text, of a and b. signs: how it is written between or before its operands.
        family: of variables, if it has one.
        where: the problems that have an answer without a sign, if these are not all.
        of_residues: whether it is tried modulo a number where each number is one token.
        compares: whether its answer is 0 or 1.
    """

    answer: str
    signs: str
    family: str | None = None
    where: str | None = None
    of_residues: bool = False
    compares: bool = False

    @cached_property
    def _function(self) -> Callable[[int, int], int]:
        return eval(f"lambda a, b: int({self.answer})")  # of the texts below, in Python's own whole numbers

    def __call__(self, a: int, b: int) -> int:
        """The answer of two numbers."""
        return self._function(a, b)

    def of(self, a: str, b: str) -> str:
        """The answer as text of two other names."""
        return re.sub(r"\b[ab]\b", lambda name: {"a": a, "b": b}[name[0]], self.answer)


#: By the text of the answer, in the order in which they are proposed.
OPERATIONS: Mapping[str, BinaryOperation] = {
    each.answer: each
    for each in (
        BinaryOperation("a + b", "+", "addition", of_residues=True),
        BinaryOperation("a - b", "- \N{MINUS SIGN}", "subtraction", "a >= b", of_residues=True),
        BinaryOperation("b - a", "", where="b >= a"),
        BinaryOperation("a * b", "* x \N{MULTIPLICATION SIGN} \N{MIDDLE DOT}", of_residues=True),
        BinaryOperation("abs(a - b)", "abs |"),
        BinaryOperation("max(a, b)", "max"),
        BinaryOperation("min(a, b)", "min"),
        BinaryOperation("a < b", "<", compares=True),
        BinaryOperation("a > b", ">", compares=True),
        BinaryOperation("a == b", "==", compares=True),
        BinaryOperation("a <= b", "<= \N{LESS-THAN OR EQUAL TO}", compares=True),
        BinaryOperation("a >= b", ">= \N{GREATER-THAN OR EQUAL TO}", compares=True),
        BinaryOperation("a != b", "!= \N{NOT EQUAL TO}", compares=True),
    )
}
