"""The training loop, for any model and any number of stacked seeds (one seed is a stack of one).

It steps a :class:`models.training.trainer.Trainer` until the last step, until all seeds end or until time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.calls.checked_calls import checked
from models.errors import UserError
from models.training.acceptance import AcceptanceTest
from models.training.data_parallel import AccelerateShare, Share
from models.training.devices import resolve_device
from models.training.interrupt_flag import InterruptFlag
from models.training.named_recipes import checked_recipe
from models.training.progress import Progress
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.seed_state import SeedState
from models.training.sequence_problems import SequenceSource
from models.training.trainer import Trainer
from models.training.warm_start import Start

#: Called after every evaluation with the seeds' states, the step, and whether a checkpoint was just written.
Watch = Callable[[Sequence[SeedState], int, bool], None]
#: Called after every evaluation with its numbers by name; see :func:`numbers_to_log`.
Log = Callable[[dict[str, float]], Any]


@dataclass(frozen=True)
class TrainResult:
    """How a run ended: its folder and one row per seed."""

    folder: Path
    model: str
    steps_done: int
    complete: bool
    seeds: tuple[SeedState, ...]
    seconds: float

    @property
    def perfect(self) -> list[SeedState]:
        """Seeds whose best checkpoint answered every validation problem."""
        return [s for s in self.seeds if s.best_exact == 1.0]

    @property
    def accepted(self) -> list[SeedState]:
        """Seeds that the run's judge accepted."""
        return [s for s in self.seeds if s.accepted is not None]


def run_until(
    trainer: Trainer,
    last: int,
    checkpoint_seconds: float,
    minutes: float | None,
    progress: bool,
    watch: Watch | None,
    log: Log | None = None,
) -> TrainResult:
    """Step until ``last``, until all seeds end or until the time is up, and save."""
    recipe, folder, saved = trainer.recipe, trainer.folder, time.monotonic()

    def out_of_time() -> bool:
        if trainer.share.any(interrupt.seen):
            trainer.save()
            raise KeyboardInterrupt
        return minutes is not None and trainer.share.any(time.monotonic() - trainer.started > 60 * minutes)

    with InterruptFlag() as interrupt, Progress(trainer.step_number, recipe.steps, enabled=progress) as bar:
        if trainer.compiled and trainer.step_number < last:
            bar.say("compiling the training step: up to two minutes the first time, seconds after that")
        # With no time at all nothing is trained; with any, a call takes a step, so that repeated calls come to an end.
        while minutes != 0 and trainer.step_number < last and any(s.active for s in trainer.states):
            if trainer.step_number in trainer.snapshot_steps:
                trainer.snapshot()
            trainer.step()
            bar.advance()
            if trainer.step_number % recipe.eval_every == 0 or trainer.step_number == recipe.steps:
                evaluation = trainer.evaluate()
                folder.append_metrics(evaluation)
                if log is not None:
                    log(numbers_to_log(evaluation, [state.seed for state in trainer.states]))
                for verdict in trainer.verdicts:
                    bar.say(f"seed {verdict['seed']}, step {trainer.step_number:,}: {verdict['statement']}")
                bar.show(trainer.states)
                due = time.monotonic() - saved > checkpoint_seconds
                if due:
                    trainer.save()
                    saved = time.monotonic()
                if watch is not None:
                    watch(trainer.states, trainer.step_number, due)
            if out_of_time():
                break
        for row in bar.over(trainer.to_polish(), "BFGS"):
            trainer.polish(row)
            if time.monotonic() - saved > checkpoint_seconds:
                trainer.save()
                saved = time.monotonic()
            if not trainer.to_polish():  # polishing counts as one step
                trainer.step_number += 1
                folder.append_metrics(trainer.evaluate())
                bar.show(trainer.states)
            elif out_of_time():
                break
    ended = trainer.step_number >= recipe.steps and not trainer.to_polish()
    complete = ended or not any(s.active for s in trainer.states)
    if complete:
        trainer.snapshot()
        trainer.finish()
    trainer.save()
    return TrainResult(folder.path, trainer.name, trainer.step_number, complete, tuple(trainer.states), trainer.seconds)


