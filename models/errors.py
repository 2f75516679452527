"""UserError: a mistake in a call; the message says what to change.

It is raised for a number out of range, an unknown name, a damaged file and the like, with one sentence that says what
is wrong, what is allowed and, for names, the closest match. The command line prints that sentence and exits with status
2; in Python it is a ``ValueError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import TypeVar

LONGEST_NAME = 80  # characters of a name in a refusal
LONGEST_SENTENCE = 2_000  # characters
MOST_LISTED = 24  # the most names that one message spells out
CLOSE = 0.6  # how alike (difflib's ratio) a name must be to be proposed
_Name = TypeVar("_Name", bound=object)


class UserError(ValueError):
    """Bad input, described in one sentence that a user can act on; the middle of an endless one is left out."""

    def __init__(self, sentence: object = "") -> None:
        super().__init__(in_short(str(sentence), LONGEST_SENTENCE))


class Caution(UserWarning):
    """What a user should know about what they asked, such as that a task may not be a file's: a reply to a program
    repeats it. Warnings of other packages are none."""


class NotSaid(UserError):
    """What a file does not say: the ``field`` of a config, and its possible values."""

    def __init__(self, sentence: str, field: str, choices: Iterable[object]) -> None:
        super().__init__(sentence)
        self.field, self.choices = field, tuple(choices)


def in_short(text: str, most: int) -> str:
    """A text of at most ``most`` characters: its beginning and its end, as what it quotes may be endless."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} ... {text[5 - most + most * 2 // 3 :]}"


def unknown_name(kind: str, name: object, allowed: Iterable[str]) -> UserError:
    """The error for a name that is not in ``allowed``, with the closest match if there is one."""
    text = str(name) if len(str(name)) <= LONGEST_NAME else f"{str(name)[:LONGEST_NAME]}..."
    options = sorted(str(option) for option in allowed)
    close = difflib.get_close_matches(text, options, n=1, cutoff=CLOSE)
    listed = options[:MOST_LISTED]
    if len(options) > MOST_LISTED:
        listed.append(f"and {len(options) - MOST_LISTED} more")
    there_is = f"here is {', '.join(listed) or 'none'}."
    middle = f". Did you mean {close[0]!r}? T" if close else "; t"
    return UserError(f"There is no {kind} {text!r}{middle}{there_is}")


def known_name(kind: str, name: _Name, allowed: Collection[str]) -> _Name:
    """``name``, if it is one of ``allowed``. Raises UserError for any other, with the closest match."""
    if name not in allowed:
        raise unknown_name(kind, name, allowed)
    return name
