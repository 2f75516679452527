"""The grammar of formats: ``"{a:10r}+{b:10r}={s:11r}<EOS>"``.

A field ``{name:WIDTH}`` is a number of that many digits, most significant first; ``r`` after the width reverses it
(units first), and ``+`` before it puts a sign in front, as one more token. ``{name}`` is a number in one token.
Everything else is literal: each character is a token, and so is a word in angle brackets, such as ``<EOS>``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import UserError

_FIELD = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(:(?P<signed>\+?)(?P<width>[1-9]\d?)(?P<reversed>r?))?\}")
_WORD = re.compile(r"<[^<>\s]+>|.", re.DOTALL)


@dataclass(frozen=True)
class NumberField:
    """A number in a format. ``width`` counts digits, without the sign."""

    name: str
    width: int = 1
    reversed: bool = False
    signed: bool = False
    one_token: bool = False

    @property
    def n_tokens(self) -> int:
        return self.width + self.signed

    @property
    def columns(self) -> range:
        """The columns (0 is units) of the digits, in the order in which they are written."""
        return range(self.width) if self.reversed else range(self.width - 1, -1, -1)


def parse_format(text: str) -> tuple[NumberField | str, ...]:
    """The parts of a format: number fields, and runs of literal text.

    Raises:
        UserError: a brace that does not belong to a field, with its place; two fields of one name; no field; a
            character that cannot be seen (a line break, a direction mark).
    """
    if not text.isprintable():
        unseen = next(character for character in text if not character.isprintable())
        raise UserError(f"The format {text!r} has {unseen!r}, a character that cannot be seen.")
    parts: list[NumberField | str] = []
    at = 0
    for found in _FIELD.finditer(text):
        parts.append(text[at : found.start()])
        width = found["width"]
        parts.append(
            NumberField(found["name"], int(width or 1), bool(found["reversed"]), bool(found["signed"]), width is None)
        )
        at = found.end()
    parts.append(text[at:])
    place = 0
    for part in parts:
        if isinstance(part, str):
            bad = next((i for i, character in enumerate(part) if character in "{}"), None)
            if bad is not None:
                raise UserError(
                    f"The format {text!r} does not parse at character {place + bad} ({text[place + bad :][:12]!r}): a "
                    "field is {name}, {name:WIDTH}, {name:WIDTHr} (units first) or {name:+WIDTH} (signed), with widths "
                    "from 1 to 99."
                )
        place = place + len(part) if isinstance(part, str) else text.index("}", place) + 1
    names = [part.name for part in parts if isinstance(part, NumberField)]
    if not names:
        raise UserError(f"The format {text!r} has no field; write numbers as {{a:3}} or {{a}}.")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"The format {text!r} has two fields named {repeated[0]!r}.")
    return tuple(part for part in parts if part != "")


def literal_tokens(text: str, known: Sequence[str] = ()) -> list[str]:
    """The tokens of literal text: the longest that is ``known``, else a word in angle brackets, else one character."""
    found, at, longest = [], 0, sorted(known, key=len, reverse=True)
    while at < len(text):
        match = next((token for token in longest if token and text.startswith(token, at)), None)
        found.append(match or _WORD.match(text, at)[0])  # pyright: ignore[reportOptionalSubscript]
        at += len(found[-1])
    return found
