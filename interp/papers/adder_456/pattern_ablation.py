"""Is the part of attention that depends on the problem needed? Fix the pattern and count right answers.

At the queries of the answer the attention pattern of every head is replaced, for all problems alike, by

    mean pattern          its mean over uniform problems (others than those that are scored): no choice by value is left
    without the previous  the model's own, with the weight on the operands of column i-1 handed to the operands of
      column              column i: what is read there is lost
    uniform               equal weights on all visible keys: the control, which an adder does not survive

and whole answers are scored on as many problems of every carry-chain length, since that is where a lost carry shows.
Rates with Clopper-Pearson intervals; sampled. A drop under the mean pattern would say that the choice by value is used;
none says that a constant attention matrix is enough for these problems.
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

from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.papers.adder_456.columns import adder_task, predictions, query_patterns
from models.errors import UserError
from models.evaluation import Rate
from models.tasks.addition import DIGITS
from models.tasks.carries import problems_of_chain_length

WHOLE, MEAN, NO_PREVIOUS, UNIFORM = "whole model", "mean pattern", "without the previous column", "uniform"


@dataclass(frozen=True, eq=False)
class PatternAblation(Result):
    """``rates``: pattern -> chain length -> whole answers right."""

    model: str
    rates: Mapping[str, Mapping[int, Rate]]
    provenance: Provenance

    def total(self, pattern: str) -> Rate:
        """Over all chain lengths, which are equally frequent."""
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
        """A row a pattern and chain length: n, right, accuracy, low, high (95%)."""
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
    """From which problems are right under each pattern. Raises UserError without problems."""
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

    ``n_per_length`` problems of every carry-chain length 0 to 10; the mean pattern is taken over 2,048 uniform ones.

    Raises:
        UserError: another task's model, n below 1.
    """
    task = adder_task(model, task)
    if n_per_length < 1:
        raise UserError(f"n_per_length must be at least 1, not {n_per_length}.")
    generator = torch.Generator().manual_seed(seed)
    queries = list(task.query_positions)
    mean = torch.from_numpy(query_patterns(model, task.encode(task.sample(2048, generator)), queries).mean(0)).float()
    drawn = [problems_of_chain_length(length, n_per_length, generator) for length in range(DIGITS + 1)]
    problems = torch.cat(drawn)
    tokens, targets = task.encode(problems), task.targets(problems)
    visible = torch.arange(tokens.shape[1]) <= torch.tensor(queries)[:, None]
    flat = (visible / visible.sum(1, keepdim=True)).expand_as(mean)
    moves = {i: task.relative_roles(i) for i in range(1, DIGITS + 1)}

    def hooks(change: Any) -> list[tuple[str, Any]]:
        return [
            (f"blocks.{layer}.attn.hook_pattern", partial(change, layer=layer)) for layer in range(model.cfg.n_layers)
        ]

    def constant(rows: Tensor) -> list[tuple[str, Any]]:
        def change(pattern: Float[Tensor, "n head query key"], hook: Any, layer: int) -> Tensor:
            pattern = pattern.clone()
            pattern[:, :, queries] = rows[layer].to(pattern)
            return pattern

        return hooks(change)

    def move(pattern: Float[Tensor, "n head query key"], hook: Any, layer: int) -> Tensor:
        pattern = pattern.clone()
        for target, roles in moves.items():
            own, previous = roles["own operands"], roles["previous operands"]
            if own:
                row = pattern[:, :, queries[target]]
                row[..., own] += row[..., previous].sum(-1, keepdim=True) / len(own)
                row[..., previous] = 0
        return pattern

    changes = {WHOLE: [], MEAN: constant(mean), NO_PREVIOUS: hooks(move), UNIFORM: constant(flat)}
    right = {name: (predictions(model, tokens, queries, h) == targets).all(1) for name, h in changes.items()}
    source = f"problems, {n_per_length:,} of each carry-chain length 0 to {DIGITS}"
    name = model_name(model)
    return compute_pattern_ablation(right, task.chain_length(problems), Provenance(len(problems), seed, source), name)
