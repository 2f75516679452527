"""Where the tokens of a sequence stand in the view, what its steps are called, and what is right at each of them.

Tokens are drawn in *lines*, one a number, its digits under each other by their place value: so that formats which write
the same numbers in other orders look alike. Steps are the targets, in the order in which the model writes them; their
keys are the same in all formats ("s3" is the digit of the thousands of the answer), so that two models move together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interp.probes.lens.reading import variable_index
from models.tasks.base import Role, Task
from models.tasks.domain import base_of


@dataclass(frozen=True)
class Line:
    """One number of a sequence: ``cells[column]`` is the position of that column's digit (-1: there is none), ``extra``
    the positions of the delimiters after it."""

    label: str
    cells: tuple[int, ...]
    extra: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "cells": list(self.cells), "extra": list(self.extra)}


def lines(task: Task) -> list[Line]:
    """The numbers of the task's input in the order in which they come; a BOS token is a line of its own."""
    found: list[tuple[Any, dict[int, int], list[int]]] = []
    for position, role in enumerate(task.roles[: task.input_length]):
        if role.column is None:
            if not found:
                found.append((None, {}, []))
            found[-1][2].append(position)
            continue
        written = role.kind in ("answer", "scratchpad")
        key = ("answer" if written else role.kind, role.index)
        if not found or found[-1][0] != key or found[-1][2]:  # a delimiter ends a number
            found.append((key, {}, []))
        found[-1][1][role.column] = position
    result = []
    for _, digits, extra in found:
        label = _number_name(task.roles[min(digits.values())].label) if digits else ""
        cells = tuple(digits.get(column, -1) for column in range(max(digits) + 1)) if digits else ()
        result.append(Line(label, cells, tuple(extra)))
    return result


def _number_name(label: str) -> str:
    """ "a" of "a3", "b2" of "b2[0]": the number that a digit belongs to."""
    return label.partition("[")[0] if "[" in label else label.rstrip("0123456789")


def step_key(task: Task, role: Role) -> str:
    """What a target is called in every format that has it."""
    if role.kind == "answer":
        return "answer" if getattr(task, "base", 10) == 2 else f"s{role.column}"
    if role.kind == "eos":
        return "EOS"
    return f"{role.label}|{role.index}"


@dataclass(frozen=True)
class Truth:
    """What the schoolbook algorithm does at one target: the carry that comes in (None where there is no such thing),
    and a sentence."""

    carry: int | None
    sentence: str


def truths(task: Task, problem: Any) -> list[Truth]:
    """Of every target of one problem. ``problem`` is as :meth:`Task.as_problems` gives it."""
    values = task.variables(problem)
    right = task.targets(problem)[0].tolist()
    return [_truth(task, role, values, token) for role, token in zip(task.target_roles, right, strict=True)]


def _truth(task: Task, role: Role, values: dict[str, Any], token: int) -> Truth:
    if role.column is None:
        return Truth(None, "The answer ends here." if role.kind == "eos" else f"The next number begins: {role.label}.")

    def value(name: str) -> int | None:
        index = variable_index(role, values[name].shape) if name in values else None
        return None if index is None else int(values[name][(0, *index)])

    if (carry := value("carry_in")) is not None:
        a, b, digit_sum, out = (value(name) for name in ("a", "b", "digit_sum", "carry_out"))
        assert digit_sum is not None
        total = digit_sum + carry
        passes = ", passed on from below" if out and digit_sum == base_of(task) - 1 else ""
        return Truth(
            carry, f"{a} + {b} + carry {carry} = {total}: write {total % base_of(task)}, carry {out or 0}{passes}."
        )
    if "parity" in values:
        if not getattr(task, "scratchpad", True):
            return Truth(None, f"The parity of all bits is {task.token_text([token])}.")
        return Truth(None, f"Parity before {value('before')}, bit {value('bit')}: write {value('parity')}.")
    carry = value("product_carry" if role.label.startswith("p") else "sum_carry")
    what = "" if carry is None else f", carry in {carry}"
    return Truth(carry, f"The right digit is {task.token_text([token])}{what}.")
