"""Sweeps of MicroAdder: variants with all their seeds stacked, one run folder per variant.

If time runs out, a page shows what there is and says how far each run got; the same command continues. The size "small"
trains every sweep for a fifth of the paper's steps (with its whole schedule shrunk), which shows which variants start
to learn; "paper" trains the paper's steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

import models
from interp.core.sections import Section
from interp.figures import theme
from interp.figures.figure_panels import Panel, compose
from interp.figures.traces import hover, points
from interp.probes.learning_curves import LearningCurves
from interp.probes.stored_curves import read_curves
from models.errors import UserError
from models.registry import build, recipe_of
from models.training.provenance import made_with
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.zoo import entry_file
from studies.runs.seed_sweeps import compare_variants, comparison_table, finished, sweep_curves, sweep_table
from studies.runs.stored_tables import show_tables
from studies.runs.study import Made, Settings, shows
from studies.runs.training_runs import TrainingRun, train_in_time

SEEDS = 16
CURVE_POINTS = 48  # points of a seed's curve that a row keeps
SMALL = 5  # sweeps of size "small" take a fifth of the steps


def variant(settings: Settings, label: str, model: str, recipe: Recipe, folder: str) -> TrainingRun:
    """The run of one variant: all its seeds together."""
    place, seeds = settings.out / "microadder" / folder, settings.seeds or SEEDS
    return TrainingRun(model, recipe, place, seeds=seeds, label=label, progress=settings.progress)


def variants(settings: Settings, what: Sequence[tuple[str, str]], group: str) -> list[TrainingRun]:
    """The runs of (label, model), with each model's own recipe in the chosen size."""
    if settings.size not in ("small", "paper"):
        raise UserError(f"MicroAdder's sweeps come in sizes small and paper, not {settings.size!r}.")
    found = []
    for label, name in what:
        recipe = recipe_of(name).shrunk(SMALL) if settings.size == "small" else recipe_of(name)
        found.append(variant(settings, label, name, recipe, f"{group}-{settings.size}/{name}"))
    return found


def trained_rows(settings: Settings, runs: Sequence[TrainingRun]) -> list[dict[str, Any]]:
    """Train what is missing, and read the rows of the runs that exist. Those that have not started are left out, and so
    are those that a cluster has not finished."""
    device = "cpu" if settings.device == "auto" else settings.device
    train_in_time([(run, [None]) for run in runs], settings, device)
    return [read_row(run) for run in runs if (run.folder / "checkpoint.json").exists()]


def read_row(run: TrainingRun) -> dict[str, Any]:
    """A run's row in a sweep; seeds that were perfect on validation are scored on the test set."""
    loaded = RunFolder(run.folder).load_checkpoint()
    if loaded is None:
        raise UserError(f"{run.folder} holds no run yet.")
    step, tensors, state = loaded
    model = build(run.model)
    layout, seeds = ParameterLayout(model), state["seeds"]
    on_test: list[int | None] = []
    weights: dict[str, list[float]] = {}
    for theta, seed in zip(tensors["best_theta"], seeds, strict=True):
        layout.load_into(model, theta)
        rate = models.score(model) if seed["best_exact"] == 1.0 else None
        on_test.append(rate.correct if rate else None)
        if rate and rate.correct == rate.n:
            weights[str(seed["seed"])] = theta.tolist()
    lines = read_curves(run.folder).table.isel(model=0).sel(step=slice(None, step))
    planned = run.recipe.steps if any(seed["status"] == "training" for seed in seeds) else step
    kept = np.unique(
        np.linspace(0, lines.sizes["step"] - 1, min(CURVE_POINTS, lines.sizes["step"])).round().astype(int)
    )
    return _row(run.label, model, step, planned, seeds, lines, on_test) | {
        "weights": weights,
        "curve_steps": lines.step.values[kept].tolist(),
        "curves": [[round(float(x), 4) for x in row] for row in np.nan_to_num(lines.exact.values[:, kept])],
        "made_with": made_with(),
    }


def read_entry_row(name: str, label: str) -> dict[str, Any]:
    """The row of a zoo entry's runs in a sweep, from the curves stored in the entry."""
    seeds = json.loads(entry_file(name, "seeds.json"))
    lines = read_curves(name).table.sel(model=name)
    step = int(lines.step[-1])
    return _row(label, build(name), step, step, seeds, lines, [seed["exact_on_test"] for seed in seeds])


