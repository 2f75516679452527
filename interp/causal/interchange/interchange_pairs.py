"""Base and source problems for interchange interventions, split so that nothing leaks from training to test.

A problem is in one split only, together with the same sum with its operands swapped. Every problem is used once, as a
base or as a source, so pairs are independent and the binomial interval holds for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.batches import distinct
from interp.core.samples import draw
from models.errors import UserError
from models.tasks import ColumnPlaces

#: Half of the problems are rich in carry chains, if the task can draw them: uniform sums hardly have long ones.
CARRY_HEAVY = 0.5
_TRIES = 20


@dataclass(frozen=True, eq=False)
class InterchangePairs:
    """Pairs of problems: ``base[i]`` receives the activation of ``source[i]``."""

    layout: ColumnPlaces
    base_problems: Int[Tensor, "n *operand"]
    source_problems: Int[Tensor, "n *operand"]

    def __len__(self) -> int:
        return len(self.base_problems)

    def __getitem__(self, rows: Bool[Tensor, " n"]) -> InterchangePairs:
        return InterchangePairs(self.layout, self.base_problems[rows], self.source_problems[rows])

    @cached_property
    def base(self) -> Int[Tensor, "n pos"]:
        return self.layout.task.encode(self.base_problems)

    @cached_property
    def source(self) -> Int[Tensor, "n pos"]:
        return self.layout.task.encode(self.source_problems)

    def source_values(self, algorithm: Any, variable: str, column: int) -> Int[Tensor, " n"]:
        """The variable's values in the sources."""
        return self.layout.values(algorithm, self.source_problems)[variable][:, column]

    def base_answers(self, algorithm: Any) -> Int[Tensor, "n column"]:
        """The tokens of the causal model's answers to the bases."""
        return self.layout.answer_tokens(self.layout.values(algorithm, self.base_problems)["answer"])

    def counterfactual(
        self, algorithm: Any, variable: str, column: int, values: Int[Tensor, " n"], read: Sequence[int]
    ) -> Int[Tensor, "n read"]:
        """The tokens of the causal model's answers to the bases with the variable set to ``values``, in the columns
        read.

        Raises:
            UserError: the causal model does not determine them.
        """
        found = self.layout.values(algorithm, self.base_problems, {(variable, column): values})
        answers = found["answer"][:, list(read)]
        if unknown := int((answers < 0).any(1).sum()):
            raise UserError(
                f"Where {variable} of column {column} is set to another value, {algorithm.name} do not determine the "
                f"answer in {unknown:,} of {len(self):,} pairs; name what else it depends on, as in "
                "TaskVariables(given=('b',)), or choose another variable."
            )
        return self.layout.answer_tokens(answers)


def distinct_problems(layout: ColumnPlaces, n: int, seed: int) -> Int[Tensor, "n *operand"]:
    """``n`` problems in random order; no problem occurs twice, not even with its operands swapped.

    Raises:
        UserError: the task does not have that many.
    """
    task = layout.task
    two_numbers = layout.step is None  # there is no carry-rich sampler for many operands
    kept = torch.empty(0)
    for attempt in range(_TRIES):
        drawn = draw(task, None, max(2, 2 * n), seed + 1_000_003 * attempt, CARRY_HEAVY * two_numbers).problems
        kept = torch.cat((kept.to(drawn), drawn)) if len(kept) else drawn
        # Two operands commute; with more, problems are compared as they are.
        kept = distinct(kept, lambda problems: problems.sort(1).values if problems.ndim == 2 else problems)
        if len(kept) >= n:
            order = torch.randperm(len(kept), generator=torch.Generator().manual_seed(seed))
            return kept[order[:n]]
    raise UserError(
        f"The task {task.name!r} has not {n:,} different problems ({len(kept):,} were found); ask for fewer."
    )


def draw_pairs(layout: ColumnPlaces, sizes: tuple[int, ...], seed: int) -> tuple[InterchangePairs, ...]:
    """One set of pairs per size, disjoint in problems.

    Raises:
        UserError: a size below 1, or too few problems in the task.
    """
    if min(sizes) < 1:
        raise UserError(f"An experiment needs at least one pair in every split, not {min(sizes)}.")
    problems = distinct_problems(layout, 2 * sum(sizes), seed)
    parts = problems.split([2 * size for size in sizes])
    return tuple(InterchangePairs(layout, part[: len(part) // 2], part[len(part) // 2 :]) for part in parts)
