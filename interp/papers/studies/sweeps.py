"""MicroAdder's sweeps: variants with all their seeds stacked, one run folder a variant.

Where time runs out, a page is made of what is there and says how far each run came; the same command goes on. Sizes:
"small" trains every sweep for a fifth of the paper's steps (its schedule shrunk as a whole), which shows who starts to
learn; "full" trains the paper's steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import models
from interp.core.model import HookedModel
from interp.core.sections import Page, Section
from interp.figures.seed_sweeps import seeds_by_variant
from interp.papers.studies import Settings, shows
from interp.papers.studies.tables import show_tables
from interp.probes.curves import read_curves
from interp.probes.seed_sweeps import CURVE_POINTS, SeedSweep, SweepComparison, compare, table
from models.errors import UserError
from models.registry import build, get_spec
from models.training.addition_problems import AdditionProblems, CarryMix, MetricCarryMix
from models.training.loop import train
from models.training.objective import ParameterLayout
from models.training.provenance import made_with
from models.training.recipes import Recipe, get_recipe
from models.training.run_folder import RunFolder
from models.training.start import Start
from models.zoo import entry_file

SEEDS = 16
SMALL = 5  # sweeps of size "small" take a fifth of the steps


@dataclass(frozen=True)
class Arm:
    """One variant: a model, a recipe, where it is trained and where its seeds begin (None: at random)."""

    label: str
    model: str
    recipe: Recipe
    folder: str
    start: Start | None = None


def shrunk(recipe: Recipe, times: int) -> Recipe:
    """The recipe with its whole schedule so many times shorter."""
    problems = recipe.problems
    assert isinstance(problems, AdditionProblems)
    mix = problems.carry_mix
    if isinstance(mix, CarryMix):
        mix = replace(mix, fade_start=mix.fade_start // times, fade_end=mix.fade_end // times)
    elif isinstance(mix, MetricCarryMix):
        mix = replace(mix, last_step=mix.last_step // times)
    digits = tuple((below // times, most) for below, most in problems.digit_curriculum)
    return recipe.replace(
        steps=recipe.steps // times,
        warmup_steps=recipe.warmup_steps // times,
        problems=replace(problems, digit_curriculum=digits, carry_mix=mix),
        give_up=None,
    )


def arms_of(settings: Settings, what: Sequence[tuple[str, str]], group: str) -> list[Arm]:
    """(label, model) with each model's own recipe, in the chosen size."""
    if settings.size not in ("small", "full"):
        raise UserError(f"MicroAdder's sweeps come in sizes small and full, not {settings.size!r}.")
    arms = []
    for label, name in what:
        recipe = get_recipe(str(get_spec(name).recipe))
        recipe = shrunk(recipe, SMALL) if settings.size == "small" else recipe
        arms.append(Arm(label, name, recipe, f"{group}-{settings.size}/{name}"))
    return arms


def train_arms(settings: Settings, arms: Sequence[Arm], seeds: int) -> list[SeedSweep]:
    """Train what is missing, and read what there is; arms that have not started are left out."""
    for arm in arms:
        if not train_arm(settings, arm, seeds):
            break
    folders = [(folder_of(settings, arm), arm) for arm in arms]
    return [read_arm(folder, arm) for folder, arm in folders if (folder / "checkpoint.json").exists()]


def folder_of(settings: Settings, arm: Arm) -> Path:
    return settings.out / "microadder" / arm.folder


def train_arm(settings: Settings, arm: Arm, seeds: int) -> bool:
    """Train one variant to its end, unless it was; False if time ran out before."""
    folder, left = folder_of(settings, arm), settings.minutes_left()
    if _complete(folder):
        return True
    if left is None or left > 0:
        settings.say(f"training {arm.label}: {arm.model}, {seeds} seeds, {arm.recipe.steps:,} steps")
        device = "cpu" if settings.device == "auto" else settings.device
        result = train(
            arm.model, folder, seeds, recipe=arm.recipe, device=device, compile=False, minutes=left,
            progress=settings.progress, start=arm.start,
        )  # fmt: skip
        if result.complete:
            return True
    settings.say("Out of time; the page shows what is there, and the same command goes on.")
    return False


def _complete(folder: Path) -> bool:
    loaded = RunFolder(folder).load_checkpoint()
    return loaded is not None and not any(seed["status"] == "training" for seed in loaded[2]["seeds"])


