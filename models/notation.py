"""How a problem is written as text. Reading does not need torch, so that errors in a problem are reported at once."""

from __future__ import annotations

from typing import NamedTuple

from models.errors import UserError

_MOST_DIGITS = 100  # longer numbers are refused before they are compared with a limit


class Notation(NamedTuple):
    """The text of a task's problems.

    ``is_not`` names what an unreadable text is not, for its error; ``operator`` stands between the operands ("": the
    text is one string of bits); ``limit``: there are two operands, each below it (None: any number of any size).
    """

    is_not: str
    example: str
    operator: str = "+"
    limit: int | None = None

    def read(self, text: str) -> list[str]:
        """The digits of each operand, as written; or the string of bits.

        Raises:
            UserError: a text that is not such a problem.
        """
        body = text.strip().removesuffix("=")
        operands = [part.strip() for part in body.split(self.operator)] if self.operator else [body]
        digits = "0123456789" if self.operator else "01"
        good = all(operand and not set(operand) - set(digits) for operand in operands)
        if self.limit is not None:
            good = good and len(operands) == 2 and max(map(len, operands)) < _MOST_DIGITS
        if not good:
            raise UserError(f"{text!r} is not {self.is_not}; write it like '{self.example}'.")
        if self.limit is not None:
            for operand in operands:
                check_below(int(operand), self.limit)
        return operands


def check_below(number: int, limit: int) -> None:
    """Raises UserError for a number outside 0..limit - 1."""
    if not 0 <= number < limit:
        raise UserError(f"Operands must lie in 0..{limit - 1}, and {number} does not.")


def pairs_below(limit: int) -> Notation:
    """Sums of two numbers, each below a limit."""
    return Notation("an addition", "57+48", "+", limit)
