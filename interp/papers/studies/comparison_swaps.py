"""Parts of trained models replaced by hand-built ones: ``interp reproduce comparison:swaps``.

Every pair is tried in both directions, as :mod:`interp.compare.swaps.swaps` describes. A pair's result is stored at
once, under OUT/comparison/swaps/, and the same command continues with the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import models
from interp.compare.swaps.swap_result import Swaps
from interp.compare.swaps.swaps import swap_components
from interp.core.sections import Section, records
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.training_runs import zoo_model
from models.checkpoint import write_json_atomic
from models.errors import UserError
from models.transformer import ArithmeticTransformer

TARGET, TITLE = "comparison:swaps", "Parts of one model in the place of another's"
DECIMALS = 4


@dataclass(frozen=True)
class Pair:
    """Two models by name, perhaps the shape (operands, digits) for building or running both; problems and controls."""

    a: str
    b: str
    shape: tuple[int, int] | None = None
    problems: int = 400
    untrained: int = 9
    why: str = ""


PAIRS = (
    Pair("microadder-57", "microadder-57-by-hand", why="One parametrisation: trained numbers and numbers set by hand."),
    Pair("microadder-67", "microadder-67-by-hand", why="The same at 67 parameters."),
    Pair("microadder-57", "microadder-67", why="Two trained models: what agreement there is without any hand."),
    Pair(
        "microadder-57",
        "adder-3-by-hand",
        why="An adder built from scratch, in nine dimensions with values of two. It has no EOS, which is left out.",
    ),
    Pair("microadder-57", "adder-4-by-hand", why="Another, in six dimensions."),
    Pair("adder-456", "adder-512", why="Two trained members of the 456 family, with different norms."),
    Pair(
        "position-coupling-1l4h-small",
        "position-coupling-hand-built",
        shape=(4, 4),
        problems=128,
        untrained=3,
        why="Four trained heads and the four of Theorem 4.1. The construction holds digits as numbers on one axis; "
        "the trained model does not, so that no linear map takes the one's values to the other's. Each MLP writes the "
        "answer itself: in the other's place it hands the answer over, whatever came before.",
    ),
)


def load_pair(pair: Pair) -> tuple[ArithmeticTransformer, ArithmeticTransformer]:
    """Both models on one task: in the pair's shape, and without EOS if one of them has none."""
    found = []
    for name in (pair.a, pair.b):
        if models.get_spec(name).recipe is not None:
            found.append(zoo_model(name))
        elif pair.shape is None:
            found.append(models.build(name))
        else:
            found.append(models.build(name, max_operands=pair.shape[0], max_digits=pair.shape[1]))
    task = min((model.task for model in found), key=lambda task: len(task.query_positions))
    if pair.shape is not None:
        task = found[0].task.at(*pair.shape)
    a, b = (ArithmeticTransformer(model.weight_map, task, name=model.name_or_path) for model in found)
    return a, b


@study(TARGET, TITLE)
def swaps(settings: Settings) -> Made | None:
    """About twenty minutes on one thread; ``--problems`` sets the number of problems per pair."""
    found: list[Swaps] = []
    for pair in PAIRS:
        zoo = [name for name in (pair.a, pair.b) if models.get_spec(name).recipe is not None]
        if missing := [name for name in zoo if name not in models.zoo_names()]:
            settings.say(f"{pair.a} and {pair.b}: the zoo holds no {missing[0]}; left out")
            continue
        for direction in range(2):
            if settings.minutes_left() == 0 and _stored(settings, pair, direction) is None:
                settings.say("Out of time; what is done is stored, and the same command goes on.")
                return None
            found.append(_result(settings, pair, direction))
    if not found:
        raise UserError("The zoo holds none of the models of this experiment.")
    return Made(swaps_data(found), results=found)


def _result(settings: Settings, pair: Pair, direction: int) -> Swaps:
    stored = _stored(settings, pair, direction)
    if stored is not None:
        return stored
    a, b = load_pair(pair)
    a, b = (a, b) if direction == 0 else (b, a)
    n = settings.problems or pair.problems
    result = swap_components(a, b, n=n, n_fit=n, untrained=pair.untrained)
    path = _path(settings, pair, direction)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, result.to_dict())
    settings.say(result.sentence())
    return result