def read_arm(folder: Path, arm: Arm) -> SeedSweep:
    """What a run says of its seeds; those that were perfect on validation are scored on the test set."""
    loaded = RunFolder(folder).load_checkpoint()
    if loaded is None:
        raise UserError(f"{folder} holds no run yet.")
    step, tensors, state = loaded
    model = build(arm.model)
    layout, seeds = ParameterLayout(model), state["seeds"]
    on_test: list[int | None] = []
    weights: dict[str, tuple[float, ...]] = {}
    for theta, seed in zip(tensors["best_theta"], seeds, strict=True):
        layout.load_into(model, theta)
        rate = models.score(model) if seed["best_exact"] == 1.0 else None
        on_test.append(rate.correct if rate else None)
        if rate and rate.correct == rate.n:
            weights[str(seed["seed"])] = tuple(theta.tolist())
    lines = read_curves(folder).table.isel(model=0).sel(step=slice(None, step))
    exact, token = lines.exact.values, lines.token.values
    planned = arm.recipe.steps if any(seed["status"] == "training" for seed in seeds) else step
    kept = np.unique(np.linspace(0, exact.shape[1] - 1, min(CURVE_POINTS, exact.shape[1])).round().astype(int))
    return replace(
        _sweep(arm.label, model, step, planned, seeds, exact, token, on_test),
        weights=weights,
        curve_steps=tuple(lines.step.values[kept].tolist()),
        curves=tuple(tuple(round(float(x), 4) for x in np.nan_to_num(row[kept])) for row in exact),
        made_with=made_with(),
    )


def _sweep(
    label: str,
    model: HookedModel,
    step: int,
    planned: int,
    seeds: Sequence[dict[str, Any]],
    exact: np.ndarray,
    token: np.ndarray,
    on_test: Sequence[int | None],
) -> SeedSweep:
    """``exact`` and ``token`` are [seed, evaluation]."""
    return SeedSweep(
        label=label,
        model=str(model.name_or_path),
        parameters=sum(p.numel() for p in model.parameters()),
        steps=step,
        planned=planned,
        seeds=tuple(seed["seed"] for seed in seeds),
        best_exact=tuple(float(x) for x in np.nanmax(exact, 1)),
        token=tuple(float(row[~np.isnan(row)][-1]) for row in token),
        first_perfect=tuple(seed["first_perfect_step"] for seed in seeds),
        on_test=tuple(on_test),
        n_test=len(model.task.test_set()[1]),
    )


def read_entry_sweep(name: str, label: str) -> SeedSweep:
    """The seeds of a zoo entry's runs, from the curves stored in it."""
    rows = json.loads(entry_file(name, "seeds.json"))
    curves = read_curves(name).table.sel(model=name)
    exact, token, step = curves.exact.values, curves.token.values, int(curves.step[-1])
    return _sweep(label, build(name), step, step, rows, exact, token, [row["exact_on_test"] for row in rows])


def sweep_page(
    settings: Settings,
    name: str,
    title: str,
    sweeps: Sequence[SeedSweep],
    text: str,
    pairs: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> Page | None:
    """All variants and the comparisons of pairs of labels that were both trained to the end; ``more`` is data, too."""
    if not sweeps and not more:
        return None
    by_label = {sweep.label: sweep for sweep in sweeps if sweep.finished}
    compared = [compare(by_label[a], by_label[b]) for a, b in pairs if a in by_label and b in by_label]
    data = {
        "experiment": f"microadder:{name}",
        "text": text,
        "sweeps": [sweep.to_dict() for sweep in sweeps],
        "comparisons": [vars(one) for one in compared],
        **more,
    }
    return Page(title, show_sweeps(data), data, f"--size {settings.size}")


@shows(
    "microadder:ladder",
    "microadder:constraints",
    "microadder:dead-ends",
    "microadder:carry-mix",
    "microadder:below-57",
    "microadder:continued",
)
def show_sweeps(data: Any) -> list[Section]:
    """What was found, every variant, comparisons and other tables. Older stored data hold no text."""
    sweeps = [SeedSweep.from_dict(one) for one in data["sweeps"]]
    sections = [Section("What was found", data["text"])] if data.get("text") else []
    if sweeps:
        grokked = sum(1 for sweep in sweeps if sweep.grokked)
        title = f"{grokked} of {len(sweeps)} variants have a seed that answers the whole test set"
        sections.append(Section("Every variant", "", (table(sweeps),), (seeds_by_variant(sweeps, title),)))
    if data.get("comparisons"):
        note = "Two-sided tests over the seeds of finished runs; no correction for the number of comparisons."
        rows = [SweepComparison(**one).row() for one in data["comparisons"]]
        sections.append(Section("Comparisons", note, (pd.DataFrame(rows),)))
    rest = {key: data[key] for key in ("steps", "scores", "stress") if key in data}
    return sections + [replace(section, level=2) for section in show_tables(rest)]
