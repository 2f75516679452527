"""Machines of automata: strings are read from the left, and answers are written at the end or as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int

from models.errors import UserError
from models.tasks.machines.automata import Automaton
from models.tasks.machines.column_machines import Cell
from models.tasks.machines.machine import Machine
from models.tasks.machines.minimal_machine import RawLayer, minimised


def machine_of_automaton(
    automaton: Automaton,
    cells: Sequence[Cell],
    answers: Sequence[tuple[int, ...]],
    tokens: Sequence[int],
    fixed: Mapping[int, int],
    sizes: tuple[int, int],
    origin: Int[torch.Tensor, "*operands"],
) -> Machine:
    """The smallest machine of an automaton.

    Raises:
        UserError: it writes another number of answers than there are.

    Args:
        cells: the symbols, in the order in which they are read.
        answers: the slots of each answer. tokens: of the answers' numbers.
        fixed: slots that have one token. sizes: the machine's input_length and n_targets.
        origin: a problem of zeros, in the form that the task takes.
    """
    if automaton.written is not None and len(cells) != len(answers):
        raise UserError(f"The automaton writes {len(cells)} answers, and the task has {len(answers)}.")
    states = np.array([automaton.start])
    layers: list[RawLayer] = []
    n_parts, of_answer = max(1, origin.numel()), np.array(tokens)
    each = automaton.written is not None
    order = list(reversed(answers)) if automaton.reverses else list(answers)
    for k, cell in enumerate(cells):
        state, symbol = (v.reshape(-1) for v in np.meshgrid(states, np.arange(len(cell)), indexing="ij"))
        before, value = np.repeat(np.arange(len(states)), len(cell)), symbol + cell.lowest
        now, read = torch.as_tensor(state), torch.as_tensor(value)
        after = torch.as_tensor(automaton.next(now, read)).long().expand(now.shape).numpy()
        columns = [np.array(cell.tokens)[symbol]]
        label, slots = symbol, (cell.slot,)
        if each and automaton.written is not None:
            said = torch.as_tensor(automaton.written(now, read)).long().expand(now.shape).numpy()
            label, slots = symbol * (of_answer.max() + 1) + of_answer[said], (cell.slot, *order[k])
            columns += [of_answer[said]] * len(order[k])
        states, after = np.unique(after, return_inverse=True)
        labels, first = np.unique(label, return_index=True)
        parts = np.zeros((len(labels), n_parts), dtype=np.int64)
        parts[:, cell.part] = cell.worth * value[first]
        label = np.searchsorted(labels, label)
        table = np.stack(columns, 1)[first]
        layers.append(RawLayer(slots, table, parts, before, label, after.reshape(-1), int(before[-1]) + 1))
    if automaton.answer is not None:
        said = torch.as_tensor(automaton.answer(torch.as_tensor(states))).long().numpy()
        if said.size != len(states) * len(answers):
            raise UserError(f"The automaton's answer has {said.size // len(states)} tokens, not {len(answers)}.")
        for slots, column in zip(answers, said.reshape(len(states), -1).T, strict=True):
            at, (labels, label) = np.arange(len(states)), np.unique(of_answer[column], return_inverse=True)
            table = np.repeat(labels[:, None], len(slots), 1)
            parts = np.zeros((len(labels), n_parts), dtype=np.int64)
            layers.append(RawLayer(slots, table, parts, at, label.reshape(-1), at, len(states)))
    machine_layers, numbers = minimised(layers, np.ones(len(states), dtype=bool))
    return Machine(machine_layers, numbers, dict(fixed), automaton.name, *sizes, origin)
