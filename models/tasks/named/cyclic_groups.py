"""The cyclic group that a task computes in: addition or multiplication modulo a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.formats.formatted_task import FormattedTask

MOST = 512  # elements: all pairs are looked at


@dataclass(frozen=True)
class CyclicGroup:
    """``log(answer) = log(a) + sign log(b)`` modulo ``order``, for all elements a and b.

    Attributes:
        name: "addition modulo 113", "multiplication modulo 113".
        order: how many elements there are.
        elements: the number of each element, in the order of their logs 0, 1, ..., so that ``log(elements[i]) = i``.
            For addition these are 0, 1, 2, ...; for multiplication the powers of the smallest primitive root.
        sign: 1, or -1 for subtraction and division.
    """

    name: str
    order: int
    elements: tuple[int, ...]
    sign: int = 1

    def pairs(self) -> Int[Tensor, "pair 2"]:
        """All pairs of elements as numbers, those of one a in a row: pair i * order + j is elements i and j."""
        elements = torch.tensor(self.elements)
        return torch.cartesian_prod(elements, elements)

    def combine(self, a: Int[Tensor, "*#n"], b: Int[Tensor, "*#n"]) -> Int[Tensor, "..."]:
        """The log of the answer from the logs of a and b, which are broadcast."""
        return (a + self.sign * b) % self.order


def _powers(p: int) -> tuple[int, ...] | None:
    """1, g, g^2, ... modulo p for the smallest g that gives all of 1..p - 1; None if there is none."""
    for g in range(2, p):
        powers = [1]
        while len(powers) < p and (following := powers[-1] * g % p) != 1:
            powers.append(following)
        if len(powers) == p - 1:
            return tuple(powers)
    return None


def group_of(task: Any) -> CyclicGroup:
    """The group in which a task of two numbers in one token each computes, found by trying all pairs.

    Raises:
        UserError: a task of another kind, or whose answers are not those of addition, subtraction, multiplication or
            division modulo its base.
    """
    if not isinstance(task, FormattedTask):
        raise UserError(f"{task.name} does not have two numbers of one token each, and an answer of one token.")
    if "group" not in task.kept:
        task.kept["group"] = _group_of(task)
    return task.kept["group"]


def _group_of(task: FormattedTask) -> CyclicGroup:
    parsed, base = task.parsed, task.base
    fields = (*parsed.operand_fields, *parsed.answer_fields)
    if len(fields) != 3 or parsed.operators or not all(field.one_token for field in fields):
        raise UserError(f"{task.name} does not have two numbers of one token each, and an answer of one token.")
    if base > MOST:
        raise UserError(f"{task.name} has {base} elements; at most {MOST} are looked at.")
    multiplied = _powers(base)
    for name, elements in (("addition", tuple(range(base))), ("multiplication", multiplied)):
        for sign in (1, -1) if elements else ():
            found = CyclicGroup(f"{name} modulo {base}", len(elements or ()), elements or (), sign)
            pairs = found.pairs()
            if not bool(task.allowed(pairs).all()):
                continue
            logs = torch.arange(found.order)
            right = torch.tensor(found.elements)[found.combine(logs[:, None], logs[None])].flatten()
            if torch.equal(task.answers(pairs), right):
                return found
    raise UserError(f"{task.name} is not addition, subtraction, multiplication or division modulo {base}.")
