"""What is inside AddLM: ``interp reproduce addlm:inside``.

On the stored models where there are any, else on seed 0 of the recipe, trained here if need be. Sparsity and flips of
ternary weights need a run's snapshots and are of that seed.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

import models
from interp.core.sections import Page, Section
from interp.papers.addlm.heads import HeadTable, head_table
from interp.papers.addlm.patching import CORRUPTIONS, PatchingCheck, check_patching
from interp.papers.addlm.runs import seed_run
from interp.papers.addlm.scores import ScoreReading, read_scores
from interp.papers.addlm.weights import (
    IntegerCircuits,
    TernaryTraining,
    ValueComposition,
    integer_circuits,
    ternary_training,
    value_composition,
)
from interp.papers.studies import Settings, shows, study
from interp.papers.studies.runs import OutOfTime, train_all
from interp.papers.studies.tables import show_tables
from models.packing import PACKINGS, packed_size
from models.training.run_folder import RunFolder
from models.transformer import ArithmeticTransformer

ADDLM, FLOAT = "addlm-0.8m", "addlm-0.8m-float"
WINDOWS = 16  # of the validation part, evenly spread; half of them for patching and scores, which cost the most
SHUFFLES = 100
TITLE = "Inside a language model of ternary weights and L1 scores"

CIRCUITS = """A head's OV circuit is the product of two ternary matrices times one scale: integers, computed, stored and
compared without a tolerance. The rank is a proven one (elimination modulo a prime gives a lower bound that meets
d_head). Folding a norm's gain into it would make floats of the integers, so gains are left apart. V-composition of two
heads is the product of their integer matrices; the control shuffles which residual dimensions the later head reads."""

HEADS = """Effective keys are exp(entropy) of a head's pattern; the dropped mass is what a softmax over all earlier keys
would give to those behind the best 16. Both are means over the queries that have more than 16 keys. Ablation replaces a
head's z by zero or by its mean over all windows and positions."""

SCORES = """-|q - k| summed over coordinates is an attribution that adds up exactly, and 2 sum min(q, k) - sum k - sum q
splits it into a similarity, a bias of the key, and a term that all keys of a query share and that cancels. There is no
W_QK whose singular vectors could be read."""

TRAINING = """Ternary entries as the model uses them, at the snapshots of one run. Snapshots are log-spaced, so that the
changes between two of them belong to ever longer stretches of training."""

PATCHING = """Attribution patching estimates the effect of replacing an activation from one gradient. The gradient of
|q - k| is a sign, and keys outside the best 16 have none. Each head's q, k, v and z is moved towards what it is on a
corrupted input, 5% of the way and all the way, and the estimate is compared with what the loss really does. The float
model, with smooth scores and no cut, is the control: what fails there as well is not due to L1 and top-k."""


def trained(settings: Settings, name: str) -> tuple[ArithmeticTransformer, str]:
    """The stored model, or seed 0 after the recipe's last step; and which of them."""
    if name in models.zoo.zoo_names():
        return models.load(name), "zoo entry"
    run = seed_run(settings, name, 0)
    train_all([(run, [run.recipe.steps])], settings.device, settings.minutes_left())
    return run.model_at(run.recipe.steps), f"seed 0 after {run.recipe.steps:,} steps"


def packing_table(model: ArithmeticTransformer) -> pd.DataFrame:
    """What storing the model takes, by packing."""
    rows = []
    for name, packing in PACKINGS.items():
        size = packed_size(model, name)
        matrices = 4 * size.ternary / size.ternary_bytes
        rows.append(
            (name, packing.bytes_per_weight, size.ternary_bytes, matrices, size.total_bytes, size.times_smaller)
        )
    columns = ("packing", "bytes a weight", "matrices, bytes", "times smaller", "whole model, bytes", "times smaller ")
    return pd.DataFrame(rows, columns=list(columns))


