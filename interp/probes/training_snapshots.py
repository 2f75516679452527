"""The snapshots of one seed of a training, from a zoo entry or a run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models import ArithmeticTransformer
from models.errors import UserError
from models.files import assign_parameters, read_json
from models.registry import build
from models.training import RunFolder
from models.zoo import read_entry, zoo_names
from models.zoo.snapshots import load_snapshots

FILE = "snapshots.safetensors"


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The snapshots of one ``seed`` of ``model``: (step, model) in order of steps."""

    model: str
    seed: int
    models: tuple[tuple[int, ArithmeticTransformer], ...]

    def __len__(self) -> int:
        return len(self.models)

    def __iter__(self) -> Iterator[tuple[int, ArithmeticTransformer]]:
        return iter(self.models)


def snapshots(source: str | Path, seed: int | None = None) -> Snapshots:
    """The snapshots of a zoo entry ("adder-456") or of a run folder.

    Args:
        seed: a seed of a run folder, default its first; an entry keeps only the snapshots of its own seed.

    Raises:
        UserError: no such entry or run, one without snapshots, or a seed that it does not hold.
    """
    folder = Path(source)
    if os.path.isdir(folder / "snapshots"):
        return _of_run(RunFolder(folder), seed)
    entry = read_entry(source)
    if FILE not in entry["sha256"]:
        kept = [name for name in zoo_names() if FILE in read_entry(name)["sha256"]]
        raise UserError(f"{source} keeps no snapshots of its training; there are those of {', '.join(kept)}.")
    own = int(entry["training"]["seed"])
    if seed not in (None, own):
        raise UserError(f"{source} keeps the snapshots of seed {own} alone, not of seed {seed}.")
    return Snapshots(entry["model"], own, tuple(load_snapshots(source)))


def _of_run(run: RunFolder, seed: int | None) -> Snapshots:
    config = read_json(run.config_path)
    first, count = int(config["first_seed"]), int(config["seeds"])
    seed = first if seed is None else seed
    if not first <= seed < first + count:
        raise UserError(f"{run.path} holds seeds {first} to {first + count - 1}, not seed {seed}.")
    models = []
    for step, tensors in run.snapshots().items():
        model = build(config["model"])
        assign_parameters(model.weight_map, {key: x[seed - first] for key, x in tensors.items()}, run.path)
        models.append((step, model))
    if not models:
        raise UserError(f"{run.path} holds no snapshot yet.")
    return Snapshots(config["model"], seed, tuple(models))
