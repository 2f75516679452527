"""What the claims of ToyGPT's paper measure. The paper has one run per variant; ours are five seeds of its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims.ours import measure, where
from studies.toygpt.seeds import BUDGET


@measure
def at_budget(table: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    """The rows of a variant's seeds after the paper's 1,000 iterations."""
    return where(table["rows"], model=model, step=BUDGET)


@measure
def losses(table: Mapping[str, Any], model: str, step: int = BUDGET) -> dict[str, float]:
    """The loss of the training batch of a step, by seed."""
    return {seed: curve["loss"][curve["step"].index(step)] for seed, curve in table["losses"][model].items()}


@measure
def wrong_answers(model: ArithmeticTransformer, sums: Sequence[str]) -> int:
    """How many of these sums the model gets wrong."""
    from models.evaluation import predict

    problems = model.task.as_problems(sums)
    predicted = predict(model, problems, method="greedy", task=model.task)
    answers, right = model.task.decode(predicted), model.task.decode(model.task.targets(problems))
    return sum(a != b for a, b in zip(answers, right, strict=True))
