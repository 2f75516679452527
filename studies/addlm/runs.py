"""AddLM's training runs as rows: a model, a seed and its validation losses over the steps.

Rows of this project's finished runs are stored (``studies/data/addlm-runs.json``) and used if an experiment
asks for the same model and seed; ``--seeds N`` trains seeds 0 to N - 1 here instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from interp.core.results import Provenance
from interp.core.sections import Section
from interp.probes.learning_curves import LearningCurves
from models.families.addlm import ABLATION, OF_PAPER, PAPER_STEPS, SIZES, model_name
from models.files.checkpoint import read_json
from models.registry import recipe_of
from models.tasks.named.shakespeare import N_CTX, CharacterLanguage
from models.training.run_folder import RunFolder
from studies.papers import DATA
from studies.runs.study import Settings, Study, register_study, shows
from studies.runs.training_runs import TrainingRun, train_in_time

STORED = DATA / "addlm-runs.json"


#: ``model``, ``seed``, ``steps`` and the validation ``losses`` there (nats per character); the recipe's steps
#: (``budget``), before which a run may have been stopped; and whether the run is ``stored`` or was trained here.
LossRow = Mapping[str, Any]


def loss_curves(rows: Sequence[LossRow]) -> LearningCurves:
    """Runs as curves of ``validation_loss``, with the coordinates ``budget`` and ``stored`` over models and seeds."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    at = {(row["model"], row["seed"]): row for row in rows}
    losses = {key: pd.Series(row["losses"], list(row["steps"])) for key, row in at.items()}
    table = pd.concat(losses, names=["model", "seed", "step"]).to_xarray().sel(model=models, seed=seeds)
    about = {
        name: (("model", "seed"), [[at.get((model, seed), {}).get(name, empty) for seed in seeds] for model in models])
        for name, empty in (("budget", 0), ("stored", False))
    }
    return LearningCurves.compared(
        table.to_dataset(name="validation_loss").assign_coords(about), "validation_loss", provenance()
    )


def provenance() -> Provenance:
    windows = len(CharacterLanguage().validation_windows())
    return Provenance(windows * N_CTX, None, f"characters of the validation part ({windows} windows)")


@cache
def stored_rows() -> tuple[LossRow, ...]:
    """Rows of finished runs that came with the package; none if the file is missing."""
    return tuple(read_json(STORED)["rows"]) if STORED.exists() else ()


def seed_run(settings: Settings, model: str, seed: int) -> TrainingRun:
    folder = settings.out / "addlm" / "runs" / model / f"seed-{seed}"
    return TrainingRun(model, recipe_of(model), folder, seed)


def row_of(run: TrainingRun) -> LossRow | None:
    """The row of what a run has measured so far; None before its first evaluation."""
    folder = RunFolder(run.folder)
    lines = folder.metrics() if folder.metrics_path.exists() else []
    if not lines:
        return None
    steps, losses = [line["step"] for line in lines], [line["validation_loss"][0] for line in lines]
    return {"model": run.model, "seed": run.seed, "steps": steps, "losses": losses, "budget": run.recipe.steps} | {
        "stored": False
    }


def rows_for(settings: Settings, wanted: Iterable[tuple[str, int | None]], seeds: int = 2) -> list[LossRow]:
    """Rows of models, each trained to its own number of steps (None: its recipe's), from stored runs or new ones.

    Without ``--seeds``, every model's stored seeds are used, and a model without any is trained with ``seeds`` seeds.
    If the time runs out, the rows so far are returned.
    """
    rows, runs = [], []
    for model, steps in wanted:
        steps = steps or recipe_of(model).steps
        known = [row for row in stored_rows() if row["model"] == model and steps in row["steps"]]
        if settings.seeds is None and known:
            rows += [cut(row, steps) for row in known]
        else:
            runs += [(seed_run(settings, model, seed), steps) for seed in range(settings.seeds or seeds)]
    for run, steps in runs:
        if not train_in_time([(run, [steps])], settings):
            break
    found = [(row_of(run), steps) for run, steps in runs]
    return rows + [cut(row, steps) for row, steps in found if row is not None]


