"""Shared by the lenses: the streams of a model, the digits they ask about, and activations at chosen positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.model_checks import require_hook
from models.errors import UserError, known_name
from models.tasks import Role, Task
from models.transformer import HookedModel


def digit_targets(task: Task, columns: bool = False) -> list[int]:
    """Targets that are digits of the answer or of a scratchpad; with ``columns`` only those that the task's symbolic
    algorithm computes (a scratchpad's first number is given)."""
    found = [i for i, role in enumerate(task.target_roles) if role.column is not None]
    if columns:
        sample = task.variables(task.sample(2, torch.Generator().manual_seed(0)))
        shape = next(iter(sample.values())).shape
        found = [i for i in found if variable_index(task.target_roles[i], shape) is not None]
    return found


def variable_index(role: Role, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The index of a digit's value in a variable of shape [n, column] or [n, step, column], after the problem's axis;
    None if the algorithm does not compute it. Roles count steps from 1."""
    if role.column is None or not 0 <= role.column < shape[-1]:
        return None
    if len(shape) == 2:
        return (role.column,)
    if role.index is None or not 1 <= role.index <= shape[1]:
        return None
    return (role.index - 1, role.column)


def variable_of(variables: Mapping[str, Int[Tensor, "n *column"]], name: str, role: Role) -> Int[Tensor, " n"]:
    """One variable of the symbolic algorithm in a digit's column.

    Raises:
        UserError: the task has no such variable (with the closest name), or not for this digit.
    """
    known_name("variable of the task", name, variables)
    index = variable_index(role, variables[name].shape)
    if index is None:
        raise UserError(f"The task's algorithm does not compute {name} for {role.label}.")
    return variables[name][(slice(None), *index)]


def carry_flipped(variables: Mapping[str, Int[Tensor, "n *column"]], role: Role, base: int = 10) -> Int[Tensor, " n"]:
    """A column's digit if its carry in were flipped: one less where there is a carry, else one more.

    Raises:
        UserError: the task's algorithm has no carry there.
    """
    carry, digit = (variable_of(variables, name, role) for name in ("carry_in", "s"))
    return (digit + 1 - 2 * carry) % base


def read(
    model: HookedModel, tokens: Int[Tensor, "n pos"], hooks: Iterable[str], positions: Sequence[int]
) -> Iterator[tuple[Float[Tensor, "chunk place d_vocab"], dict[str, Float[Tensor, "chunk place *feature"]]]]:
    """(logits, activations by hook) at chosen positions, chunk by chunk, without gradients.

    Raises:
        UserError: a hook point that does not exist (with the closest name), that this model's switches turn off, or
            that has no position axis after the batch.
    """
    names, places = [require_hook(model, name) for name in dict.fromkeys(hooks)], list(positions)
    for _, logits, kept in runs.passes(model, tokens, keep=names):
        for name, values in kept.items():
            if values.ndim < 3 or values.shape[:2] != logits.shape[:2]:
                raise UserError(
                    f"{name} has shape {list(values.shape)}, without the positions after the batch; read one such as "
                    "hook_resid_mid, attn.hook_z or mlp.hook_post."
                )
        found = {name: values[:, places] for name, values in kept.items()}
        yield logits[:, places], found
