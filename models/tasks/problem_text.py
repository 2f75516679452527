"""Problems of a format as text, in both directions: "57+48", "57 + 48 =", "5 7"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from models.errors import UserError
from models.tasks.formats import NumberField

_LONGEST = 18  # digits of a number as text


def bits(number: int, width: int) -> str:
    """A number from 0 on as a string of ``width`` bits or more, the highest first."""
    return format(number, f"0{width}b")


class ProblemText:
    """Writes a problem without padding, and reads it with or without padding, spaces and the text before the answer.

    Numbers are in decimal whatever the base of the tokens; in base 2 they are strings of bits, written with padding.
    Literal words in angle brackets are left out. Numbers that touch are written with a space between them.
    """

    def __init__(
        self, parts: Sequence[NumberField | str], answer: NumberField, operators: Sequence[str], base: int = 10
    ):
        self.base = 2 if base == 2 else 10
        prompt = list(parts[: list(parts).index(answer)])
        self.operators = operators
        self._written: list[NumberField | str] = []
        for part in prompt:
            if isinstance(part, str):
                part = re.sub(r"<[^<>\s]+>", "", part)
            if part == "":
                continue
            touches = self._written and isinstance(self._written[-1], NumberField) and isinstance(part, NumberField)
            if touches and not self._is_operator(part) and not self._is_operator(self._written[-1]):
                self._written.append(" ")
            self._written.append(part)
        # the text before the answer ("=") need not be written
        self._ending = ""
        if self._written and isinstance(self._written[-1], str):
            self._ending = str(self._written.pop())
        pieces = []
        for part in self._written:
            if isinstance(part, str):
                pieces.append(r"\s+" if not part.strip() else rf"\s*{re.escape(part.strip())}\s*")
            elif self._is_operator(part):
                pieces.append(rf"\s*({'|'.join(map(re.escape, operators))})\s*")
            else:
                pieces.append(rf"([01]{{1,{part.width}}})" if self.base == 2 else rf"(\d{{1,{_LONGEST}}})")
        ending = rf"\s*(?:{re.escape(self._ending.strip())})?" if self._ending else ""
        self._pattern = re.compile("".join(pieces) + ending)

    def _is_operator(self, part: NumberField | str) -> bool:
        return isinstance(part, NumberField) and part.name == "op" and bool(self.operators)

    def text(self, numbers: Sequence[int]) -> str:
        """The text of a problem, given as one number per field (for an operator, its index)."""
        left, written = iter(numbers), ""
        for part in self._written:
            if isinstance(part, str):
                written += part
            else:
                number = next(left)
                as_number = bits(number, part.width) if self.base == 2 else str(number)
                written += self.operators[number] if self._is_operator(part) else as_number
        return written.strip()

    @property
    def form(self) -> dict[str, Any]:
        """The pattern that :meth:`read` matches, and the pieces that :meth:`text` writes, with None for a field."""
        pieces = [part if isinstance(part, str) else None for part in self._written]
        form = {"bits": self.base == 2}
        return form | {"pattern": self._pattern.pattern, "written": pieces, "symbols": list(self.operators)}

    def read(self, text: str) -> list[int]:
        """One number per field. Raises UserError for a text that is not a problem of the format."""
        found = self._pattern.fullmatch(text.strip()) if text.isascii() else None
        if found is None:
            raise UserError(f"{text!r} is not a problem of this format; write it like {self._example()!r}.")
        return [int(group, self.base) if group.isdigit() else self.operators.index(group) for group in found.groups()]

    def _example(self) -> str:
        fields = [part for part in self._written if isinstance(part, NumberField)]
        return self.text([0 if self._is_operator(part) else 1 for part in fields])
