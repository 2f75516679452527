"""How the commands and the tools for other programs ask a probe, and let a model answer problems."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from interp.core.probe import Probe, find_probe
from interp.core.replies import Reply, reply
from interp.core.results import Provenance, Result
from models.errors import UserError, unknown_name

if TYPE_CHECKING:
    from models import FormatGuess
    from models.transformer import ArithmeticTransformer

#: Arguments of probes that are made of what a user names, or that a program cannot write.
_NOT_WRITTEN = ("model", "models", "a", "b", "pairs", "task", "tasks", "progress", "store", "cluster")
_NEEDED = {"b": "a second model (other)", "models": "a second model (other)", "pairs": "pairs of problems (pairs)"}
PAIRS = 128  # of a kind, unless another number is asked for


def asked(
    probe: str,
    model: Any,
    name: str,
    task: Any,
    *,
    other: Any = None,
    pairs: str | tuple[str, str] = "",
    column: int | None = None,
    n: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] = {},
) -> Result:
    """A probe's answer about a model, whose ``name`` is the user's.

    Args:
        other: the second model, for probes of two.
        pairs: for probes that take pairs of problems, their kind, or one pair as a user writes it; ``n`` is then how
            many (:data:`PAIRS` by default), and ``column`` where they differ.
        n: how many problems; the probe's own number by default.
        seed: of what is drawn; 0 by default.
        options: the probe's other arguments by name, the further ones that it needs among them.

    Raises:
        UserError: there is no such probe, it does not apply to the model, has no such option, needs something that is
            not given, takes no number of problems, or refuses.
    """
    question, given = applicable(probe, model, name, task), dict(options)
    n, drawn_with = _once("n", n, given), _once("seed", seed, given) or 0
    if column is not None and not pairs:
        given["column"] = column
    known = options_of(question)
    for option in given:
        if option not in known:
            raise unknown_name(f"option of {probe}", option, known)
    if other is not None and not {"b", "models"} & set(question.subjects):
        raise UserError(f"{probe} takes no second model.")
    if pairs and "pairs" not in question.subjects:
        raise UserError(f"{probe} takes no pairs of problems.")
    subjects: dict[str, Any] = {"model": model, "a": model}
    if other is not None:
        subjects |= {"b": other, "models": [model, other]}
    if pairs:
        subjects["pairs"] = _paired(task, pairs, column, n, drawn_with)
    elif n is not None and not question.takes("n"):
        raise UserError(f"{probe} takes no number of problems.")
    subjects |= {each: given.pop(each) for each in question.subjects if each in given}
    if missing := [_NEEDED.get(each, each) for each in question.subjects if each not in subjects]:
        raise UserError(f"{probe} needs {' and '.join(missing)}.")
    drawn = {"seed": drawn_with} | ({} if pairs or n is None else {"n": n})
    taken = {each: value for each, value in ({"task": task} | drawn).items() if question.takes(each)}
    return question.ask(*(subjects[each] for each in question.subjects), **taken | given)


def applicable(probe: str, model: Any, name: str, task: Any) -> Probe:
    """The probe of this name. Raises UserError if there is none, or if it does not apply to the model, whose ``name``
    is the user's."""
    question = find_probe(probe)
    if why := question.why_not(model, task):
        raise UserError(f"{probe} does not apply to {name}: {why}.")
    return question


def options_of(question: Probe) -> list[str]:
    """The names of a probe's arguments that can be written as JSON."""
    return [name for name in inspect.signature(question.ask).parameters if name not in _NOT_WRITTEN]


def guessed(found: FormatGuess) -> Reply:
    """What the task of a file may be, one row for each proposal, the best first: the task's text, what the file does
    not say of its config, and how many of the problems it answers."""
    rows = [
        {"task": each.text, "config": dict(each.config), "correct": each.correct, "n": each.n}
        for each in found.proposals
    ]
    rests = Provenance(found.proposals[0].n, None, "problems of each proposal")
    return reply("FormatGuess", str(found), rows, {"searched": found.searched}, rests)


def within(question: Probe, given: dict[str, Any], seconds: float) -> tuple[dict[str, Any], str]:
    """A question's options, with a time that ends within so many seconds if it takes one; and what is to be said if
    that is less than was asked for."""
    said = ""
    for name, unit in (("minutes", 60.0), ("seconds", 1.0)):
        parameter = inspect.signature(question.ask).parameters.get(name)
        if parameter is not None:
            wanted = given.get(name, parameter.default)
            if wanted is None or (isinstance(wanted, int | float) and wanted * unit > seconds):
                given = given | {name: seconds / unit}
                said = f" It was given {seconds / unit:.3g} {name}, as a call may take no more."
    return given, said


def _paired(task: Any, pairs: str | tuple[str, str], column: int | None, n: int | None, seed: int) -> Any:
    from models.tasks import pairs as typed
    from models.tasks import problem_pairs

    if not isinstance(pairs, str):
        return typed(task, [pairs[0]], [pairs[1]])
    where = {} if column is None else {"column": column}
    return problem_pairs(task, pairs, **where, n=PAIRS if n is None else n, seed=seed)


def _once(name: str, value: Any, options: dict[str, Any]) -> Any:
    """An argument that may stand among the options too. Raises UserError if it is given twice."""
    if name not in options:
        return value
    if value is not None:
        raise UserError(f"{name} is given twice; leave it out of the options.")
    return options.pop(name)


def answers(model: ArithmeticTransformer, problems: Sequence[str]) -> Reply:
    """A model's answers, decoded greedily, one row each: problem, answer (None if it spells no number), expected,
    right, and both as a person writes them (:meth:`models.tasks.Task.answer_text`)."""
    from models.solving import solve

    rows = [asdict(each) for each in solve(model, list(problems))]
    said = f"{sum(row['right'] for row in rows)} of {len(rows)} right, decoded greedily"
    return reply("answers", said, rows, provenance=Provenance(len(rows), None, "problems that were given"))
