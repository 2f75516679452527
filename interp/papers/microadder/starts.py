"""Where seeds start, and why some fail: ``interp reproduce microadder:starts``.

By the paper's recipe about one seed of 57 parameters in a hundred groks. In most of the others the digits' arc shrinks
to a point within some hundred steps, so that the model cannot tell digits apart; in others the equals sign, whose query
predicts the first column, finds no place. The recipe "microadder-placed-start" starts the arc as in trained models and
holds it there for a third of the steps, and starts the equals sign one column before the first. It was found on seeds 0
to 31 with a fifth of the steps. Seeds that fail from there attend as they should, but their two neurons do not switch
on the carry. In "microadder-opposed-start" each neuron starts by reading one axis of the token plane against the other.
That was found on other seeds than this study's, as the best of ten changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from interp.core.stats import clopper_pearson
from interp.core.thresholds import SHRUNK
from interp.papers.studies import Made, Settings, study
from interp.papers.studies.seed_sweeps import seed_model, sweep_curves
from interp.papers.studies.sweeps import Arm, folder_of, read_entry_row, sweep_made, train_arms
from interp.proofs import certify
from models.microadder_ladder import OPPOSED_START, PLACED_START
from models.registry import build
from models.training.named_recipes import get_recipe
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder

NAME, PAPERS = "microadder-57", "the paper's recipe"
PLACED, LONGER, SHORT = "placed start", "placed start, held twice as long", "the paper's recipe, a fifth of the steps"
OPPOSED = "opposed neurons"
SEEDS = 64


def arms() -> list[Arm]:
    """The recipe; the same with the arc held for two thirds of the steps; a short run of the paper's own recipe, for
    its seeds' arcs (the zoo keeps only one seed's parameters of the whole run); and neurons that start opposed too."""
    placed, papers = PLACED_START, get_recipe("microadder")
    longer = placed.replace(hold_until=tuple((name, 2 * step) for name, step in placed.hold_until or ()))
    return [
        Arm(PLACED, NAME, placed, "starts/placed", first_seed=1000),
        Arm(LONGER, NAME, longer, "starts/placed-longer", first_seed=2000),
        Arm(SHORT, NAME, papers.shrunk(5), "starts/papers-short", first_seed=1000),
        Arm(OPPOSED, NAME, OPPOSED_START, "starts/opposed", first_seed=4000),
    ]


@study("microadder:starts", "What seeds that fail lack, and a start that gives it to them")
def starts(settings: Settings) -> Made | None:
    """Always 60,000 steps, except for the short run and the opposed neurons (18,000). Seeds that answer the whole test
    set are judged on all 10^20 pairs."""
    trained = train_arms(settings, arms(), settings.seeds or SEEDS)
    rows = [read_entry_row(NAME, PAPERS), *trained]
    sweep = sweep_curves(rows)
    said = [f"{sweep.grokked(row['label']).correct} of {len(row['seeds'])} by {row['label']}" for row in rows]
    text = f"Seeds of 57 parameters that answer all of AdderBoard: {'; '.join(said)}."
    verdicts = [verdict for row in trained for verdict in judged(row)]
    kept = {arm.label: arm for arm in arms()}
    arcs = [arc_row(row, radii(settings, kept[row["label"]])) for row in trained]
    pairs = [(PAPERS, PLACED), (PAPERS, LONGER), (PLACED, LONGER), (PAPERS, OPPOSED), (PLACED, OPPOSED)]
    return sweep_made(settings, "starts", "Where seeds begin", rows, text, pairs, arcs=arcs, verdicts=verdicts)


def radii(settings: Settings, arm: Arm) -> list[float]:
    """The radius of every seed's arc at the end of a run."""
    loaded = RunFolder(folder_of(settings, arm)).load_checkpoint()
    assert loaded is not None
    place = ParameterLayout(build(arm.model)).places("arc_A")
    return loaded.tensors["theta"][:, place].abs().flatten().tolist()


def arc_row(row: Mapping[str, Any], radius: list[float]) -> dict[str, Any]:
    """How many seeds' arcs have shrunk to a point, and how far these seeds and the others get."""
    point, token = np.array(radius) < SHRUNK, np.array(row["token"])
    low, high = clopper_pearson(int(point.sum()), len(point))
    median = [float(np.median(token[here])) if here.any() else float("nan") for here in (point, ~point)]
    return {
        "recipe": row["label"],
        "seeds": len(point),
        "arcs shrunk to a point": int(point.sum()),
        "95% low": low,
        "95% high": high,
        "median token accuracy of these": median[0],
        "of the others": median[1],
    }


def judged(row: Mapping[str, Any], minutes: float | None = None) -> list[dict[str, Any]]:
    """One row per seed with stored weights, which are those that answer the whole test set: its verdict on all pairs,
    after at most this many minutes each."""
    found = []
    for seed in map(int, row["weights"]):
        verdict = certify(seed_model(row, seed), minutes=minutes)
        margin = verdict.smallest_margin
        found.append(
            {
                "recipe": row["label"],
                "seed": seed,
                "verdict": verdict.status,
                "arithmetic": verdict.arithmetic,
                "smallest margin found": margin,
            }
        )
    return found
