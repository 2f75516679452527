"""Where a variable is said to live: a hook point at some positions, read as one vector an example, and written back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import chunks
from interp.core.sites import require_hook
from models.errors import UserError, unknown_name
from models.tasks.algorithms import ColumnLayout

#: Hook points with an axis of heads, at axis 2; all else but the query-by-key ones is [batch, pos, width].
_BY_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k", "hook_result", "hook_attn_in",
            "hook_q_input", "hook_k_input", "hook_v_input")  # fmt: skip
_BY_KEY = ("hook_pattern", "hook_attn_scores")  # [batch, head, query, key]: a position is a query's row
QUERY = "query"
#: Places that every task with columns has, by the layout: the column's own digits, those of the column below, and all
#: else up to the query, which itself is in none of them (the output before it stands there).
OWN, BELOW, ELSEWHERE = "own digits", "digits below", "elsewhere"


class NoPositions(UserError):
    """A place that a column does not have, such as the column below the units."""


@dataclass(frozen=True)
class Site:
    """A hook point at a place.

    ``at`` is a position, a role label ("a3", "s2"; where several positions share one, "+", all of them), "query" (the
    position that predicts the column in question, the default), "own digits" and "digits below" (the two digits added
    in that column and in the one below), "elsewhere" (all other positions up to the query), a group of the task's
    ``relative_roles`` ("previous operands"), or several.
    ``head`` picks one head of a hook point that has them; None takes all.
    """

    hook: str
    at: int | str | tuple[int | str, ...] = QUERY
    head: int | None = None

    def __str__(self) -> str:
        places = self.at if isinstance(self.at, tuple) else (self.at,)
        head = "" if self.head is None else f" head {self.head}"
        return f"{self.hook}{head} at {', '.join(map(str, places))}"


@dataclass(frozen=True)
class Place:
    """A site with its positions found: ``read`` and ``write`` it in an activation of its hook point."""

    hook: str
    positions: tuple[int, ...]
    head: int | None = None

    @property
    def _axis(self) -> str:
        last = self.hook.rsplit(".", 1)[-1]
        return "key" if last in _BY_KEY else "head" if last in _BY_HEAD else "plain"

    def _select(self, activation: Tensor) -> Tensor:
        rows = list(self.positions)
        if self._axis == "key":
            activation = activation if self.head is None else activation[:, self.head : self.head + 1]
            return activation[:, :, rows]
        activation = activation[:, rows]
        return activation if self.head is None else activation[:, :, self.head : self.head + 1]

    def read(self, activation: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        """The site's numbers as one vector an example, position after position."""
        return self._select(activation).flatten(1)

    def write(
        self, activation: Float[Tensor, "batch ..."], value: Float[Tensor, "batch width"]
    ) -> Float[Tensor, "batch ..."]:
        """A copy of the activation with the site's numbers replaced; gradients flow to both."""
        part = self._select(activation)
        index = torch.arange(activation[0].numel(), device=activation.device).view(1, *activation.shape[1:])
        flat = self._select(index).flatten()
        new = activation.flatten(1).index_copy(1, flat, value.reshape(len(part), -1))
        return new.view_as(activation)


def column_places(layout: ColumnLayout, column: int) -> dict[str, list[int]]:
    """Positions of the places that are named after the column; see :data:`OWN`."""
    query = layout.queries[column]
    own, below = list(layout.operands[column]), list(layout.operands[column - 1]) if column else []
    taken = {query, *own, *below}
    return {QUERY: [query], OWN: own, BELOW: below, ELSEWHERE: [at for at in range(query) if at not in taken]}


def find_place(model: HookedModel, layout: ColumnLayout, site: Site, column: int) -> Place:
    """The site for one column of a model's task.

    Raises:
        UserError: a hook point, role, group, position or head that there is not (with the closest names); attention
            scores, which hold minus infinity; a group without positions there.
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
    groups = task.relative_roles(layout.targets[column]) | column_places(layout, column)
    positions: list[int] = []
    for where in site.at if isinstance(site.at, tuple) else (site.at,):
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
    place = Place(site.hook, tuple(positions), site.head)
    if site.head is not None:
        if place._axis == "plain":
            raise UserError(f"The hook point {site.hook!r} has no heads; leave head away.")
        if not 0 <= site.head < model.cfg.n_heads:
            raise UserError(f"There is no head {site.head}: this model has {model.cfg.n_heads}, counted from 0.")
    return place


@torch.no_grad()
def read_places(
    model: HookedModel, tokens: Int[Tensor, "n pos"], places: Sequence[Place], queries: Sequence[int]
) -> tuple[list[Float[Tensor, "n width"]], Float[Tensor, "n query d_vocab"]]:
    """What each place holds, and the logits at some queries, from one run.

    Raises:
        UserError: a hook point that never fires (it is switched off), or logits that are NaN.
    """
    wanted = {place.hook for place in places}
    held: list[list[Tensor]] = [[] for _ in places]
    logits = []
    for batch in chunks(tokens, model):
        caught: dict[str, Tensor] = {}

        def catch(value: Tensor, hook: Any, caught: dict[str, Tensor], name: str) -> None:
            caught[name] = value

        hooks = [(name, lambda value, hook, c=caught, name=name: catch(value, hook, c, name)) for name in wanted]
        out = model.run_with_hooks(batch, fwd_hooks=hooks)
        if missing := wanted - caught.keys():
            raise UserError(f"The hook point {sorted(missing)[0]!r} never fires in this model; it is switched off.")
        for place, rows in zip(places, held, strict=True):
            rows.append(place.read(caught[place.hook]).detach())
        logits.append(_numbers(out[:, list(queries)].detach()))
    return [torch.cat(rows) for rows in held], torch.cat(logits)


def patched_logits(
    model: HookedModel,
    tokens: Int[Tensor, "n pos"],
    changes: Sequence[tuple[Place, Callable[[Tensor, slice], Tensor]]],
    queries: Sequence[int],
    size: int = 512,
) -> Float[Tensor, "n query d_vocab"]:
    """Logits at some queries while each place is rewritten: ``change(what it holds [batch, width], rows) -> new``.

    Raises:
        UserError: logits that are NaN.
    """
    found = []
    for start in range(0, len(tokens), size):
        rows = slice(start, start + size)
        hooks = [
            (place.hook, lambda value, hook, p=place, c=change, r=rows: p.write(value, c(p.read(value), r)))
            for place, change in changes
        ]
        logits = model.run_with_hooks(tokens[rows].to(model.cfg.device), fwd_hooks=hooks)
        found.append(_numbers(logits[:, list(queries)]))
    return torch.cat(found)


def _numbers(logits: Float[Tensor, "batch query d_vocab"]) -> Float[Tensor, "batch query d_vocab"]:
    """The logits, if they are numbers: the largest of NaNs would be read as the digit 0."""
    if logits.isnan().any():
        raise UserError("The model's logits are NaN, so that it has no answers; do its weights hold NaN or infinity?")
    return logits
