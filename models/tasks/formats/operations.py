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
        answer: as text, of a and b. signs: how it is written between or before its operands. between: what stands
            between them where that is only guessed. many: whether it is tried of more than two numbers.
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
    between: str = ""
    many: bool = False

    @cached_property
    def _function(self) -> Callable[[int, int], int]:
        return eval(f"lambda a, b: int({self.answer})")  # of the texts below, in Python's own whole numbers

    def __call__(self, a: int, b: int) -> int:
        """The answer of two numbers."""
        return self._function(a, b)

    def of(self, *names: str) -> str:
        """The answer as text of other names, which may be several of an operation of many."""
        if self.many:
            return f"{self.answer.partition('(')[0]}({', '.join(names)})"
        return re.sub(r"\b[ab]\b", lambda name: names["ab".index(name[0])], self.answer)


#: By the text of the answer, in the order in which they are proposed.
OPERATIONS: Mapping[str, BinaryOperation] = {
    each.answer: each
    for each in (
        BinaryOperation("a + b", "+", "addition", of_residues=True, between="+"),
        BinaryOperation("a - b", "- \N{MINUS SIGN}", "subtraction", "a >= b", of_residues=True, between="-"),
        BinaryOperation("b - a", "", where="b >= a"),
        BinaryOperation(
            "a * b", "* x \N{MULTIPLICATION SIGN} \N{MIDDLE DOT}", "multiplication", of_residues=True, between="*"
        ),
        BinaryOperation("abs(a - b)", "abs |"),
        BinaryOperation("max(a, b)", "max", "max", between=">", many=True),
        BinaryOperation("min(a, b)", "min", between="<", many=True),
        BinaryOperation("a < b", "<", compares=True),
        BinaryOperation("a > b", ">", compares=True),
        BinaryOperation("a == b", "==", compares=True),
        BinaryOperation("a <= b", "<= \N{LESS-THAN OR EQUAL TO}", compares=True),
        BinaryOperation("a >= b", ">= \N{GREATER-THAN OR EQUAL TO}", compares=True),
        BinaryOperation("a != b", "!= \N{NOT EQUAL TO}", compares=True),
    )
}
