"""On what in the input attention depends, and how much.

Averaged pattern pictures say where a head looks; this probe says how much of that changes from problem to problem, and
what the changes follow. For the query of answer digit i, with p_k the weight on key k,

    spread     = sqrt(sum over keys of the variance of p_k over problems)
    R^2        = sum_k between-group variance of p_k / sum_k variance of p_k, for groups of equal value of
                 the carry into column i · whether column i-1 sums to 9 · the query's own token (the last output digit)
                 · the two digits of column i · the two digits of column i-1

R^2 is adjusted for the number of groups, ``1 - (1 - R^2)(n - 1)/(n - groups)``, so that meaningless labels score 0 on
average; the control is the same with the labels shuffled over problems. Factors overlap (the own token is a function of
column i-1 and of the carry into it), so their R^2 do not add up.

A spread of zero (MicroAdder: all tokens have one norm, queries and keys read positions) means that attention is a
constant matrix. A small spread suggests that a constant will do, which
:mod:`interp.papers.adder_456.pattern_ablation` tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int

from interp.core import runs
from interp.core.model import HookedModel
from interp.core.problems import draw
from interp.core.results import Provenance, Result
from interp.core.sites import Site, model_name
from interp.papers.adder_456.columns import adder_task
from interp.probes.attention import POSITION_ONLY
from models.errors import UserError
from models.numerals import small

FACTORS = ("carry in", "previous column sums to 9", "own token", "own digits", "previous digits")


@dataclass(frozen=True, eq=False)
class PatternDependence(Result):
    """``table`` is a Dataset over (layer, head, target, factor) with ``spread`` [layer, head, target], adjusted ``r2``
    and ``control`` (shuffled labels) [.., factor], NaN where the weights or the factor do not vary. ``overall`` is the
    same over (layer, head, factor), with variances summed over targets."""

    model: str
    table: xr.Dataset
    overall: xr.Dataset
    provenance: Provenance

    @property
    def max_spread(self) -> float:
        return float(self.table.spread.max())

    @property
    def depends(self) -> bool:
        """Whether any weight moves by more than rounding."""
        return self.max_spread >= POSITION_ONLY

    def sentence(self) -> str:
        if not self.depends:
            return (
                f"{self.model}'s attention was the same on every problem (largest spread {small(self.max_spread, 1)}): "
                "it depends on positions alone."
            )
        layer, head = np.unravel_index(int(self.overall.spread.values.argmax()), self.overall.spread.shape)
        row = self.overall.isel(layer=layer, head=head)
        parts = ", ".join(f"{name}: {round(float(row.r2.sel(factor=name)), 2) + 0.0:.2f}" for name in row.factor.values)
        return (
            f"{self.model}'s attention depends on the problem: in L{layer}H{head} a row of weights moves by "
            f"{float(row.spread):.4f} (root mean square over targets; at most {self.max_spread:.4f}). Share of that "
            f"variance by what it follows: {parts} (shuffled labels: at most "
            f"{float(np.nanmax(np.abs(row.control.values))):.3f})."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, head, target ("all": summed over targets) and factor."""
        frames = []
        for name, part in (("all", self.overall), (None, self.table)):
            frame = part.to_dataframe().reset_index()
            frames.append(frame.assign(target=name) if name else frame)
        return pd.concat(frames, ignore_index=True)[
            ["layer", "head", "target", "spread", "factor", "r2", "control"]
        ].assign(n=self.provenance.n)


