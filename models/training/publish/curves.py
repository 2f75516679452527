"""What an entry keeps of its training: the curves of all seeds, and the evaluations of the stored one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.files.checkpoint import format_weights
from models.training.publish.report import Runs, Seed
from models.training.run_folder import MEASURED


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
