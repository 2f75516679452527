"""Train more seeds than one machine should: in parts of runs, as jobs of a cluster, which are then merged.

    with connected("auto") as cluster:
        train_on(cluster, [PlannedRun("microadder-57", Path("runs/many"), seeds=4096)])

A run is cut into parts of equal size, by default as many seeds as :func:`~models.training.loop.train` steps together.
Each part is an ordinary run with a run folder such as OUT/parts/000064; ``train`` with the same seeds makes the same
bits (on processors of one kind, as always). So the number of machines, their order and their failures change nothing.
One stacked run of all seeds has the same bits as long as every part has as many seeds as its groups and no seed ends.
When seeds end, a stacked run makes new groups of those that are left, and other groups round differently.
``keep_share`` chooses within a part.

A worker trains in a folder of its own, which it sends with every checkpoint; only this process writes to OUT. When all
parts are done they become one run folder with all seeds in order: last and best parameters, how every seed ended, what
a judge accepted, and a curve of at most ``KEPT_EVALUATIONS`` evaluations. Snapshots are not taken.
"""

from __future__ import annotations

import bisect
import contextlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from models.errors import Caution, UserError
from models.files import checkpoint as storage
from models.registry import build
from models.training.acceptance import AcceptanceTest
from models.training.choose_objective import even_group_size, make_objective
from models.training.cluster import Cluster, each
from models.training.loop import TrainResult, check_minutes, config_of, train
from models.training.named_recipes import checked_recipe
from models.training.progress import Progress
from models.training.recipes import Recipe
from models.training.run_folder import MEASURED, RunFolder
from models.training.seed_state import SeedState
from models.training.warm_start import Start

KEPT_EVALUATIONS = 128  # the most evaluations of a curve
Files = dict[str, bytes]


@dataclass(frozen=True)
class PlannedRun:
    """A run that :func:`train_on` trains in ``out``; its fields are arguments of :func:`models.training.train`."""

    name: str
    out: Path
    seeds: int = 1
    first_seed: int = 0
    recipe: Recipe | None = None
    start: Start | None = None
    judge: AcceptanceTest | None = None

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of every part's ``train``, without its seeds. Raises UserError if it cannot be trained."""
        recipe = checked_recipe(self.name, self.seeds, self.first_seed, self.recipe).replace(snapshots=0)
        return {"name": self.name, "recipe": recipe, "start": self.start, "judge": self.judge}

    def config(self, parts_of: int) -> dict[str, Any]:
        """The config that identifies the run in its folder."""
        return {"parts_of": parts_of} | config_of(seeds=self.seeds, first_seed=self.first_seed, **self.arguments)

    def parts_of(self, device: str) -> int:
        """How many seeds a part has: the number in its folder, else as many as are stepped together."""
        folder = RunFolder(self.out)
        if folder.config_path.exists() and isinstance(there := folder.config().get("parts_of"), int):
            return there
        objective = make_objective(build(self.name), self.arguments["recipe"])
        return even_group_size(objective, self.seeds, torch.device(device))


@dataclass(frozen=True)
class SeedBlock:
    """Some seeds of a run, trained in a run folder of their own."""

    run: PlannedRun
    first_seed: int
    seeds: int

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run.out / "parts" / f"{self.first_seed - self.run.first_seed:06d}")

    def standing(self) -> TrainResult:
        return standing(self.folder, self.run.name, self.first_seed, self.seeds)


def standing(folder: RunFolder, name: str, first_seed: int, seeds: int) -> TrainResult:
    """The state of a run at its last checkpoint, or before there is one."""
    loaded = folder.load_checkpoint()
    if loaded is None:
        fresh = tuple(SeedState(seed) for seed in range(first_seed, first_seed + seeds))
        return TrainResult(folder.path, name, 0, False, fresh, 0.0)
    step, _, state = loaded
    states = tuple(SeedState(**entry) for entry in state["seeds"])
    return TrainResult(folder.path, name, step, not any(one.active for one in states), states, state["seconds"])


@dataclass(frozen=True)
class News:
    """A report from a part's worker: the state of its seeds, and its folder if that has a new checkpoint."""

    step: int
    states: list[SeedState]
    files: Files
    complete: bool = False
    warnings: tuple[str, ...] = ()


