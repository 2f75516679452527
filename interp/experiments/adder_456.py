"""The 456-parameter adder's tables, figure and circuit: ``interp reproduce adder-456:table4`` and its neighbours.

Tables 1 and 4 are counted on the models. Table 3 scores the zoo's models, and published checkpoints where there are
any in ``OUT/adder-456/published`` (they are not part of this project). Figure 1 is made from the zoo's stored curves,
or from runs in ``OUT/adder-456/runs``, which it trains if it must and may (``--yes``: hours).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

import interp
import models
from interp.attention_signal import AttentionSignal, attention_signal
from interp.carry_routes import CarryRoutes, carry_routes
from interp.experiments import Settings, experiment
from interp.experiments.page import Section, write_page
from interp.grokking import GrokkingComparison, curve_of_entry, curve_of_run
from interp.pattern_ablation import pattern_ablation
from interp.pattern_dependence import pattern_dependence
from interp.results import Provenance, Result
from interp.stress import stress_suites
from models.errors import UserError
from models.evaluation import Rate, score
from models.low_rank_adder import OPTIONS, LowRankAdderWeights
from models.tasks.ten_test_sets import ten_test_sets
from models.training.loop import train
from models.transformer import ArithmeticTransformer
from models.zoo import set_card_section

PAPER, MODEL, OTHER = "adder-456", "adder-456", "microadder-57"
COLUMNS = ("adder-763", "adder-512", "adder-491", "adder-456")  # of Table 4
FIGURE_1 = {"adder-582": 16, "adder-512": 16, "adder-456": 32}  # seeds to train where none are stored
HEADING = "Tests and circuit"


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
    """Table 4: the counts of every model, and which changed the component (LR: low rank, with the rank)."""
    columns = {name: breakdown(name) for name in ("adder-763", "adder-582", "adder-512", "adder-491", "adder-456")}
    table = pd.DataFrame({"component": columns["adder-763"].component})
    for name, rows in columns.items():
        table[name] = rows.parameters
    return table


def errors_by_test_seed(model: ArithmeticTransformer) -> dict[int, int]:
    """Wrong answers on each of the paper's ten test sets of 10,000."""
    return {seed: len(problems) - score(model, problems).correct for seed, problems in ten_test_sets().items()}


def scored_models(settings: Settings) -> dict[str, ArithmeticTransformer]:
    """The zoo's models of the family, then the published checkpoints that were put beside the run."""
    found = {f"{name} (zoo)": models.load(name) for name in reversed(OPTIONS) if name in models.zoo_names()}
    for path in sorted((settings.out / PAPER / "published").glob("*.pt")):
        model = models.load(path)
        found[f"{model.name_or_path} ({path.stem}, published)"] = model
    if not found:
        folder = settings.out / PAPER / "published"
        raise UserError(f"The zoo holds no model of the family; put published checkpoints into {folder}.")
    return found


def _zoo_model() -> ArithmeticTransformer:
    if MODEL not in models.zoo_names():
        raise UserError(f"The zoo holds no {MODEL}; train it with `interp train {MODEL}` and publish the run.")
    return models.load(MODEL)


def _write(settings: Settings, what: str, title: str, sections: list[Section], data: dict[str, Any]) -> Path:
    path = settings.out / PAPER / f"{what}.html"
    return write_page(path, title, sections, data, f"interp reproduce {PAPER}:{what}")


@experiment("adder-456:table1", "Parameters of the 456-parameter model by component")
def table1(settings: Settings) -> Path:
    table = breakdown(MODEL)
    settings.say(table.to_string(index=False))
    text = "Counted on the model's parameters; the effective weights are computed from them at every use."
    section = Section("Table 1", text, (table,))
    return _write(settings, "table1", "456 parameters", [section], {"rows": table.to_dict("records")})


@experiment("adder-456:table4", "Parameters of 763, 582, 512, 491 and 456 by component")
def table4(settings: Settings) -> Path:
    table = comparison_table()
    settings.say(table.to_string(index=False))
    how = pd.DataFrame({"component": breakdown("adder-763").component})
    for name in table.columns[1:]:
        how[name] = breakdown(name)["written as"]
    sections = [
        Section("Table 4", "Counted on the models. The paper's table leaves out 582, which its Table 2 has.", (table,)),
        Section("How each component is written", "", (how,)),
    ]
    return _write(settings, "table4", "From 763 to 456 parameters", sections, {"rows": table.to_dict("records")})


