"""Attention maps of a two-digit adder: every head of every layer, over all 10,000 pairs (ToyGPT, Figure 3).

``pattern[view, layer, head, query, key]`` is teacher-forced. A view is the mean over a set of problems (all; those
without and with a carry out of the units) or a single problem. Two measures test how the paper reads its maps:

    keys attended   exp(entropy) of a row, its "number of keys" (1 to the number that are visible), averaged over the
                    queries that predict a digit and over all problems; the paper says maps get less sparse with depth,
                    most of all from the first layer to the second
    overlap         1 - total variation distance of two heads' rows, averaged likewise: 1 for equal maps; the paper
                    finds heads of one layer alike. The control is the overlap with heads of other layers.

The maps of one problem, which the paper shows, are a single draw; means hide what depends on the digits. Both are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.papers.toygpt.problems import EVERY_PAIR, LABELS, resolve_two_digit_task
from models.tasks.two_digit import all_problems

#: The sums that the paper lists as wrong (Table 1), and one without any carry.
EXAMPLES = ((42, 47), (77, 99), (17, 3), (12, 34))
MEANS = ("mean of all", "mean without carry", "mean with carry")


@dataclass(frozen=True, eq=False)
class AttentionMaps(Result):
    """``pattern`` over (view, layer, head, query, key); ``keys`` [layer, head] attended, of ``visible`` on average;
    ``overlap`` between heads "L0H0", ..., [one, other]; ``spread`` [layer, head, query, key]: standard deviation over
    problems. ``examples``: the problems of the views that are not means."""

    name: str
    pattern: xr.DataArray
    keys: xr.DataArray
    visible: float
    overlap: xr.DataArray
    spread: xr.DataArray
    examples: tuple[tuple[int, int], ...]
    provenance: Provenance

    def overlaps(self) -> dict[str, float]:
        """The mean overlap of two heads in one layer, by layer, and of heads in different layers ("other layers")."""
        values, heads = self.overlap.values, self.overlap["one"].values.tolist()
        layer = np.array([int(head[1 : head.index("H")]) for head in heads])
        pairs = np.triu(np.ones_like(values, dtype=bool), 1)
        same = layer[:, None] == layer
        found = {f"layer {i}": float(values[pairs & same & (layer == i)].mean()) for i in sorted(set(layer.tolist()))}
        return found | {"other layers": float(values[pairs & ~same].mean())}

    def sentence(self) -> str:
        by_layer = self.keys.mean("head").values
        overlaps = self.overlaps()
        most_alike = max((key for key in overlaps if key != "other layers"), key=overlaps.__getitem__)
        return (
            f"{self.name}: a digit's query attends to "
            + ", ".join(f"{value:.2f}" for value in by_layer)
            + f" keys in layers 0 to {len(by_layer) - 1} (of {self.visible:.1f} visible); heads overlap most in "
            f"{most_alike} ({overlaps[most_alike]:.2f}), across layers {overlaps['other layers']:.2f}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per view, head, query and key."""
        frame = self.pattern.rename("weight").to_dataframe().reset_index()
        return frame[frame["weight"].notna()].reset_index(drop=True)


def compute_attention_maps(
    patterns: Float[np.ndarray, "n layer head query key"],
    carry: Float[np.ndarray, " n"],
    examples: Sequence[tuple[int, int]],
    example_patterns: Float[np.ndarray, "example layer head query key"],
    first_query: int,
    name: str,
    provenance: Provenance,
) -> AttentionMaps:
    """Maps and measures from every problem's patterns; queries from ``first_query`` on predict a digit."""
    n, layers, heads, queries, keys = patterns.shape
    with_carry = carry > 0
    views = np.concatenate(
        [np.stack([patterns.mean(0), patterns[~with_carry].mean(0), patterns[with_carry].mean(0)]), example_patterns]
    )
    visible = np.tril(np.ones((queries, keys), dtype=bool))
    views = np.where(visible, views, np.nan)
    rows = patterns[:, :, :, first_query:]
    entropy = -(rows * np.log(np.maximum(rows, 1e-30))).sum(-1)
    flat = rows.reshape(n, layers * heads, -1)
    count = rows.shape[3]
    overlap = np.array([1 - np.abs(flat - flat[:, [i]]).sum(-1).mean(0) / (2 * count) for i in range(layers * heads)])
    labels = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
    names = [*MEANS, *(f"{a} + {b}" for a, b in examples)]
    at = {"layer": range(layers), "head": range(heads)}
    tokens = {"query": list(LABELS), "key": list(LABELS)}
    return AttentionMaps(
        name=name,
        pattern=xr.DataArray(views, dims=("view", *at, *tokens), coords={"view": names, **at, **tokens}),
        keys=xr.DataArray(np.exp(entropy).mean((0, 3)), dims=tuple(at), coords=at),
        visible=float(np.arange(first_query + 1, queries + 1).mean()),
        overlap=xr.DataArray(overlap, dims=("one", "other"), coords={"one": labels, "other": labels}),
        spread=xr.DataArray(np.where(visible, patterns.std(0), np.nan), dims=(*at, *tokens), coords={**at, **tokens}),
        examples=tuple(examples),
        provenance=provenance,
    )


def attention_maps(
    model: HookedModel, task: Any = None, examples: Sequence[tuple[int, int]] = EXAMPLES
) -> AttentionMaps:
    """Maps of every head of a two-digit adder; see the module. Cost: 10,000 forward passes of six tokens.

    Raises:
        UserError: a model without hooks, another task, or examples that are not problems of it.
    """
    task = resolve_two_digit_task(model, task)
    shown = task.as_problems(list(examples))
    problems = all_problems()
    carry = task.variables(problems)["carry_out"][:, 0].numpy()
    name = model_name(model)
    return compute_attention_maps(
        _patterns(model, task.encode(problems)),
        carry.astype(np.float64),
        [(int(a), int(b)) for a, b in shown.tolist()],
        _patterns(model, task.encode(shown)),
        task.query_positions[0],
        name,
        EVERY_PAIR,
    )


def _patterns(model: HookedModel, tokens: Int[Tensor, "n pos"]) -> Float[np.ndarray, "n layer head query key"]:
    layers = [Site(f"blocks.{layer}.attn.hook_pattern", None) for layer in range(model.cfg.n_layers)]
    return torch.stack(runs.read(model, tokens, layers)[0], 1).cpu().double().numpy()
