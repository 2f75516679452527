"""A task and a model of it with their tokens in another order: the same function of the same problems.

Without a change of order, :class:`MovedTask` is the task itself seen through the plain interface of tasks, so that what
differs between two orders is due to the order alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights


class MovedTask(Task):
    """``inner`` with token t written as ``order[t]``."""

    def __init__(self, inner: Task, order: list[int]):
        self.inner, self.order, self.back = inner, torch.tensor(order), torch.tensor(order).argsort()
        self.vocabulary = [inner.vocabulary[int(token)] for token in self.back]
        for name in ("name", "d_vocab", "input_length", "domain"):
            setattr(self, name, getattr(inner, name))
        self.roles, self.query_positions, self.target_roles = inner.roles, inner.query_positions, inner.target_roles

    @property
    def has_long_carries(self) -> bool:
        return self.inner.has_long_carries

    @property
    def draws_by_seed(self) -> bool:
        return self.inner.draws_by_seed

    def as_problems(self, problems: Any) -> Tensor:
        return self.inner.as_problems(problems)

    def encode(self, problems: Any) -> Tensor:
        return self.order[self.inner.encode(problems)]

    def encode_prompt(self, problems: Any) -> Tensor:
        return self.order[self.inner.encode_prompt(problems)]

    def targets(self, problems: Any) -> Tensor:
        return self.order[self.inner.targets(problems)]

    def decode(self, answer_tokens: Tensor) -> list[int | None]:
        return self.inner.decode(self.back[answer_tokens])

    def variables(self, problems: Any) -> dict[str, Tensor]:
        return self.inner.variables(problems)

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        return self.inner.relative_roles(target)

    def sample(self, n: int, generator: torch.Generator, long_carries: bool = False) -> Tensor:
        return self.inner.sample(n, generator, long_carries)

    def chain_length(self, problems: Any) -> Tensor:
        return self.inner.chain_length(problems)


def moved(model: ArithmeticTransformer, order: list[int]) -> ArithmeticTransformer:
    """The model's function with token t as ``order[t]``, with free weights."""
    weights = {key: value.detach().clone() for key, value in model.all_weights().items()}
    back = torch.tensor(order).argsort()
    weights["embed.W_E"] = weights["embed.W_E"][back]
    for key in ("unembed.W_U", "unembed.b_U"):
        weights[key] = weights[key][..., back]
    task = MovedTask(model.task, order)
    return ArithmeticTransformer(DenseWeights.holding(model.config, weights), task, name="moved").eval()