def compute_pattern_dependence(
    pattern: Float[np.ndarray, "n layer head target key"],
    factors: Mapping[str, Int[np.ndarray, "n target"]],
    targets: list[str],
    provenance: Provenance,
    model: str = "the model",
) -> PatternDependence:
    """The dependence, from query rows of patterns and the factors' values at each problem and target.

    Raises:
        UserError: fewer than two problems.
    """
    n = len(pattern)
    if n < 2:
        raise UserError("Dependence on the problem needs at least two problems.")
    pattern = pattern - pattern.mean(0)  # [n, layer, head, target, key]
    total = np.square(pattern).sum((0, -1))  # [layer, head, target]
    rng = np.random.default_rng(provenance.seed or 0)
    names = list(factors)
    between, groups = np.zeros((2, *total.shape, len(names))), np.zeros((len(targets), len(names)))
    for index, values in enumerate(factors.values()):
        for which, labels in enumerate((values, rng.permutation(values))):
            for target in range(len(targets)):
                codes, code = np.unique(labels[:, target], return_inverse=True)
                sums = np.zeros((len(codes), *pattern.shape[1:3], pattern.shape[4]))
                np.add.at(sums, code, pattern[:, :, :, target])
                counts = np.bincount(code)[:, None, None, None]
                between[which, :, :, target, index] = (np.square(sums) / counts).sum((0, -1))
                groups[target, index] = len(codes)

    axes = ("layer", "head", "target")
    coords = {
        "layer": np.arange(total.shape[0]),
        "head": np.arange(total.shape[1]),
        "target": targets,
        "factor": names,
    }
    each = [_adjusted(part, total, groups, n, 1) for part in between]
    summed = [_adjusted(part.sum(2), total.sum(2), groups.sum(0), n, len(targets)) for part in between]
    table = xr.Dataset(
        {
            "spread": (axes, np.sqrt(total / n)),
            "r2": ((*axes, "factor"), each[0]),
            "control": ((*axes, "factor"), each[1]),
        },
        coords,
    )
    flat = ("layer", "head")
    overall = xr.Dataset(
        {
            "spread": (flat, np.sqrt(total.mean(2) / n)),
            "r2": ((*flat, "factor"), summed[0]),
            "control": ((*flat, "factor"), summed[1]),
        },
        {key: value for key, value in coords.items() if key != "target"},
    )
    return PatternDependence(model, table, overall, provenance)


def _adjusted(
    between: Float[np.ndarray, "*unit factor"],
    total: Float[np.ndarray, "*unit"],
    groups: Float[np.ndarray, "*group factor"],
    n: int,
    targets: int,
) -> Float[np.ndarray, "*unit factor"]:
    """R^2 adjusted for the number of groups; NaN where nothing varies. Every target has a mean of its own."""
    varies = total / (n * targets) > POSITION_ONLY**2
    r2 = between / np.where(varies, total, np.nan)[..., None]
    free = np.where(groups > targets, n * targets - groups, np.nan)
    return 1 - (1 - r2) * (n - 1) * targets / free


def pattern_dependence(
    model: HookedModel, task: Any = None, problems: Any = None, n: int = 4096, seed: int = 0, carry_heavy: float = 0.5
) -> PatternDependence:
    """How far the attention of a ten-digit adder depends on the problem, and on what.

    Args:
        problems: the problems to use; by default ``n`` are drawn, a share ``carry_heavy`` of them rich in carry chains.

    The patterns are read teacher-forced, at the queries of the eleven answer digits. Cost: one forward pass per
    problem.

    Raises:
        UserError: another task's model, too few problems.
    """
    task = adder_task(model, task)
    sample = draw(task, problems, n, seed, carry_heavy)
    values = {name: x.numpy() for name, x in task.variables(sample.problems).items()}
    previous = {name: np.pad(x[:, :-1], ((0, 0), (1, 0)), constant_values=-1) for name, x in values.items()}
    pair = lambda part: 20 * part["a"] + part["b"]  # noqa: E731
    factors: dict[str, Any] = dict(
        zip(
            FACTORS,
            (values["carry_in"], np.equal(previous["digit_sum"], 9), previous["s"], pair(values), pair(previous)),
            strict=True,
        )
    )
    labels = [role.label for role in task.target_roles][:-1]
    queries = tuple(task.query_positions)[: len(labels)]
    rows = [Site(f"blocks.{layer}.attn.hook_pattern", queries) for layer in range(model.cfg.n_layers)]
    pattern = torch.stack(runs.read(model, sample.tokens, rows)[0], 1).double().cpu().numpy()
    name = model_name(model)
    return compute_pattern_dependence(pattern, factors, labels, sample.provenance, name)
