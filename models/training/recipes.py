"""Recipes: everything about a training run except the model.

A recipe is a frozen dataclass; the command line is generated from it, and a run folder stores all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from models.errors import UserError
from models.training.bfgs_polish import Polish
from models.training.sequence_problems import AdditionSet, MultiplicationSet, ParitySet, SequenceSource
from models.training.task_problems import TaskProblems
from models.training.ten_digit_problems import (
    AdditionProblems,
    CarryMix,
    SubtractionProblems,
    VariedLengthProblems,
)


@dataclass(frozen=True)
class AdaptiveDecay:
    """Weight decay times 0.1, then times 0.01, once a seed passes accuracy thresholds (MicroAdder-74).

    Accuracies are measured on the uniform half of the validation problems; a stage once reached is kept.
    """

    exact: float = 0.02
    token: float = 0.7
    exact_final: float = 0.2
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.factor < math.inf:
            raise UserError(f"factor must be finite and not negative, not {self.factor}.")


#: Integer fields of a recipe, with their least and greatest values. The kernels count a batch's tokens, fewer than 128
#: per row, in 31 bits.
_WHOLE = (
    ("steps", 1, 10**12),
    ("batch_size", 1, 2**24),
    ("eval_every", 1, 10**12),
    ("validation_size", 1, 10**7),
    ("warmup_steps", 0, 10**12),
    ("snapshots", 0, 10**5),
)


@dataclass(frozen=True)
class Recipe:
    steps: int = 60_000
    batch_size: int = 256
    lr: float = 0.02
    min_lr_ratio: float = 0.1  # cosine from lr to this share of it at the last step
    warmup_steps: int = 1_000
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    adam_eps: float = 1e-8
    grad_clip: float = 1.0  # global norm, per seed
    problems: (
        AdditionProblems
        | SubtractionProblems
        | VariedLengthProblems
        | AdditionSet
        | MultiplicationSet
        | ParitySet
        | TaskProblems
    ) = field(default_factory=AdditionProblems)
    adaptive_decay: AdaptiveDecay | None = None
    eval_every: int = 500
    validation_size: int = 2_048  # problems, half uniform and half carry-rich, none of them in AdderBoard
    stop_after_perfect: int | None = 10  # a seed ends after this many perfect validations in a row; None: never
    # (step, token accuracy): a seed below this accuracy at that step ends as hopeless; None: every seed goes to the end
    drop_seed_below: tuple[tuple[int, float], ...] | None = None
    # (step, share): this share of the run's seeds, the best by token accuracy (for text, by loss), continues after that
    # step, and the others end as hopeless (successive halving); None: every seed goes to the end. On a cluster, each
    # part of the run keeps this share of its own seeds
    keep_share: tuple[tuple[int, float], ...] | None = None
    # (parameter, value): its initial value in every seed; (parameter, (low, high)): drawn uniformly from there by every
    # seed. A parameter is named as in the weight map's named_parameters(): "norm_w" means all its numbers, "norm_w[4]"
    # one of them
    initial_values: tuple[tuple[str, float | tuple[float, float]], ...] | None = None
    freeze_until: tuple[tuple[str, int], ...] | None = None  # (parameter, step): it keeps its initial value until then
    polish: Polish | None = None  # BFGS after the last step, for models with few parameters
    snapshots: int = 48  # log-spaced over the run, besides step 0 and the last
    autocast: bool = False  # bfloat16 matrix products, where they are fast; MicroAdder does not survive it

    def __post_init__(self) -> None:
        for name, least, most in _WHOLE:
            if not least <= getattr(self, name) <= most:
                raise UserError(f"{name} must be at least {least} and at most {most:,}, not {getattr(self, name)}.")
        for name in ("lr", "grad_clip", "adam_eps"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} must be positive and finite, not {getattr(self, name)}.")
        if not 0 <= self.weight_decay < math.inf or not 0 <= self.min_lr_ratio <= 1:
            raise UserError("weight_decay must be finite and not negative, and min_lr_ratio lie between 0 and 1.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas lie between 0 and 1, and below 1, not {self.betas}.")
        if self.stop_after_perfect is not None and self.stop_after_perfect < 1:
            raise UserError(f"stop_after_perfect must be at least 1 or None, not {self.stop_after_perfect}.")
        for step, token in self.drop_seed_below or ():
            if step < 0 or not 0 <= token <= 1:
                raise UserError(
                    f"drop_seed_below is made of steps and token accuracies between 0 and 1, not ({step}, {token})."
                )
        for name, value in self.initial_values or ():
            low, high = value if isinstance(value, Sequence) else (value, value)
            if not -math.inf < low <= high < math.inf:
                raise UserError(f"{name} must begin at a finite value, or between two of them, not {value}.")
        for name, step in self.freeze_until or ():
            if step < 0:
                raise UserError(f"{name} must be held until a step >= 0, not {step}.")
        if self.polish is not None and isinstance(self.problems, SequenceSource):
            raise UserError("polish needs problems of one length, with all operands in columns.")
        for step, share in self.keep_share or ():
            if step < 0 or not 0 < share <= 1:
                raise UserError(
                    f"keep_share is made of steps and shares of the seeds above 0 and at most 1, not ({step}, {share})."
                )

    def lr_at(self, step: int) -> float:
        """Linear warm-up to ``lr``, then cosine to ``min_lr_ratio * lr`` at the last step."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        low = self.lr * self.min_lr_ratio
        return low + (self.lr - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def replace(self, **changes: Any) -> Recipe:
        return replace(self, **changes)

    def shrunk(self, times: int) -> Recipe:
        """For ten-digit addition: the recipe with its whole schedule this many times shorter, giving up no seeds."""
        problems = self.problems
        assert isinstance(problems, AdditionProblems)
        mix = problems.carry_mix and problems.carry_mix.shrunk(times)
        digits = tuple((below // times, most) for below, most in problems.digit_curriculum)
        return self.replace(
            steps=self.steps // times,
            warmup_steps=self.warmup_steps // times,
            problems=replace(problems, digit_curriculum=digits, carry_mix=mix),
            freeze_until=self.freeze_until and tuple((name, step // times) for name, step in self.freeze_until),
            drop_seed_below=None,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


#: What fields of a recipe are called now, by their names in files of earlier versions.
_EARLIER = {
    "give_up": "drop_seed_below",
    "keep_best": "keep_share",
    "begin_at": "initial_values",
    "hold_until": "freeze_until",
}
#: Fields that recipes had in earlier versions. A file in which one is null means what a file without it means.
_GONE = ("teacher",)


def named_now(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as JSON, with the names that fields have in this version, and without unused ones that are gone."""
    used = {name: value for name, value in recipe.items() if name not in _GONE or value is not None}
    return {_EARLIER.get(name, name): value for name, value in used.items()}


def starts_of(recipe: Mapping[str, Any]) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """(drawn, placed) of a recipe as JSON: the ranges that parameters are drawn from, and the names of those that begin
    at one value in every seed. The others begin as their weight map initialises them."""
    begin = dict(named_now(recipe).get("initial_values") or ())
    drawn = {name: (ends[0], ends[1]) for name, ends in begin.items() if isinstance(ends, Sequence)}
    return drawn, [name for name in begin if name not in drawn]


RECIPES: dict[str, Recipe] = {
    "microadder": Recipe(),
    "microadder-74": Recipe(
        steps=120_000,
        problems=AdditionProblems(carry_mix=CarryMix(0.8, 10_000, 80_000)),
        adaptive_decay=AdaptiveDecay(),
    ),
}


def add_recipe(name: str, recipe: Recipe) -> Recipe:
    """Name a recipe, for ``interp train MODEL --recipe NAME``; returns it."""
    if name in RECIPES:
        raise UserError(f"A recipe named {name!r} exists already.")
    RECIPES[name] = recipe
    return recipe


def recipe_name(recipe: Recipe) -> str:
    """The name under which a recipe was added; empty for another one."""
    return next((name for name, named in RECIPES.items() if named == recipe), "")
