"""Variants of a two-digit adder compared over seeds and training budgets (ToyGPT, sections 2 and 3).

Curves of ``test`` and ``train`` (the shares of the 500 held-out and the 9,500 training pairs that are answered) and of
``loss`` (of a training batch), over steps:

    mean [low, high]   over seeds, with Student's t interval cut to [0, 1]; the interval is about further seeds, and
                       means little if seeds fall into two groups, so every seed is shown as well
    ordering           "A above B" in how many of the seeds that both have, and the mean difference over them with its t
                       interval; the same seed draws the same problems for both
    largest gap        of the sorted accuracies of one variant: two groups of seeds show as a gap of tens of points

An ordering that holds at the paper's 1,000 iterations and shrinks or reverses with more is an effect of the budget.
Accuracies are whole sums under greedy decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from interp.core.results import Provenance
from interp.core.stats import mean_interval
from interp.probes.learning_curves import LearningCurves
from models.errors import UserError

BUDGET = 1_000
N_TEST, N_TRAIN = 500, 9_500


def seed_curves(
    variants: Mapping[str, str], scores: Sequence[Mapping[str, Any]], losses: Sequence[Mapping[str, Any]]
) -> LearningCurves:
    """Curves from rows of right pairs (``test``, ``train``) and of losses, by ``model``, ``seed`` and ``step``.

    Args:
        variants: model names with their labels, best first by the paper.

    Raises:
        UserError: no score of one of the variants.
    """
    table = pd.DataFrame(list(scores), columns=["model", "seed", "step", "test", "train"])
    missing = [model for model in variants if model not in set(table.model)]
    if missing:
        raise UserError(f"There is no score of {', '.join(missing)}; train at least one seed of it.")
    table = table.assign(test=table.test / N_TEST, train=table.train.astype(float) / N_TRAIN)
    loss = pd.DataFrame(list(losses), columns=["model", "seed", "step", "loss"]).astype({"loss": float})
    at = ["model", "seed", "step"]
    both = table.set_index(at).join(loss.set_index(at), how="outer")
    kept = both[both.index.isin(list(variants), level="model")].to_xarray().sel(model=list(variants))
    seeds = len(table[table.model.isin(list(variants))][["model", "seed"]].drop_duplicates())
    source = f"trained seeds of {len(variants)} variants, each scored on {N_TEST} held-out pairs"
    return LearningCurves.compared(kept, "test", Provenance(seeds, None, source), labels=dict(variants), budget=BUDGET)


def last_step(curves: LearningCurves) -> int:
    """The largest budget that at least one seed of every variant has reached."""
    return min(int(curves.of(model).step.max()) for model in curves.models)


def accuracies(curves: LearningCurves, model: str, step: int, split: str = "test") -> pd.Series:
    """The accuracy of every seed of a variant after ``step`` iterations, indexed by seed."""
    return curves.of(model, split).reindex(step=[step]).isel(step=0).to_series().dropna()


def budget_table(curves: LearningCurves, claims: Mapping[str, float], step: int = BUDGET) -> pd.DataFrame:
    """One row per variant: the paper's test accuracy; mean, interval, extremes and largest gap over seeds.

    In percent."""
    rows = []
    for model in curves.models:
        row: dict[str, Any] = {"variant": curves.labels[model], "iterations": step}
        row["paper test"] = f"{100 * claims[model]:.2f}" if step == BUDGET else "–"
        for split in ("train", "test"):
            values = accuracies(curves, model, step, split)
            row["seeds"] = len(values)
            row[f"{split} mean [95%]"] = _interval(values.to_numpy())
            row[f"{split} range"] = f"{100 * values.min():.1f}–{100 * values.max():.1f}" if len(values) else "–"
        test = accuracies(curves, model, step)
        row["test, every seed"] = ", ".join(f"{100 * value:.1f}" for value in test.sort_values())
        row["largest gap"] = f"{100 * largest_gap(test.to_numpy()):.1f}"
        rows.append(row)
    return pd.DataFrame(rows)


def orderings(curves: LearningCurves) -> pd.DataFrame:
    """One row per budget and pair of variants, in the paper's order: in how many seeds it holds, and by how much."""
    rows = []
    for step in curves.table.test.dropna("step", how="all").step.values.tolist():
        for better, worse in pairwise(curves.models):
            difference = (accuracies(curves, better, step) - accuracies(curves, worse, step)).dropna().to_numpy()
            if not len(difference):
                continue
            mean, low, high = over_seeds(difference)
            ordering = f"{curves.labels[better]} above {curves.labels[worse]}"
            row = {"iterations": step, "ordering": ordering, "seeds": len(difference)}
            row |= {"holds in": int((difference > 0).sum()), "mean difference": mean, "low": low, "high": high}
            rows.append(row)
    return pd.DataFrame(rows)


def orderings_text(curves: LearningCurves, what: str) -> str:
    texts = []
    for ordering, rows in orderings(curves).groupby("ordering", sort=False):
        at = rows.set_index("iterations")
        parts = [
            f"at {step:,} in {at.loc[step, 'holds in']} of {at.loc[step, 'seeds']} seeds "
            f"({100 * at.loc[step, 'mean difference']:+.1f} points)"
            for step in sorted({BUDGET, int(max(at.index))} & set(at.index))
        ]
        texts.append(f"{ordering} {', '.join(parts)}")
    return f"{what}: {'; '.join(texts)}."


def over_seeds(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and Student-t interval, which is infinite below three seeds: with two it would be 13 standard errors either
    way, or zero if they happen to agree."""
    return mean_interval(values) if len(values) > 2 else (float(np.mean(values)), -float("inf"), float("inf"))


def largest_gap(values: np.ndarray) -> float:
    """The largest distance between neighbours in sorted values; 0 for fewer than two."""
    return float(np.diff(np.sort(values)).max()) if len(values) > 1 else 0.0


def _interval(values: np.ndarray) -> str:
    if not len(values):
        return "–"
    mean, low, high = over_seeds(values)
    if np.isinf(low):
        return f"{100 * mean:.1f}"
    return f"{100 * mean:.1f} [{100 * max(low, 0):.1f}, {100 * min(high, 1):.1f}]"
