"""How the commands and the tools for other programs ask a probe, and let a model answer problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from interp.core.probe import Probe, find_probe
from interp.core.replies import Reply, reply
from interp.core.results import Provenance, Result
from models.errors import UserError

if TYPE_CHECKING:
    from models.transformer import ArithmeticTransformer


def applicable(probe: str, model: Any, name: str, task: Any) -> Probe:
    """The probe of this name. Raises UserError if there is none, or if it does not apply to the model, whose ``name``
    is the user's."""
    question = find_probe(probe)
    if why := question.why_not(model, task):
        raise UserError(f"{probe} does not apply to {name}: {why}.")
    return question


def ask(
    question: Probe, subjects: Mapping[str, Any], task: Any, n: int | None, seed: int, options: Mapping[str, Any] = {}
) -> Result:
    """The probe's answer about those of the subjects that it takes, with those of the other arguments that it has.

    Raises:
        UserError: it takes no number of problems and ``n`` is not None, or what the probe refuses.
    """
    if n is not None and not question.takes("n"):
        raise UserError(f"{question.name} takes no number of problems.")
    given = {"task": task, "seed": seed} | ({} if n is None else {"n": n}) | dict(options)
    taken = {name: value for name, value in given.items() if question.takes(name)}
    return question.ask(*(subjects[name] for name in question.subjects), **taken)


def answers(model: ArithmeticTransformer, problems: Sequence[str]) -> Reply:
    """A model's answers, decoded greedily, one row each: problem, answer (None if it spells no number), expected,
    right, and both as a person writes them (:meth:`models.tasks.Task.answer_text`)."""
    from models.solving import solve

    rows = [asdict(each) for each in solve(model, list(problems))]
    said = f"{sum(row['right'] for row in rows)} of {len(rows)} right, decoded greedily"
    return reply("answers", said, rows, provenance=Provenance(len(rows), None, "problems that were given"))
