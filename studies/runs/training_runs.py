"""Training runs of an experiment: one folder per seed, continued where it stopped, with snapshots at chosen steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from studies.runs.study import Settings
from models.files.checkpoint import load_weights, read_json
from models.registry import build
from models.training.loop import train
from models.training.objective import ParameterLayout
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.transformer.arithmetic_transformer import ArithmeticTransformer


class OutOfTime(Exception):
    """Raised when the time limit is over; everything trained so far is saved."""


@dataclass(frozen=True)
class SeedRun:
    """One seed of one model under one recipe, trained in ``folder``."""

    name: str
    seed: int
    recipe: Recipe
    folder: Path
    compile: bool | None = False
    progress: bool = False

    def has(self, step: int) -> bool:
        return self._snapshot(step).exists()

    def _snapshot(self, step: int) -> Path:
        return self.folder / "snapshots" / f"{step:07d}.safetensors"

    def train_to(self, step: int, device: str = "cpu", minutes: float | None = None) -> None:
        """Train up to ``step`` and keep a snapshot there; a run that is already further on is left alone.

        If the recipe ends the seed earlier, its last state is kept.

        Raises:
            OutOfTime: ``minutes`` were over before; what is done is saved, and the same call continues.
            UserError: the folder holds another run.
        """
        if self.has(step):
            question = {"model": self.name, "recipe": self.recipe.to_dict(), "seeds": 1, "first_seed": self.seed}
            with RunFolder(self.folder).open(question):  # check that it is this run
                return
        result = train(
            self.name,
            self.folder,
            seeds=1,
            first_seed=self.seed,
            recipe=self.recipe,
            device=device,
            compile=self.compile,
            progress=self.progress,
            stop_at_step=step,
            minutes=minutes,
        )
        if result.steps_done < step and not result.complete:
            raise OutOfTime
        if not self.has(step):
            folder = RunFolder(self.folder)
            loaded = folder.load_checkpoint()
            assert loaded is not None  # train() has just saved it
            parameters = ParameterLayout(build(self.name)).unflatten(loaded.tensors["theta"])
            folder.save_snapshot(step, {key: value.contiguous() for key, value in parameters.items()})

    def model_at(self, step: int) -> ArithmeticTransformer:
        """The model with the parameters after ``step`` steps."""
        tensors, _ = load_weights(self._snapshot(step))
        model = build(self.name)
        with torch.no_grad():
            for name, parameter in model.weight_map.named_parameters():
                parameter.copy_(tensors[name][0])
        return model

    def seconds_trained(self) -> tuple[int, float]:
        """(steps, seconds) trained so far."""
        path = self.folder / "checkpoint.json"
        kept = read_json(path) if path.exists() else {"step": 0, "state": {"seconds": 0.0}}
        return kept["step"], kept["state"]["seconds"]

    def losses(self) -> Iterator[tuple[int, float]]:
        """Yield (step, loss of that step's training batch) for every evaluation."""
        for line in RunFolder(self.folder).metrics():
            yield line["step"], line["loss"][0]


#: Runs with the steps at which each keeps a snapshot, in the order of training.
Plan = Sequence[tuple[SeedRun, Sequence[int]]]


def train_all(plan: Plan, device: str, minutes: float | None, say: Callable[[str], None] = lambda text: None) -> None:
    """Train every run of the plan through its stops, one run after the other.

    ``say`` gets a line before each run, with the time that the rest takes at the speed so far.

    Raises:
        OutOfTime: ``minutes`` were over before all were done.
    """
    started, done = time.monotonic(), 0
    open_ = [(run, stops) for run, stops in plan if not all(run.has(stop) for stop in stops)]
    left_to_do = sum(max(stops) - run.seconds_trained()[0] for run, stops in open_)
    for run, stops in plan:
        if (run, stops) in open_ and minutes != 0:
            text = f"training {run.name}, seed {run.seed}, to step {max(stops):,} in {run.folder}"
            if done:
                rest = (time.monotonic() - started) * (left_to_do - done) / done
                text += f"; all runs take about {max(1, round(rest / 60))} minutes more"
            say(text)
        before = run.seconds_trained()[0]
        for stop in stops:
            left = None if minutes is None else minutes - (time.monotonic() - started) / 60
            if left is not None and left <= 0 and not run.has(stop):
                raise OutOfTime
            run.train_to(stop, device, left)
        if (run, stops) in open_:
            done += max(stops) - before


def train_in_time(plan: Plan, settings: Settings, device: str | None = None) -> bool:
    """:func:`train_all` within the settings' minutes; returns False, and says so, if they ended before all was done."""
    try:
        train_all(plan, device or settings.device, settings.minutes_left(), settings.say)
    except OutOfTime:
        settings.say("Out of time; the page shows what is there, and the same command goes on.")
        return False
    return True
