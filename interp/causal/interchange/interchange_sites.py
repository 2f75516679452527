"""Named places of a column, where a variable may live, and their positions."""

from __future__ import annotations

from dataclasses import replace

from interp.core.sites import QUERY, Site, require_hook
from models.errors import UserError, unknown_name
from models.tasks import ColumnLayout
from models.transformer.hooked import HookedModel


class NoPositions(UserError):
    """The place does not exist for a column, such as the previous column of the units."""


def find_place(model: HookedModel, layout: ColumnLayout, site: Site, column: int) -> Site:
    """The site for one column of a model's task, with its places resolved to positions.

    A place is a position, a role label ("a3", "s2"; where several positions share a label such as "+", all of them),
    "query" (the position that predicts the column, the default), a place of the column
    (:data:`models.tasks.places.PLACES`: "own operands", "previous operands", ...), another group of the task's
    ``relative_roles``, or several of these.

    Raises:
        UserError: a hook point, role, group, position or head that does not exist (with the closest names); attention
            scores, which hold minus infinity; or a group without positions there.
    """
    require_hook(model, site.hook)
    if site.hook.endswith("hook_attn_scores"):
        raise UserError(
            "Attention scores hold minus infinity where they are masked; take hook_pattern or hook_q instead."
        )
    task = layout.task
    labels: dict[str, list[int]] = {}
    for at, role in enumerate(task.roles[: task.input_length]):
        labels.setdefault(role.label, []).append(at)
    groups = task.relative_roles(layout.targets[column]) | layout.places(column) | {QUERY: [layout.queries[column]]}
    positions: list[int] = []
    asked = range(task.input_length) if site.at is None else site.at if isinstance(site.at, tuple) else (site.at,)
    for where in asked:
        if isinstance(where, int):
            if not -task.input_length <= where < task.input_length:
                raise UserError(f"There is no position {where}: a sequence has {task.input_length}.")
            found = [where % task.input_length]
        elif where in groups:
            found = list(groups[where])
        elif where in labels:
            found = labels[where]
        else:
            raise unknown_name("place", where, (*groups, *labels))
        positions += [at for at in found if at not in positions]
    if not positions:
        raise NoPositions(f"Column {column} has no positions that are {site.at!r}.")
    place = replace(site, at=tuple(positions))
    if site.head is not None and place.axes == "plain":
        raise UserError(f"The hook point {site.hook!r} has no heads; leave head away.")
    place.check(model, task.input_length)
    return place
