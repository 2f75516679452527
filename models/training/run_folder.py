"""The folder of a training run: config, metrics, snapshots and a checkpoint that a crash cannot lose.

config.json            model, recipe, seeds: what the run is; a second start must agree with it
metrics.jsonl          one line an evaluation
snapshots/N.safetensors  every seed's parameters after N steps, log-spaced
accepted/seed-N/       parameters that the run's judge accepted, with its evidence, if the run has a judge
checkpoint.json        where the run stands, naming checkpoint-N.safetensors and its hash
result.json            written at the end: one row a seed
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models import checkpoint as storage
from models.errors import UserError

_ACCEPTED_MODEL = "model.safetensors"


class RunFolder:
    """Reads and writes one run; every write is atomic (temporary file, fsync, rename)."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    def open(self, config: dict[str, Any]) -> None:
        """Create the folder, or check that it belongs to the same run and clear away what a killed writer left.

        Raises:
            UserError: the folder holds another run; the message names the first difference. Nothing is written.
        """
        folders = [self.path, self.path / "snapshots", *self._accepted.glob("seed-*")]
        left = [file for folder in folders for file in storage.temporary_files(folder)]
        if self.config_path.exists():
            old = storage.read_json(self.config_path)
            for path, there, now in differences(old, config):
                raise UserError(
                    f"{self.path} holds another run: {path} is {there!r} there and {now!r} now. Choose another --out, "
                    "or the same settings to resume it."
                )
        elif self.path.exists() and set(self.path.iterdir()) - set(left):
            raise UserError(f"{self.path} is not empty and holds no run; choose another --out.")
        else:  # the config before all else: with it, the folder is a run's and can be resumed
            storage.write_json_atomic(self.config_path, config)
        for temporary in left:
            temporary.unlink(missing_ok=True)

    def save_checkpoint(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write the tensors first, then the JSON that names them; whichever moment a crash picks, one pair is whole."""
        name = f"checkpoint-{step}.safetensors"
        digest = storage.save_weights(self.path / name, tensors, {})
        storage.write_json_atomic(
            self.path / "checkpoint.json", {"step": step, "file": name, "sha256": digest, "state": state}
        )
        for old in self.path.glob("checkpoint-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def load_checkpoint(self) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
        """(step, tensors, state) of the last checkpoint, or None. Raises UserError if it was damaged."""
        path = self.path / "checkpoint.json"
        if not path.exists():
            return None
        entry = storage.read_json(path)
        tensors, _ = storage.load_weights(self.path / entry["file"], entry["sha256"])
        return entry["step"], tensors, entry["state"]

    def append_metrics(self, line: dict[str, Any]) -> None:
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def truncate_metrics(self, step: int) -> None:
        """Forget evaluations after ``step``: a resumed run will make them again."""
        if self.metrics_path.exists():
            lines = [line for line in self.metrics_path.read_text().splitlines() if _line_step(line) <= step]
            storage.write_bytes_atomic(self.metrics_path, "".join(line + "\n" for line in lines).encode())

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics_path.read_text().splitlines()]

    def save_snapshot(self, step: int, parameters: dict[str, Tensor]) -> None:
        storage.save_weights(self.path / "snapshots" / f"{step:07d}.safetensors", parameters, {"step": str(step)})

    @property
    def _accepted(self) -> Path:
        return self.path / "accepted"

    def save_accepted(
        self, seed: int, parameters: dict[str, Tensor], metadata: dict[str, str], files: Mapping[str, bytes]
    ) -> None:
        """Keep what a judge accepted: evidence first, then the parameters that it is about, as a stored model."""
        folder = self._accepted / f"seed-{seed}"
        for name, data in files.items():
            storage.write_bytes_atomic(folder / name, data)
        storage.save_weights(folder / _ACCEPTED_MODEL, parameters, metadata)

    def evidence(self, seed: int) -> dict[str, bytes]:
        """The files that a judge left on an accepted seed, by name."""
        files = sorted((self._accepted / f"seed-{seed}").glob("[!.]*"))
        return {file.name: storage.read_bytes(file) for file in files if file.name != _ACCEPTED_MODEL}

    def forget_accepted(self, kept: Container[int]) -> None:
        """Delete what was accepted of other seeds: a resumed run will come to it again."""
        for folder in self._accepted.glob("seed-*"):
            if int(folder.name.removeprefix("seed-")) not in kept:
                shutil.rmtree(folder)

    def snapshots(self) -> dict[int, dict[str, Tensor]]:
        """Step -> parameters of all seeds, [seed, ...] each."""
        files = sorted((self.path / "snapshots").glob("*.safetensors"))
        return {int(file.stem): storage.load_weights(file)[0] for file in files}


def _line_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError):  # a line cut short by a crash
        return float("inf")


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(path, old, new) of every value that differs between two configs, as JSON has them; what is absent is None."""
    yield from _differences(json.loads(json.dumps(old)), json.loads(json.dumps(new)), "")


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield path, old, new


def log_spaced_steps(last: int, n: int) -> list[int]:
    """About ``n`` distinct steps from 1 to ``last``, evenly spaced in log(step), with 0 and ``last``."""
    spaced = torch.logspace(0, torch.log10(torch.tensor(float(last))).item(), n).round().long().tolist()
    return sorted({0, last, *spaced})
