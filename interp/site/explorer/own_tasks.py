"""Tasks that ``tasks.js`` does not know, as JSON: roles, and either what encodes any problem or some encoded problems.

A task whose format, answer and rule are text (:func:`models.tasks.formatted`) comes with their trees, and the page
encodes what is typed. Of any other task, the page holds the problems that are encoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from models.errors import UserError
from models.tasks import SIGNS, FormattedTask, Task, TokenFunction

TABLE_SIZE = 200  # problems that are held of a task of which the page cannot encode others
SMALL = 1_024  # of a task with so many problems or fewer, all are held
#: The variable that the page shows above the answer, by its name in the task: the first of these that the task has. The
#: order of two numbers is that of the whole numbers, at every digit.
SHOWN = {
    "carry_in": "carry in", "borrow_in": "borrow in", "carry_or_borrow_in": "carry or borrow in", "order": "order",
}  # fmt: skip


def own_task(task: Task, problems: Sequence[str], row: Callable[[str], tuple[str, Any]]) -> dict[str, Any]:
    """What the page must know of a task of one's own. Where the page cannot encode, it holds ``problems`` and drawn
    ones, each as ``row`` gives it: (its text, its tokens)."""
    drawn = drawn_texts(task)
    said = {
        "roles": [{name: getattr(role, name) for name in ("kind", "label", "column", "index")} for role in task.roles],
        "vocabulary": [task.token_text([token]) for token in range(task.d_vocab)],
        "queries": list(task.query_positions),
        "length": task.input_length,
        "shownName": _shown_name(task),
        "drawn": drawn,
        "signs": _signs(task),
        "separator": task.separator,
        "numbers": not isinstance(task, TokenFunction),  # whether answers are
        "size": None,
    }
    with suppress(UserError):  # a task that does not say which problems there are
        said["size"] = f"{task.domain.size:,}"
    form, texts = _form(task), (*problems, *drawn)
    rows = {} if form else dict(map(row, texts))
    if form and said["shownName"] and not form["families"]:  # of which the page does not know the rule
        form["shown"] = {text: shown_variable(task, task.as_problems([text])) for text in texts}
    return said | {"form": form, "rows": rows}


def drawn_texts(task: Task) -> list[str]:
    """Random problems of a task as text, each once; all of them if they are not more than a page holds."""
    generator = torch.Generator().manual_seed(0)
    problems = task.sample(TABLE_SIZE, generator)
    with suppress(UserError):  # a task that does not say which problems there are
        if (size := task.domain.size) <= SMALL:
            problems = task.domain.at(torch.randperm(size, generator=generator))
    return list(dict.fromkeys(task.problem_text(numbers) for numbers in task.numbers(problems)))


def shown_variable(task: Task, problem: Any) -> list[int | str | None]:
    """For each target of a problem, the variable that is shown (:data:`SHOWN`) in its column, or of the user's own the
    first; None where there is none."""
    found, name = task.variables(problem), _variable(task)
    if name is None:
        return [None] * len(task.target_roles)
    values = found[name][0].tolist()
    if name == "order":
        return ["<=>"[values[-1] + 1] if role.kind == "answer" else None for role in task.target_roles]
    columns = [role.column if role.kind == "answer" else None for role in task.target_roles]
    return [values[column] if column is not None and column < len(values) else None for column in columns]


def _variable(task: Task) -> str | None:
    known = task.variables(task.sample(1, torch.Generator().manual_seed(0)))
    own = task.own_variables if isinstance(task, FormattedTask) else ()
    return next((name for name in (*SHOWN, *own) if name in known), None)


def _shown_name(task: Task) -> str | None:
    name = _variable(task)
    return name and SHOWN.get(name, name)


def _form(task: Task) -> dict[str, Any] | None:
    """What encodes any problem of a task whose answers and rules are text; None for any other task."""
    if type(task) is not FormattedTask or {"encode", "encode_prompt", "targets"} & vars(task).keys():
        return None
    return task.as_data()


def _signs(task: Task) -> list[int]:
    """The tokens of plus and minus before an answer; none for a task without them."""
    if isinstance(task, FormattedTask):
        return [task.parsed.ids[sign] for sign in SIGNS] if task.parsed.signed else []
    known = list(task.vocabulary)
    return [known.index(sign) for sign in SIGNS] if set(SIGNS) <= set(known) else []
