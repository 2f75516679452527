"""The state of one seed of a run, and how a validation changes it.

A seed ends when it has been perfect for a while ("perfect"), when the run's judge accepts it ("accepted"), when its
parameters stop being finite ("failed"), when it falls short of what the recipe demands ("hopeless"), or with the last
step ("finished").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from models.training.recipes import AdaptiveDecay, Recipe

MOST_RETURNED = 1024  # problems of a seed that a judge gave back and that are kept

Status = Literal["training", "perfect", "accepted", "finished", "failed", "hopeless"]


@dataclass
class SeedState:
    """The state of one seed; a checkpoint keeps all of it."""

    seed: int
    status: Status = "training"
    exact: float = 0.0
    token: float = 0.0
    best_exact: float = -1.0
    best_step: int = -1
    first_perfect_step: int | None = None
    uniform: float = 0.0  # exact match on the problems of the natural distribution, the first half of validation
    first_uniform_step: int | None = None  # when that was first perfect
    perfect_in_a_row: int = 0
    token_uniform: float = 0.0  # token accuracy on the natural distribution; problems may adapt to it
    decay_stage: int = 0
    stopped_at: int | None = None
    # for tasks that are compared by their loss; the best step is then the one with the lowest loss
    validation_loss: float | None = None
    best_loss: float | None = None
    polished: bool = False  # by BFGS, after the last step
    # for runs with a judge (models.training.acceptance)
    accepted: dict[str, Any] | None = None  # what the judge proved
    turned_down: int = 0  # candidates that were not accepted
    last_verdict: str = ""  # what the judge said last
    #: Problems that the judge gave back, the newest first (:mod:`models.training.counterexample_problems`).
    returned: list[list[int]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        return self.status == "training"

    @property
    def rank(self) -> float:
        """The rank of a seed in its run: token accuracy or, for text, the negative loss. Given-up seeds are last."""
        if self.status in ("failed", "hopeless"):
            return -math.inf
        return self.token if self.validation_loss is None else -self.validation_loss

    def end(self, status: Status, step: int) -> None:
        self.status, self.stopped_at = status, step

    def keep_counterexamples(self, problems: Iterable[Sequence[int]]) -> None:
        """Keep problems that the judge gave back, in front of those that it gave back before."""
        kept = {tuple(one): None for one in (*problems, *self.returned)}
        self.returned = [list(one) for one in list(kept)[:MOST_RETURNED]]

    def accept(self, certificate: dict[str, Any], step: int) -> None:
        """End with the parameters after ``step`` steps as the best ones, whatever came before."""
        self.accepted, self.best_exact, self.best_step = certificate, self.exact, step
        self.end("accepted", step)

    def record_validation(self, report: dict[str, float], step: int, recipe: Recipe) -> bool:
        """Record a validation after ``step`` steps and decide whether the seed ends. Returns whether it is the best so
        far.

        Args:
            report: a validator's measurements of this seed: exact, token and, where they apply, exact_uniform and
                token_uniform (accuracies) and loss (nats).
        """
        self.exact, self.token = report["exact"], report["token"]
        self.uniform, self.token_uniform = report.get("exact_uniform", 0.0), report.get("token_uniform", 0.0)
        if self.uniform == 1.0 and self.first_uniform_step is None:
            self.first_uniform_step = step
        best = self._is_best(report.get("loss"))
        if best:
            self.best_exact, self.best_step = self.exact, step
        self.perfect_in_a_row = self.perfect_in_a_row + 1 if self.exact == 1.0 else 0
        if self.exact == 1.0 and self.first_perfect_step is None:
            self.first_perfect_step = step
        if recipe.adaptive_decay is not None:
            reached = _decay_stage(recipe.adaptive_decay, report["exact_uniform"], report["token_uniform"])
            self.decay_stage = max(self.decay_stage, reached)
        if recipe.stop_after_perfect is not None and self.perfect_in_a_row >= recipe.stop_after_perfect:
            self.end("perfect", step)
        for at, token in recipe.drop_seed_below or ():
            if step - recipe.eval_every < at <= step and self.token < token:
                self.end("hopeless", step)
        return best

    def _is_best(self, loss: float | None) -> bool:
        """Whether this validation is the best: by loss if the task has one, else by exact match, the last of equals."""
        if loss is None:
            return self.exact >= self.best_exact
        self.validation_loss = round(loss, 6)
        best = self.best_loss is None or self.validation_loss < self.best_loss
        self.best_loss = self.validation_loss if best else self.best_loss
        return best

    def weight_decay(self, recipe: Recipe) -> float:
        """The recipe's weight decay at the stage that this seed has reached."""
        adaptive = recipe.adaptive_decay
        return recipe.weight_decay * (adaptive.factor**self.decay_stage if adaptive else 1.0)


def _decay_stage(adaptive: AdaptiveDecay, exact: float, token: float) -> int:
    """0, 1 or 2: how often the weight decay is multiplied by the factor, by accuracy on the natural distribution."""
    if exact >= adaptive.exact_final:
        return 2
    return int(exact >= adaptive.exact and token >= adaptive.token)
