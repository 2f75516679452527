"""Seeds of one architecture: ``interp reproduce comparison:seeds``.

It measures how far apart their parameters are once exact symmetries are taken out, and whether the straight line
between them stays good (:mod:`interp.compare.seeds`, :mod:`interp.compare.connectivity`). Each stored model is compared
with seeds trained here, with the same parameters set by hand, and with published weights of the same architecture if
the environment variable CARRYLENS_PUBLISHED names a folder of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

import models
from interp.causal.ablation.variants import flat_parameters
from interp.compare.compare import compare
from interp.compare.connectivity import ALIGNED, BACK, MOVED, STORED, UNTRAINED, ModeConnectivity, mode_connectivity
from interp.compare.seeds import SeedDistances, seed_distances
from interp.core.as_json import decode, encode
from interp.core.sections import Section
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.sweeps import SMALL, Arm, train_arm
from interp.papers.studies.training_runs import SeedRun, train_in_time, zoo_model
from models.checkpoint import read_json, write_json_atomic
from models.importers import load_published
from models.registry import recipe_of
from models.training.load_run import model_of
from models.training.run_folder import RunFolder
from models.zoo import read_entry

TARGET, TITLE = "comparison:seeds", "Seeds of one architecture: distances and straight lines between them"
PUBLISHED = "CARRYLENS_PUBLISHED"
PROBLEMS = 256
PATHS = (STORED, ALIGNED, UNTRAINED, MOVED, BACK)
BARRIERS = "Barriers in nats a token, with 95% intervals over problems; whole answers right in the last column."
NULLS = (
    "Parameters: 0 equal, 1 orthogonal, mean over tensors; next to it untrained copies of the architecture, aligned in "
    "the same way (mean, nearest to farthest pair). Circuits: mean distance of QK and OV tables, from 0 to 1, next to "
    "it with labels shuffled. Answers: Jensen-Shannon divergence with its interval over problems."
)
STACKED = 16  # seeds of the stacked run, few of which answer everything


@dataclass(frozen=True)
class Family:
    """A stored model and what it is compared with: ``seeds`` trained one by one; those of ``stacked`` seeds that answer
    every validation problem; a model ``by_hand``; and ``published`` files."""

    name: str
    seeds: tuple[int, ...] = ()
    stacked: int = 0
    by_hand: str = ""
    published: str = ""


FAMILIES = (
    Family("microadder-57", by_hand="microadder-57-by-hand", published="microadder_57p.pt"),
    Family("microadder-67", by_hand="microadder-67-by-hand", published="microadder_67p.pt"),
    Family("microadder-100", published="microadder_100p.pt"),
    Family("microadder-133", stacked=STACKED),
    Family("adder-456", published="adder456_s43.pt"),
    Family("adder-512", published="adder512_s42.pt"),
    Family("toygpt-learned-pre", seeds=(0, 1)),
    Family("position-coupling-1l4h-small", seeds=(6,)),
)


# ---- the models


def _single_runs(settings: Settings, family: Family) -> list[SeedRun]:
    recipe = recipe_of(family.name).replace(snapshots=2)
    root = settings.out / "comparison" / "runs" / family.name
    return [SeedRun(family.name, seed, recipe, root / f"seed-{seed}") for seed in family.seeds]


def _stacked(settings: Settings, family: Family) -> list[tuple[str, Any]]:
    """Seeds of one stacked run (a fifth of the recipe's steps, as in the zoo) that answer all of validation."""
    folder = settings.out / "comparison" / "runs" / family.name
    recipe = recipe_of(family.name).shrunk(SMALL)
    train_arm(settings, Arm("stacked seeds", family.name, recipe, str(folder.absolute())), family.stacked)
    loaded = RunFolder(folder).load_checkpoint()
    if loaded is None:
        return []
    _, tensors, state = loaded
    stored = read_entry(family.name)["training"]["seed"]
    found = []
    for theta, seed in zip(tensors["best_theta"], state["seeds"], strict=True):
        if seed["best_exact"] == 1.0 and seed["seed"] != stored:
            found.append((f"seed {seed['seed']}", model_of(family.name, theta)))
    return found


def members(settings: Settings, family: Family) -> list[tuple[str, Any]]:
    """(label, model) of every member, the stored one first; missing ones are trained as far as there is time."""
    found: list[tuple[str, Any]] = [("stored", zoo_model(family.name))]
    runs = _single_runs(settings, family)
    if runs:
        settings.say(f"training {family.name}, seeds {', '.join(map(str, family.seeds))}, as far as it is missing")
        device = "cpu" if settings.device == "auto" else settings.device
        train_in_time([(run, (run.recipe.steps,)) for run in runs], settings, device)
        found += [(f"seed {run.seed}", run.model_at(run.recipe.steps)) for run in runs if run.has(run.recipe.steps)]
    if family.stacked:
        found += _stacked(settings, family)
    if family.by_hand:
        found.append(("by hand", models.build(family.by_hand)))
    folder = os.environ.get(PUBLISHED)
    if family.published and folder and (Path(folder) / family.published).is_file():
        found.append(("published", load_published(Path(folder) / family.published)))
    return found


# ---- measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """A family: distances of all its members, the lines from the stored model to each, and the mean circuit distance
    (:func:`interp.compare`, with that under shuffled labels) of the same pairs."""

    name: str
    distances: SeedDistances
    lines: tuple[ModeConnectivity, ...]
    circuits: tuple[tuple[float, float], ...]


def measure(name: str, found: Sequence[tuple[str, Any]], n: int = PROBLEMS) -> Measured:
    """Compare the stored model with each other member, and measure the distances of all members."""
    labels = [label for label, _ in found]
    distances = seed_distances([model for _, model in found], names=labels, n=n)
    lines, circuits = [], []
    for label, model in found[1:]:
        line = mode_connectivity(found[0][1], model, n=n)
        lines.append(replace(line, names=(f"{name}, stored", label)))
        table = compare(found[0][1], model, n=64, untrained=()).table
        both = table[(table["part"] == "circuits") & (table["nothing"] == "")]
        circuits.append((float(both["distance"].mean()), float(both["shuffled"].mean())))
    return Measured(name, distances, tuple(lines), tuple(circuits))


def _kept(settings: Settings, family: Family, found: Sequence[tuple[str, Any]], n: int) -> Measured:
    """The measurement from the run folder if these weights were measured before, as a family costs some minutes."""
    digest = hashlib.sha256(f"{n}".encode())
    for label, model in found:
        digest.update(label.encode() + flat_parameters(model).numpy().tobytes())
    path = settings.out / "comparison" / "measured" / f"{family.name}.json"
    if path.exists() and (kept := read_json(path)).get("of") == digest.hexdigest():
        return decode(Measured, kept["measured"])
    settings.say(f"measuring {family.name}: {', '.join(label for label, _ in found)}")
    result = measure(family.name, found, n)
    write_json_atomic(path, {"of": digest.hexdigest(), "measured": encode(result)})
    return result


# ---- the page


def barriers(results: Sequence[Measured]) -> pd.DataFrame:
    """One row per pair: barriers in nats per token with their intervals, controls, and accuracy."""
    rows = []
    for result in results:
        for line in result.lines:
            found = line.barriers.set_index("path")
            row: dict[str, Any] = {"model": result.name, "beside": line.names[1]}
            row |= {path: _interval(found.loc[path]) if path in found.index else "–" for path in PATHS}
            rows.append(row | {"least right, aligned": f"{float(str(found.loc[ALIGNED, 'lowest_exact'])):.3f}"})
    return pd.DataFrame(rows)


def distances(results: Sequence[Measured]) -> pd.DataFrame:
    """One row per pair: the distances of parameters and of circuits, each with its null, and of answers."""
    rows = []
    for result in results:
        for line, (near, shuffled) in zip(result.lines, result.circuits, strict=True):
            pair = _everything(result, line)
            answers = result.distances.functions
            same = answers[(answers["a"] == "stored") & (answers["b"] == line.names[1])].iloc[0]
            rows.append(
                {
                    "model": result.name,
                    "beside": line.names[1],
                    "parameters as stored": f"{pair.before:.3f}",
                    "aligned": f"{pair.after:.3f}",
                    "untrained, aligned": f"{pair.untrained_after:.3f} "
                    f"({pair.untrained_low:.3f} to {pair.untrained_high:.3f})",
                    "circuits": f"{near:.3f}",
                    "circuits, shuffled": f"{shuffled:.3f}",
                    "answers, bits": f"{same.divergence:.4f} [{same.low:.4f}, {same.high:.4f}]",
                }
            )
    return pd.DataFrame(rows)


def _everything(result: Measured, line: ModeConnectivity) -> Any:
    """The row for all parameters of the stored model and another."""
    table = result.distances.table
    return table[(table["a"] == "stored") & (table["b"] == line.names[1]) & (table["component"] == "all")].iloc[0]


def _interval(row: Any) -> str:
    return "< 0.001" if row.high < 1e-3 else f"{row.barrier:.3g} [{row.low:.3g}, {row.high:.3g}]"


def finding(results: Sequence[Measured]) -> str:
    """What all pairs show together, in words."""
    pairs = [(result, line) for result in results for line in result.lines]
    rows = {path: [line.barriers.set_index("path").loc[path] for _, line in pairs] for path in (STORED, ALIGNED, BACK)}
    both = list(zip(rows[STORED], rows[ALIGNED], strict=True))
    lower = sum(bool(aligned.high < stored.low) for stored, aligned in both)
    higher = sum(bool(aligned.low > stored.high) for stored, aligned in both)
    open_ = [
        f"{result.name} and {line.names[1]} ({aligned.lowest_exact:.3f})"
        for (result, line), aligned in zip(pairs, rows[ALIGNED], strict=True)
        if aligned.lowest_exact > 0
    ]
    all_ = [_everything(result, line) for result, line in pairs]
    nearer = sum(bool(row.after < row.before) for row in all_)
    beyond = sum(bool(row.after < row.untrained_low) for row in all_)
    back = sum(bool(row.barrier < 0.01) for row in rows[BACK])
    circuits = [near for result in results for near, _ in result.circuits]
    return (
        f"Of {len(pairs)} pairs of one architecture, alignment along exact symmetries brings the parameters of "
        f"{nearer} closer, {beyond} of them closer than every pair of untrained copies. The barrier on the straight "
        f"line falls (95% intervals apart) for {lower} and rises for {higher}. Some whole answers are right at every "
        f"point of the aligned line, with the least share in brackets, between {', '.join(open_) or 'none of them'}. "
        f"The search finds its way back to a randomly moved copy of the model itself (barrier below 0.01 nats) in "
        f"{back} of {len(pairs)}. "
        f"Circuits that no basis shows are {min(circuits):.3f} to {max(circuits):.3f} apart."
    )


@shows(TARGET)
def show_seeds(data: Any) -> list[Section]:
    """Both tables, then every family's distances and lines."""
    results = [decode(Measured, family) for family in data["families"].values()]
    sections = [
        Section("Straight lines between models", f"{finding(results)}\n\n{BARRIERS}", [barriers(results)]),
        Section("How far apart", NULLS, [distances(results)], level=3),
    ]
    for result in results:
        sections.append(Section(result.name, result.distances.sentence(), (), [result.distances.figure()]))
        used = f"Taken out: {'; '.join(result.distances.symmetries)}."
        sections.append(Section("Lines", used, (), [line.figure() for line in result.lines], level=3))
    if data["left_out"]:
        left_out = ", ".join(data["left_out"])
        sections.append(Section("Left out", f"Nothing to compare with was at hand for {left_out}."))
    return sections


@study(TARGET, TITLE)
def seeds(settings: Settings) -> Made | None:
    """Some 30 minutes of training on one thread (if it is missing), and five to ten of measuring."""
    n = settings.problems or PROBLEMS
    results, left_out = [], []
    for family in FAMILIES:
        found = members(settings, family)
        if len(found) < 2:
            left_out.append(family.name)
            continue
        results.append(_kept(settings, family, found, n))
    if not results:
        return None
    data = {"finding": finding(results), "left_out": left_out}
    data |= {"families": {result.name: encode(result) for result in results}}
    return Made(data)
