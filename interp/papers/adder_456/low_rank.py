"""Do low-rank factors help to grok? ``interp reproduce adder-456:low-rank`` compares the family's seeds.

The paper compresses 763 parameters to 456 and supposes that "the low-rank constraint may also serve as a regularizer"
that favours algorithms over memorisation (section 2.1). Every model is trained by its own recipe: 27,000 steps with
LayerNorm (763, 582, 512), 54,000 with RMSNorm (491, 456). A model is compared with its neighbour of the same recipe,
which differs in what is factored or shared and in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

import models
from interp.core.results import Provenance
from interp.core.sections import Section
from interp.figures.dots import dot_plot
from interp.papers.studies import Made, Settings, shows, study
from interp.probes.curves import Curves, learning_curves
from models.evaluation import Rate
from models.numerals import p_cell

#: (model, the neighbour with more factors, what the neighbour has in low rank besides).
STEPS = (
    ("adder-763", "adder-582", "positions, queries, keys, values and output"),
    ("adder-582", "adder-512", "MLP"),
    ("adder-491", "adder-456", "shared query and key factor, keys as values, output of rank 2"),
)
_NAMES = tuple(dict.fromkeys(name for pair in STEPS for name in pair[:2]))


def seed_rows(curves: Curves) -> list[dict[str, Any]]:
    """A row per model: its seeds and the step at which each was first perfect, None for those that never were."""
    rows = []
    for name in curves.models:
        seeds, onset = curves.of(name).seed.values.tolist(), curves.onset(name)
        last = int(curves.of(name).step.max())
        first = [onset.get(seed) for seed in seeds]
        parameters = sum(p.numel() for p in models.build(name).parameters())
        rows.append({"model": name, "parameters": parameters, "steps": last, "seeds": seeds, "first_perfect": first})
    return rows


@study("adder-456:low-rank", "Do low-rank factors help to grok? Seeds of 763, 582, 512, 491 and 456 parameters")
def low_rank(settings: Settings) -> Made:
    known = [name for name in _NAMES if name in models.zoo_names()]
    curves = learning_curves(known, what="uniform")
    settings.say(curves.sentence())
    return Made({"rows": seed_rows(curves)}, "Low rank and grokking")


def rate_of(row: Mapping[str, Any]) -> Rate:
    """Seeds that were once perfect on the uniform validation problems, of all."""
    return Rate(len(row["seeds"]), sum(step is not None for step in row["first_perfect"]))


def compared(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """A row per pair of neighbours: grok rates and Fisher's two-sided p."""
    from scipy.stats import fisher_exact

    found = []
    for more, fewer, what in STEPS:
        if more in rows and fewer in rows:
            a, b = rate_of(rows[more]), rate_of(rows[fewer])
            p = float(fisher_exact([[a.correct, a.n - a.correct], [b.correct, b.n - b.correct]])[1])
            pair = {"full": f"{more}: {a.correct} of {a.n}", "low rank": f"{fewer}: {b.correct} of {b.n}"}
            found.append({"factored": what} | pair | {"p (Fisher)": p_cell(p)})
    return pd.DataFrame(found)


@shows("adder-456:low-rank")
def show_low_rank(data: Any) -> list[Section]:
    rows = {row["model"]: row for row in data["rows"]}
    rates = {name: rate_of(row) for name, row in rows.items()}
    table = pd.DataFrame(
        {
            "model": name,
            "steps": row["steps"],
            "seeds": rates[name].n,
            "grokked": rates[name].correct,
            "95% low": rates[name].interval[0],
            "95% high": rates[name].interval[1],
            "median step of those": pd.Series([s for s in row["first_perfect"] if s is not None]).median(),
        }
        for name, row in rows.items()
    )
    pairs = compared(rows)
    text = (
        "Seeds that once answer all 5,000 uniform validation problems. Each model has its own recipe's steps, so that "
        f"only neighbours of one recipe are compared: {len(pairs)} comparisons, none of them corrected for the others."
    )
    drawn = dot_plot(
        {"seeds that grok": {name: (rate.accuracy, *rate.interval) for name, rate in rates.items()}},
        "; ".join(f"{name.removeprefix('adder-')}: {rate.correct} of {rate.n}" for name, rate in rates.items()),
        Provenance(sum(rate.n for rate in rates.values()), None, "seeds"),
        {"title": "share of seeds that grok", "tickformat": ".0%", "rangemode": "tozero"},
    )
    return [Section("Low rank and grokking", text, (table, pairs), (drawn,))]
