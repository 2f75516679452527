"""Turn training runs into a zoo entry, which says which seed is stored, how good it is, and how many seeds it took.

A function from runs to a :class:`~models.training.publish.report.Report` decides what is scored and which seed is
stored: :func:`~models.training.publish.report.report_text` for text, else
:func:`~models.training.publish.ten_digit.report_ten_digit`, or one of the caller's. Checks, the record of how a model
was made, curves and card are the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.errors import UserError
from models.files.checkpoint import format_weights
from models.problem_score import Score
from models.rates import Rate
from models.registry import build
from models.text_scores import TextLoss
from models.training.acceptance import AcceptanceTest
from models.training.provenance import how_made
from models.training.publish.report import Report, Runs, Seed, report_text
from models.training.publish.ten_digit import report_ten_digit
from models.training.run_folder import MEASURED, RunFolder, differences
from models.training.stacked_objective import ParameterLayout
from models.zoo import ZOO
from models.zoo.entry_writer import save_entry

#: Where the configs of runs that are published together may differ.
_OF_ONE_RUN = {"seeds", "first_seed", "parts_of", "recipe.snapshots"}


def publish(
    folders: list[Path],
    out: Path | None = None,
    overwrite: bool = False,
    repeats: Sequence[Path] = (),
    judge: AcceptanceTest | None = None,
    report: Callable[[Runs], Report] | None = None,
) -> tuple[Path, Score | Rate | TextLoss]:
    """Write the zoo entry of the model that ``folders`` (runs of one model and one recipe) trained.

    ``repeats`` are runs of seeds that are already counted, on a build that rounds differently. They provide no weights,
    and the card says separately how many of their seeds grokked. ``judge`` chooses among the seeds of ten-digit adders
    that passed validation: the first that it accepts. ``report`` is the rule for which seed is stored and what is
    scored, in place of that of the task.

    Returns:
        the entry's folder and the chosen seed's score on the task's test set.

    Raises:
        UserError: unfinished runs, runs of different models or recipes, seeds tried twice, a task without a test set.
    """
    runs = _runs(folders, repeats)
    report = report or (report_text if runs.model.task.selected_by == "loss" else report_ten_digit)
    if repeats and report is not report_ten_digit:
        raise UserError(f"--repeats counts seeds that grok; those of {runs.name} are compared otherwise.")
    if judge is not None and report is not report_ten_digit:
        raise UserError(f"{judge.option} judges seeds that grok; those of {runs.name} are compared otherwise.")
    found = report(runs) if judge is None else report_ten_digit(runs, judge)
    step, configs = found.chosen.state["best_step"], runs.configs
    if found.steps is not None:
        step = found.steps
        configs = [config | {"recipe": config["recipe"] | {"steps": step}} for config in configs]
    states = [checkpoint.state for run in runs.folders if (checkpoint := run.load_checkpoint()) is not None]
    surroundings = [entry for state in states for entry in state.get("surroundings", [])]
    made = how_made(configs, found.seconds, surroundings)
    training = {"seed": found.chosen.number, "step": step} | found.counts | made
    files = {"seeds.json": json.dumps(found.seeds, indent=1).encode()} | found.files
    files |= curve_files(runs, found.chosen, found.steps)
    model, out = runs.load(found.chosen), out or ZOO / runs.name
    save_entry(out, model, training, found.score, files, overwrite, half=found.half, certificate=found.certificate)
    return out, found.result


def _runs(folders: Sequence[Path], repeats: Sequence[Path]) -> Runs:
    """The runs, after a check that all have the same model, recipe and start."""
    if not folders:
        raise UserError("Name the run folders to publish, for example runs/microadder-57.")
    everything = [RunFolder(Path(folder)) for folder in (*folders, *repeats)]
    configs = [run.config() for run in everything]
    for run, config in zip(everything, configs, strict=True):
        if {path for path, *_ in differences(configs[0], config)} - _OF_ONE_RUN:
            raise UserError(
                f"{run.path} trains another model or recipe than {folders[0]}, or from another start; publish them "
                "apart."
            )
    model, n = build(configs[0]["model"]), len(folders)
    return Runs(model, ParameterLayout(model), everything[:n], configs[:n], everything[n:])


def curve_files(runs: Runs, chosen: Seed, steps: int | None) -> dict[str, bytes]:
    """``curves.safetensors`` and ``metrics.jsonl``, up to ``steps`` if that is given.

    The curves are [seed, evaluation], with NaN after a seed ended and where a run did not measure anything.
    """
    lines_of = {run.path: [x for x in run.metrics() if steps is None or x["step"] <= steps] for run in runs.folders}
    names = [name for name in MEASURED if any(name in line for lines in lines_of.values() for line in lines)]
    at = max(([line["step"] for line in lines] for lines in lines_of.values()), key=len)
    tables: dict[str, list[Tensor]] = {name: [] for name in names}
    numbers: list[int] = []
    for run, config in zip(runs.folders, runs.configs, strict=True):
        lines, n = lines_of[run.path], config["seeds"]
        numbers += range(config["first_seed"], config["first_seed"] + n)
        for name, table in tables.items():
            table.append(F.pad(_values(lines, name, n), (0, len(at) - len(lines)), value=torch.nan))
    stacked = {name: torch.cat(table) for name, table in tables.items()}
    if "loss" in stacked:
        stacked["loss"] = stacked["loss"].half()
    curves = format_weights(stacked | {"step": torch.tensor(at), "seed": torch.tensor(numbers)})
    return {"curves.safetensors": curves, "metrics.jsonl": _of_one(lines_of[chosen.run.path], chosen.row)}


def _values(lines: Sequence[dict[str, Any]], name: str, n: int) -> Tensor:
    """One measure of a run, [seed, evaluation]."""
    rows, training = [], [True] * n
    for line in lines:
        values = line.get(name, [None] * n)
        rows.append([x if on and x is not None else torch.nan for x, on in zip(values, training, strict=True)])
        training = [status == "training" for status in line["status"]]  # the evaluation that ends a seed still counts
    return torch.tensor(rows, dtype=torch.float32).view(len(lines), n).T


def _of_one(lines: Sequence[dict[str, Any]], row: int) -> bytes:
    kept = []
    for line in lines:
        entry = {key: line[key][row] for key in (*MEASURED, "status") if key in line}
        kept.append(json.dumps({"step": line["step"], "lr": line["lr"]} | entry))
        if entry["status"] != "training":
            break
    return "".join(line + "\n" for line in kept).encode()
