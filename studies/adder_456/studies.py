"""The 456-parameter adder's tables, figure and stress test: ``adder-456:table4`` and its neighbours.

Tables 1 and 4 are counted on the models. Table 3 scores the zoo's models, and published checkpoints if there are any in
``OUT/adder-456/published`` (they are not part of this project). Figure 1 is made from the zoo's stored curves, or from
runs in ``OUT/adder-456/runs``, which are trained if needed and allowed (``--yes``: hours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import models
from interp.core.results import Provenance
from interp.core.sections import Section, records
from interp.probes.learning_curves import LearningCurves, learning_curves
from interp.probes.score import score as scores
from interp.probes.score_result import Scores
from interp.probes.stored_curves import curve_table
from models.errors import UserError
from models.evaluation import score
from models.families.low_rank_adder import OPTIONS, LowRankAdderWeights
from models.number_format import shown
from models.rates import Rate
from models.tasks.named.adder_test_sets import ten_test_sets
from models.training.loop import train
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims.read import stated
from studies.runs.study import Made, Settings, shows, study

PAPER, MODEL, OTHER = "adder-456", "adder-456", "microadder-57"
COLUMNS = ("adder-763", "adder-512", "adder-491", "adder-456")  # of Table 4
FIGURE_1 = {"adder-582": 16, "adder-512": 16, "adder-456": 32}  # seeds to train if none are stored


def breakdown(name: str) -> pd.DataFrame:
    """Table 1 for one model: components, how they are written, and their counts, summed and checked."""
    model = models.build(name)
    assert isinstance(model.weight_map, LowRankAdderWeights)
    rows = pd.DataFrame(model.weight_map.parts(), columns=["component", "written as", "parameters"])
    total = sum(p.numel() for p in model.parameters())
    if rows.parameters.sum() != total:
        raise UserError(f"The components of {name} have {rows.parameters.sum()} parameters and the model {total}.")
    rows.loc[len(rows)] = ["total", "", total]
    return rows


def comparison_table() -> pd.DataFrame:
    """Table 4: the counts of every model, and where a component changed (LR: low rank, with the rank)."""
    columns = {name: breakdown(name) for name in ("adder-763", "adder-582", "adder-512", "adder-491", "adder-456")}
    table = pd.DataFrame({"component": columns["adder-763"].component})
    for name, rows in columns.items():
        table[name] = rows.parameters
    return table


def errors_by_test_seed(model: ArithmeticTransformer) -> dict[int, int]:
    """Wrong answers on each of the paper's ten test sets of 10,000."""
    return {seed: len(problems) - score(model, problems).correct for seed, problems in ten_test_sets().items()}


def scored_models(settings: Settings) -> dict[str, ArithmeticTransformer]:
    """The zoo's models of the family, then the published checkpoints that were put next to the run."""
    found = {f"{name} (zoo)": models.load(name) for name in reversed(OPTIONS) if name in models.zoo_names()}
    for path in sorted((settings.out / PAPER / "published").glob("*.pt")):
        model = models.load(path)
        found[f"{model.registered} ({path.stem}, published)"] = model
    if not found:
        folder = settings.out / PAPER / "published"
        raise UserError(f"The zoo holds no model of the family; put published checkpoints into {folder}.")
    return found


@study("adder-456:table1", "Parameters of the 456-parameter model by component")
def table1(settings: Settings) -> Made:
    table = breakdown(MODEL)
    settings.say(table.to_string(index=False))
    return Made({"rows": records(table)}, "456 parameters")


@shows("adder-456:table1")
def show_table1(data: Any) -> list[Section]:
    text = "Counted on the model's parameters; the effective weights are computed from them at every use."
    return [Section("Table 1", text, (pd.DataFrame(data["rows"]),))]


@study("adder-456:table4", "Parameters of 763, 582, 512, 491 and 456 by component")
def table4(settings: Settings) -> Made:
    table = comparison_table()
    settings.say(table.to_string(index=False))
    return Made({"rows": records(table)}, "From 763 to 456 parameters")


