"""The folder of a training run: config, metrics, snapshots and a checkpoint that a crash cannot lose.

.lock                  which process trains it, while one does
config.json            model, recipe, seeds: what identifies the run; a second start must agree with it
metrics.jsonl          one line per evaluation; of a run of many parts, some of them as metrics.jsonl.gz
snapshots/N.safetensors  every seed's parameters after N steps, log-spaced
accepted/seed-N/       parameters that the run's judge accepted, with its evidence, if the run has a judge
checkpoint.json        where the run stands, with the hashes of checkpoint-N.safetensors, of the metrics so far and of
                       itself
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.errors import UserError
from models.files import checkpoint as storage
from models.files.locks import locked
from models.tasks.named.shakespeare import TRAINING
from models.training.recipes import named_now

#: What a line of the metrics has for each seed, if its task has it.
MEASURED = ("exact", "token", "loss", "uniform", "validation_loss")
_ENTRY = {"step": int, "file": str, "sha256": str, "metrics": dict, "state": dict}  # of a checkpoint.json
_ACCEPTED_MODEL = "model.safetensors"
_KEPT = "metrics.jsonl.gz"
_MOST_METRICS = 256 << 20  # bytes


class Checkpoint(NamedTuple):
    """A run as it was after ``step`` steps: ``tensors`` with one row per seed ("theta" is the last parameters and
    "best_theta" the best ones), and the trainer's ``state``, whose "seeds" has each seed's own."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class RunFolder:
    """Reads and writes one run; every write is atomic (temporary file, fsync, rename)."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        kept = self.path / _KEPT
        return kept if kept.exists() else self.path / "metrics.jsonl"

    @contextlib.contextmanager
    def open(self, config: dict[str, Any]) -> Iterator[None]:
        """Hold the folder while the block runs, so that no other process writes there.

        It is created, or checked to belong to the same run and cleared of what a killed writer left. If the block
        refuses a new run before anything of it is saved, nothing is left behind.

        Raises:
            UserError: another process holds it, or it holds another run; the message names the holder or the first
                difference. Nothing is written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file and no run folder; choose another --out.")
        new = [at for at in (self.path, *self.path.parents) if not at.exists()]
        lock = self.path / ".lock"
        try:
            with locked(lock, self.path):
                begun = self.config_path.exists()
                try:
                    self._begin(config, {lock})
                    yield
                except UserError:  # what the run was asked for cannot be; its config would block the next start
                    if not begun and not set(self.path.iterdir()) - {self.config_path, lock}:
                        self.config_path.unlink(missing_ok=True)
                    raise
        except UserError:
            for folder in new:
                with contextlib.suppress(OSError):  # it is not empty
                    folder.rmdir()
            raise

    def _begin(self, config: dict[str, Any], known: set[Path]) -> None:
        folders = [self.path, self.path / "snapshots", *self._accepted.glob("seed-*")]
        left = [file for folder in folders for file in storage.temporary_files(folder)]
        if self.config_path.exists():
            old = self._read_config()
            for path, there, now in differences(old, config):
                raise UserError(
                    f"{self.path} holds another run: {path} is {there!r} there and {now!r} now. Choose another --out, "
                    "or the same settings to resume it."
                )
        elif set(self.path.iterdir()) - set(left) - known:
            raise UserError(f"{self.path} is not empty and holds no run; choose another --out.")
        else:  # write the config first: with it, the folder is a run's and can be resumed
            storage.write_json_atomic(self.config_path, config | {"digest": digest_of(config)})
        for temporary in left:
            temporary.unlink(missing_ok=True)

    def config(self, read: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The run's config, of which ``read`` is the file's content where it was read already.

        Raises:
            UserError: there is none, or it is not valid.
        """
        if read is None and not self.config_path.exists():
            raise UserError(f"{self.path} is not a run folder: it has no config.json.")
        config = self._read_config(read)
        for key, kind in (("model", str), ("recipe", dict), ("seeds", int), ("first_seed", int)):
            if not isinstance(config.get(key), kind):
                raise UserError(f"{self.config_path} is not a run's: it needs {key!r}, as {kind.__name__}.")
        return config

    def _read_config(self, read: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The config without its digest, which is compared. Raises UserError if it was changed."""
        config = _as_written(storage.read_json(self.config_path) if read is None else dict(read), self.config_path)
        recipe = config.get("recipe")
        return config | {"recipe": named_now(recipe)} if isinstance(recipe, dict) else config

    def save_checkpoint(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write metrics and tensors first, then the JSON that names them. Whenever a crash happens, one checkpoint is
        whole."""
        name = f"checkpoint-{step}.safetensors"
        digest = storage.save_weights(self.path / name, tensors, {})
        entry = {"step": step, "file": name, "sha256": digest, "metrics": self._sync_metrics(), "state": state}
        storage.write_json_atomic(self.path / "checkpoint.json", entry | {"digest": digest_of(entry)})
        for old in self.path.glob("checkpoint-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, or None.

        Raises:
            UserError: it was damaged, or the metrics do not begin with what they held when it was written.
        """
        entry = self._entry()
        if entry is None:
            return None
        self._recorded_metrics(entry)
        tensors, _ = storage.load_weights(self.path / entry["file"], entry["sha256"])
        return Checkpoint(entry["step"], tensors, entry["state"])

    def _entry(self) -> dict[str, Any] | None:
        """The checked checkpoint.json, if there is one."""
        path = self.path / "checkpoint.json"
        if not path.exists():
            return None
        entry = _as_written(storage.read_json(path), path)
        whole = all(isinstance(entry.get(key), kind) for key, kind in _ENTRY.items())
        if not whole or entry.keys() != _ENTRY.keys() or entry["file"] != f"checkpoint-{entry['step']}.safetensors":
            raise UserError(f"{path} is not a checkpoint of a run: its contents were changed; restore it.")
        return entry

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add an evaluation. Raises UserError if it cannot be written; a resumed run removes what was of it."""
        try:
            with self.metrics_path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"{self.metrics_path} could not be written ({error.strerror}).") from error

    def keep_metrics(self, lines: Iterable[dict[str, Any]]) -> None:
        """Replace the metrics of a run that has ended by these evaluations, compressed; none can be added to them."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        storage.write_bytes_atomic(self.path / _KEPT, gzip.compress(text.encode(), 6, mtime=0))

    def _sync_metrics(self) -> dict[str, Any]:
        """Flush the metrics to disk, and return their size in bytes and their SHA-256."""
        if not self.metrics_path.exists():
            return {"bytes": 0, "sha256": storage.sha256(b"")}
        with self.metrics_path.open("rb") as file:
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise UserError(f"{self.metrics_path} could not be written ({error.strerror}).") from error
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": file.tell(), "sha256": digest}

    def _recorded_metrics(self, entry: dict[str, Any]) -> bytes:
        """The metrics as they were when a checkpoint was written."""
        size = entry["metrics"]["bytes"]
        data = storage.read_bytes(self.metrics_path)[:size] if size else b""
        if len(data) < size or storage.sha256(data) != entry["metrics"]["sha256"]:
            raise UserError(
                f"{self.metrics_path} does not begin with what it held at step {entry['step']:,}, when the checkpoint "
                "was written: it was changed; restore it."
            )
        return data

    def rewind(self) -> None:
        """Delete the evaluations after the last checkpoint, as a resumed run will make them again."""
        if not self.metrics_path.exists():
            return
        entry = self._entry() or {"step": 0, "metrics": {"bytes": 0, "sha256": storage.sha256(b"")}}
        storage.write_bytes_atomic(self.metrics_path, self._recorded_metrics(entry))

    def metrics(self) -> list[dict[str, Any]]:
        """Every evaluation so far. Raises UserError if the file is missing or was damaged."""
        data = storage.read_bytes(self.metrics_path)
        try:
            if self.metrics_path.name == _KEPT:
                with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                    data = file.read(_MOST_METRICS + 1)
                if len(data) > _MOST_METRICS:
                    raise UserError(f"{self.metrics_path} unpacks to more than {_MOST_METRICS >> 20} MB.")
            return [json.loads(line) for line in data.decode().splitlines()]
        except UserError:
            raise
        except (ValueError, OSError, EOFError, RecursionError, zlib.error) as error:
            raise UserError(f"{self.metrics_path} holds a line that is not JSON ({error}); restore it.") from None

    def save_snapshot(self, step: int, parameters: dict[str, Tensor]) -> None:
        storage.save_weights(self.path / "snapshots" / f"{step:07d}.safetensors", parameters, {"step": str(step)})

    @property
    def _accepted(self) -> Path:
        return self.path / "accepted"

    def save_accepted(
        self, seed: int, parameters: dict[str, Tensor], metadata: dict[str, str], files: Mapping[str, bytes]
    ) -> None:
        """Keep what a judge accepted: first the evidence, then the parameters that it is about, as a stored model."""
        folder = self._accepted / f"seed-{seed}"
        for name, data in files.items():
            storage.write_bytes_atomic(folder / name, data)
        storage.save_weights(folder / _ACCEPTED_MODEL, parameters, metadata)

    def evidence(self, seed: int) -> dict[str, bytes]:
        """The files of a judge's evidence about an accepted seed, by name."""
        files = sorted((self._accepted / f"seed-{seed}").glob("[!.]*"))
        return {file.name: storage.read_bytes(file) for file in files if file.name != _ACCEPTED_MODEL}

    def forget_accepted(self, kept: Container[int]) -> None:
        """Delete what was accepted from seeds other than ``kept``, as a resumed run will find it again."""
        for folder in self._accepted.glob("seed-*"):
            if int(folder.name.removeprefix("seed-")) not in kept:
                shutil.rmtree(folder)

    def snapshots(self) -> dict[int, dict[str, Tensor]]:
        """The parameters of all seeds, each [seed, ...], by step."""
        files = sorted((self.path / "snapshots").glob("*.safetensors"))
        return {int(file.stem): storage.load_weights(file)[0] for file in files}


def _as_written(entry: dict[str, Any], path: Path) -> dict[str, Any]:
    """The entry without its digest. Raises UserError if it has another one or none."""
    if entry.pop("digest", None) != digest_of(entry):
        raise UserError(f"{path} does not match the digest that it carries: its contents were changed; restore it.")
    return entry


def digest_of(entry: dict[str, Any]) -> str:
    """SHA-256 of the values of a checkpoint or a config, independent of white space and of the order of keys."""
    return storage.sha256(json.dumps(entry, sort_keys=True, allow_nan=False).encode())


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, old, new) for every value that differs between two configs as JSON; an absent value is None."""
    before, after = (_as_now(json.loads(json.dumps(each))) for each in (old, new))
    yield from _differences(before, after, "")


def _as_now(config: Any) -> Any:
    """A config, or its recipe alone, as this version writes it. Earlier ones had other names for some fields of a
    recipe, and wrote {} for problems of two-digit addition, and for those of text the number of characters."""
    alone = "recipe" not in config
    recipe = config if alone else config["recipe"]
    if not isinstance(recipe, dict):
        return config
    recipe = named_now(recipe)
    problems = recipe.get("problems")
    if isinstance(problems, dict) and not set(problems) - {"characters"}:
        recipe["problems"] = {"hard": 0.0, "share": problems.get("characters", TRAINING) / TRAINING}
    return recipe if alone else config | {"recipe": recipe}


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
