"""Forty tasks with provable answers, for agents that have the tools of ``interp mcp`` and nothing else.

    python -m benchmarks.agent_tasks write FOLDER          the models, and questions.json without the answers
    python -m benchmarks.agent_tasks score ANSWERS.json    {"task-01": "yes", "task-02": null, ...}

The models are in no page of this project: planted ones and near copies of trained ones. Each task has a trap, an answer
that looks right on samples and is not. An answer is right, refused (null), or confidently wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchmarks.agent_tasks.planted import made
from models.errors import UserError
from models.evaluation import predict

Grade = Literal["right", "refused", "confidently wrong"]
_FOR_THE_ASKED = ("id", "question", "task")


@cache
def tasks() -> tuple[dict[str, Any], ...]:
    """The tasks: id, kind, question, the model's task as text, how it is made, the answer and the trap."""
    return tuple(json.loads((Path(__file__).parent / "tasks.json").read_text()))


def questions(names: Mapping[str, str]) -> list[dict[str, str]]:
    """What an agent is given: id, question, the model's file, and its task."""
    given = [task for task in tasks() if task["id"] in names]
    return [{key: task[key] for key in _FOR_THE_ASKED} | {"model": names[task["id"]]} for task in given]


def grade(task: Mapping[str, Any], answer: str | None) -> Grade:
    """Whether an answer is right, refused or confidently wrong."""
    if answer is None:
        return "refused"
    if task["answer"] == "any that is wrong":
        return "right" if is_answered_wrong(made(task), answer) else "confidently wrong"
    return "right" if answer.strip().lower() == task["answer"].lower() else "confidently wrong"


def is_answered_wrong(model: Any, problem: str) -> bool:
    """Whether a model, decoded greedily, answers a problem wrong; False for what is no problem of its task."""
    try:
        task = model.task.for_problems([problem])
        given = task.as_problems([problem])
    except UserError:
        return False
    return bool((predict(model, given, method="greedy", task=task) != task.targets(given)).any())


def score(answers: Mapping[str, str | None]) -> dict[str, dict[Grade, int]]:
    """Counts of each grade, in all and by kind of task; a task without an answer is refused."""
    graded = [(task["kind"], grade(task, answers.get(task["id"]))) for task in tasks()]
    counts = Counter(each for kind, found in graded for each in (("all", found), (kind, found)))
    kinds = ["all", *dict.fromkeys(kind for kind, _ in graded)]
    return {kind: {each: counts[kind, each] for each in ("right", "refused", "confidently wrong")} for kind in kinds}