def _row(
    label: str,
    model: ArithmeticTransformer,
    step: int,
    planned: int,
    seeds: Sequence[dict[str, Any]],
    lines: xr.Dataset,
    on_test: Sequence[int | None],
) -> dict[str, Any]:
    """A row of a sweep; ``lines`` has ``exact`` and ``token`` over (seed, step)."""
    return {
        "label": label,
        "model": str(model.name_or_path),
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": step,
        "planned": planned,
        "seeds": [seed["seed"] for seed in seeds],
        "best_exact": np.nanmax(lines.exact.values, 1).astype(float).tolist(),
        "token": [float(row[~np.isnan(row)][-1]) for row in lines.token.values],
        "first_perfect": [seed["first_perfect_step"] for seed in seeds],
        "on_test": list(on_test),
        "n_test": len(model.task.held_out.problems),
        "weights": {},
        "curve_steps": [],
        "curves": [],
        "made_with": {},
    }


def sweep_made(
    settings: Settings,
    name: str,
    title: str,
    rows: Sequence[dict[str, Any]],
    text: str,
    pairs: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> Made | None:
    """All variants, and comparisons of pairs of labels both trained to the end; ``more`` is added to the data."""
    if not rows and not more:
        return None
    sweep = sweep_curves(rows) if rows else None
    done = {model for model in sweep.models if finished(sweep, model)} if sweep else set()
    compared = [compare_variants(sweep, a, b) for a, b in pairs if sweep and {a, b} <= done]
    data = {"experiment": f"microadder:{name}", "text": text, "sweeps": list(rows), "comparisons": compared, **more}
    return Made(data, title, options=f"--size {settings.size}")


@shows(
    "microadder:ladder",
    "microadder:constraints",
    "microadder:dead-ends",
    "microadder:dead-recipes",
    "microadder:carry-mix",
    "microadder:below-57",
    "microadder:continued",
    "microadder:starts",
    "microadder:distillation",
    "microadder:smallest",
    "adder-456:rank-2",
)
def show_sweeps(data: Any) -> list[Section]:
    """What was found, every variant, comparisons and other tables. Older stored data have no text."""
    sections = [Section("What was found", data["text"])] if data.get("text") else []
    if data["sweeps"]:
        sweep = sweep_curves(data["sweeps"])
        grokked = sum(sweep.grokked(model).correct > 0 for model in sweep.models)
        title = f"{grokked} of {len(sweep.models)} variants have a seed that answers the whole test set"
        figure = seeds_by_variant(sweep, title)
        sections.append(Section("Every variant", "", (sweep_table(sweep),), (figure,)))
    if data.get("comparisons"):
        note = "Two-sided tests over the seeds of finished runs; no correction for the number of comparisons."
        sections.append(Section("Comparisons", note, (comparison_table(data["comparisons"]),)))
    rest = {key: data[key] for key in ("steps", "scores", "stress", "arcs", "verdicts") if key in data}
    return sections + [replace(section, level=2) for section in show_tables(rest)]


def seeds_by_variant(result: LearningCurves, title: str) -> go.Figure:
    """Every seed's best exact match and last token accuracy in a sweep (:mod:`studies.runs.seed_sweeps`),
    one row per variant; filled markers answer the whole test set."""
    layers, labels = [], []
    for i, model in enumerate(result.models):
        label, best = result.labels[model], result.of(model).max("step")
        seeds = best.seed.values.tolist()
        wobble = np.random.default_rng(0).uniform(-0.11, 0.11, len(seeds))
        groks = [result.on_test[model][seed] for seed in seeds]
        # Add the number of parameters if the label lacks it, and the steps if two variants have one label.
        parameters = str(int(result.table.parameters.sel(model=model)))
        words = [] if parameters in label.split() else [parameters]
        if list(result.labels.values()).count(label) > 1:
            words.append(f"{int(result.of(model).step.values[-1]):,} steps")
        labels.append(f"{label} ({', '.join(words)})" if words else label)
        for values, offset, colour, name in (
            (best.values, 0.16, theme.BLUE, "best exact match"),
            (result.of(model, "token").values[:, -1], -0.16, theme.ORANGE, "last token accuracy"),
        ):
            said = hover(f"{label}, seed {{seed}}: {name} {{x:.4f}}", seed=seeds)
            layers.append(points(values, i + offset + wobble, name, colour, size=8, filled=groks, opacity=0.8, **said))
    shares = "share of validation problems (exact match),<br>of targets (token accuracy)"
    panel = Panel(
        layers,
        x={"title": shares, "range": [-0.02, 1.02]},
        y={"tickvals": list(range(len(labels))), "ticktext": labels, "autorange": "reversed", "zeroline": False},
    )
    note = "Filled: the seed answers all of the test set; vertical jitter only"
    return compose(
        [panel], title, result.provenance, note=note, height=240 + 74 * len(labels), margin={"l": 260, "t": 24},
        legend={"y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