def _path(settings: Settings, pair: Pair, direction: int) -> Path:
    names = (pair.a, pair.b) if direction == 0 else (pair.b, pair.a)
    n = settings.problems or pair.problems
    return settings.out / "comparison" / "swaps" / f"{names[0]}--{names[1]}-{n}.json"


def _stored(settings: Settings, pair: Pair, direction: int) -> Swaps | None:
    path = _path(settings, pair, direction)
    return Swaps.from_dict(json.loads(path.read_text())) if path.exists() else None


def overview(found: Sequence[Swaps]) -> pd.DataFrame:
    """One row per pair and direction: exact match of the whole model, and with the largest parts from the other one."""
    rows = []
    for result in found:
        row: dict[str, Any] = {"model": result.names[0], "parts of": result.names[1], "n": result.provenance.n}
        row["whole"] = result.whole["exact"]
        for component in ("L0.attn", "all unit inputs", "all units", "L0.mlp", "all that layers write"):
            swapped = component in result.components
            row[component] = result.swapped(component)["exact"] if swapped else float("nan")
        rows.append(row)
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def swaps_data(found: Sequence[Swaps]) -> dict[str, Any]:
    """The data that are stored: the overview, and every pair's summary."""
    return {
        "overview": records(overview(found), DECIMALS),
        "pairs": [
            {
                "a": result.names[0],
                "b": result.names[1],
                "n": result.provenance.n,
                "n_fit": result.n_fit,
                "seed": result.provenance.seed,
                "untrained": {"model": result.control[0], "count": result.control[1]},
                "whole": records(result.table.iloc[:1][["right", "exact", "low", "high", "tokens"]], DECIMALS)[0],
                "sentence": result.sentence(),
                "components": records(result.summary(), DECIMALS),
            }
            for result in found
        ],
    }


ABOUT = """Share of problems with every answer token right, when a part of the model is replaced by another model's on
the same problem, mapped by a linear fit on other problems. Half of the problems are rich in carry chains. Under each
pair: every part, what the map leaves, and the controls (nothing of the other model; its part on another problem;
untrained models in its place)."""

STITCHED = """To the loss, and stitched: with a map that was then fitted to the model's own loss on the fit's problems
(model stitching, Lenc and Vedaldi 2015). These columns were made at commit e1438bff; this version does not make them
again."""


@shows(TARGET)
def show_swaps(data: Any, results: Sequence[Swaps] = ()) -> list[Section]:
    """All pairs, then each pair in both directions; with figures if there are ``results``, in the pairs' order."""
    reasons = {frozenset((pair.a, pair.b)): pair.why for pair in PAIRS}
    overview = pd.DataFrame(data["overview"]).round(3)
    stitched = overview.columns.str.endswith("to the loss").any()
    sections = [Section("All pairs", f"{ABOUT}\n\n{STITCHED}" if stitched else ABOUT, (overview,))]
    for i, pair in enumerate(data["pairs"]):
        names = (pair["a"], pair["b"])
        if i == 0 or {*names} != {data["pairs"][i - 1]["a"], data["pairs"][i - 1]["b"]}:
            sections.append(Section(" and ".join(names), reasons.get(frozenset(names), "")))
        figures = (results[i].figure(), results[i].figure(measure="recovered")) if results else ()
        table = _shown(pd.DataFrame(pair["components"]).dropna(axis="columns", how="all"))
        sections.append(Section(f"{names[0]} with parts of {names[1]}", pair["sentence"], (table,), figures, level=3))
    return sections


def _interval(value: float, low: float, high: float) -> str:
    """A number and its interval, for a cell without line breaks."""
    return f"{value:.3f} [{low:.3f}, {high:.3f}]".replace(" ", "\u00a0")


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The summary, with few enough columns for a page."""
    exact = [_interval(row.exact, row.low, row.high) for row in table.itertuples()]
    left_out = ["exact", "low", "high", "tokens", "recovered", "p_untrained"]
    table.insert(2, "swapped", exact)
    table["partner"] = [text.split(", ", 1)[0] + " ..." if ", " in text else text for text in table["partner"]]
    return table.drop(columns=left_out, errors="ignore").round(3)
