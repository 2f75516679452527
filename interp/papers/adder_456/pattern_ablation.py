"""Whether the part of attention that depends on the problem is needed: fix the pattern and count right answers.

At the queries of the answer the attention pattern of every head is replaced, in the same way for all problems, by

    mean pattern          its mean over uniform problems (others than those that are scored): no choice by value is left
    without the previous  the model's own, with the weight on the operands of column i-1 moved to the operands of
      column              column i: what is read there is lost
    uniform               equal weights on all visible keys: the control, which an adder does not survive

and whole answers are scored on equally many problems of every carry-chain length, since that is where a lost carry
shows. Rates have Clopper-Pearson intervals; sampled. A drop under the mean pattern would say that the choice by value
is used; no drop says that a constant attention matrix is enough for these problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.ablation.patterns import heads_of, right_with_patterns
from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.papers.adder_456.columns import adder_task
from models.errors import UserError
from models.evaluation import Rate
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.carries import problems_of_chain_length

WHOLE, MEAN, NO_PREVIOUS, UNIFORM = "whole model", "mean pattern", "without the previous column", "uniform"


@dataclass(frozen=True, eq=False)
class PatternAblation(Result):
    """``rates``: pattern -> chain length -> the rate of right whole answers."""

    model: str
    rates: Mapping[str, Mapping[int, Rate]]
    provenance: Provenance

    def total(self, pattern: str) -> Rate:
        """The rate over all chain lengths, which are equally frequent."""
        parts = self.rates[pattern].values()
        return Rate(sum(rate.n for rate in parts), sum(rate.correct for rate in parts))

    def sentence(self) -> str:
        texts = []
        for pattern in self.rates:
            rate = self.total(pattern)
            low, high = rate.interval
            texts.append(f"{pattern} {rate.correct:,} of {rate.n:,} right ({low:.3f}-{high:.3f})")
        return f"{self.model} over all carry-chain lengths: {'; '.join(texts)}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per pattern and chain length: n, right, accuracy, low, high (95%)."""
        rows = []
        for pattern, by_length in self.rates.items():
            for length, rate in by_length.items():
                low, high = rate.interval
                row = {"pattern": pattern, "chain_length": length, "n": rate.n, "right": rate.correct}
                rows.append(row | {"accuracy": rate.accuracy, "low": low, "high": high})
        return pd.DataFrame(rows)


def compute_pattern_ablation(
    right: Mapping[str, Bool[Tensor, " n"]],
    chain_length: Int[Tensor, " n"],
    provenance: Provenance,
    model: str = "the model",
) -> PatternAblation:
    """The rates, from which problems are right under each pattern. Raises UserError without problems."""
    if not len(chain_length):
        raise UserError("There is no problem to score on.")
    lengths = chain_length.unique().tolist()
    rates = {
        pattern: {
            length: Rate(int((chain_length == length).sum()), int(ok[chain_length == length].sum()))
            for length in lengths
        }
        for pattern, ok in right.items()
    }
    return PatternAblation(model, rates, provenance)


def pattern_ablation(model: HookedModel, task: Any = None, n_per_length: int = 500, seed: int = 0) -> PatternAblation:
    """Score a ten-digit adder with fixed attention patterns.

    It is scored on ``n_per_length`` problems of every carry-chain length 0 to 10; the mean pattern is over 2,048
    uniform ones.

    Raises:
        UserError: another task's model, n below 1.
    """
    task = adder_task(model, task)
    if n_per_length < 1:
        raise UserError(f"n_per_length must be at least 1, not {n_per_length}.")
    generator = torch.Generator().manual_seed(seed)
    others = task.encode(task.sample(2048, generator))
    problems = torch.cat([problems_of_chain_length(length, n_per_length, generator) for length in range(DIGITS + 1)])
    heads = heads_of(model)
    changes: dict[str, dict[tuple[int, int], Any]] = {
        WHOLE: {},
        MEAN: dict.fromkeys(heads, "mean"),
        NO_PREVIOUS: dict.fromkeys(heads, partial(_without_previous, task=task)),
        UNIFORM: dict.fromkeys(heads, "uniform"),
    }
    right = {
        name: right_with_patterns(model, task, task.encode(problems), task.targets(problems), change, others).all(1)
        for name, change in changes.items()
    }
    source = f"problems, {n_per_length:,} of each carry-chain length 0 to {DIGITS}"
    name = model_name(model)
    return compute_pattern_ablation(right, task.chain_length(problems), Provenance(len(problems), seed, source), name)


def _without_previous(
    rows: Float[Tensor, "n head target key"], task: FixedWidthAddition
) -> Float[Tensor, "n head target key"]:
    """The rows, with the weight on the previous column's operands divided among those of the own column."""
    rows = rows.clone()
    for target in range(1, DIGITS + 1):
        roles = task.relative_roles(target)
        own, previous = roles["own operands"], roles["previous operands"]
        if own:
            rows[:, :, target, own] += rows[:, :, target, previous].sum(-1, keepdim=True) / len(own)
            rows[:, :, target, previous] = 0
    return rows
