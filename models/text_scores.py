"""How well a language model predicts text: its mean loss over held-out windows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from models.calls.argument_kinds import GivenProblems
from models.calls.checked_calls import checked
from models.errors import UserError
from models.run import logits_from
from models.tasks.named.shakespeare import TRAINING, CharacterLanguage, text_ids
from models.transformer.arithmetic_transformer import ArithmeticTransformer

ROWS = 32  # windows at a time, so that their activations stay in the processor's cache


@dataclass(frozen=True)
class TextLoss:
    """Mean cross-entropy of the next character, in nats, teacher-forced.

    Attributes:
        n: how many characters were predicted. correct: how many of them were the model's most likely one.
        windows: how many windows they lie in. Each starts without context, as in training.
        standard_error: the standard error of the loss, from the spread of the windows' means, as if windows were drawn
            at random. It says how much the loss may vary on other texts of this kind; on this text it is exact.
    """

    loss: float
    standard_error: float
    n: int
    correct: int
    windows: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the loss, Student's over windows."""
        from scipy.special import stdtrit  # imported here: few programs ask for it

        half = float(stdtrit(self.windows - 1, 0.975)) * self.standard_error
        return self.loss - half, self.loss + half

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"interval": list(self.interval)}

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"loss {self.loss:.4f} nats a character (95% interval over windows {low:.3f}-{high:.3f}), "
            f"{self.correct:,} of {self.n:,} characters right, {self.windows} windows"
        )


@checked
def text_loss(model: ArithmeticTransformer, problems: GivenProblems = None) -> TextLoss:
    """The loss on windows of the model's text, by default on its whole validation part, once.

    Raises:
        UserError: not a model of text, no text available, fewer than two windows.
    """
    task: Any = model.task
    if task.selected_by != "loss":
        raise UserError(f"{model.name_or_path} is not a model of text; score it on its task's problems.")
    problems = task.validation_windows() if problems is None else task.as_problems(problems)
    if len(problems) < 2:
        raise UserError("A loss with its standard error takes at least two windows.")
    losses, correct = window_losses(model, problems)
    means = losses.double().mean(1)
    return TextLoss(
        loss=float(means.mean()),
        standard_error=float(means.std() / len(means) ** 0.5),
        n=losses.numel(),
        correct=correct,
        windows=len(means),
    )


def letter_pair_loss(task: CharacterLanguage) -> float:
    """The loss of a table of letter pairs, in nats per character: what a model that sees one character could reach.

    The training part's counts plus one give the probabilities of the next character; the loss is over the same windows
    as in :func:`text_loss`.
    """
    training, size = text_ids()[:TRAINING].long(), task.d_vocab
    counts = torch.bincount(training[:-1] * size + training[1:], minlength=size**2).view(size, size).double() + 1
    log_p = (counts / counts.sum(1, keepdim=True)).log()
    problems = task.validation_windows()
    tokens, targets = task.encode(problems), task.targets(problems)
    return float(-log_p[tokens, targets].mean())


@torch.no_grad()
def window_losses(model: ArithmeticTransformer, problems: Int[Tensor, "n 1"]) -> tuple[Float[Tensor, "n target"], int]:
    """The loss of every character of every window, and how many were predicted rightly."""
    weights, losses, correct = model.effective_weights(), [], 0
    for part in problems.split(ROWS):
        tokens, targets = model.task.encode(part).to(model.device), model.task.targets(part).to(model.device)
        logits = logits_from(model, tokens, 0, weights)
        losses.append(
            F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").view_as(targets)
        )
        correct += int((logits.argmax(-1) == targets).sum())
    return torch.cat(losses).cpu(), correct
