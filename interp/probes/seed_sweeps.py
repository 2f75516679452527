"""Variants of a model or recipe, compared over seeds: who groks, and how far the others come.

Grokking is rare in these models (one seed in a hundred), so a count of successes says little about two variants. The
comparison that has power is of ranks: each seed's best exact match on the validation problems, by the two-sided
Mann-Whitney test with ties. Both are given, and the counts with exact intervals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from interp.core.stats import clopper_pearson
from models.errors import UserError
from models.numerals import p_cell

CURVE_POINTS = 48  # of a seed's curve that a sweep keeps


@dataclass(frozen=True)
class SeedSweep:
    """The seeds of one variant.

    Attributes:
        parameters: free numbers of the model.
        steps, planned: steps done, and steps of the whole recipe; fewer done than planned is an unfinished run.
        seeds, best_exact, token, first_perfect, on_test: one entry per seed: highest exact match on the validation
            problems at any evaluation; token accuracy at the last one; step of the first perfect one (None: never);
            right answers on the test set of the checkpoint that was perfect on validation (None: there was none).
        n_test: size of the test set.
        weights: best parameters, flat, of the seeds that answer the whole test set: what the sweep's claims rest on.
        curve_steps, curves: validations (at most :data:`CURVE_POINTS` of them), and exact match at each, per seed.
        made_with: versions that decide the bits, :func:`models.training.provenance.made_with`.
    """

    label: str
    model: str
    parameters: int
    steps: int
    planned: int
    seeds: tuple[int, ...]
    best_exact: tuple[float, ...]
    token: tuple[float, ...]
    first_perfect: tuple[int | None, ...]
    on_test: tuple[int | None, ...]
    n_test: int
    weights: dict[str, tuple[float, ...]] = field(default_factory=dict)
    curve_steps: tuple[int, ...] = ()
    curves: tuple[tuple[float, ...], ...] = ()
    made_with: dict[str, str] = field(default_factory=dict)

    def model_of(self, seed: int) -> Any:
        """The model that a seed found.

        Raises:
            UserError: the sweep keeps no weights of this seed.
        """
        from models.registry import build
        from models.training.objective import ParameterLayout

        if str(seed) not in self.weights:
            kept = ", ".join(self.weights) or "none"
            raise UserError(f"The sweep {self.label!r} keeps no weights of seed {seed}; it keeps those of: {kept}.")
        model = build(self.model)
        ParameterLayout(model).load_into(model, torch.tensor(self.weights[str(seed)]))
        return model

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def grokked(self) -> int:
        """Seeds that answer the whole test set."""
        return sum(right == self.n_test for right in self.on_test)

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson, 95%, of the share of seeds that grok."""
        return clopper_pearson(self.grokked, self.n)

    @property
    def finished(self) -> bool:
        return self.steps >= self.planned

    def row(self) -> dict[str, Any]:
        """As one row of a table."""
        low, high = self.interval
        done = f"{self.steps:,}" if self.finished else f"{self.steps:,} of {self.planned:,}"
        return {
            "variant": self.label,
            "parameters": self.parameters,
            "steps": done,
            "seeds": self.n,
            "grokked": f"{self.grokked} of {self.n} (95%: {100 * low:.0f}-{100 * high:.0f}%)",
            "median token accuracy": float(np.median(self.token)),
            "best token accuracy": max(self.token),
            "median best exact match": float(np.median(self.best_exact)),
            "best exact match": max(self.best_exact),
        }

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> SeedSweep:
        return SeedSweep(**{key: _tuples(value) for key, value in data.items()})


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples, at any depth."""
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return {key: _tuples(one) for key, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True)
class SweepComparison:
    """``b`` against ``a``: both tests are two-sided; ``superiority`` is P(b > a) + P(b = a) / 2 of best exact match."""

    a: str
    b: str
    superiority: float
    p_rank: float
    p_rate: float

    def row(self) -> dict[str, Any]:
        return {
            "b against a": f"{self.b} against {self.a}",
            "chance that a seed of b comes further": self.superiority,
            "p, Mann-Whitney (best exact match)": p_cell(self.p_rank),
            "p, Fisher (grok rate)": p_cell(self.p_rate),
        }


def compare(a: SeedSweep, b: SeedSweep) -> SweepComparison:
    """Best exact match of two variants by rank, and their grok rates.

    Raises:
        UserError: a variant without seeds.
    """
    from scipy.stats import fisher_exact, mannwhitneyu

    if not a.n or not b.n:
        raise UserError("A variant without seeds cannot be compared.")
    if len({*a.best_exact, *b.best_exact}) == 1:
        superiority, p_rank = 0.5, 1.0
    else:
        test = mannwhitneyu(b.best_exact, a.best_exact, alternative="two-sided")
        superiority, p_rank = float(test.statistic) / (a.n * b.n), float(test.pvalue)
    _, p_rate = fisher_exact([[a.grokked, a.n - a.grokked], [b.grokked, b.n - b.grokked]])
    return SweepComparison(a.label, b.label, superiority, p_rank, float(p_rate))


def seeds_needed(rate: float, other: float, power: float = 0.8, level: float = 0.05) -> int:
    """Seeds a variant to tell two grok rates apart: two-sided, normal approximation in arcsine units.

    ``n = 2 ((z_{1 - level/2} + z_power) / (2 asin sqrt rate - 2 asin sqrt other))^2`` (Cohen, 1988).

    Raises:
        UserError: equal rates.
    """
    from scipy.stats import norm

    distance = 2 * (math.asin(math.sqrt(rate)) - math.asin(math.sqrt(other)))
    if distance == 0:
        raise UserError("Equal rates cannot be told apart.")
    return math.ceil(2 * ((norm.ppf(1 - level / 2) + norm.ppf(power)) / distance) ** 2)


def table(sweeps: Sequence[SeedSweep]) -> pd.DataFrame:
    """One row per variant."""
    return pd.DataFrame([sweep.row() for sweep in sweeps])