@shows("adder-456:table4")
def show_table4(data: Any) -> list[Section]:
    table = pd.DataFrame(data["rows"])
    how = pd.DataFrame({"component": breakdown("adder-763").component})
    for name in table.columns[1:]:
        how[name] = breakdown(name)["written as"]
    return [
        Section("Table 4", "Counted on the models. The paper's table leaves out 582, which its Table 2 has.", (table,)),
        Section("How each component is written", "", (how,)),
    ]


@study("adder-456:table3", "Errors on the ten test sets, seed by seed")
def table3(settings: Settings) -> Made:
    found = {name: errors_by_test_seed(model) for name, model in scored_models(settings).items()}
    settings.say(_errors(found).to_string(index=False))
    return Made({"errors": found}, "Errors on the ten test sets")


def _errors(found: Mapping[str, Mapping[Any, int]]) -> pd.DataFrame:
    table = pd.DataFrame(found)
    table.loc["all"] = table.sum()
    return table.rename_axis("test seed").reset_index()


@shows("adder-456:table3")
def show_table3(data: Any) -> list[Section]:
    rates = []
    for name, errors in data["errors"].items():
        rate = Rate(100_000, 100_000 - sum(errors.values()))
        low, high = rate.interval
        rates.append({"model": name, "right": rate.correct, "of": rate.n, "95% low": low, "95% high": high})
    text = (
        "Wrong whole answers of 10,000 in each set (greedy decoding; teacher forcing gives the same verdicts). The "
        "sets are made from their definition: pairs 5,000 to 14,999 of a generator a seed.\n\nThe pairs are uniform, "
        "so that long carries hardly occur in them: see adder-456:stress."
    )
    return [Section("Tables 2 and 3", text, (_errors(data["errors"]), pd.DataFrame(rates)))]


def figure_1(settings: Settings) -> LearningCurves:
    """The curves of Figure 1, from the zoo, from runs under ``out``, or trained now with ``--yes``.

    Raises:
        UserError: nothing is stored and training was not asked for.
    """
    sources: list[str | Path] = []
    for name, seeds in FIGURE_1.items():
        folder = settings.out / PAPER / "runs" / name
        if folder.exists() or (settings.yes and name not in models.zoo_names()):
            n = seeds if settings.seeds is None else settings.seeds
            if settings.yes:
                train(
                    name, folder, n, device=settings.device, progress=settings.progress, minutes=settings.minutes_left()
                )
            sources.append(folder)
        elif name in models.zoo_names():
            sources.append(name)
        else:
            settings.say(f"No runs of {name} are stored; --yes trains {seeds} seeds (an hour or more on one core).")
    if not sources:
        raise UserError("No training runs of the family are stored; --yes trains them.")
    return on_uniform(sources)


UNIFORM = Provenance(5_000, 0, "uniform problems a validation")


def on_uniform(sources: Sequence[str | Path]) -> LearningCurves:
    """Curves of exact match on the uniform validation problems alone."""
    found = learning_curves(sources, what="uniform")
    return LearningCurves.compared(found.table, "uniform", UNIFORM, starts=found.starts)


@study("adder-456:fig1", "Grokking curves and the share of seeds that grok")
def fig1(settings: Settings) -> Made:
    result = figure_1(settings)
    settings.say(result.sentence())
    data: dict[str, Any] = {
        name: {
            "step": curve.step.values.tolist(),
            "seed": curve.seed.values.tolist(),
            "uniform": [[None if x != x else round(x, 4) for x in row] for row in curve.values.tolist()],
        }
        for name, curve in ((name, result.of(name)) for name in result.models)
    }
    return Made(data, "Grokking of the 456-parameter family")