@study("addlm:inside", TITLE)
def inside(settings: Settings) -> Page | None:
    """Load or train, measure, write the page."""
    try:
        (model, which), (twin, which_twin) = (trained(settings, name) for name in (ADDLM, FLOAT))
        run = seed_run(settings, ADDLM, 0)
        train_all([(run, [run.recipe.steps])], settings.device, settings.minutes_left())
    except OutOfTime:
        settings.say("Out of time; the same command goes on.")
        return None
    n = settings.problems or WINDOWS
    tokens, targets = windows(model, n)
    few, right = windows(model, max(2, n // 2))
    source = "windows of 128 characters, evenly spread over the validation part"
    settings.say("Weights ...")
    circuits, composition = integer_circuits(model), value_composition(model, SHUFFLES)
    training = ternary_training(RunFolder(run.folder).snapshots(), model)
    settings.say("Heads ...")
    heads = [head_table(m, tokens, targets, source) for m in (model, twin)]
    scores = read_scores(model, few, source)
    checks = []
    for m in (model, twin):
        for corruption in CORRUPTIONS:
            settings.say(f"Patching {m.name_or_path}, {corruption} ...")
            checks.append(check_patching(m, few, right, source, corruption))
    weights = {ADDLM: which, FLOAT: which_twin}
    found = Found(model, weights, circuits, composition, training, heads, scores, checks)
    return Page(TITLE, found.sections(), found.data())


def windows(model: ArithmeticTransformer, n: int) -> tuple[Any, Any]:
    """Tokens and targets of ``n`` validation windows."""
    problems = model.task.validation_problems(n, 0)
    return model.task.encode(problems), model.task.targets(problems)


class Found:
    """All results, as a page and as data."""

    def __init__(
        self,
        model: ArithmeticTransformer,
        weights: dict[str, str],
        circuits: IntegerCircuits,
        composition: ValueComposition,
        training: TernaryTraining,
        heads: list[HeadTable],
        scores: ScoreReading,
        checks: list[PatchingCheck],
    ):
        self.packing = packing_table(model)
        self.weights, self.circuits, self.composition, self.training = weights, circuits, composition, training
        self.heads, self.scores, self.checks = heads, scores, checks

    def patching_table(self) -> pd.DataFrame:
        parts = []
        for check in self.checks:
            part = check.to_dataframe()
            part.insert(0, "corrupted by", check.corruption)
            part.insert(0, "model", check.model)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def sections(self) -> list[Section]:
        which = "\n\n".join(f"{name}: {kind}." for name, kind in self.weights.items())
        table = _points(self.heads[0])
        return [
            Section("Which weights", which),
            Section("Storage", "Embeddings, head and norms stay in float32.", tables=[self.packing]),
            Section(
                "Circuits of integers",
                f"{CIRCUITS}\n\n{self.circuits.sentence()}\n\n{self.composition.sentence()}",
                tables=[self.circuits.to_dataframe()],
                figures=[self.composition.figure(), self.circuits.figure()],
            ),
            Section("Heads", HEADS, tables=[table], figures=[result.figure() for result in self.heads]),
            Section("Scores", SCORES, tables=[_points(self.scores)], figures=[self.scores.figure()]),
            Section("Ternary weights over training", TRAINING, figures=[self.training.figure()]),
            Section(
                "Attribution patching against patching",
                PATCHING + "\n\n" + "\n\n".join(check.sentence() for check in self.checks),
                tables=[self.patching_table()],
                figures=[check.figure() for check in self.checks],
            ),
        ]

    def data(self) -> dict[str, Any]:
        composition, training = self.composition.to_dataframe(), self.training.to_dataframe()
        return {
            "weights": self.weights,
            "packing": _records(self.packing),
            "circuits": _records(self.circuits.to_dataframe()),
            "composition": _records(composition),
            "training": _records(training),
            "heads": {result.model: _records(result.rows) | {"loss": result.loss} for result in self.heads},
            "scores": _records(self.scores.rows) | {"error": self.scores.error},
            "patching": _records(self.patching_table()),
            "sentences": [
                result.sentence()
                for result in (self.circuits, self.composition, *self.heads, self.scores, self.training, *self.checks)
            ],
            "windows": {"heads": self.heads[0].provenance.n, "scores and patching": self.scores.provenance.n},
        }


def _points(result: HeadTable | ScoreReading) -> pd.DataFrame:
    """Without the ends of intervals, which the figures show and the data hold."""
    rows = result.to_dataframe()
    return rows[[c for c in rows.columns if not c.endswith(("_low", "_high"))]]


def _records(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns as lists; NaN, which JSON has not, as null."""
    rows = frame.astype(object).where(frame.notna(), None)
    return {"columns": list(frame.columns), "rows": rows.values.tolist()}


@shows("addlm:inside")
def show_inside(data: Any) -> list[Section]:
    tables = {key: data[key] for key in ("packing", "circuits", "scores", "patching", "composition", "training")}
    heads = {f"heads of {name}": table for name, table in data["heads"].items()}
    text = "\n\n".join(data["sentences"])
    return [Section("In sentences", text, level=3), *show_tables(tables | heads)]
