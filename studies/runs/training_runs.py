"""Training runs of studies: one folder per run, continued where it stopped, with snapshots at chosen steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from models.files.checkpoint import load_weights, read_json
from models.registry import build
from models.training.loop import train
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.training.train_in_parts import PlannedRun, train_on
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.runs.study import Settings

OUT_OF_TIME = "Out of time; the page shows what is there, and the same command goes on."


class OutOfTime(Exception):
    """Raised when the time limit is over; everything trained so far is saved."""


@dataclass(frozen=True)
class TrainingRun:
    """Seeds of one model under one recipe, from ``seed`` on, trained together in ``folder``; ``label`` says what it is
    among a study's variants."""

    model: str
    recipe: Recipe
    folder: Path
    seed: int = 0
    seeds: int = 1
    label: str = ""
    compile: bool | None = False
    progress: bool = False

    def __str__(self) -> str:
        which = f"seed {self.seed}" if self.seeds == 1 else f"{self.seeds} seeds"
        return f"{f'{self.label}: ' if self.label else ''}{self.model}, {which}"

    def has(self, step: int | None) -> bool:
        """Whether a snapshot of this step is there; without one, whether every seed is trained to its end."""
        if step is not None:
            return self._snapshot(step).exists()
        loaded = RunFolder(self.folder).load_checkpoint()
        return loaded is not None and not any(seed["status"] == "training" for seed in loaded.state["seeds"])

    def _snapshot(self, step: int) -> Path:
        return self.folder / "snapshots" / f"{step:07d}.safetensors"

    def train_to(self, step: int | None, device: str = "cpu", minutes: float | None = None) -> None:
        """Train up to ``step`` and keep a snapshot there, or to the end of the recipe; a run that is already further on
        is left alone.

        If the recipe ends the seeds earlier, their last state is kept.

        Raises:
            OutOfTime: ``minutes`` were over before; what is done is saved, and the same call continues.
            UserError: the folder holds another run.
        """
        if self.has(step):
            seeds = {"seeds": self.seeds, "first_seed": self.seed}
            if step is not None:
                with RunFolder(self.folder).open({"model": self.model, "recipe": self.recipe.to_dict()} | seeds):
                    return  # it is this run
            return
        result = train(
            self.model,
            self.folder,
            seeds=self.seeds,
            first_seed=self.seed,
            recipe=self.recipe,
            device=device,
            compile=self.compile,
            progress=self.progress,
            stop_at_step=step,
            minutes=minutes,
        )
        if not result.complete and (step is None or result.steps_done < step):
            raise OutOfTime
        if not self.has(step):
            assert step is not None
            folder = RunFolder(self.folder)
            loaded = folder.load_checkpoint()
            assert loaded is not None  # train() has just saved it
            parameters = ParameterLayout(build(self.model)).unflatten(loaded.tensors["theta"])
            folder.save_snapshot(step, {key: value.contiguous() for key, value in parameters.items()})

    def model_at(self, step: int) -> ArithmeticTransformer:
        """The first seed's model with the parameters after ``step`` steps."""
        tensors, _ = load_weights(self._snapshot(step))
        model = build(self.model)
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
        """Yield (step, loss of that step's training batch) of the first seed for every evaluation."""
        for line in RunFolder(self.folder).metrics():
            yield line["step"], line["loss"][0]


#: Runs with the steps at which each keeps a snapshot, in the order of training; None is the end of the recipe.
Plan = Sequence[tuple[TrainingRun, Sequence[int | None]]]


def train_all(plan: Plan, device: str, minutes: float | None, say: Callable[[str], None] = lambda text: None) -> None:
    """Train every run of the plan through its stops, one run after the other.

    ``say`` gets a line before each run, with the time that the rest takes at the speed so far.

    Raises:
        OutOfTime: ``minutes`` were over before all were done.
    """
    started, done = time.monotonic(), 0
    open_ = [(run, stops) for run, stops in plan if not all(run.has(stop) for stop in stops)]
    last = {run: max(stop or run.recipe.steps for stop in stops) for run, stops in plan}
    left_to_do = sum(last[run] - run.seconds_trained()[0] for run, _ in open_)
    for run, stops in plan:
        if (run, stops) in open_ and minutes != 0:
            text = f"training {run}, to step {last[run]:,} in {run.folder}"
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
            done += last[run] - before


def train_in_time(plan: Plan, settings: Settings, device: str | None = None) -> bool:
    """:func:`train_all` within the settings' minutes; returns False, and says so, if they ended before all was done.
    Where there is a cluster, runs without snapshots are trained there, all at once."""
    whole = [run for run, stops in plan if [*stops] == [None] and not run.has(None)]
    if settings.cluster is not None and whole:
        settings.say(f"training {len(whole)} of {len(plan)} runs on the cluster")
        runs = [PlannedRun(run.model, run.folder, run.seeds, recipe=run.recipe) for run in whole]
        minutes, shown = settings.minutes_left(), settings.progress
        train_on(settings.cluster, runs, compile=False, minutes=minutes, progress=shown)
        settings = replace(settings, minutes=0.0)  # what the cluster has not finished is not trained here
    try:
        train_all(plan, device or settings.device, settings.minutes_left(), settings.say)
    except OutOfTime:
        settings.say(OUT_OF_TIME)
        return False
    return True