def numbers_to_log(evaluation: dict[str, Any], seeds: Sequence[int]) -> dict[str, float]:
    """An evaluation's numbers by name: "step", "lr", and each measure of each seed.

    The measures are "exact", "token", "uniform", "loss" and, of models of text, "validation_loss". Those of a seed are
    "loss/seed 3" and so on, and "loss" alone where there is one seed. A loss that is not finite is left out.
    """
    found: dict[str, float] = {"step": evaluation["step"], "lr": evaluation["lr"]}
    for measure, values in evaluation.items():
        if isinstance(values, list) and measure not in ("status", "verdicts"):
            for seed, value in zip(seeds, values, strict=True):
                if value is not None:
                    found[f"{measure}/seed {seed}" if len(seeds) > 1 else measure] = value
    return found


def config_of(
    name: str,
    recipe: Recipe,
    seeds: int,
    first_seed: int,
    start: Start | None,
    judge: AcceptanceTest | None,
    definition: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The config that identifies a run in its folder."""
    config: dict[str, Any] = {"model": name, "recipe": recipe.to_dict(), "seeds": seeds, "first_seed": first_seed}
    config |= {} if definition is None else {"definition": definition}
    config |= {} if start is None else {"start": start.to_dict()}
    return config if judge is None else config | {"judge": judge.option}


def check_minutes(minutes: float | None) -> None:
    """Raise UserError for a negative time."""
    if minutes is not None and not minutes >= 0:
        raise UserError(f"--minutes must not be negative, not {minutes}.")


@checked
def train(
    name: str,
    out: str | Path,
    seeds: int = 1,
    first_seed: int = 0,
    recipe: Recipe | None = None,
    device: str = "auto",
    compile: bool | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool = True,
    stop_at_step: int | None = None,
    minutes: float | None = None,
    data_parallel: bool = False,
    start: Start | None = None,
    judge: AcceptanceTest | None = None,
    watch: Watch | None = None,
    definition: dict[str, Any] | None = None,
    log: Log | None = None,
) -> TrainResult:
    """Train ``seeds`` seeds of a registered model, or continue the run in ``out``.

    A run that was killed continues from its last checkpoint (at most ``checkpoint_seconds`` of work are repeated) and
    ends with the same bits, on the same machine with the same versions. Ctrl-C (once) finishes the step and saves.

    Args:
        recipe: by default the model's own.
        compile: torch.compile the step; None means if it pays.
        stop_at_step, minutes: save and return early, for working in slices.
        data_parallel: split every batch over the processes that ``accelerate launch`` started.
        start: start seeds near these parameters and not at random ones.
        judge: asked about every seed that answers all validation problems. A seed that it accepts is kept and ends
            there; no other seed then ends early for being right.
        watch: called after every evaluation with the seeds' states, the step, and whether that was just saved.
        log: called after every evaluation with its numbers by name (:func:`numbers_to_log`).
        definition: what the model is, as JSON in the run's config, if its name is registered in this process only.

    Raises:
        UserError: unknown model, a folder with another run, a damaged checkpoint, no such device, nothing to split.
    """
    recipe = checked_recipe(name, seeds, first_seed, recipe)
    check_minutes(minutes)
    resolved = resolve_device(device)
    share = Share()
    if data_parallel:
        if not isinstance(recipe.problems, SequenceSource):
            raise UserError(f"{name} is too small to be split over processes; it trains many seeds in one.")
        share = AccelerateShare(resolved)
        resolved = share.device
    folder = share.folder(RunFolder(Path(out)))
    with folder.open(config_of(name, recipe, seeds, first_seed, start, judge, definition)):
        numbers = list(range(first_seed, first_seed + seeds))
        trainer = Trainer(name, recipe, numbers, folder, resolved, compile, share, start, judge)
        trainer.restore()
        last = recipe.steps if stop_at_step is None else min(stop_at_step, recipe.steps)
        first = share.rank == 0
        return run_until(trainer, last, checkpoint_seconds, minutes, progress and first, watch, log if first else None)
