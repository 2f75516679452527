"""Validate a task's interface: once at first use, and all of it for :func:`models.check`.

A task written in a user's own script can have a mistake that no code would notice: a query position that counts from
the end, a role outside the sequence, the tokens of another problem. Every number about a model would then be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.given_problems import are_integers
from models.tasks.task import Task

_LOOKED_AT = 4  # problems that the task draws


def made_with(model: Any, task: Task) -> bool:
    """Whether this package made or trained a model with this task, and nobody gave it the task afterwards."""
    return getattr(model, "task", None) is task and getattr(model, "registered", None) is not None


def require_sound(task: Task) -> Task:
    """The task, after a look at its positions, roles and tokens. Cost: once for each task, four problems.

    Raises:
        UserError: the first thing that cannot be, or that raises, in one sentence.
    """
    if task.kept.get("sound"):
        return task
    name = getattr(task, "name", type(task).__name__)
    try:
        wrong = next(_of_interface(task), None)
    except UserError:
        raise
    except Exception as error:
        raised = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UserError(f"The task {name} cannot say its positions, roles or tokens: {raised}") from error
    if wrong is not None:
        raise UserError(f"The task {name} {wrong}.")
    task.kept["sound"] = True
    return task


def _of_interface(task: Task) -> Iterator[str]:
    length, tokens = task.input_length, task.d_vocab
    for name, value in (("input_length", length), ("d_vocab", tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"must have a positive whole number as its {name}, not {value!r}"
    queries, targets = list(task.query_positions), len(task.target_roles)
    if not queries or len(queries) != targets:
        yield f"has {len(queries)} query positions for {targets} targets"
    yield from _positions("query positions", queries, length)
    if sorted(set(queries)) != queries:
        yield f"must have its query positions in order and each once, not {queries[:20]}"
    if len(task.roles) < length:
        yield f"says the roles of {len(task.roles)} positions, and its sequences have {length}"
    for target, query in enumerate(queries):
        groups = task.relative_roles(target)
        for name, places in groups.items():
            yield from _positions(f"positions of {name!r} relative to target {target}", list(places), query + 1)
    with suppress(UserError):  # such as a text that is not on this computer
        yield from _tokens(task, task.sample(_LOOKED_AT, torch.Generator().manual_seed(0)))


def _positions(what: str, places: list[Any], length: int) -> Iterator[str]:
    if wrong := [at for at in places if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < length]:
        yield f"has {wrong[0]!r} among its {what}, which must be whole numbers from 0 to {length - 1}"


def _tokens(task: Task, problems: Tensor) -> Iterator[str]:
    """What is wrong with the tokens of some problems."""
    n, queries = len(problems), list(task.query_positions)
    sequences, answers, prompt = task.encode(problems), task.targets(problems), task.encode_prompt(problems)
    for what, found in (("encode", sequences), ("targets", answers), ("encode_prompt", prompt)):
        if not isinstance(found, Tensor) or not are_integers(found) or found.ndim != 2 or len(found) != n:
            yield f"must give one row of whole numbers for each problem in {what}"
        elif found.numel() and not (0 <= int(found.min()) <= int(found.max()) < task.d_vocab):
            yield f"gives tokens in {what} that are not among its {task.d_vocab}"
    if sequences.shape[1] != task.input_length:
        yield f"says that its sequences have {task.input_length} tokens, and encodes {sequences.shape[1]}"
    if answers.shape[1] != len(queries):
        yield f"has {len(queries)} query positions and gives {answers.shape[1]} targets"
    shared = min(prompt.shape[1], sequences.shape[1])
    if not torch.equal(sequences[:, :shared], prompt[:, :shared]):
        yield "encodes a sequence that does not begin with its prompt"
    for i, (query, after) in enumerate(pairwise(queries)):
        if after == query + 1 and not torch.equal(sequences[:, after], answers[:, i]):
            yield f"does not have the right answer of target {i} at position {after}, where it is written"
    for row in range(n):
        alone = task.encode(problems[row : row + 1])
        if alone.shape == sequences[row : row + 1].shape and not torch.equal(alone, sequences[row : row + 1]):
            yield "encodes a problem by itself in other tokens than among others"


def _of_places(task: Task, problems: Tensor) -> Iterator[str]:
    """Relative to each target, every position up to its query is in exactly one place."""
    for target, query in enumerate(task.query_positions):
        found = sorted(at for places in task.relative_roles(target).values() for at in places)
        if found != list(range(query + 1)):
            yield f"has places at {found} for target {target}, of 0 to {query}"


def _of_texts(task: Task, problems: Tensor) -> Iterator[str]:
    """Problems written as text are read as the same problems, and decoded answers are numbers, or none is."""
    for row, numbers in enumerate(task.numbers(problems) if problems.ndim == 2 else ()):
        text = task.problem_text(numbers)
        if not torch.equal(again := task.as_problems([text]), problems[row : row + 1]):
            yield f"reads {text!r} as {again.tolist()}"
    answers = task.decode(task.targets(problems))
    if len(answers) != len(problems):
        yield f"decodes {len(answers)} numbers of {len(problems)} answers"
    if len({answer is None for answer in answers}) != 1:
        yield "spells a number in some right answers, and none in others"


def _of_function(task: Task, problems: Tensor) -> Iterator[str]:
    """The targets spell what the task's function gives, where it has one."""
    if (function := getattr(task, "answers", None)) is not None:
        found = [list(each) if isinstance(each, tuple) else each for each in task.decode(task.targets(problems))]
        if found != (wanted := function(problems).tolist()):
            yield f"spells {found} in its targets, and its function gives {wanted}"


#: What a task must be, by the name of its row in :func:`models.check`: (task, drawn problems) -> what is wrong.
MISTAKES: Mapping[str, Callable[[Task, Tensor], Iterator[str]]] = {
    "positions and tokens": lambda task, problems: _of_interface(task),
    "places partition positions": _of_places,
    "text and answers round trip": _of_texts,
    "targets are the function's": _of_function,
}

LOOKED_AT = 512  # this many problems of the task's own distribution must lie in its domain


def domain_of(task: Task) -> Domain:
    """The task's domain, after it was once checked on problems that the task draws.

    Raises:
        UserError: a task without a domain, or one that draws a problem outside it.
    """
    domain = task.domain
    if task.kept.get("domain") is domain:
        return domain
    drawn = task.sample(LOOKED_AT, torch.Generator().manual_seed(0))
    if not (inside := domain.holds(drawn)).all():
        raise UserError(
            f"The task {task.name} draws the problem {tuple(drawn[~inside][0].tolist())}, which is not among the "
            f"{domain.size:,} of what it says its domain is."
        )
    task.kept["domain"] = domain
    return domain
