"""Where every head looks in one problem: its attention pattern, query by key, as the model computes it.

    pattern[layer, head, query, key], whose rows sum to 1; a query sees keys up to its own position

It describes one problem. What a head does over problems is :func:`interp.probes.attention_by_role.attention_by_role`'s
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.runs import read_patterns
from interp.core.task_checks import resolve_task
from interp.core.views import Grid
from models.errors import UserError, known_name
from models.number_format import in_percent
from models.tasks import Task
from models.transformer import HookedModel, head_name


@dataclass(frozen=True, eq=False)
class AttentionPattern(Result):
    """``pattern`` [layer, head, query, key] of one problem; queries and keys are named by position and token."""

    pattern: xr.DataArray
    problem: str
    provenance: Provenance

    @property
    def table(self) -> pd.DataFrame:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One row for every layer, head, query and key that it can see: its weight."""
        found = self.pattern.to_series().rename("weight").reset_index()
        query, key = (found[name].str.partition(" ")[0].astype(int) for name in ("query", "key"))
        return found[key <= query].reset_index(drop=True)

    def sentence(self) -> str:
        last = self.pattern.isel(query=-1)
        looked = []
        for layer in last.layer.values.tolist():
            for head in last["head"].values.tolist():
                row = last.sel(layer=layer, head=head)
                top = int(np.argmax(row.values))
                share = in_percent(float(row.values[top]))
                looked.append(f"{head_name(layer, head)} gives {share} to {row.key.values[top]}")
        return f"In {self.problem}, from the last position: {', '.join(looked[:8])}{', ...' * (len(looked) > 8)}"


@drawing(AttentionPattern)
def attention_pattern_grid(result: AttentionPattern, layer: int | None = None, head: int | None = None) -> list[Grid]:
    """A heat map for every head, or for one layer's or one head's."""
    layers, heads = result.pattern.layer.values.tolist(), result.pattern["head"].values.tolist()
    if layer is not None:
        known_name("layer", layer, layers)
    if head is not None:
        known_name("head", head, heads)
    return [
        Grid(
            x="key",
            y="query",
            title=head_name(one, each),
            values=result.pattern.sel(layer=one, head=each).values,
            rows=result.pattern["query"].values.tolist(),
            columns=result.pattern["key"].values.tolist(),
            unit="weight",
        )
        for one in layers
        for each in heads
        if layer in (None, one) and head in (None, each)
    ]


def attention_pattern(model: HookedModel, problem: Any, *, task: Task | None = None) -> AttentionPattern:
    """The attention patterns of one problem, with its right answer read in: ``attention_pattern(adder, "57+48")``.

    Args:
        model: any model with TransformerLens hooks.
        problem: one problem, in any form that the task takes.
        task: what the tokens mean, default ``model.task``.

    Raises:
        UserError: no problem or several, or a problem that the task does not take.
    """
    task = resolve_task(model, task)
    own = task.for_problems([problem] if isinstance(problem, (str, tuple)) else problem)
    problems = own.as_problems([problem] if isinstance(problem, (str, tuple)) else problem)
    if len(problems) != 1:
        raise UserError(f"attention_pattern is about one problem, not {len(problems)}.")
    tokens = own.encode(problems)
    patterns = next(read_patterns(model, tokens))[0]
    labels = [f"{at} {own.token_text(token[None])}" for at, token in enumerate(tokens[0])]
    layers, heads = patterns.shape[:2]
    found = xr.DataArray(
        patterns,
        dims=("layer", "head", "query", "key"),
        coords={"layer": [*range(layers)], "head": [*range(heads)], "query": labels, "key": labels},
        name="weight",
    )
    said = own.problem_text(own.numbers(problems)[0])
    return AttentionPattern(found, said, Provenance(1, None, "problem that was given"))
