"""AddLM's training runs as rows: a model, a seed and its validation losses over the steps.

Rows of finished runs that this project trained are stored (``interp/data/experiments/addlm-runs.json``) and used where
an experiment asks for the same model and seed; ``--seeds N`` trains seeds 0 to N - 1 here instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from interp.core.results import Provenance
from interp.core.sections import Section
from interp.core.stored_data import DATA
from interp.papers.studies import Settings, Study, register_study, shows
from interp.papers.studies.runs import SeedRun, train_in_time
from models.checkpoint import read_json
from models.registry import get_spec
from models.training.recipes import get_recipe
from models.training.run_folder import RunFolder

STORED = DATA / "experiments" / "addlm-runs.json"


@dataclass(frozen=True)
class LossRow:
    """Validation losses of one run, in nats a character, at the steps they were measured."""

    model: str
    seed: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    budget: int  # the recipe's steps; a run may have been stopped before
    stored: bool = False

    @property
    def trained(self) -> int:
        return self.steps[-1]

    @property
    def best(self) -> float:
        return min(self.losses)

    @property
    def best_step(self) -> int:
        return self.steps[self.losses.index(self.best)]

    @property
    def last(self) -> float:
        return self.losses[-1]

    def at(self, step: int) -> float | None:
        """The loss after ``step`` steps; None if it was not measured there."""
        return self.losses[self.steps.index(step)] if step in self.steps else None

    @classmethod
    def of(cls, row: dict[str, Any]) -> LossRow:
        numbers: dict[str, Any] = {name: tuple(row[name]) for name in ("steps", "losses")}
        return cls(**row | numbers)


@cache
def stored_rows() -> tuple[LossRow, ...]:
    """Rows of runs that are finished and came with the package; none, if the file is not there."""
    return tuple(LossRow.of(row) for row in read_json(STORED)["rows"]) if STORED.exists() else ()


def seed_run(settings: Settings, model: str, seed: int) -> SeedRun:
    folder = settings.out / "addlm" / "runs" / model / f"seed-{seed}"
    return SeedRun(model, seed, get_recipe(get_spec(model).recipe or ""), folder)


def row_of(run: SeedRun) -> LossRow | None:
    """What a run has measured so far; None before its first evaluation."""
    folder = RunFolder(run.folder)
    lines = folder.metrics() if folder.metrics_path.exists() else []
    if not lines:
        return None
    steps = tuple(line["step"] for line in lines)
    return LossRow(run.name, run.seed, steps, tuple(line["validation_loss"][0] for line in lines), run.recipe.steps)


def rows_for(settings: Settings, wanted: Iterable[tuple[str, int | None]], seeds: int = 2) -> list[LossRow]:
    """Rows of models, each trained to its own number of steps (None: its recipe's), by stored runs or new ones.

    Without ``--seeds`` every model's stored seeds are taken, and a model without any is trained with ``seeds`` of them.
    Out of time, what there is comes back.
    """
    rows, runs = [], []
    for model, steps in wanted:
        steps = steps or get_recipe(get_spec(model).recipe or "").steps
        known = [row for row in stored_rows() if row.model == model and row.at(steps) is not None]
        if settings.seeds is None and known:
            rows += [cut(row, steps) for row in known]
        else:
            runs += [(seed_run(settings, model, seed), steps) for seed in range(settings.seeds or seeds)]
    for run, steps in runs:
        settings.say(f"{run.name}, seed {run.seed}: {steps:,} steps in {run.folder}")
        if not train_in_time([(run, [steps])], settings):
            break
    found = [(row_of(run), steps) for run, steps in runs]
    return rows + [cut(row, steps) for row, steps in found if row is not None]


def cut(row: LossRow, steps: int) -> LossRow:
    """The row up to ``steps``: with a constant learning rate that is the run that stops there."""
    n = sum(step <= steps for step in row.steps)
    return replace(row, steps=row.steps[:n], losses=row.losses[:n])


def run_table(rows: Sequence[LossRow]) -> pd.DataFrame:
    """One line a run: best and last validation loss."""
    lines = [
        (row.model, row.seed, row.trained, f"{row.best:.3f}", row.best_step, f"{row.last:.3f}", _origin(row))
        for row in rows
    ]
    columns = ["model", "seed", "steps", "best validation loss", "at step", "last validation loss", "run"]
    return pd.DataFrame(lines, columns=columns)


def _origin(row: LossRow) -> str:
    short = "" if row.trained >= row.budget else f", stopped before the budget of {row.budget:,}"
    return ("stored" if row.stored else "trained here") + short


def summary(rows: Sequence[LossRow], reference: str) -> pd.DataFrame:
    """One line per model: means over seeds of best and last, and what the best costs against ``reference``'s."""
    names = list(dict.fromkeys(row.model for row in rows))
    best, last = (
        {name: [getattr(row, what) for row in rows if row.model == name] for name in names} for what in ("best", "last")
    )
    baseline = np.mean(best.get(reference, [np.nan]))
    lines = []
    for model, own in best.items():
        spread = f"{min(own):.3f} to {max(own):.3f}" if len(own) > 1 else "one seed"
        mean = np.mean(own)
        lines.append((model, len(own), f"{mean:.3f}", spread, f"{np.mean(last[model]):.3f}", f"{mean - baseline:+.3f}"))
    columns = ["model", "seeds", "best (mean)", "best (range)", "last (mean)", f"best, minus {reference}"]
    return pd.DataFrame(lines, columns=columns)


@shows("addlm:runs")
def show_runs(data: Any) -> list[Section]:
    from interp.papers.addlm.figures.loss import loss_curves

    rows = [LossRow.of(row) for row in data["rows"]]
    reference = "addlm-0.8m-float"
    whole = [row for row in rows if row.trained == row.budget]
    best = {model: min(row.best for row in whole if row.model == model) for model in (reference, "addlm-0.8m")}
    title = f"Ternary weights and L1 scores cost {best['addlm-0.8m'] - best[reference]:.3f} nats a character"
    provenance = Provenance(111_488, None, "characters of the validation part, lowest loss of any seed and step")
    return [
        Section("Every finished run", "", (summary(whole, reference),), (loss_curves(whole, title, provenance),), 3),
        Section("Run by run", "", (run_table(rows),), level=3),
    ]


register_study(Study("addlm:runs", "Every finished run", None, command="interp reproduce addlm:ablation --seeds 2"))
