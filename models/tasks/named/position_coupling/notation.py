"""How a problem of numbers of any length is written as text."""

from __future__ import annotations

from typing import NamedTuple

from models.errors import UserError


class Notation(NamedTuple):
    """The text of a task's problems.

    ``is_not`` names what an unreadable text is not, for its error; ``operator`` stands between the operands ("": the
    text is one string of bits).
    """

    is_not: str
    example: str
    operator: str = "+"

    def read(self, text: str) -> list[str]:
        """The digits of each operand, as written; or the string of bits.

        Raises:
            UserError: a text that is not such a problem.
        """
        body = text.strip().removesuffix("=")
        operands = [part.strip() for part in body.split(self.operator)] if self.operator else [body]
        digits = "0123456789" if self.operator else "01"
        if not all(operand and not set(operand) - set(digits) for operand in operands):
            raise UserError(f"{text!r} is not {self.is_not}; write it like '{self.example}'.")
        return operands
