"""Variants of a two-digit adder compared over seeds and training budgets (ToyGPT, sections 2 and 3).

A row of ``scores`` is one seed of one variant after some iterations: how many of the 500 held-out pairs it answers, and
where it was asked, how many of the 9,500 training pairs. A row of ``losses`` is the loss of a training batch.

    mean [low, high]   over seeds, with Student's t interval cut to [0, 1]; the interval is about further seeds, and
                       means little where seeds fall into two groups, so every seed is shown as well
    ordering           "A above B" in how many of the seeds that both have, and the mean difference over them with its t
                       interval; the same seed draws the same problems for both
    largest gap        of the sorted accuracies of one variant: two groups of seeds show as a gap of tens of points

An ordering that holds at the paper's 1,000 iterations and shrinks or turns over with more is an effect of the budget.
Accuracies are whole sums under greedy decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from interp.core.results import Provenance, Result
from interp.core.stats import mean_interval
from models.errors import UserError

BUDGET = 1_000
N_TEST, N_TRAIN = 500, 9_500


@dataclass(frozen=True, eq=False)
class SeedComparison(Result):
    """``variants``: model names with their labels, best first by the paper; ``claims``: the paper's (train, test)
    accuracy of each. ``scores``: ``model``, ``seed``, ``step``, ``test``, ``train`` (right pairs; train may be NaN).
    ``losses``: ``model``, ``seed``, ``step``, ``loss``."""

    what: str
    variants: Mapping[str, str]
    claims: Mapping[str, tuple[float, float]]
    scores: pd.DataFrame
    losses: pd.DataFrame
    provenance: Provenance

    @property
    def last_step(self) -> int:
        """The largest budget that at least one seed of every variant has had."""
        return int(self.scores.groupby("model")["step"].max().min())

    def accuracies(self, model: str, step: int, split: str = "test") -> pd.Series:
        """Accuracy of every seed of a variant after ``step`` iterations, indexed by seed."""
        rows = self.scores[(self.scores.model == model) & (self.scores.step == step)].set_index("seed")
        return (rows[split] / (N_TEST if split == "test" else N_TRAIN)).dropna().sort_index()

    def table(self, step: int = BUDGET) -> pd.DataFrame:
        """A row a variant: the paper's numbers, and mean, interval, extremes and largest gap over seeds, in percent."""
        rows = []
        for model, label in self.variants.items():
            row: dict[str, Any] = {"variant": label, "iterations": step}
            for split, claim in zip(("train", "test"), self.claims[model], strict=True):
                values = self.accuracies(model, step, split)
                row[f"paper {split}"] = f"{100 * claim:.2f}" if step == BUDGET else "–"
                row["seeds"] = len(values)
                row[f"{split} mean [95%]"] = _interval(values.to_numpy())
                row[f"{split} range"] = f"{100 * values.min():.1f}–{100 * values.max():.1f}" if len(values) else "–"
            test = self.accuracies(model, step)
            row["test, every seed"] = ", ".join(f"{100 * value:.1f}" for value in test.sort_values())
            row["largest gap"] = f"{100 * largest_gap(test.to_numpy()):.1f}"
            rows.append(row)
        return pd.DataFrame(rows)

    def orderings(self) -> pd.DataFrame:
        """A row a budget and pair of variants, in the paper's order: in how many seeds it holds, by how much."""
        models = list(self.variants)
        rows = []
        for step in sorted(set(self.scores.step)):
            for better, worse in pairwise(models):
                first, second = self.accuracies(better, step), self.accuracies(worse, step)
                difference = (first - second).dropna().to_numpy()
                if not len(difference):
                    continue
                mean, low, high = over_seeds(difference)
                rows.append(
                    {
                        "iterations": step,
                        "ordering": f"{self.variants[better]} above {self.variants[worse]}",
                        "seeds": len(difference),
                        "holds in": int((difference > 0).sum()),
                        "mean difference": mean,
                        "low": low,
                        "high": high,
                    }
                )
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        orderings = self.orderings()
        texts = []
        for ordering, rows in orderings.groupby("ordering", sort=False):
            at = rows.set_index("iterations")
            parts = [
                f"at {step:,} in {at.loc[step, 'holds in']} of {at.loc[step, 'seeds']} seeds "
                f"({100 * at.loc[step, 'mean difference']:+.1f} points)"
                for step in sorted({BUDGET, int(max(at.index))} & set(at.index))
            ]
            texts.append(f"{ordering} {', '.join(parts)}")
        return f"{self.what}: {'; '.join(texts)}."

    def to_dataframe(self) -> pd.DataFrame:
        """Every score."""
        return self.scores.copy()


def over_seeds(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and Student-t interval, which is infinite below three seeds: of two it is 13 standard errors either way, or
    nothing where they happen to agree."""
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


def compute_seed_comparison(
    what: str,
    variants: Mapping[str, str],
    claims: Mapping[str, tuple[float, float]],
    scores: Sequence[Mapping[str, Any]],
    losses: Sequence[Mapping[str, Any]],
) -> SeedComparison:
    """From rows of scores and losses; see :class:`SeedComparison`.

    Raises:
        UserError: no score of one of the variants.
    """
    table = pd.DataFrame(list(scores), columns=["model", "seed", "step", "test", "train"])
    table = table[table.model.isin(list(variants))].reset_index(drop=True)
    missing = [model for model in variants if model not in set(table.model)]
    if missing:
        raise UserError(f"There is no score of {', '.join(missing)}; train at least one seed of it.")
    loss = pd.DataFrame(list(losses), columns=["model", "seed", "step", "loss"])
    loss = loss[loss.model.isin(list(variants))].reset_index(drop=True)
    seeds = len(table[["model", "seed"]].drop_duplicates())
    provenance = Provenance(
        seeds, None, f"trained seeds of {len(variants)} variants, each scored on 500 held-out pairs"
    )
    return SeedComparison(what, dict(variants), dict(claims), table, loss, provenance)