@experiment("adder-456:table3", "Errors on the ten test sets, seed by seed")
def table3(settings: Settings) -> Path:
    found = {name: errors_by_test_seed(model) for name, model in scored_models(settings).items()}
    table = pd.DataFrame(found)
    table.loc["all"] = table.sum()
    table = table.rename_axis("test seed").reset_index()
    settings.say(table.to_string(index=False))
    rates = []
    for name, errors in found.items():
        rate = Rate(100_000, 100_000 - sum(errors.values()))
        low, high = rate.interval
        rates.append({"model": name, "right": rate.correct, "of": rate.n, "95% low": low, "95% high": high})
    text = (
        "Wrong whole answers of 10,000 in each set (greedy decoding; teacher forcing gives the same verdicts). The "
        "sets are made from their definition: pairs 5,000 to 14,999 of a generator a seed.\n\nThe pairs are uniform, "
        "so that long carries hardly occur in them: see adder-456:stress."
    )
    section = Section("Tables 2 and 3", text, (table, pd.DataFrame(rates)))
    return _write(settings, "table3", "Errors on the ten test sets", [section], {"errors": found})


def figure_1(settings: Settings) -> GrokkingComparison:
    """The curves of Figure 1, from the zoo, from runs under ``out``, or trained now with ``--yes``.

    Raises:
        UserError: nothing is stored and training was not asked for.
    """
    curves: dict[str, xr.DataArray] = {}
    for name, seeds in FIGURE_1.items():
        folder = settings.out / PAPER / "runs" / name
        if folder.exists() or (settings.yes and name not in models.zoo_names()):
            n = seeds if settings.seeds is None else settings.seeds
            if settings.yes:
                train(name, folder, n, device=settings.device, progress=settings.progress, minutes=settings.minutes)
            curves[name] = curve_of_run(folder)
        elif name in models.zoo_names():
            curves[name] = curve_of_entry(name)
        else:
            settings.say(f"No runs of {name} are stored; --yes trains {seeds} seeds (an hour or more on one core).")
    if not curves:
        raise UserError("No training runs of the family are stored; --yes trains them.")
    return GrokkingComparison(curves, Provenance(5_000, 0, "uniform problems a validation"))


@experiment("adder-456:fig1", "Grokking curves and the share of seeds that grok")
def fig1(settings: Settings) -> Path:
    result = figure_1(settings)
    settings.say(result.sentence())
    text = (
        "Exact match on uniform validation problems. The paper shows five seeds of 456, of which two grok (2 of 5: "
        f"95% interval {_interval(Rate(5, 2))}), and one seed each of 582 and 512, chosen because they did.\n\n"
        + result.sentence()
    )
    sections = [Section("Figure 1", text, (result.to_dataframe(),), (result.figure(),))]
    data = {
        name: {
            "step": curve.step.values.tolist(),
            "seed": curve.seed.values.tolist(),
            "uniform": [[None if x != x else round(x, 4) for x in row] for row in curve.values.tolist()],
        }
        for name, curve in result.curves.items()
    }
    return _write(settings, "fig1", "Grokking of the 456-parameter family", sections, data)


def _interval(rate: Rate) -> str:
    low, high = rate.interval
    return f"{low:.0%}-{high:.0%}"


@experiment("adder-456:stress", "Errors by carry-chain length, nines, digit counts and edge cases")
def stress(settings: Settings) -> Path:
    n = settings.problems or 20_000
    found = {name: stress_suites(model, n=n) for name, model in scored_models(settings).items()}
    found[OTHER] = stress_suites(models.load(OTHER), n=n)
    for result in found.values():
        settings.say(result.sentence())
    sections = [Section(name, "", (r.to_dataframe(),), (r.figure(),)) for name, r in found.items()]
    data = {name: _records(result) for name, result in found.items()}
    return _write(settings, "stress", "Ten-digit adders under stress", sections, data)


#: The probes of a model's circuit by question; the first four are also asked of MicroAdder for the card.
PROBES: dict[str, Callable[[Any], Result]] = {
    "How far attention depends on the problem": pattern_dependence,
    "Whether that part is needed": pattern_ablation,
    "What attention writes": attention_signal,
    "Which way the carry comes": carry_routes,
    "Which units carry it": interp.carry_units,
    "Where the digits look": interp.attention_by_role,
}
COMPARED = 4
OWN_TOKEN = ("own token in the stream", "own token by all its routes")


