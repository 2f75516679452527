"""Problems of a format as text, in both directions: "57+48", "57 + 48 =", "5 7"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from models.calls.argument_kinds import shown
from models.errors import UserError
from models.tasks.formats.format_grammar import NumberField, whole_numbers_of

_LONGEST = 18  # digits of a number as text
_CLOSES = re.compile(r"[^=\s:?>-]*")  # what stands behind the last operand and belongs to the problem: ")", ".5"
_ANSWER = "(?P<answer>.*)"
_WORD = re.compile(r"<[^<>\s]+>")


def bits(number: int, width: int) -> str:
    """A number from 0 on as a string of ``width`` bits or more, the highest first."""
    return format(number, f"0{width}b")


class ProblemText:
    """Writes a problem without padding, and reads it with or without padding, spaces and the text before the answer.

    Numbers are in decimal whatever the base of the tokens; in base 2 they are strings of bits, written with padding.
    Literal words in angle brackets are left out, and may be written. Numbers that touch are written with a space
    between them; where all have the widths of the format, they are also read without. The later pieces of a number are
    written with padding, such as "16.05".
    """

    def __init__(self, prompt: Sequence[NumberField | str], operators: Sequence[str], base: int = 10):
        self.base, self._base = 2 if base == 2 else 10, base
        self._numbers = [field.name for field in whole_numbers_of(prompt)]
        self._first = {field.name: self._top(field) for field in whole_numbers_of(prompt)}
        self.operators = operators
        self._written: list[NumberField | str] = []
        self._words = [word for part in prompt if isinstance(part, str) for word in _WORD.findall(part)]
        for part in prompt:
            if isinstance(part, str):
                part = _WORD.sub("", part)
            if part == "":
                continue
            before = self._written[-1] if self._written else ""
            touches = isinstance(before, NumberField) and isinstance(part, NumberField) and before.name != part.name
            if touches and not self._is_operator(part) and not self._is_operator(self._written[-1]):
                self._written.append(" ")
            self._written.append(part)
        # the text before the answer ("=") need not be written
        self._ending = ""
        if self._written and isinstance(self._written[-1], str):
            ending = str(self._written.pop())
            closes = _CLOSES.match(ending)
            kept = closes[0] if closes is not None else ""
            self._ending = ending[len(kept) :]
            self._written += [kept] if kept else []
        ending = rf"\s*(?:{re.escape(self._ending.strip())}{_ANSWER})?" if self._ending else ""
        self._patterns = [re.compile(self._pieces(exact) + ending) for exact in (False, True)]

    def _pieces(self, exact: bool) -> str:
        """The pattern of a problem; ``exact``: of numbers of their fields' widths, which may touch."""
        pieces = []
        for part in self._written:
            if isinstance(part, str):
                gap = r"\s*" if exact else r"\s+"
                pieces.append(gap if not part.strip() else rf"\s*{re.escape(part.strip())}\s*")
            elif self._is_operator(part):
                pieces.append(rf"\s*({'|'.join(map(re.escape, self.operators))})\s*")
            else:
                digit, most = ("[01]", part.width) if self.base == 2 else (r"\d", _LONGEST)
                whole = (exact and part.width) or self._is_padded(part)
                pieces.append(f"({digit}{{{part.width}}})" if whole else f"({digit}{{1,{most}}})")
        return "".join(pieces)

    def _top(self, field: NumberField) -> int:
        """The column above the highest of a field."""
        return field.lowest + field.width

    def _is_padded(self, part: NumberField) -> bool:
        """Whether a field is a later piece of a number, which has as many digits as the format says."""
        return self._base == 10 and self._top(part) < self._first[part.name]

    def _is_operator(self, part: NumberField | str) -> bool:
        return isinstance(part, NumberField) and part.name == "op" and bool(self.operators)

    def text(self, numbers: Sequence[int]) -> str:
        """The text of a problem, given as one number per field (for an operator, its index)."""
        of, written = dict(zip(self._numbers, numbers, strict=True)), ""
        for part in self._written:
            if isinstance(part, str):
                written += part
            elif self._is_operator(part):
                written += self.operators[of[part.name]]
            else:
                number = of[part.name] // self._base**part.lowest
                number = number % self._base**part.width if self._top(part) < self._first[part.name] else number
                as_number = str(number).zfill(part.width) if self._is_padded(part) else str(number)
                written += bits(number, part.width) if self.base == 2 else as_number
        return written.strip()

    @property
    def form(self) -> dict[str, Any]:
        """The patterns that :meth:`read` tries in turn, once the words are taken out, and what :meth:`text` writes:
        text, and fields by the name of their number, with the columns they have of it."""
        patterns = [pattern.pattern.replace(_ANSWER, "") for pattern in self._patterns]
        written = [part if isinstance(part, str) else self._said(part) for part in self._written]
        form: dict[str, Any] = {"bits": self.base == 2, "patterns": patterns, "words": self._words}
        return form | {"written": written, "symbols": list(self.operators)}

    def _said(self, part: NumberField) -> dict[str, Any]:
        if self._is_operator(part):
            return {"name": part.name, "operator": True}
        later = self._top(part) < self._first[part.name]
        said = {"name": part.name, "lowest": part.lowest, "width": part.width}
        return said | {"later": later, "padded": self._is_padded(part)}

    def read(self, text: str) -> list[int]:
        """One number per field. Raises UserError for a text that is not a problem of the format."""
        found = self._match(text)
        if found is None:
            raise UserError(f"{shown(text)} is not a problem of this format; write it like {self._example()!r}.")
        fields = [part for part in self._written if isinstance(part, NumberField)]
        numbers = dict.fromkeys(self._numbers, 0)
        for part, group in zip(fields, found.groups(), strict=False):
            value = int(group, self.base) if group.isdigit() else self.operators.index(group)
            if self._top(part) < self._first[part.name] and value >= self._base**part.width:
                raise UserError(f"{group} in {text!r} has too many digits for its place in the number {part.name!r}.")
            numbers[part.name] += value * self._base**part.lowest
        return list(numbers.values())

    def answer(self, text: str) -> str:
        """The answer in a text that is a problem followed by its answer; empty if the text is a problem alone."""
        found = self._match(text)
        return (found.groupdict().get("answer") or "").strip() if found is not None else ""

    def _match(self, text: str) -> re.Match[str] | None:
        own = text
        for word in self._words:
            own = own.replace(word, "", 1)
        matches = (pattern.fullmatch(own.strip()) for pattern in self._patterns) if text.isascii() else ()
        return next((match for match in matches if match is not None), None)

    def _example(self) -> str:
        fields = [part for part in self._written if isinstance(part, NumberField)]
        operators = [part.name for part in fields if self._is_operator(part)]
        return self.text([0 if name in operators else 1 for name in self._numbers])
