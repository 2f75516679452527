"""A short run, what a run leaves, and a checkpoint with other contents, as a test wants them, and its digest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from models.training import train
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder, digest_of
from models.training.trainer import Trainer

RECIPE = Recipe(steps=40, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=3)


def go_on(run: Path, **changes):
    settings = {"seeds": 2, "recipe": RECIPE, "progress": False, "compile": False, "device": "cpu"} | changes
    return train("microadder-57", run, **settings)


def saved(run: Path) -> Any:
    """(step, tensors, state) of a run's checkpoint, which there is."""
    loaded = RunFolder(run).load_checkpoint()
    assert loaded is not None
    return loaded


def theta(run: Path) -> Tensor:
    """The last parameters of every seed."""
    return saved(run).tensors["theta"]


def edit_checkpoint(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the checkpoint.json of a run in place."""
    path = run / "checkpoint.json"
    entry = json.loads(path.read_text())
    entry.pop("digest")
    change(entry)
    path.write_text(json.dumps(entry | {"digest": digest_of(entry)}))


def contents(run: Path) -> dict[str, bytes]:
    """Everything a run leaves, but for the wall time and the digest over it."""
    files = {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    state = json.loads(files["checkpoint.json"])
    state["state"].pop("seconds")
    state.pop("digest")
    return files | {"checkpoint.json": json.dumps(state).encode()}


_MAKE_GROUPS = Trainer._make_groups


def plant(patch: pytest.MonkeyPatch, rows: list[int], values: Tensor | float) -> None:
    """Give the seeds in these rows these parameters in every run that begins."""

    def planted(self: Trainer) -> None:
        if self.step_number == 0:
            self.theta[rows] = values
        _MAKE_GROUPS(self)

    patch.setattr(Trainer, "_make_groups", planted)