@experiment("adder-456:circuit", "What attention and MLP do for the carry, beside MicroAdder and an untrained model")
def circuit(settings: Settings) -> Path:
    sections, data = [], {}
    untrained = models.build(MODEL)
    for name, model in {**scored_models(settings), OTHER: models.load(OTHER)}.items():
        for question, probe in PROBES.items():
            result = probe(model)
            settings.say(f"{name}: {result}")
            sections.append(Section(f"{name}: {question[0].lower()}{question[1:]}", "", (), (result.figure(),)))
            data[f"{name}: {question}"] = {"sentence": str(result), "rows": _records(result)}
    control = pattern_dependence(untrained)
    sections.append(Section("Control: an untrained model", "", (), (control.figure(),)))
    data["untrained"] = {"sentence": str(control), "rows": _records(control)}
    return _write(settings, "circuit", "The circuit of the 456-parameter adder", sections, data)


def _records(result: Result) -> list[dict[str, Any]]:
    """The result's table as JSON can hold it: None where a number is not finite."""
    rows = result.to_dataframe().to_dict("records")
    finite = lambda x: None if isinstance(x, float) and not math.isfinite(x) else x  # noqa: E731
    return [{str(key): finite(value) for key, value in row.items()} for row in rows]


@experiment("adder-456:card", "The measured section of the zoo entry's card: tests, stress, circuit")
def card(settings: Settings) -> Path:
    """Write the section into the zoo entry's own card; returns the entry."""
    model, errors = _zoo_model(), errors_by_test_seed(_zoo_model())
    found = {question: probe(model) for question, probe in PROBES.items()}
    control, microadder = pattern_dependence(models.build(MODEL)), models.load(OTHER)
    other = {question: probe(microadder) for question, probe in list(PROBES.items())[:COMPARED]}
    lines = [
        f"* **Ten test sets** (the paper's Table 3): {sum(errors.values())} errors in 100,000; by test seed "
        + ", ".join(f"{seed}: {count}" for seed, count in errors.items())
        + ". Sampled.",
        f"* **Stress suites:** {stress_suites(model)} `interp reproduce adder-456:stress` has every case.",
        *(f"* **{question}:** {found[question]}" for question in found),
        f"* **The same of an untrained model of this size:** {control}",
        *(f"* **{OTHER}, {question[0].lower()}{question[1:]}:** {result}" for question, result in other.items()),
    ]
    settings.say("\n".join(lines))
    return set_card_section(MODEL, HEADING, "\n".join(lines) + "\n\n" + _reading(found, other))


def _reading(found: dict[str, Result], other: dict[str, Result]) -> str:
    """What the numbers add up to, in words; every number is a measured one."""
    what, way = "What attention writes", "Which way the carry comes"
    own, last = (_signal(found[what]).mean(term)[0] for term in ("own", "last"))
    routes, others = _routes(found[way]), _routes(other[way])
    made, below = routes.rate("made", "previous operands"), routes.rate("passed", "operands below")
    stream, token = (routes.rate("passed", route) for route in OWN_TOKEN)
    other_stream, other_token = (others.rate("passed", route) for route in OWN_TOKEN)
    return (
        f"Read together: attention writes the own column's digit sum {own:.1f} times as strongly as that of the column "
        f"below, and the last output digit {last:.2f} times. A carry made below comes through those operands: "
        f"{made.accuracy:.1%} of the predictions follow them. A carry passed on by a sum of 9 shows only in the last "
        f"output digit, which is the query's own token: {token.accuracy:.1%} follow it by all its routes, "
        f"{stream.accuracy:.1%} in the residual stream alone; {below.accuracy:.1%} follow the operands further down. "
        "So the carry is the digit sum below less the last output digit, as in MicroAdder. What differs is where that "
        f"digit is read: {OTHER}'s attention writes it {_signal(other[what]).mean('last')[0]:.2f} times as strongly as "
        f"the column below, and there {other_token.accuracy:.1%} follow the token by all its routes and "
        f"{other_stream.accuracy:.1%} in the residual stream alone."
    )


def _signal(result: Result) -> AttentionSignal:
    assert isinstance(result, AttentionSignal)
    return result


def _routes(result: Result) -> CarryRoutes:
    assert isinstance(result, CarryRoutes)
    return result
