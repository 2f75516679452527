"""Positions by their names: roles of a task's tokens, kinds of role, and the places of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from interp.core.model_checks import require_hook
from interp.core.places import QUERY, Place
from models.errors import UserError, unknown_name
from models.tasks import ColumnPlaces, Task
from models.transformer import HookedModel, in_block


class NoPositions(UserError):
    """The place does not exist for a column, such as the previous column of the units."""


def positions_of(
    task: Task, group: int | str | Sequence[int | str], more: Mapping[str, Sequence[int]] | None = None
) -> list[int]:
    """Positions of the model's input by number (negative ones count from the end), role ("a3", "=", "s4"; where several
    share a label, all of them), kind of role ("operand", "answer") or a name of ``more``; in this order, each once.

    Raises:
        UserError: a name that no position has (with the closest), or a number beyond the input.
    """
    labels: dict[str, list[int]] = {}
    kinds: dict[str, list[int]] = {}
    for at, role in enumerate(task.roles[: task.input_length]):
        labels.setdefault(role.label, []).append(at)
        kinds.setdefault(role.kind, []).append(at)
    names = kinds | labels | dict(more or {})
    found: list[int] = []
    for item in [group] if isinstance(group, (int, str)) else group:
        if isinstance(item, str):
            if item not in names:
                raise unknown_name("place", item, names)
            found += names[item]
        elif -task.input_length <= item < task.input_length:
            found.append(item % task.input_length)
        else:
            raise UserError(f"There is no position {item}: a sequence has {task.input_length}.")
    return list(dict.fromkeys(found))


def positions_for(
    task: Task, target: int, group: int | str | Sequence[int | str], more: Mapping[str, Sequence[int]] | None = None
) -> list[int]:
    """:func:`positions_of` with the names that depend on a target: "query", the position that predicts it, and its
    ``relative_roles`` ("own operands", ...)."""
    return positions_of(
        task, group, task.relative_roles(target) | dict(more or {}) | {QUERY: [task.query_positions[target]]}
    )


def find_place(model: HookedModel, layout: ColumnPlaces, place: Place, column: int) -> Place:
    """The place for one column of a model's task, with its names resolved to positions.

    Names are those of :func:`positions_for` ("query", the default, is the position that predicts the column), and the
    places of the column (:data:`models.tasks.roles.PLACES`: "own operands", "previous operands", ...).

    Raises:
        UserError: a hook point, role, group, position or head that does not exist (with the closest names); attention
            scores, which hold minus infinity; or a group without positions there.
    """
    require_hook(model, place.hook)
    if place.hook.endswith("hook_attn_scores"):
        raise UserError(
            "Attention scores hold minus infinity where they are masked; take hook_pattern or hook_q instead."
        )
    task = layout.task
    asked = range(task.input_length) if place.at is None else place.at
    positions = positions_for(task, layout.targets[column], asked, layout.places(column))
    if not positions:
        raise NoPositions(f"Column {column} has no positions that are {place.at!r}.")
    found = replace(place, at=tuple(positions))
    if place.head is not None and found.axes == "plain":
        raise UserError(f"The hook point {place.hook!r} has no heads; leave head away.")
    found.check(model, task.input_length)
    return found


def stream_points(model: HookedModel) -> dict[str, str]:
    """The residual streams in order of depth: label -> hook. "L0 pre" holds the embeddings, "L1 mid" comes after layer
    1's attention, "L1 post" after its MLP. Later layers have no "pre": it is the "post" of the layer before."""
    points = {"L0 pre": "blocks.0.hook_resid_pre"}
    for layer in range(model.cfg.n_layers):
        for part in ("mid", "post"):
            hook = in_block(layer, f"hook_resid_{part}")
            if part == "post" or (hook in model.hook_dict and not getattr(model.cfg, "attn_only", False)):
                points[f"L{layer} {part}"] = hook
    return {label: require_hook(model, hook) for label, hook in points.items()}
