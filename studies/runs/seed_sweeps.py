"""Variants of a model or recipe, compared over seeds: which seeds grok, and how far the others get.

Grokking is rare in these models (one seed in a hundred), so a count of successes says little about two variants. A
comparison of ranks has more power: each seed's best exact match on the validation problems, by the two-sided
Mann-Whitney test with ties. Both are given, the counts with exact intervals.

A sweep is stored as rows, one per variant, and read as :class:`~interp.probes.learning_curves.LearningCurves` of all
variants:

    label, model, parameters       the variant, its registered model and its number of free parameters
    steps, planned                 steps done, and steps of the whole recipe; fewer done than planned: unfinished
    seeds                          and per seed ``best_exact``, the highest exact match on the validation problems at
                                   any evaluation, ``token`` accuracy at the last one, ``first_perfect`` (its step or
                                   None), ``on_test`` (right answers on the test set of ``n_test`` problems of the
                                   checkpoint that was perfect on validation; None: there was no such checkpoint)
    weights                        seed -> best parameters, flat, for seeds that answer the whole test set
    curve_steps, curves            some of the validations, and exact match at each, per seed
    made_with                      versions that decide the bits, :func:`models.training.provenance.made_with`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance
from interp.probes.learning_curves import LearningCurves
from interp.probes.stored_curves import curve_table
from models.errors import UserError
from models.number_format import p_cell


def sweep_curves(rows: Sequence[Mapping[str, Any]]) -> LearningCurves:
    """``best_exact``, the best so far, and ``token`` of all variants' seeds, each at the variant's last step, with the
    coordinates ``parameters`` and ``planned`` over models. Variants with the same label are told apart by their steps.
    """
    tables: list[xr.Dataset] = []
    on_test: dict[str, dict[int, bool]] = {}
    labels: dict[str, str] = {}
    for row in rows:
        same = sum(other["label"] == row["label"] for other in rows)
        name = row["label"] if same == 1 else f"{row['label']}, {row['steps']:,} steps"
        values = {what: np.array(row[what], dtype=float)[:, None] for what in ("best_exact", "token")}
        table = curve_table(name, values, row["seeds"], [row["steps"]])
        tables.append(table.assign_coords({key: ("model", [row[key]]) for key in ("parameters", "planned")}))
        on_test[name] = {s: right == row["n_test"] for s, right in zip(row["seeds"], row["on_test"], strict=True)}
        labels[name] = row["label"]
    provenance = Provenance(sum(len(row["seeds"]) for row in rows), None, "seeds, each on 2,048 validation problems")
    return LearningCurves.compared(
        xr.concat(tables, "model", join="outer"), "best_exact", provenance, on_test=on_test, labels=labels
    )


def finished(sweep: LearningCurves, model: str) -> bool:
    return last_step(sweep, model) >= int(sweep.table.planned.sel(model=model))


def last_step(sweep: LearningCurves, model: str) -> int:
    return int(sweep.of(model).step.values[-1])


def sweep_table(sweep: LearningCurves) -> pd.DataFrame:
    """One row per variant."""
    rows = []
    for model in sweep.models:
        rate, steps = sweep.grokked(model), last_step(sweep, model)
        low, high = rate.interval
        best, token = (sweep.of(model, what).values for what in ("best_exact", "token"))
        whole = "" if finished(sweep, model) else f" of {int(sweep.table.planned.sel(model=model)):,}"
        rows.append(
            {
                "variant": sweep.labels[model],
                "parameters": int(sweep.table.parameters.sel(model=model)),
                "steps": f"{steps:,}{whole}",
                "seeds": rate.n,
                "grokked": f"{rate.correct} of {rate.n} (95%: {100 * low:.0f}-{100 * high:.0f}%)",
                "median token accuracy": float(np.median(token)),
                "best token accuracy": float(token.max()),
                "median best exact match": float(np.median(best)),
                "best exact match": float(best.max()),
            }
        )
    return pd.DataFrame(rows)


def compare_variants(sweep: LearningCurves, a: str, b: str) -> dict[str, Any]:
    """Compare ``b`` with ``a``: best exact match by rank, and grok rates; both tests are two-sided. ``superiority`` is
    P(b > a) + P(b = a) / 2 of best exact match.

    Raises:
        UserError: no such variant.
    """
    from scipy.stats import fisher_exact, mannwhitneyu

    first, second = (sweep.of(model).max("step").values for model in (a, b))
    if len({*first, *second}) == 1:
        superiority, p_rank = 0.5, 1.0
    else:
        test = mannwhitneyu(second, first, alternative="two-sided")
        superiority, p_rank = float(test.statistic) / (len(first) * len(second)), float(test.pvalue)
    counts = [[rate.correct, rate.n - rate.correct] for rate in (sweep.grokked(a), sweep.grokked(b))]
    _, p_rate = fisher_exact(counts)
    return {"a": a, "b": b, "superiority": superiority, "p_rank": p_rank, "p_rate": float(p_rate)}


def comparison_table(compared: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per comparison of :func:`compare_variants`."""
    columns = {
        "superiority": "chance that a seed of b comes further",
        "p_rank": "p, Mann-Whitney (best exact match)",
        "p_rate": "p, Fisher (grok rate)",
    }
    found = pd.DataFrame(compared)
    return (
        found[list(columns)]
        .rename(columns=columns)
        .assign(**{name: found[key].map(p_cell) for key, name in columns.items() if key != "superiority"})
        .assign(**{"b against a": found.b + " against " + found.a})[["b against a", *columns.values()]]
    )


def seeds_needed(rate: float, other: float, power: float = 0.8, level: float = 0.05) -> int:
    """Seeds per variant needed to tell two grok rates apart: two-sided, normal approximation in arcsine units.

    ``n = 2 ((z_{1 - level/2} + z_power) / (2 asin sqrt rate - 2 asin sqrt other))^2`` (Cohen, 1988).

    Raises:
        UserError: the rates are equal.
    """
    from scipy.stats import norm

    distance = 2 * (math.asin(math.sqrt(rate)) - math.asin(math.sqrt(other)))
    if distance == 0:
        raise UserError("Equal rates cannot be told apart.")
    return math.ceil(2 * ((norm.ppf(1 - level / 2) + norm.ppf(power)) / distance) ** 2)
