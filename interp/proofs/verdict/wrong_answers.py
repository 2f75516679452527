"""A problem that a model gets wrong when it decodes it alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from models.evaluation import predict
from models.tasks import Task
from models.transformer import HookedModel


@dataclass(frozen=True)
class WrongAnswer:
    """A problem, the model's answer when it decodes it alone, the right answer, the first target that is wrong, and the
    shape in which the problem was written (leading zeros count), where the task has several."""

    problem: str
    predicted: str
    expected: str
    target: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.problem} -> {self.predicted}"


@torch.inference_mode()
def wrong_answer(model: HookedModel, task: Task, problem: Tensor, targets: int | None = None) -> WrongAnswer | None:
    """How the model gets one problem wrong when it decodes it alone, or None if it gets it right.

    ``targets``: how many tokens of the answer are compared, from the first on; None compares all.
    """
    predicted, expected = predict(model, problem, "greedy", 1, task).cpu(), task.targets(problem).cpu()
    differ = (predicted != expected)[0, :targets]
    if not differ.any():
        return None
    first = int(differ.long().argmax())
    text = task.problem_text(task.numbers(problem)[0])
    label = task.target_roles[first].label
    return WrongAnswer(text, answer_text(task, predicted[0]), answer_text(task, expected[0]), label, task.shape)


def answer_text(task: Task, tokens: Int[Tensor, " target"]) -> str:
    """What the tokens spell: a number, the text where they spell none, or, with a scratchpad, the whole response."""
    said = tokens[: int((tokens < 0).long().argmax())] if (tokens < 0).any() else tokens
    if task.has_other_sizes:
        return task.token_text(said) + ("" if len(said) == len(tokens) else "...")
    if len(said) == len(tokens):
        return task.answer_text(tokens)
    return "".join(list(task.vocabulary)[token] for token in said.tolist()) or "no number"
