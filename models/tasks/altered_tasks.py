"""Whether two expressions of whole numbers are equal on a whole domain: derived, and not tried.

    first_difference("(a - b) % 100 + 100 * (a < b)", "(a - b) % 100 + (a < b) * 100", ("a", "b"), 100)     None: equal
    first_difference("a - b", "a - b + (a == b) * (b == 7)", ("a", "b"), 100)                               (7, 7)

The problems in which they differ are the paths of a machine (:mod:`models.tasks.machines.column_machines`), which has
none if they are equal. What has no cases of affine forms (a product of both numbers, a digit in the middle of a number)
is not decided here.

Cost: milliseconds for the answers that people write.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.tasks.expressions import Expression
from models.tasks.machines.affine_cases import NotDecided
from models.tasks.machines.column_machines import machine_where
from models.tasks.machines.machine import NoPath
from models.tasks.task import Task

_HOME = Path(__file__).parents[1]
_ONE_COLUMN = 4_096  # a limit that is no power of a small base is the base, up to here


def first_difference(
    one: Expression | str, other: Expression | str, names: Sequence[str], limit: int, ordered: bool = False
) -> tuple[int, ...] | None:
    """The numbers, in the order of ``names``, of one problem in which two expressions differ; None if they are equal on
    all numbers from 0 to ``limit - 1`` (with ``ordered``, on those whose first number is not smaller than the second).

    Raises:
        NotDecided: neither was derived.
    """
    trees = [(Expression(each) if isinstance(each, str) else each).tree for each in (one, other)]
    differ = ast.Compare(left=trees[0], ops=[ast.NotEq()], comparators=[trees[1]])
    order = ast.Compare(left=ast.Name(names[0]), ops=[ast.GtE()], comparators=[ast.Name(names[1])])
    base, width = _digits_below(limit)
    try:
        machine = machine_where([order, differ] if ordered else [differ], dict.fromkeys(names, width), base)
    except NoPath:
        return None
    return tuple(machine.problems(machine.first_paths())[0].tolist())


def _digits_below(limit: int) -> tuple[int, int]:
    """(base, digits) of all numbers below a limit. Raises NotDecided if the base is too large."""
    for width in range(64, 0, -1):
        base = round(limit ** (1 / width))
        if base >= 2 and base**width == limit and base <= _ONE_COLUMN:
            return base, width
    raise NotDecided(f"{limit:,} is no power of a small number")


# ---- tasks that are what their class says


def altered(task: Task) -> str | None:
    """Which method of a task is not that of this package: one of a class of the user's own, or one that was replaced on
    the task or on its class. None if all are, so that what a class says of its problems holds."""
    looked_at: set[str] = set()
    for cls in type(task).__mro__[: type(task).__mro__.index(Task) + 1]:
        for name, value in vars(cls).items():
            if name in looked_at:
                continue
            looked_at.add(name)
            function = _function_of(value)
            if function is None:
                continue
            own = isinstance(value, property) or inspect.isfunction(value)  # not a cached property's value
            if (own and name in vars(task)) or not _is_ours(function):
                return f"{type(task).__name__}.{name}"
    return None


def _function_of(value: Any) -> Any:
    """The function behind a method, a property or a cached property; None for other attributes."""
    found = getattr(value, "fget", None) or getattr(value, "func", None) or value
    found = inspect.unwrap(found) if callable(found) else found
    return found if inspect.isfunction(found) else None


def _is_ours(function: Any) -> bool:
    file = function.__code__.co_filename
    if file.startswith(("<@beartype", "<string>")):  # made by a program, or typed after ``python -c``
        return str(function.__module__).startswith("models.")
    return Path(file).is_relative_to(_HOME)
