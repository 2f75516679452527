"""Sequences in which the written digit before one column's query is replaced, and what models and algorithms answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.causal.interchange.interchange_pairs import distinct_problems
from interp.core import runs
from models.errors import UserError
from models.tasks import CHAINED, CHAINED_FROM_ABOVE, RIPPLE, Algorithm, ColumnPlaces
from models.transformer import HookedModel

_POOLS = 12  # examples are looked for among up to this many times n problems


def draw_corruptible(
    layout: ColumnPlaces, corruption: str, n: int, seed: int
) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]:
    """Sequences, and for each the column whose query sees the wrong digit, uniform among the possible ones.

    A wrong digit looks plausible only where the column's digits add up to base - 1: there a carry passes through, so
    that the digit tells whether one came. Problems without such a column are left out, and more are drawn in their
    place.
    """
    generator, found = torch.Generator().manual_seed(seed), 0
    for factor in range(1, _POOLS + 1):
        try:
            pool = layout.task.encode(distinct_problems(layout, n * factor, seed))
        except UserError:
            if factor == 1:
                raise
            break  # the task has no more problems
        inputs = layout.inputs(pool)
        possible = torch.zeros_like(inputs["a"], dtype=torch.bool)
        read, passes = layout.after_outputs, inputs["a"] + inputs["b"] == layout.base - 1
        if corruption == "any":
            possible[:, read.start : read.stop] = True
        elif (
            layout.highest_first
        ):  # what is carried out of such a column was carried into it; nothing is into the units
            possible[:, 1:-1] = passes[:, 1:-1]
        else:  # a carry into column k - 1 exists for k >= 2 only
            possible[:, 2:] = passes[:, 1:-1]
        usable = possible.any(1)
        if (found := int(usable.sum())) >= n:
            weights = possible[usable][:n].float()
            return pool[usable][:n], torch.multinomial(weights, 1, generator=generator)[:, 0]
    raise UserError(
        f"{found:,} problems of the task {layout.task.name!r} were found with a column between the units and the last "
        f"that adds up to {layout.base - 1}, fewer than n = {n:,}; ask for fewer."
    )


def corrupted_at(
    layout: ColumnPlaces, tokens: Tensor, column: Tensor, corruption: str, generator: torch.Generator
) -> Int[Tensor, "n pos"]:
    """The sequences with another digit at the query of each one's column."""
    rows, at = torch.arange(len(tokens)), torch.tensor(layout.queries)[column]
    written = layout.task.digit_values(tokens[rows, at])
    other = torch.randint(1, layout.base, written.shape, generator=generator)
    new = (written + other) % layout.base
    if corruption == "plausible":
        new = layout.base - 1 - written
        if layout.highest_first:  # x'' + y'' is written without a carry, and one more with it
            inputs = layout.inputs(tokens)
            new = (2 * (inputs["a"] + inputs["b"])[rows, column + 1] + 1 - written) % layout.base
    return tokens.index_put((rows, at), layout.answer_tokens(new))


def answers_to(
    model: HookedModel,
    twin: HookedModel,
    layout: ColumnPlaces,
    algorithms: Sequence[Algorithm],
    tokens: Tensor,
    corrupted: Tensor,
    column: Tensor,
) -> xr.Dataset:
    """What the model, its twin and the algorithms answer there, and what they would without the corruption."""
    rows = torch.arange(len(tokens))

    def digits(which: Any, sequences: Tensor) -> np.ndarray:
        predicted = runs.run(which, sequences, (), layout.queries).argmax(-1).cpu()[rows, column]
        return layout.task.digit_values(predicted).numpy()

    values = layout.run(CHAINED_FROM_ABOVE if layout.highest_first else CHAINED, corrupted)
    answers, before = (
        np.stack([layout.answer(algorithm, which)[rows, column].numpy() for algorithm in algorithms])
        for which in (corrupted, tokens)
    )
    data: dict[str, Any] = {
        "column": column.numpy(),
        "digit_sum": values["digit_sum"][rows, column].numpy(),
        "difference": values["difference"][rows, column].numpy(),
        "right": layout.answer(RIPPLE, tokens)[rows, column].numpy(),
        "before": digits(model, tokens),
        "after": digits(model, corrupted),
        "untrained": digits(twin, corrupted),
    }
    arrays: dict[str, Any] = {name: ("example", value) for name, value in data.items()}
    arrays |= {"answer": (("algorithm", "example"), answers), "answer_before": (("algorithm", "example"), before)}
    return xr.Dataset(arrays, coords={"algorithm": [algorithm.name for algorithm in algorithms]})
