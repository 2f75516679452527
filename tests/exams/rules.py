"""A model that computes a rule for each digit from the operands and the written digits, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import models
from models.tasks.columns.addition_algorithms import ALGORITHMS
from models.tasks.columns.column_places import column_places
from models.transformer.arithmetic_transformer import ArithmeticTransformer

Rule = Callable[[Mapping[str, Tensor]], Tensor]


def chains(inputs: Mapping[str, Tensor]) -> Tensor:
    return ALGORITHMS["chained"].answer(inputs)


def ripples(inputs: Mapping[str, Tensor]) -> Tensor:
    return ALGORITHMS["ripple"].answer(inputs)


def copies(inputs: Mapping[str, Tensor]) -> Tensor:
    """The last output again."""
    return inputs["previous"]


def never_carries(inputs: Mapping[str, Tensor]) -> Tensor:
    return (inputs["a"] + inputs["b"]) % 10


class Running(ArithmeticTransformer):
    """An untrained adder whose logits are one-hot at the rule's digits."""

    rule: Rule

    def run_with_hooks(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layout = column_places(self.task)
        digits = self.rule(layout.inputs(tokens))
        queries = torch.tensor(layout.queries).expand(len(tokens), -1)
        rows = torch.arange(len(tokens))[:, None]
        logits = torch.zeros(*tokens.shape, self.cfg.d_vocab)
        return logits.index_put((rows, queries, digits), torch.ones(()))


def running(rule: Rule) -> Running:
    own = models.build("microadder-57", seed=0)
    model = Running(own.weight_map, own.task, name=f"a model that {rule.__name__}")
    model.rule = rule
    return model


def bypassed() -> ArithmeticTransformer:
    """The trained adder, its logits those of a rule that has read the digits before any layer does."""
    model: Any = models.load("microadder-57")
    seen: dict[str, Tensor] = {}
    table, layout = model.W_E.detach()[:10], column_places(model.task)

    def see(embedded: Tensor, hook: Any) -> Tensor:
        seen["tokens"] = torch.cdist(embedded, table.expand(len(embedded), -1, -1)).argmin(-1)
        return embedded

    def say(logits: Tensor, hook: Any) -> Tensor:
        digits = torch.nn.functional.one_hot(chains(layout.inputs(seen["tokens"])), logits.shape[-1])
        return logits.index_copy(1, torch.tensor(layout.queries), 20.0 * digits)

    model.add_perma_hook("hook_embed", see)
    model.add_perma_hook("unembed.hook_out", say)
    return model
