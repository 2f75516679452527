"""Adders in AddLM's algebra next to their float twins: ``interp reproduce addlm:adder``.

Two-digit adders are tried on all 10,000 pairs, ten-digit ones on AdderBoard and on problems stratified by carry chain.
Every seed is trained to its last step and no seed is selected, so the rows show what the recipe gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from interp.core.sections import Section
from interp.papers.addlm.multiplications import beside_twin
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.training_runs import SeedRun, train_in_time
from interp.probes.score import accuracy_by_chain
from models.addlm_adder import ADDERS
from models.evaluation import Rate, score
from models.registry import recipe_of
from models.tasks.two_digit import TwoDigitAddition, all_problems
from models.transformer import ArithmeticTransformer

SEEDS = 2
KINDS = {"": "AddLM", "-float": "float twin"}
PER_CHAIN = 1_000

INTRODUCTION = """Ternary matrices, scores that are negative L1 distances, softmax over the best keys only, ReLU:
AddLM's algebra, trained on addition instead of text. The float twin has the same shape and recipe, with free matrices,
scaled dot products, all keys and GELU. Embeddings, head and norms are floats in both.

"Exhaustive" means that every problem of the domain was tried. The others are samples: the interval is Clopper and
Pearson's, 95%. Ten-digit problems of each carry-chain length are drawn with seed 0, 1,000 a length."""

COUNTED = """Products of two numbers in one forward pass over the whole input, as a machine with signed adders would
need them. Projections and scores need none beyond one scale a matrix; what is left is mixing values by the pattern,
norms, the head, and the softmax's scaling. Nothing is said about speed: on a processor with multiply-add units, a
multiplication that is saved saves no time."""


def runs_of(settings: Settings) -> list[SeedRun]:
    """All runs, the two-digit ones first, seed by seed."""
    root, seeds = settings.out / "addlm-adder" / "runs", range(settings.seeds or SEEDS)
    names = [f"addlm-adder-{what}{kind}" for what in ADDERS for kind in KINDS]
    recipes = {name: recipe_of(name) for name in names}
    return [SeedRun(name, seed, recipes[name], root / name / f"seed-{seed}") for name in names for seed in seeds]


def measure(model: ArithmeticTransformer) -> Iterator[dict[str, Any]]:
    """Yield rows of exact match, each with its strength of evidence: what was tried, how many, and how many right."""
    if isinstance(model.task, TwoDigitAddition):
        yield _row("all pairs", "exhaustive", score(model, all_problems()))
        yield _row("the 500 pairs never trained on", "exhaustive", score(model))
        return
    found = accuracy_by_chain(model, n_per_length=PER_CHAIN, seed=0)
    yield _row("AdderBoard", "sampled", found.rate(problems=found.table.problems.values[1]))
    for length in found.table.chain_length.values.tolist():
        yield _row(f"carry chain {length}", "sampled", found.rate(problems="stratified", chain_length=length))


def _row(problems: str, rung: str, rate: Rate) -> dict[str, Any]:
    return {"problems": problems, "rung": rung, "n": rate.n, "correct": rate.correct}


def accuracy_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One line per model, seed and set of problems, with an interval if the set is a sample."""
    table = []
    for row in rows:
        rate = Rate(row["n"], row["correct"])
        low, high = rate.interval
        interval = "" if row["rung"] == "exhaustive" else f"{low:.4f} to {high:.4f}"
        right = f"{rate.correct:,} of {rate.n:,}"
        table.append((row["model"], row["seed"], row["problems"], row["rung"], right, rate.accuracy, interval))
    return pd.DataFrame(table, columns=["model", "seed", "problems", "rung", "right", "accuracy", "95% interval"])


def multiplication_table() -> pd.DataFrame:
    """How many multiplications one forward pass of each pair of twins takes, part by part."""
    tables = []
    for what in ADDERS:
        table = beside_twin(f"addlm-adder-{what}").rename(columns={"float": "float twin"})
        twin, ours = table.iloc[-1][["float twin", "AddLM"]]
        tables.append(table.replace({"part": {"all": f"total ({1 - ours / twin:.1%} fewer)"}}))
        tables[-1].insert(0, "adder", what)
    return pd.concat(tables, ignore_index=True)


@study("addlm:adder", "Adders in AddLM's algebra")
def adder(settings: Settings) -> Made | None:
    """Train the missing models and try all of them."""
    runs = runs_of(settings)
    train_in_time([(run, [run.recipe.steps]) for run in runs], settings)
    rows = []
    for run in runs:
        if run.has(run.recipe.steps):
            found = measure(run.model_at(run.recipe.steps))
            rows += [{"model": run.name, "seed": run.seed} | row for row in found]
    if not rows:
        return None
    return Made({"rows": rows}, "An adder without multiplications in its matrices")


@shows("addlm:adder")
def show_adder(data: Any) -> list[Section]:
    return [
        Section("What was trained", INTRODUCTION),
        Section("Exact match", tables=[accuracy_table(data["rows"])]),
        Section("Multiplications", COUNTED, tables=[multiplication_table()]),
    ]
