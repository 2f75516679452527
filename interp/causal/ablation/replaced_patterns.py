"""Replaced attention patterns: what a model still answers when its heads attend in the same way on every problem.

At the queries of the answer, the rows of a head's pattern become

    "zero"       zero, as at all other positions: the head writes nothing
    rows         given rows [target, key]; where they are NaN the head keeps its own

Values and the heads that are not named stay the model's own, so this tests whether a *pattern* is sufficient given the
rest. Fixed rows are off the model's own distribution: a drop can mean that the choice by value carries information, or
only that later layers meet a scale that they never saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.ablation.ablated_runs import mean_activations
from interp.core import runs
from interp.core.batches import right_tokens
from interp.core.places import Place, Replacement
from models.errors import unknown_name
from models.tasks import Task
from models.transformer import HookedModel, in_block

Pattern = str | Float[Tensor, "target key"]


def mean_patterns(
    model: HookedModel, tokens: Int[Tensor, "n pos"], queries: Sequence[int], heads: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], Float[Tensor, "query key"]]:
    """The mean rows of heads at some queries. Cost: one run."""
    places = {head: _rows(*head, queries) for head in heads}
    means = mean_activations(model, tokens, [place.hook for place in places.values()]) if places else {}
    return {head: place.read(means[place.hook][None])[0, 0].float() for head, place in places.items()}


def right_with_patterns(
    model: HookedModel,
    task: Task,
    tokens: Int[Tensor, "n pos"],
    targets: Int[Tensor, "n target"],
    patterns: Mapping[tuple[int, int], Pattern],
) -> Bool[Tensor, "n target"]:
    """Which targets are predicted right, teacher-forced, with these patterns by (layer, head); see the module.

    Cost: one run.

    Raises:
        UserError: an unknown pattern (with the closest), or a model that diverged.
    """
    queries = list(task.query_positions)
    replacements = [_replacement(queries, head, pattern) for head, pattern in patterns.items()]
    return right_tokens(runs.run(model, tokens, replacements, queries), targets)


def _replacement(queries: Sequence[int], head: tuple[int, int], pattern: Pattern) -> Replacement:
    rows = _rows(*head, queries)
    if isinstance(pattern, Tensor):
        return rows.put(lambda own, _: torch.where(pattern.to(own).isnan(), own, pattern.to(own)))
    if pattern == "zero":
        return Place(rows.hook, None, rows.head).put(0.0)
    raise unknown_name("pattern", pattern, ["zero"])


def _rows(layer: int, head: int, queries: Sequence[int]) -> Place:
    return Place(in_block(layer, "attn.hook_pattern"), tuple(queries), head)
