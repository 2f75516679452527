"""The command ``interp gpu``: a queue of trainings for a machine with a GPU, in slices that can be resumed.

The queue is data: ``gpu.toml`` in this folder. After every slice, the results so far are in OUT/kept/JOB:

    weights*.safetensors   each seed's best parameters, [seed, ...]; float16 if float32 would take more than a file's
                           16 MiB, and in several files with an index if necessary
    metrics.jsonl, seeds.json, config.json    those of the run
    *.html, *.json         the page of a figure and its data

The complete run folders, from which ``interp publish`` makes entries, are in OUT/runs/JOB.
"""

from __future__ import annotations

import gc
import math
import shutil
import time
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError

QUEUE = Path(__file__).with_name("gpu.toml")
FILE_BYTES = 2**24  # largest size of a file of weights
COMMANDS = ("train", "reproduce")


@dataclass(frozen=True)
class Job:
    """One command of the queue, with its expected minutes and memory."""

    name: str
    command: list[str]
    minutes: float | int
    gib: float | int
    why: str = ""
    toy: list[str] | None = None

    def __post_init__(self) -> None:
        for words in (self.command, self.toy or self.command):
            if not words or words[0] not in COMMANDS:
                raise UserError(f"Job {self.name!r} of the queue must begin with train or reproduce, not {words[:1]}.")
        if not 0 < self.minutes < math.inf or not 0 < self.gib < math.inf:
            raise UserError(f"Job {self.name!r} of the queue needs positive minutes and gib.")


def read_queue(path: Path = QUEUE, toy: bool = False) -> list[Job]:
    """The jobs of a file, in order; with ``toy`` only those that have a toy command, which then replaces theirs.

    Raises:
        UserError: no such file, not TOML, an unknown key of a job, or two jobs with one name.
    """
    try:
        jobs = [Job(**job) for job in tomllib.loads(path.read_text("utf-8")).get("job", [])]
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise UserError(f"{path} is no queue of jobs: {error}.") from error
    if not jobs or len({job.name for job in jobs}) < len(jobs):
        raise UserError(f"{path} must hold jobs, each with a name of its own.")
    return [Job(job.name, job.toy, job.minutes, job.gib, job.why) for job in jobs if job.toy] if toy else jobs


