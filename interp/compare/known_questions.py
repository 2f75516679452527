"""All questions of :func:`interp.compare_models`: its own, and the probes that give a number."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from interp.compare import questions as _  # noqa: F401 - importing it registers its questions
from interp.compare.answers import REGISTRY, Ask, Question
from interp.core import probe
from models.errors import UserError, known_name


def registered() -> MappingProxyType[str, tuple[Question, Ask]]:
    """All questions with their functions, in the order of the columns; those of probes that give a number come last."""
    scalars = {
        each.name: (Question(each.name, each.scalar.heading, each.question, each.scalar.unit), _ask(each))
        for each in probe.registered().values()
        if each.scalar
    }
    return MappingProxyType(REGISTRY | scalars)


def _ask(each: probe.Probe) -> Ask:
    return lambda subject: each.number(subject.model, task=subject.task, n=subject.n, seed=subject.seed)


def find_questions(names: Sequence[str] | None) -> list[tuple[Question, Ask]]:
    """The questions of these names, all unless given. Raises UserError for an unknown or repeated one, or for none."""
    known = registered()
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        known_name("question", name, known)
    if not chosen or len(set(chosen)) < len(chosen):
        raise UserError("Give at least one question, and none twice.")
    return [known[name] for name in chosen]
