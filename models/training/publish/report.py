"""The data that go from runs to a zoo entry: the runs with their seeds, and a report on them; and that of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from models.errors import UserError
from models.problem_score import Score
from models.rates import Rate
from models.text_scores import TextLoss, text_loss
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.transformer.arithmetic_transformer import ArithmeticTransformer


@dataclass(frozen=True, eq=False)
class Seed:
    """One seed of one run: its last state, and the parameters that will be stored."""

    run: RunFolder
    row: int
    state: dict[str, Any]
    theta: Tensor

    @property
    def number(self) -> int:
        return self.state["seed"]


@dataclass(frozen=True)
class Runs:
    """Runs of one model and one recipe, and repeats of their seeds, which are counted separately."""

    model: ArithmeticTransformer
    layout: ParameterLayout
    folders: list[RunFolder]
    configs: list[dict[str, Any]]
    repeats: list[RunFolder]

    @property
    def name(self) -> str:
        return str(self.model.name_or_path)

    def load(self, seed: Seed) -> ArithmeticTransformer:
        """The model with a seed's parameters."""
        self.layout.load_into(self.model, seed.theta)
        return self.model


@dataclass(frozen=True)
class Report:
    """A task's report on its runs: which seed is stored, how good it is, and what the entry says about it.

    Attributes:
        result: the score of the stored model, for the caller. score: what the config keeps of it.
        counts: for the config's ``training``: how many seeds were tried, and how they ended.
        seeds: one row per seed, for ``seeds.json``. files: further files.
        steps: steps of the recipe, if only the beginning of the runs is published.
        certificate: what a judge proved about the seed.
    """

    chosen: Seed
    result: Score | Rate | TextLoss
    counts: dict[str, Any]
    seconds: float
    score: dict[str, Any]
    seeds: list[dict[str, Any]]
    files: dict[str, bytes] = field(default_factory=dict)
    steps: int | None = None
    certificate: dict[str, Any] | None = None
    half: bool = True  # stored in float16


def finished_seeds(runs: Iterable[RunFolder], half: bool = True) -> tuple[list[Seed], float]:
    """Every seed of the runs with its best parameters (rounded to float16 if ``half``), and the wall time in seconds.

    Raises:
        UserError: some seeds are still in training, or occur twice.
    """
    seeds, seconds = [], 0.0
    for run in runs:
        loaded = run.load_checkpoint()
        if loaded is None or any(state["status"] == "training" for state in loaded.state["seeds"]):
            raise UserError(f"{run.path} is not finished; give its `interp train` command again to go on with it.")
        _, tensors, checkpoint = loaded
        best = tensors["best_theta"].half().float() if half else tensors["best_theta"]
        seeds += [Seed(run, row, state, best[row]) for row, state in enumerate(checkpoint["seeds"])]
        seconds += checkpoint["seconds"]
    check_once(seeds)
    return seeds, seconds


def check_once(seeds: Iterable[Seed]) -> None:
    """Raise a UserError if a seed occurs twice."""
    listed = [seed.number for seed in seeds]
    if len(set(listed)) < len(listed):
        raise UserError("The runs share seeds; a seed counts once.")


def grokked(rate: Rate) -> dict[str, Any]:
    """The counts for an entry, from the rate of its seeds that grokked."""
    return {"seeds_tried": rate.n, "seeds_grokked": rate.correct, "grok_interval_95": list(rate.interval)}


def report_text(runs: Runs) -> Report:
    """Report the lowest seed and not the best, as there is no text outside the validation part to choose a seed on.

    Its loss is that of the stored parameters: float16, converted back to float32.

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    seeds, seconds = finished_seeds(runs.folders)
    seeds.sort(key=lambda seed: seed.number)
    chosen = seeds[0]
    result = text_loss(runs.load(chosen))
    losses = [
        {
            "seed": seed.number,
            "best_loss": seed.state["best_loss"],
            "best_step": seed.state["best_step"],
            "last_loss": seed.state["validation_loss"],
        }
        for seed in seeds
    ]
    return Report(
        chosen=chosen,
        result=result,
        counts={"seeds_tried": len(seeds)},
        seconds=seconds,
        score=result.to_dict()
        | {"problems": "next characters", "method": "teacher_forced", "strength": "all of the validation part"},
        seeds=losses,
    )