@shows("adder-456:fig1")
def show_fig1(data: Any) -> list[Section]:
    tables = [
        curve_table(name, {"uniform": np.array(kept["uniform"], dtype=float)}, kept["seed"], kept["step"])
        for name, kept in data.items()
    ]
    result = LearningCurves.compared(xr.concat(tables, "model", join="outer"), "uniform", UNIFORM)
    grokked, n = (round(number) for number in stated(PAPER, "Seeds of 456 parameters that grok."))
    text = (
        f"Exact match on uniform validation problems. The paper shows {n} seeds of 456, of which {grokked} grok (95% "
        f"interval {_interval(Rate(n, grokked))}), and one seed each of 582 and 512, chosen because they did.\n\n"
        + result.sentence()
    )
    return [Section("Figure 1", text, (result.summary(),), (result.figure(),))]


def _interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{low:.0%}-{high:.0%}"


STRESS = """Uniform pairs of ten-digit numbers hardly contain long carry chains, short numbers or runs of nines, so a
model can be right on 100,000 of them and wrong where it matters. Each suite is scored for itself. "Sampled" says that
the problems of a case were drawn (seed 0), "exhaustive" that all there are were tried: operands of one and of two
digits, and all ordered pairs of the edge numbers (0, 1, 9, powers of ten and their halves, numbers of one repeated
digit, and their neighbours).

Models that make errors have a picture each. Where none does, all have the same, and one is shown."""


@study("adder-456:stress", "Errors by carry-chain length, nines, digit counts and edge cases")
def stress(settings: Settings) -> Made:
    n = settings.problems or 20_000
    found = {name: scores(model, by="suite", n=n) for name, model in scored_models(settings).items()}
    found[OTHER] = scores(models.load(OTHER), by="suite", n=n)
    for result in found.values():
        settings.say(result.sentence())
    data: dict[str, Any] = {name: records(result.to_dataframe()) for name, result in found.items()}
    return Made(data, "Ten-digit adders under stress", found)


@shows("adder-456:stress")
def show_stress(data: Any, results: Mapping[str, Scores] | None = None) -> list[Section]:
    """Errors by suite and by case and, if the results are available, a figure for every model that makes errors."""
    cases = {name: pd.DataFrame(rows) for name, rows in data.items()}
    drawn = [name for name, table in cases.items() if _wrong(table).any()] or list(cases)[:1]
    return [
        Section("Errors of every model", STRESS, (suite_table(cases),)),
        *(Section(name, "", (), (results[name].figure(),)) for name in drawn if results),
        Section("Every case", EVERY_CASE, (case_table(cases),)),
    ]


def _wrong(cases: pd.DataFrame) -> pd.Series:
    return cases.n - cases.correct


EVERY_CASE = """Wrong answers by case. The bound is of the error rate where nothing of a sample was wrong: it is lower
than that with 95% confidence, on problems drawn like these. A case that was tried as a whole needs none."""


def suite_table(cases: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Wrong answers by suite, one column per model; the cases of a suite are summed."""
    first = next(iter(cases.values())).groupby("suite", sort=False)
    table = pd.DataFrame({"problems": first.n.sum(), "strength": first.strength.unique().map(" and ".join)})
    for name, own in cases.items():
        table[name] = _wrong(own).groupby(own.suite, sort=False).sum()
    table.loc["all"] = [table.problems.sum(), "", *(_wrong(own).sum() for own in cases.values())]
    return table.reset_index()


def case_table(cases: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Wrong answers by case, one column per model, with one wrong answer of each model that has any."""
    table = next(iter(cases.values()))[["case", "n", "strength"]].rename(columns={"n": "problems"})
    for name, own in cases.items():
        table[name] = _wrong(own)
    bounds = [shown(Rate(n, n).error_bound, up=True) for n in table.problems]
    table["bound if none is wrong"] = np.where(table.strength == "sampled", bounds, "")
    for name, own in cases.items():
        if _wrong(own).any():
            table[f"{name}: a wrong one"] = own.wrong_example
    return table