@dataclass(frozen=True)
class Gpu:
    """Train a queue of models on a GPU, slice by slice; the same command resumes after any kind of stop."""

    plan: bool = False
    """Print the queue with estimated minutes and memory, and what is done, and train nothing."""
    out: Path = Path("runs/gpu")
    """Folder for runs and for what is kept of them."""
    queue: Path = QUEUE
    """The file with the jobs."""
    slice: float = 10.0
    """Minutes of a job after which its state is saved and its weights are kept."""
    minutes: float | None = None
    """Stop after about so many minutes in all."""
    device: str = "cuda"
    """cuda or cpu."""
    toy: bool = False
    """The same kinds of work in seconds each, to see that everything is in place."""

    def run(self) -> None:
        from interp.cli.arguments import ended
        from interp.cli.commands import parse

        jobs = read_queue(self.queue, self.toy)
        if not self.slice > 0:
            raise UserError(f"--slice must be positive, not {self.slice}.")
        for job in jobs:
            parse(job.command)  # a misspelt command is refused before anything is trained
        if self.plan:
            print("\n".join(self.planned(jobs)))
            return
        from models.training.devices import resolve_device

        resolve_device(self.device)
        started = time.monotonic()
        for job in jobs:
            status = self.state()[job.name]["status"]
            while status != "done":
                left = math.inf if self.minutes is None else self.minutes - (time.monotonic() - started) / 60
                if left <= 0:
                    ended(complete=False)
                    return
                status = self._slice(job, min(self.slice, left))
                if status == "failed":
                    break  # the next start tries again
        print("\n".join(self.planned(jobs)))
        ended(all(self.state()[job.name]["status"] == "done" for job in jobs))

    def state(self) -> dict[str, dict[str, Any]]:
        """The state of every job: status, slices and minutes spent."""
        from collections import defaultdict

        from models.checkpoint import read_json

        path = self.out / "queue.json"
        new = {"status": "waiting", "slices": 0, "minutes": 0.0}
        return defaultdict(lambda: dict(new), read_json(path) if path.exists() else {})

    def planned(self, jobs: list[Job]) -> Iterator[str]:
        """Lines that list the queue, and what the remaining jobs need in total."""
        width, state = max(len(job.name) for job in jobs), self.state()
        for job in jobs:
            now = state[job.name]
            spent = f", {now['minutes']:.1f} min in {now['slices']} slices" if now["slices"] else ""
            yield f"{job.name:<{width}}  about {job.minutes:4g} min, {job.gib:3g} GiB  {now['status']}{spent}"
            yield f"{'':<{width}}  {job.why}"
            yield f"{'':<{width}}  $ interp {' '.join(job.command)}"
        left = [job for job in jobs if state[job.name]["status"] != "done"]
        minutes, most = sum(job.minutes for job in left), max((job.gib for job in left), default=0)
        yield f"{len(left)} of {len(jobs)} jobs are left: about {minutes:g} minutes, and {most:g} GiB of GPU memory"

    def _slice(self, job: Job, minutes: float) -> str:
        """Continue a job for some minutes, keep its results so far, and store and return its status."""
        from interp.cli.commands import parse
        from models.checkpoint import write_json_atomic

        state, runs, before = self.state(), self.out / "runs" / job.name, time.monotonic()
        now, known = state[job.name], _written(runs)
        now["slices"] += 1
        print(f"{job.name}, slice {now['slices']}: interp {' '.join(job.command)}")
        try:
            whole = parse([*job.command, "--out", str(runs), "--device", self.device, "--minutes", str(minutes)]).go()
            keep(runs, self.out / "kept" / job.name)
            if not whole and _written(runs) == known:
                raise UserError(f"nothing was saved in {minutes:g} minutes; give it a longer --slice.")
            now["status"] = "done" if whole else "begun"
        except UserError as error:
            print(f"{job.name}: {error}")
            now["status"] = "failed"
        except Exception:  # for example too little memory: the other jobs go on
            traceback.print_exc()
            now["status"] = "failed"
        now["minutes"] += (time.monotonic() - before) / 60
        write_json_atomic(self.out / "queue.json", dict(state))
        _free()
        return now["status"]


def _written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def _free() -> None:
    """Free the GPU's memory before the next slice."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def keep(runs: Path, out: Path) -> None:
    """Copy the results of every run below a folder to ``out``. A figure's runs go to folders next to it, since many
    services return at most two levels of folders.

    Raises:
        UserError: a checkpoint is damaged.
    """
    for page in (*runs.glob("*/*.html"), *runs.glob("*/*.json")):
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, out / page.name)
    for checkpoint in sorted(runs.rglob("checkpoint.json")):
        below = checkpoint.parent.relative_to(runs).parts
        _keep_run(checkpoint.parent, out.with_name("-".join((out.name, *below[1:]))))


def _keep_run(run: Path, out: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    from models.checkpoint import write_json_atomic
    from models.registry import build
    from models.training.objective import ParameterLayout
    from models.training.run_folder import RunFolder

    folder = RunFolder(run)
    loaded, config = folder.load_checkpoint(), folder.config()
    assert loaded is not None
    step, tensors, state = loaded
    weights = ParameterLayout(build(config["model"])).unflatten(tensors["best_theta"])
    half = sum(x.nbytes for x in weights.values()) > FILE_BYTES
    weights = {name: (x.half() if half else x).clone() for name, x in weights.items()}
    out.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(
        weights,
        out,
        filename_pattern="weights{suffix}.safetensors",
        max_shard_size=FILE_BYTES,
        metadata={"model": config["model"], "step": str(step)},
    )
    if folder.metrics_path.exists():
        shutil.copyfile(folder.metrics_path, out / folder.metrics_path.name)
    write_json_atomic(out / "config.json", config)
    write_json_atomic(out / "seeds.json", {"step": step, "seeds": state["seeds"], "seconds": state["seconds"]})
