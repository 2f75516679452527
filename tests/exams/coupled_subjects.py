"""The construction of Position Coupling with a part changed: what each head looks at and writes is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import models
from interp.compare.construction.needed_keys import key_sets
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition

OPERANDS, DIGITS = 4, 3
PATTERN = "blocks.0.attn.hook_pattern"


def built(**options: Any) -> Any:
    """Heads 0 to 3 find the digits to be added, those of the carry, all digits of a column, and the last number."""
    model: Any = models.build("position-coupling-hand-built", max_operands=OPERANDS, max_digits=DIGITS, **options)
    model.task = model.task.at(OPERANDS, DIGITS)
    return model


def untrained_summer(seed: int = 1) -> Any:
    model: Any = models.build("position-coupling-1l4h-small", seed=seed)
    model.task = model.task.at(OPERANDS, DIGITS)
    return model


def changed(name: str, change: Callable[[Tensor], Any], **options: Any) -> Any:
    """The construction, and ``change`` made to one of its weights in place."""
    model = built(**options)
    change(model.weight_map.get_buffer(name.replace(".", "/")))
    return model


def hooked(hook: str, value: Callable[[Tensor], Tensor]) -> Any:
    """The construction with an activation replaced for good."""
    model = built()
    model.add_perma_hook(hook, lambda activation, hook: value(activation))
    return model


def even(pattern: Tensor) -> Tensor:
    """The same weight on every token up to the query."""
    seen = torch.ones(pattern.shape[-2:]).tril()
    return (seen / seen.sum(-1, keepdim=True)).expand_as(pattern).to(pattern)


def exchanged(*names: str) -> Any:
    """The construction with heads 0 and 1 exchanged in these weights (a letter each)."""
    model = built()
    for name in names:
        weight = model.weight_map.get_buffer(f"blocks/0/attn/W_{name}")
        weight.copy_(weight[[1, 0, 2, 3]])
    return model


def wrong_at(place: str) -> Any:
    """The construction that never predicts the right token at one target, and is right elsewhere."""
    model = built()
    target = [role.label for role in model.task.target_roles].index(place)
    query = model.task.query_positions[target]

    def spoil(logits: Tensor) -> Tensor:
        return logits.index_copy(1, torch.tensor([query]), -logits[:, [query]])

    model.add_perma_hook("unembed.hook_out", lambda logits, hook: spoil(logits))
    return model


def first_head_even(pattern: Tensor) -> Tensor:
    """Head 0 blind where it should find the digits to be added, and only there."""
    keys = key_sets(MultiOperandAddition(OPERANDS, DIGITS))
    rows = torch.tensor(keys.queries)[torch.from_numpy(keys.defined[keys.index("sum")])]
    blind = pattern[:, :1].index_copy(2, rows, even(pattern[:, :1])[:, :, rows])
    return torch.cat((blind, pattern[:, 1:]), 1)


def spoilt(at: Callable[[int], bool]) -> Any:
    """The construction with all logits negated in sequences of these lengths."""
    return hooked("unembed.hook_out", lambda logits: -logits if at(logits.shape[1]) else logits)


NAMED: dict[str, slice] = built().weight_map.dims
