"""How often a model is right, by the length of the longest carry chain.

Uniform problems, AdderBoard's among them, contain no long chains, so a perfect score on them says little about the
cases where adders fail. This probe draws the same number of problems for every chain length.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch

from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.problems import resolve_task
from interp.core.results import Provenance, Result
from models.errors import UserError
from models.evaluation import Score, score
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.base import Task
from models.tasks.carries import problems_of_chain_length


@dataclass(frozen=True, eq=False)
class AccuracyByChain(Result):
    """``test``: the score on the task's test set; ``stratified``: on as many problems of every chain length."""

    test: Score
    stratified: Score
    provenance: Provenance

    def sentence(self) -> str:
        test, rates = self.test, self.stratified.by_chain_length
        on_test = f"Right on {test.correct:,} of {test.n:,} of {test.problems}"
        length, worst = max(rates.items(), key=lambda item: item[1].n - item[1].correct)
        if worst.correct == worst.n:
            return (
                f"{on_test} and on all {self.stratified.n:,} problems stratified by carry chain, {worst.n:,} of each "
                f"length 0 to {max(rates)}: the error rate at any one length is below {worst.error_bound:.1e} "
                "(95%, sampled)."
            )
        low, high = worst.interval
        return (
            f"{on_test}; by carry chain it is worst at length {length}, with {worst.correct:,} of {worst.n:,} right "
            f"({worst.accuracy:.4f}, 95% interval {low:.4f}-{high:.4f})."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row per problem set and chain length: n, correct, accuracy, low, high (Clopper-Pearson, 95%)."""
        tables = {"stratified": self.stratified.to_dataframe(), self.test.problems: self.test.to_dataframe()}
        return pd.concat([table.assign(problems=name) for name, table in tables.items()], ignore_index=True)


@probe("How often is it right, by the length of the carry chain?", needs=[task_of(FixedWidthAddition)])
def accuracy_by_chain(
    model: HookedModel, *, task: Task | None = None, n_per_length: int = 1000, seed: int = 0, test: Score | None = None
) -> AccuracyByChain:
    """Score a ten-digit adder on its test set and on ``n_per_length`` problems of every carry-chain length.

    ``test``: the model's score on its test set, where that is known already (a zoo entry's, for example); it is made
    otherwise. The exact count is that of greedy decoding (:mod:`models.evaluation`). Cost: 21,010
    forward passes of 33 tokens at the default, about half a second for a one-layer model.

    Raises:
        UserError: a model without hooks or task, another task than ten-digit addition, n below 1.
    """
    task = resolve_task(model, task)
    if not isinstance(task, FixedWidthAddition):
        raise UserError(f"Carry chains are drawn for ten-digit addition so far, not for {task.name!r}.")
    if n_per_length < 1:
        raise UserError(f"n_per_length must be at least 1, not {n_per_length}.")
    generator = torch.Generator().manual_seed(seed)
    drawn = [problems_of_chain_length(length, n_per_length, generator) for length in range(DIGITS + 1)]
    stratified = score(model, torch.cat(drawn), task=task)
    source = f"problems, {n_per_length:,} of each carry-chain length 0 to {DIGITS}"
    test = score(model, task=task) if test is None else test
    return AccuracyByChain(test, stratified, Provenance(stratified.n, seed, source))
