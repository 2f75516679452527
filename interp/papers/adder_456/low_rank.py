"""Whether low-rank factors help to grok: ``interp reproduce adder-456:low-rank`` compares the family's seeds.

The paper compresses 763 parameters to 456 and supposes that "the low-rank constraint may also serve as a regularizer"
that favours algorithms over memorisation (section 2.1). Every model is trained by its own recipe: 27,000 steps with
LayerNorm (763, 582, 512), 54,000 with RMSNorm (491, 456). A model is compared with its neighbour of the same recipe,
which differs only in what is factored or shared.

``interp reproduce adder-456:rank-2`` trains what does not train according to the paper: 456 parameters with queries,
keys and values, or the MLP, of rank 2 (section 2.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import models
from interp.core.results import Provenance
from interp.core.sections import Section
from interp.figures.dots import dot_plot
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.sweeps import Arm, read_entry_row, sweep_made, train_arms
from interp.probes.curves import learning_curves
from models.errors import UserError
from models.evaluation import Rate
from models.low_rank_adder import RANK_2
from models.numerals import p_cell
from models.training.loop import train
from models.training.named_recipes import get_recipe

#: (model, the neighbour with more factors, what the neighbour has in low rank in addition).
STEPS = (
    ("adder-763", "adder-582", "positions, queries, keys, values and output"),
    ("adder-582", "adder-512", "MLP"),
    ("adder-491", "adder-456", "shared query and key factor, keys as values, output of rank 2"),
)
SEEDS = 32  # per model
BASE = "adder-456"
_NAMES = tuple(dict.fromkeys(name for pair in STEPS for name in pair[:2]))


def seed_row(name: str, sources: Sequence[str | Path]) -> dict[str, Any]:
    """One model: its seeds and the step at which each was first perfect, None for those that never were.

    Raises:
        UserError: a seed that is in two of the sources.
    """
    seeds: list[int] = []
    first: list[int | None] = []
    last = 0
    for source in sources:
        curves = learning_curves(source, what="uniform")
        found, onset = curves.of(name).seed.values.tolist(), curves.onset(name)
        if twice := sorted({*seeds} & {*found}):
            raise UserError(f"Seed {twice[0]} of {name} is in two runs; train other seeds with --first-seed.")
        seeds, first = seeds + found, first + [onset.get(seed) for seed in found]
        last = max(last, int(curves.of(name).step.max()))
    parameters = sum(p.numel() for p in models.build(name).parameters())
    return {"model": name, "parameters": parameters, "steps": last, "seeds": seeds, "first_perfect": first}


@study("adder-456:low-rank", "Do low-rank factors help to grok? Seeds of 763, 582, 512, 491 and 456 parameters")
def low_rank(settings: Settings) -> Made:
    """The zoo's seeds and those of runs in ``OUT/adder-456/low-rank/NAME``; ``--yes`` trains the rest of 32 there."""
    rows = []
    for name in _NAMES:
        stored = [name] if name in models.zoo_names() else []
        n = learning_curves(name).of(name).sizes["seed"] if stored else 0
        folder = settings.out / "adder-456" / "low-rank" / name
        if settings.yes and n < SEEDS:
            train(
                name, folder, SEEDS - n, n, device=settings.device, progress=settings.progress,
                minutes=settings.minutes_left(),
            )  # fmt: skip
        sources = [*stored, *([folder] if folder.exists() else [])]
        rows += [seed_row(name, sources)] if sources else []
    pairs = compared({row["model"]: row for row in rows})
    settings.say(pairs.to_string(index=False))
    return Made({"rows": rows}, "Low rank and grokking")


@study("adder-456:rank-2", "Queries, keys and values, or the MLP, of rank 2 (section 2.3)")
def rank_2(settings: Settings) -> Made | None:
    """Always the whole recipe, 54,000 steps."""
    recipe = get_recipe("adder-456")
    arms = [Arm(name, name, recipe, f"rank-2/{name}", paper="adder-456") for name in RANK_2]
    rows = train_arms(settings, arms, settings.seeds or SEEDS)
    rows = [read_entry_row(BASE, BASE), *rows]
    text = (
        "The paper: output of rank 2 costs nothing, and queries, keys and values or the MLP of rank 2 lead to training "
        "failure. One of them at a time here, every other part as in 456."
    )
    pairs = [(BASE, name) for name in RANK_2]
    return sweep_made(settings, "rank-2", "Parts of rank 2", rows, text, pairs, paper="adder-456")


def rate_of(row: Mapping[str, Any]) -> Rate:
    """The rate of seeds that were ever perfect on the uniform validation problems."""
    return Rate(len(row["seeds"]), sum(step is not None for step in row["first_perfect"]))


def compared(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per pair of neighbours: grok rates and Fisher's two-sided p."""
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
