"""Machines of tasks of which all problems are run: nothing is assumed of what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.machines.column_machines import MOST_COMBINATIONS
from models.tasks.machines.machine import Machine, sequences
from models.tasks.machines.minimal_machine import RawLayer, minimised
from models.tasks.task import Task

MOST_STATES = 2**14  # a machine with more has no small memory
_CHUNK = 2**16


def machine_of_all(task: Task, state_name: str = "state") -> Machine:
    """The smallest machine whose paths are all problems of a task, found by running them.

    Postcondition: the paths are what the task's ``encode`` and ``targets`` give for the problems of its domain. Cost:
    seconds for 2^20 problems.

    Raises:
        UserError: a digit of the domain that no token tells, or too many states.
    """
    domain = task.domain
    kept = domain.kept
    problems = [domain.problems(domain.numbered(part)) for part in kept.split(_CHUNK)]
    tokens = np.concatenate([sequences(task, part).astype(np.int32) for part in problems])
    digits = np.concatenate([domain.digits_of(part).numpy() for part in problems])
    varied = [slot for slot in range(tokens.shape[1]) if (tokens[:, slot] != tokens[0, slot]).any()]
    fixed = {slot: int(tokens[0, slot]) for slot in range(tokens.shape[1]) if slot not in varied}
    places = _places(task, domain, digits, tokens)
    layers: list[RawLayer] = []
    state = np.zeros(len(tokens), dtype=np.int64)
    n_states = 1

    def increments(rows: Int[np.ndarray, "n cell"], slots: Sequence[int]) -> Int[Tensor, "n *operands"]:
        """What the digits that stand in some slots add to the problem."""
        own = np.array([places[cell] in slots for cell in range(len(domain))])
        return domain.problems(torch.as_tensor(rows * own))

    for slots in _layers(task, domain, places, varied):
        label = np.zeros(len(tokens), dtype=np.int64)
        for slot in slots:
            label = np.unique(label * task.d_vocab + tokens[:, slot], return_inverse=True)[1].reshape(-1)
        first = np.unique(label, return_index=True)[1]
        edges, after = np.unique(state * len(first) + label, return_inverse=True)
        before, labels = np.divmod(edges, len(first))
        own = increments(digits[first], slots).flatten(1).numpy()
        table = tokens[first][:, slots].astype(np.int64)
        layers.append(RawLayer(tuple(slots), table, own, before, labels, np.arange(len(edges)), n_states))
        state, n_states = after.reshape(-1), len(edges)
    machine_layers, states = minimised(layers, np.ones(n_states, dtype=bool))
    if max(states) > MOST_STATES:
        raise UserError(f"{task.name} needs no small memory only: {max(states):,} states in one place.")
    origin = increments(digits[:1], list(fixed))[0]
    return Machine(machine_layers, states, fixed, state_name, task.input_length, len(task.query_positions), origin)


def _places(
    task: Task, domain: Domain, digits: Int[np.ndarray, "n cell"], tokens: Int[np.ndarray, "n slot"]
) -> dict[int, int]:
    """The input slot of each digit of the domain: the first whose token tells that digit and is told by it."""
    found: dict[int, int] = {}
    for cell in range(len(domain)):
        for slot in range(task.input_length):
            if slot in found.values():
                continue
            pairs = len(np.unique(digits[:, cell] * task.d_vocab + tokens[:, slot]))
            if pairs == len(np.unique(digits[:, cell])) == len(np.unique(tokens[:, slot])):
                found[cell] = slot
                break
        else:
            raise UserError(
                f"Digit {domain.column[cell]} of number {domain.operand[cell] + 1} of {task.name} is told by no token "
                "alone."
            )
    return found


def _layers(task: Task, domain: Domain, places: dict[int, int], varied: Sequence[int]) -> list[list[int]]:
    """Which slots each layer says. Of a task that :attr:`is read by columns <models.tasks.task.Task.by_columns>` they
    go from the units up, each with the digit that is written there, after its sign; an answer of one token, and any
    other task's answer, is said after what is read."""
    length, queries = task.input_length, list(task.query_positions)
    of_target = [
        [length + i, *([query + 1] if query + 1 < length else [])]
        for i, query in enumerate(queries)
        if length + i in varied
    ]
    written = [length + i for i in range(len(queries)) if length + i in varied]
    read = {slot: cell for cell, slot in places.items() if slot in varied}
    found: list[list[int]] = []
    if task.by_columns:
        roles = {slot: task.target_roles[slot - length] for slot in written}
        numbers = {slot: cell for slot, cell in read.items() if task.roles[slot].kind == "operand"}
        found += [[slot] for slot in read if slot not in numbers]
        found += [slots for slots in of_target if roles[slots[0]].kind == "sign"]
        at_end = task.answer_is_one_token
        for column in range(1 + max(domain.column + tuple(role.column or 0 for role in roles.values()))):
            own = [slot for slot, cell in numbers.items() if domain.column[cell] == column]
            answer = [
                slots for slots in of_target if (roles[slots[0]].kind, roles[slots[0]].column) == ("answer", column)
            ]
            if prod(len(domain.digits(numbers[slot])) for slot in own) > MOST_COMBINATIONS:
                found += [[slot] for slot in own[:-1]]
                own = own[-1:]
            found.append([*own, *chain(*([] if at_end else answer))])
        found += of_target if at_end else []
    else:
        found = [[slot] for slot in sorted(read)] + of_target
    found = [slots for slots in found if slots]
    said = {slot for slots in found for slot in slots}
    return found + [[slot] for slot in varied if slot not in said]
