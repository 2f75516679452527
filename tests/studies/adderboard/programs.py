"""What the tests of isolation run in a process of its own."""

from __future__ import annotations

import traceback
from typing import Any

import torch


def attempts(statements: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run each statement, and say what came of it: the value of ``found``, or the exception's name."""
    said: dict[str, Any] = {}
    for name, statement in statements.items():
        names: dict[str, Any] = {"found": None}
        try:
            exec(statement, names)
            said[name] = names["found"]
        except Exception as error:
            said[name] = type(error).__name__
    return {"tensor": torch.tensor([1.5, float("-inf")])}, said


def described(paths: list[str], pairs: list[list[int]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """:func:`studies.adderboard.child.describe` of several files, or what it raises, as one answer."""
    from studies.adderboard.child import describe

    tensors: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for path in paths:
        try:
            found, facts[path] = describe(path, pairs)
            tensors |= {f"{path}:{name}": value for name, value in found.items()}
        except BaseException as error:
            facts[path] = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()}
    return tensors, facts
