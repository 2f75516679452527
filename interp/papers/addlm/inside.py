"""What is inside AddLM: ``interp reproduce addlm:inside``.

It measures the stored models if there are any, else seed 0 of the recipe, which it trains if needed. Sparsity and flips
of ternary weights need a run's snapshots, and so are from that seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

import models
from interp.core.results import Result
from interp.core.sections import Section
from interp.papers.addlm.heads import head_table
from interp.papers.addlm.patching import CORRUPTIONS, check_patching
from interp.papers.addlm.runs import seed_run
from interp.papers.addlm.scores import read_scores
from interp.papers.addlm.weights import integer_circuits, ternary_training, value_composition
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.runs import OutOfTime, train_all
from models.packing import PACKINGS, packed_size
from models.training.run_folder import RunFolder
from models.transformer import ArithmeticTransformer

ADDLM, FLOAT = "addlm-0.8m", "addlm-0.8m-float"
WINDOWS = 16  # from the validation part, evenly spread; half of them for patching and scores, which cost the most
SHUFFLES = 100
TITLE = "Inside a language model of ternary weights and L1 scores"

CIRCUITS = """A head's OV circuit is the product of two ternary matrices times one scale: integers, computed, stored and
compared without a tolerance. The rank is a proven one (elimination modulo a prime gives a lower bound that meets
d_head). Folding a norm's gain into it would make floats of the integers, so gains are left apart. V-composition of two
heads is the product of their integer matrices; the control shuffles which residual dimensions the later head reads."""

HEADS = """Effective keys are exp(entropy) of a head's pattern; the dropped mass is what a softmax over all earlier keys
would give to those after the best 16. Both are means over the queries that have more than 16 keys. Ablation replaces a
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
    """The stored model, or seed 0 after the recipe's last step; and a word for which of them it is."""
    if name in models.zoo.zoo_names():
        return models.load(name), "zoo entry"
    run = seed_run(settings, name, 0)
    train_all([(run, [run.recipe.steps])], settings.device, settings.minutes_left())
    return run.model_at(run.recipe.steps), f"seed 0 after {run.recipe.steps:,} steps"


def packing_table(model: ArithmeticTransformer) -> pd.DataFrame:
    """The size of the stored model, by packing."""
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
def inside(settings: Settings) -> Made | None:
    """Load or train the models, and measure them."""
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
    patching = pd.concat(
        [check.to_dataframe().assign(**{"corrupted by": check.corruption, "model": check.model}) for check in checks],
        ignore_index=True,
    )
    patching = patching[["model", "corrupted by", *patching.columns[:-2]]]
    results = (circuits, composition, *heads, scores, training, *checks)
    tables = {
        "packing": packing_table(model), "circuits": circuits, "composition": composition, "training": training,
    }  # fmt: skip
    data = {
        "weights": {ADDLM: which, FLOAT: which_twin},
        **{name: _records(table) for name, table in tables.items()},
        "heads": {result.model: _records(result.table) | {"loss": result.loss} for result in heads},
        "scores": _records(scores.table) | {"error": scores.error},
        "patching": _records(patching),
        "sentences": [result.sentence() for result in results],
        "windows": {"heads": n, "scores and patching": len(few)},
    }
    return Made(data, results=results)


def windows(model: ArithmeticTransformer, n: int) -> tuple[Any, Any]:
    """Tokens and targets of ``n`` validation windows."""
    problems = model.task.validation_problems(n, 0)
    return model.task.encode(problems), model.task.targets(problems)


def _records(table: pd.DataFrame | Result) -> dict[str, Any]:
    """A table as JSON: its columns and rows, with NaN as null."""
    frame = table.to_dataframe() if isinstance(table, Result) else table
    rows = frame.astype(object).where(frame.notna(), None)
    return {"columns": list(frame.columns), "rows": rows.values.tolist()}


@shows("addlm:inside")
def show_inside(data: Any, results: Sequence[Result] = ()) -> list[Section]:
    """All parts. With ``results``, one per sentence, there are figures, which show the ends of intervals; the tables
    then leave them out."""
    said, heads = data["sentences"], list(data["heads"].values())
    figures = [result.figure() for result in results]

    def table(stored: dict[str, Any]) -> pd.DataFrame:
        frame = pd.DataFrame(stored["rows"], columns=stored["columns"])
        return frame.loc[:, [not (results and name.endswith(("_low", "_high"))) for name in frame]]

    def section(heading: str, about: str, stored: Sequence[dict[str, Any]], at: slice) -> Section:
        return Section(heading, "\n\n".join((about, *said[at])), [table(one) for one in stored], figures[at])

    last = 2 + len(heads)  # sentences of the circuits and their composition, and of the heads, come first
    weights = f"Looked at: {' and '.join(f'{name} ({kind})' for name, kind in data['weights'].items())}."
    return [
        Section("Which weights", weights),
        Section("Storage", "Embeddings, head and norms stay in float32.", [table(data["packing"])]),
        section("Circuits of integers", CIRCUITS, [data["circuits"], data["composition"]], slice(0, 2)),
        section("Heads", HEADS, heads, slice(2, last)),
        section("Scores", SCORES, [data["scores"]], slice(last, last + 1)),
        section("Ternary weights over training", TRAINING, [data["training"]], slice(last + 1, last + 2)),
        section("Attribution patching against patching", PATCHING, [data["patching"]], slice(last + 2, None)),
    ]