def cut(row: LossRow, steps: int) -> LossRow:
    """The row up to ``steps``; with a constant learning rate it equals a run that stops there."""
    n = sum(step <= steps for step in row["steps"])
    return {**row, "steps": row["steps"][:n], "losses": row["losses"][:n]}


def runs_of(curves: LearningCurves, model: str) -> dict[int, pd.Series]:
    """The losses by step of each seed."""
    found = curves.of(model)
    return {seed: found.sel(seed=seed).dropna("step").to_series() for seed in found.seed.values.tolist()}


def run_table(curves: LearningCurves) -> pd.DataFrame:
    """One line per run: best and last validation loss."""
    lines = []
    for model in curves.models:
        for seed, loss in runs_of(curves, model).items():
            about = curves.table.sel(model=model, seed=seed)
            trained, budget = int(loss.index[-1]), int(about.budget)
            short = "" if trained >= budget else f", stopped before the budget of {budget:,}"
            origin = ("stored" if about.stored else "trained here") + short
            best = f"{loss.min():.3f}", int(loss.idxmin())
            lines.append((model, seed, trained, *best, f"{loss.iloc[-1]:.3f}", origin))
    columns = ["model", "seed", "steps", "best validation loss", "at step", "last validation loss", "run"]
    return pd.DataFrame(lines, columns=columns)


def summary(curves: LearningCurves, reference: str) -> pd.DataFrame:
    """One line per model: means over seeds of best and last loss, and how far the best is above ``reference``'s."""
    runs = {model: runs_of(curves, model).values() for model in curves.models}
    best = {model: [loss.min() for loss in own] for model, own in runs.items()}
    baseline = np.mean(best.get(reference, [np.nan]))
    lines = []
    for model, own in best.items():
        spread = f"{min(own):.3f} to {max(own):.3f}" if len(own) > 1 else "one seed"
        mean, last = np.mean(own), np.mean([loss.iloc[-1] for loss in runs[model]])
        lines.append((model, len(own), f"{mean:.3f}", spread, f"{last:.3f}", f"{mean - baseline:+.3f}"))
    columns = ["model", "seeds", "best (mean)", "best (range)", "last (mean)", f"best, minus {reference}"]
    return pd.DataFrame(lines, columns=columns)


@shows("addlm:runs")
def show_runs(data: Any) -> list[Section]:
    """Size by size: finished runs next to that size's float baseline; then every run."""
    rows = data["rows"]
    sections = [_section_of(size, rows) for size in SIZES if _finished(size, rows)]
    return [*sections, Section("Run by run", "", (run_table(loss_curves(rows)),), level=3)]


def _finished(size: str, rows: Sequence[LossRow]) -> list[LossRow]:
    own = f"{model_name(size)}-"
    return [row for row in rows if f"{row['model']}-".startswith(own) and row["steps"][-1] == row["budget"]]


def _section_of(size: str, rows: Sequence[LossRow]) -> Section:
    from studies.addlm.figures.loss import draw_losses

    about, ours, reference = SIZES[size], model_name(size), model_name(size, "-float")
    whole = loss_curves(_finished(size, rows))
    tables, title, text = [summary(whole, reference)], f"AddLM with {about.parameters:,} parameters", ""
    if {ours, reference} <= set(whole.models):
        cost = float(whole.of(ours).min() - whole.of(reference).min())
        title = f"Ternary weights and L1 scores cost {cost:.3f} nats a character at {about.parameters:,} parameters"
    if size == OF_PAPER:
        names = {model_name(size, suffix) for suffix in ABLATION}
        early = [cut(row, PAPER_STEPS) for row in rows if row["model"] in names and PAPER_STEPS in row["steps"]]
        tables.append(summary(loss_curves(early), reference))
        text = f"The first table has runs of {about.steps:,} steps, the second one the ablation after {PAPER_STEPS:,}."
    source = Provenance(whole.provenance.n, None, "characters of the validation part, lowest loss of any seed and step")
    figure = draw_losses(replace(whole, provenance=source), title)
    return Section(f"Every finished run with {about.parameters:,} parameters", text, tables, (figure,), 3)


register_study(
    Study("addlm:runs", "Every finished run", None, command="python -m studies reproduce addlm:ablation --seeds 2")
)
