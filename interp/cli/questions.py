"""How the commands and the tools for other programs ask a probe, and let a model answer problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.probe import Probe, find_probe
from interp.core.replies import Reply, reply
from interp.core.results import Provenance, Result
from models.errors import UserError

if TYPE_CHECKING:
    from models.transformer.arithmetic_transformer import ArithmeticTransformer


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
    import torch

    from models.evaluation import predict

    rows = []
    for text in problems:
        task = model.task.for_problems([text])
        problem = task.as_problems([text])
        tokens, wanted = predict(model, problem, method="greedy", task=task).cpu(), task.targets(problem).cpu()
        (answer,), (expected,) = task.decode(tokens), task.decode(wanted)
        answer = None if answer == task.no_number else answer
        texts = {"answer_text": task.answer_text(tokens[0]), "expected_text": task.answer_text(wanted[0])}
        right = torch.equal(tokens, wanted)
        rows.append({"problem": text, "answer": answer, "expected": expected, "right": right} | texts)
    said = f"{sum(row['right'] for row in rows)} of {len(rows)} right, decoded greedily"
    return reply("answers", said, rows, provenance=Provenance(len(rows), None, "problems that were given"))