def train_on(
    cluster: Cluster | None,
    runs: Sequence[PlannedRun],
    parts_of: int | None = None,
    compile: bool | None = None,
    checkpoint_seconds: float = 60.0,
    minutes: float | None = None,
    progress: bool = True,
) -> list[TrainResult]:
    """Train runs in parts, or continue them; without a cluster, one part after the other in this process.

    If a worker or this process dies, at most ``checkpoint_seconds`` of work are lost. Ctrl-C lets every part save.
    Results have all seeds, and the seconds of all parts together.

    Args:
        parts_of: seeds per part; by default what OUT was begun with, or as many as are stepped together.
        minutes: save and return after this time; the same call continues.

    Raises:
        UserError: as for :func:`models.training.train`; a folder in which other parts, or no parts, are trained.
    """
    check_minutes(minutes)
    if parts_of is not None and parts_of < 1:
        raise UserError(f"A part has at least 1 seed, not {parts_of}.")
    device = "cpu" if cluster is None else cluster.device
    sizes = [parts_of or run.parts_of(device) for run in runs]
    with contextlib.ExitStack() as stack:
        for run, size in zip(runs, sizes, strict=True):
            stack.enter_context(RunFolder(run.out).open(run.config(size)))
        parts = [_parts(run, size) for run, size in zip(runs, sizes, strict=True) if not _merged(run)]
        _train_parts(cluster, [part for some in parts for part in some], compile, checkpoint_seconds, minutes, progress)
        for some in parts:
            if all(part.standing().complete for part in some):
                merge(some)
        return [_result(run, size) for run, size in zip(runs, sizes, strict=True)]


def _parts(run: PlannedRun, size: int) -> list[SeedBlock]:
    end = run.first_seed + run.seeds
    return [SeedBlock(run, first, min(size, end - first)) for first in range(run.first_seed, end, size)]


def _merged(run: PlannedRun) -> bool:
    done = (run.out / "checkpoint.json").exists()
    if done:  # a crash after the last write of a merge may have left them
        shutil.rmtree(run.out / "parts", ignore_errors=True)
    return done


def _train_parts(
    cluster: Cluster | None,
    parts: list[SeedBlock],
    compile: bool | None,
    checkpoint_seconds: float,
    minutes: float | None,
    progress: bool,
) -> None:
    """Train all parts that are not done, at once."""
    known = [part.standing() for part in parts]
    states = [list(one.seeds) for one in known]
    lasts = [part.run.arguments["recipe"].steps for part in parts]
    at = [last if one.complete else one.steps_done for one, last in zip(known, lasts, strict=True)]
    left = [i for i, one in enumerate(known) if not one.complete]
    device = "cpu" if cluster is None else cluster.device
    how = {"device": device, "compile": compile, "checkpoint_seconds": checkpoint_seconds}

    def arguments(job: int) -> tuple:
        part = parts[left[job]]
        own = part.run.arguments | how | {"seeds": part.seeds, "first_seed": part.first_seed}
        return own, pack(part.folder.path), str(part.folder.path)

    with Progress(sum(at), sum(lasts), enabled=progress) as bar:

        def received(job: int, news: News) -> None:
            i = left[job]
            unpack(news.files, parts[i].folder.path)
            for text in news.warnings:
                warnings.warn(text, category=Caution, stacklevel=2)
            step = lasts[i] if news.complete else news.step
            bar.advance(step - at[i])  # goes backwards if a worker died
            at[i], states[i] = step, news.states
            bar.show([state for some in states for state in some])

        each(_train_part, len(left), arguments, received, cluster, minutes)


def _train_part(post: Callable[[News], None], arguments: dict[str, Any], files: Files, where: str) -> News:
    """Continue a part from ``files`` to its end, in a folder of this machine."""
    with tempfile.TemporaryDirectory(prefix="carrylens-") as scratch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        path, posted = Path(scratch) / "run", time.monotonic()
        unpack(files, path)

        def watch(states: Sequence[SeedState], step: int, saved: bool) -> None:
            nonlocal posted
            if saved or time.monotonic() - posted > 1.0:
                post(News(step, list(states), pack(path) if saved else {}))
                posted = time.monotonic()

        try:
            result = train(out=path, progress=False, watch=watch, **arguments)
        except KeyboardInterrupt:
            post(_news(standing(RunFolder(path), *(arguments[key] for key in ("name", "first_seed", "seeds")))))
            raise
        except UserError as error:
            raise UserError(str(error).replace(str(path), where)) from None
        said = tuple(str(each.message).replace(str(path), where) for each in warned)
        return _news(result, said)


