"""The registry of questions to models, which are the columns of :func:`interp.compare_models`.

A column is one function decorated with :func:`question`. It takes a :class:`~interp.compare.subject.Subject` and
returns an :class:`Answer`, or raises UserError if the question makes no sense for the model; the cell then shows the
message instead of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from interp.core import probe
from interp.core.answers import Answer
from models.errors import UserError, known_name

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
_REGISTRY: dict[str, tuple[Question, Ask]] = {}


def question(name: str, heading: str, words: str, unit: str, parts: str = "") -> Callable[[Ask], Ask]:
    """Register a function as a question. Raises UserError if the name is taken."""

    def add(ask: Ask) -> Ask:
        if name in _REGISTRY:
            raise UserError(f"A question named {name!r} is registered already.")
        _REGISTRY[name] = (Question(name, heading, " ".join(words.split()), unit, parts), ask)
        return ask

    return add


def registered() -> MappingProxyType[str, tuple[Question, Ask]]:
    """All questions with their functions, in the order of the columns; probes that give a number come last."""
    import interp.compare.questions  # noqa: F401  the import registers them

    scalars = {each.name: (_column(each), _ask(each)) for each in probe.registered().values() if each.scalar}
    return MappingProxyType(_REGISTRY | scalars)


def _column(each: probe.Probe) -> Question:
    assert each.scalar is not None
    return Question(each.name, each.scalar.heading, each.question, each.scalar.unit)


def _ask(each: probe.Probe) -> Ask:
    return lambda subject: each.number(subject.model, task=subject.task, n=subject.n, seed=subject.seed)


def find_questions(names: Sequence[str] | None) -> list[tuple[Question, Ask]]:
    """The questions of these names (default: all). Raises UserError for an unknown or repeated name, or for none."""
    known = registered()
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        known_name("question", name, known)
    if not chosen or len(set(chosen)) < len(chosen):
        raise UserError("Give at least one question, and none twice.")
    return [known[name] for name in chosen]
