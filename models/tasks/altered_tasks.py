"""Whether a task is what its class says: :func:`altered` names a method that somebody replaced."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from models.tasks.task import Task

_HOME = Path(__file__).parents[1]


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
            if (own and name in vars(task)) or not is_ours(function):
                return f"{type(task).__name__}.{name}"
    return None


def _function_of(value: Any) -> Any:
    """The function that a method, a property or a cached property calls; None for any other attribute."""
    found = getattr(value, "fget", None) or getattr(value, "func", None) or value
    found = inspect.unwrap(found) if callable(found) else found
    return found if inspect.isfunction(found) else None


def is_ours(function: Any) -> bool:
    """Whether a function is one of this package."""
    function = inspect.unwrap(function)
    file = function.__code__.co_filename
    if file.startswith(("<@beartype", "<string>")):  # made by a program, or typed after ``python -c``
        return str(function.__module__).startswith("models.")
    return Path(file).is_relative_to(_HOME)
