"""The grammar of formats: ``"{a:10r}+{b:10r}={s:11r}<EOS>"``.

A field ``{name:WIDTH}`` is a number of that many digits, most significant first; ``r`` after the width reverses it
(units first), and ``+`` before it puts a sign in front, as one more token. ``{name}`` is a number in one token.
Everything else is literal: each character is a token, and so is a word in angle brackets, such as ``<EOS>``.

A name that comes again goes on with the same number, behind punctuation: ``"{a:1},{a:3}"`` is a number of four digits,
such as "1,234", and ``"${a:2}.{a:2}"`` one of cents, such as "$16.25".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.errors import UserError

_FIELD = re.compile(r"\{(?P<name>[A-Za-z_]\w*)(:(?P<signed>\+?)(?P<width>[1-9]\d?)(?P<reversed>r?))?\}")
_WORD = re.compile(r"<[^<>\s]+>|.", re.DOTALL)
WITHIN = {*",.':_ "}  # what may stand between the digits of one number


@dataclass(frozen=True)
class NumberField:
    """A number in a format, or a piece of one. ``width`` counts digits, without the sign; ``lowest`` is the column
    (0 is units) of the last digit of a piece, and 0 for a whole number."""

    name: str
    width: int = 1
    reversed: bool = False
    signed: bool = False
    one_token: bool = False
    lowest: int = 0

    @property
    def n_tokens(self) -> int:
        return self.width + self.signed

    @property
    def columns(self) -> range:
        """The columns (0 is units) of the digits, in the order in which they are written."""
        up = range(self.lowest, self.lowest + self.width)
        return up if self.reversed else up[::-1]


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
    if not any(isinstance(part, NumberField) for part in parts):
        raise UserError(f"The format {text!r} has no field; write numbers as {{a:3}} or {{a}}.")
    return with_pieces([part for part in parts if part != ""], text)


def with_pieces(parts: Sequence[NumberField | str], text: str) -> tuple[NumberField | str, ...]:
    """Parts in which fields of one name are the pieces of one number, the highest digits first.

    Raises:
        UserError: pieces that do not follow each other, or are no runs of digits from the highest on.
    """
    found = list(parts)
    for name in dict.fromkeys(part.name for part in parts if isinstance(part, NumberField)):
        at = [i for i, part in enumerate(found) if isinstance(part, NumberField) and part.name == name]
        if len(at) == 1:
            continue
        between = found[at[0] + 1 : at[-1]]
        if any(part.name != name if isinstance(part, NumberField) else not {*part} <= WITHIN for part in between):
            raise UserError(
                f"The format {text!r} has two fields named {name!r}. Only the pieces of one number, with nothing but "
                "such as , . : between them, have the same name."
            )
        lowest = 0
        for i in reversed(at):
            piece = found[i]
            assert isinstance(piece, NumberField)
            if piece.reversed or piece.one_token or (piece.signed and i != at[0]):
                raise UserError(
                    f"The number {name!r} of {text!r} has several pieces; they are written with the highest digit "
                    "first, have widths, and only the first of them may have a sign."
                )
            found[i] = replace(piece, lowest=lowest)
            lowest += piece.width
    return tuple(found)


def whole_numbers_of(parts: Sequence[NumberField | str]) -> list[NumberField]:
    """The numbers of a format, each once, with all of its digits."""
    found: dict[str, NumberField] = {}
    for part in parts:
        if isinstance(part, NumberField):
            first = found.get(part.name, replace(part, width=0, lowest=0))
            found[part.name] = replace(first, width=first.width + part.width)
    return list(found.values())


def literal_tokens(text: str, known: Sequence[str] = ()) -> list[str]:
    """The tokens of literal text: the longest that is ``known``, else a word in angle brackets, else one character."""
    found, at, longest = [], 0, sorted(known, key=len, reverse=True)
    while at < len(text):
        match = next((token for token in longest if token and text.startswith(token, at)), None)
        found.append(match or _WORD.match(text, at)[0])  # pyright: ignore[reportOptionalSubscript]
        at += len(found[-1])
    return found
