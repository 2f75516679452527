"""What a question to a model is; :mod:`interp.compare.questions` has the questions themselves.

A column is one function decorated with :func:`question`. It takes a :class:`~interp.compare.subject.Subject` and
returns an :class:`Answer`, or raises UserError if the question makes no sense for the model; the cell then shows the
message instead of a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp.core.answers import Answer
from models.errors import UserError

if TYPE_CHECKING:
    from interp.compare.subject import Subject


@dataclass(frozen=True)
class Question:
    """A column: its ``heading`` in a table, ``words`` that say what is measured and with what it is compared, and its
    ``unit``. ``parts``: what the answer's parts are, if it has any."""

    name: str
    heading: str
    words: str
    unit: str  # "share", "count", or the name of a unit
    parts: str = ""


Ask = Callable[["Subject"], Answer]
REGISTRY: dict[str, tuple[Question, Ask]] = {}


def question(name: str, heading: str, words: str, unit: str, parts: str = "") -> Callable[[Ask], Ask]:
    """Register a function as a question. Raises UserError if the name is taken."""

    def add(ask: Ask) -> Ask:
        if name in REGISTRY:
            raise UserError(f"A question named {name!r} is registered already.")
        REGISTRY[name] = (Question(name, heading, " ".join(words.split()), unit, parts), ask)
        return ask

    return add