def _news(result: TrainResult, said: tuple[str, ...] = ()) -> News:
    return News(result.steps_done, list(result.seeds), pack(result.folder), result.complete, said)


def pack(folder: Path) -> Files:
    """A run folder's files by relative name; empty if it has no checkpoint yet."""
    if not (folder / "checkpoint.json").exists():
        return {}
    found = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    kept = (file for file in found if file.parent.name != "snapshots")
    return {file.relative_to(folder).as_posix(): storage.read_bytes(file) for file in kept}


def unpack(files: Files, folder: Path) -> None:
    """Write a packed folder, or a newer state of it. The file that names the others comes last, then old ones go.

    Whenever a crash happens, one checkpoint is whole.
    """
    last = "checkpoint.json"
    for name in sorted(files, key=lambda name: name == last):
        storage.write_bytes_atomic(folder / name, files[name])
    for old in folder.glob("checkpoint-*.safetensors") if files else ():
        if old.name not in files:
            old.unlink(missing_ok=True)


def merge(parts: Sequence[SeedBlock]) -> None:
    """Make one run folder from a run's finished parts, then delete these. A crash before the end leaves them."""
    run, folders = parts[0].run, [part.folder for part in parts]
    loaded = [entry for entry in (folder.load_checkpoint() for folder in folders) if entry is not None]
    tensors = {name: torch.cat([tensors[name] for _, tensors, _ in loaded]) for name in ("theta", "best_theta")}
    states = [state for _, _, state in loaded]
    surroundings = [entry for state in states for entry in state["surroundings"]]
    state = {
        "seeds": [seed for state in states for seed in state["seeds"]],
        "losses": [loss for state in states for loss in state["losses"]],
        "seconds": sum(state["seconds"] for state in states),
        "surroundings": [entry for i, entry in enumerate(surroundings) if entry not in surroundings[:i]],
    }
    whole = RunFolder(run.out)
    for folder in folders:
        for accepted in (folder.path / "accepted").glob("seed-*"):
            shutil.copytree(accepted, run.out / "accepted" / accepted.name, dirs_exist_ok=True)
    whole.keep_metrics(coarse([folder.metrics() for folder in folders], run.arguments["recipe"]))
    whole.save_checkpoint(max(step for step, _, _ in loaded), tensors, state)
    shutil.rmtree(run.out / "parts")


def coarse(lines_of: Sequence[Sequence[dict[str, Any]]], recipe: Recipe) -> list[dict[str, Any]]:
    """The evaluations of several runs as those of one run; at most ``KEPT_EVALUATIONS`` stay, evenly spaced.

    A run that ended early keeps its last evaluation, like a seed that ends in a stack.
    """
    at = [[line["step"] for line in lines] for lines in lines_of]
    steps = sorted({step for each in at for step in each})
    kept = torch.linspace(0, len(steps) - 1, min(KEPT_EVALUATIONS, len(steps))).round().long().tolist()
    found = []
    for step in (steps[i] for i in kept):
        rows = [lines[bisect.bisect_right(own, step) - 1] for lines, own in zip(lines_of, at, strict=True)]
        values = {name: [x for row in rows for x in row[name]] for name in (*MEASURED, "status") if name in rows[0]}
        found.append({"step": step, "lr": recipe.lr_at(max(0, step - 1))} | values)
    return found


def _result(run: PlannedRun, size: int) -> TrainResult:
    """The state of a run, over all of its parts."""
    if _merged(run):
        return standing(RunFolder(run.out), run.name, run.first_seed, run.seeds)
    found = [part.standing() for part in _parts(run, size)]
    states, seconds = tuple(state for one in found for state in one.seeds), sum(one.seconds for one in found)
    return TrainResult(run.out, run.name, max(one.steps_done for one in found), False, states, seconds)
