"""The problems that a question looks at: drawn, listed, or as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.batches import distinct
from interp.core.key_roles import target_labels
from interp.core.results import GIVEN, Provenance
from interp.core.task_checks import resolve_task
from models.errors import UserError
from models.number_format import counted
from models.tasks import (
    DIGITS,
    LIMIT,
    NoDomain,
    ProblemPairs,
    Task,
    column_places,
    domain_of,
    first_rows,
    problem_pairs,
    problems_of_chain_length,
)
from models.tasks.named.addition import adds_pairs_below
from models.transformer import HookedModel

A_DRAW, MOST_DRAWS = 2_048, 2**16  # problems at once, and in all, to find chains of every length


#: How many problems a probe draws. Where that is too dear, its docstring says how many it draws instead, and why.
N_PROBLEMS = 2048


#: What the inputs are where none is left out.
ALL_THERE_ARE = "problems, all there are"


def middle_carry_pairs(task: Task, n: int, seed: int) -> ProblemPairs:
    """Pairs of problems that differ in the carry into a middle column."""
    return problem_pairs(task, "carry", column=len(column_places(task)) // 2, n=n, seed=seed, side="mixed")


@dataclass(frozen=True)
class Sample:
    """Problems of a task, their teacher-forced tokens, and where they come from.

    ``rows``: which of the given problems these are, where some were given twice; else None.
    """

    task: Task
    problems: Any  # whatever the task takes
    tokens: Int[Tensor, "n pos"]
    provenance: Provenance
    rows: Int[Tensor, " n"] | None = None

    @property
    def queries(self) -> list[int]:
        """The positions whose predictions are the answer, one for each target."""
        return list(self.task.query_positions)

    @property
    def labels(self) -> list[str]:
        """A name for each target."""
        return target_labels(self.task)

    @property
    def right(self) -> Int[Tensor, "n target"]:
        """The right tokens."""
        return self.task.targets(self.problems)


def prepare(
    model: HookedModel,
    task: Task | None,
    problems: Any,
    n: int,
    seed: int,
    carry_heavy: float = 0.0,
    least_tokens: int = 1,
) -> Sample:
    """What most questions begin with: the task that is asked about (:func:`interp.core.task_checks.resolve_task`) and
    its problems (:func:`draw`).

    Raises:
        UserError: what those two refuse, or problems of fewer than ``least_tokens`` tokens.
    """
    sample = draw(resolve_task(model, task), problems, n, seed, carry_heavy)
    if sample.tokens.shape[1] < least_tokens:
        raise UserError(
            f"A problem of {sample.task.name} has {counted(sample.tokens.shape[1], 'token')}, and this question is "
            f"about {least_tokens} or more."
        )
    return sample


def draw(task: Task, problems: Any, n: int, seed: int, carry_heavy: float = 0.0, beside: Sequence[Any] = ()) -> Sample:
    """The sample that a probe looks at.

    Given ``problems`` are used as they are, but each once, as a repeated problem is no further evidence; ``seed`` is
    then that of resamples and controls. Problems with the same tokens are different ones where what stands ``beside``
    them differs: labels, or the other problems of pairs. Otherwise ``n`` are drawn.
    If the task has no more than ``n`` problems, each is taken once, in random order, and the evidence is "exhaustive";
    so it is of given problems that are all there are.

    A share ``carry_heavy`` has long carries, of a task that has such problems (``sample(..., long_carries=True)``). The
    rest have the task's natural distribution.

    Raises:
        UserError: fewer than 2 different problems, other than one label for each, a share outside [0, 1], or problems
            that the task refuses.
    """
    if problems is not None:
        if isinstance(problems, Tensor):
            problems = problems.cpu()  # tasks compute there; the tokens go to the model's device batch by batch
        elif not isinstance(problems, (np.ndarray, str, tuple)):
            problems = list(problems)
        tokens, rows = task.encode(problems), None
        if len(tokens) > 1:
            first = first_rows(torch.cat((tokens, *(_numbered(each, len(tokens)) for each in beside)), 1))
            if len(first) < len(tokens):
                problems, tokens, rows = task.as_problems(problems)[first], tokens[first], first
        if len(tokens) < 2:
            raise UserError("A probe compares problems and needs at least 2 different ones.")
        return Sample(task, problems, tokens, _rests_on(task, problems, len(tokens), seed), rows)
    if n < 2:
        raise UserError(f"A probe compares problems and needs n of at least 2, not {n}.")
    if not 0.0 <= carry_heavy <= 1.0:
        raise UserError(f"carry_heavy is a share between 0 and 1, not {carry_heavy}.")
    generator = torch.Generator().manual_seed(seed)
    if (every := every_problem(task, n)) is not None and len(every) > 1:
        every = every[torch.randperm(len(every), generator=generator)]
        return Sample(task, every, task.encode(every), Provenance(len(every), seed, ALL_THERE_ARE, "exhaustive"))
    n_heavy = round(n * carry_heavy) if task.has_long_carries else 0
    heavy = task.sample(n_heavy, generator, long_carries=True) if n_heavy else None
    drawn = task.sample(n - n_heavy, generator)
    source = "uniform problems"
    if heavy is not None:
        drawn = torch.cat((drawn, heavy))
        source = f"problems ({n - n_heavy:,} uniform, {n_heavy:,} rich in carry chains)"
    return Sample(task, drawn, task.encode(drawn), Provenance(n, seed, source))


def _numbered(labels: Any, n: int) -> Int[Tensor, "n k"]:
    """Labels, one for each of ``n`` problems, as numbers; problems as they are."""
    if not isinstance(labels, Tensor) or labels.ndim < 2:
        values = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        labels = torch.from_numpy(pd.factorize(pd.Series(values, dtype=object))[0])[:, None]
    if len(labels) != n:
        raise UserError(f"Strata need one label for each of the {n} problems.")
    return labels.flatten(1)


def of_every_chain_length(task: Task, n: int, seed: int) -> Sample:
    """Up to ``n`` problems of each length of the longest carry or borrow chain.

    Ten-digit addition has chains planted (:func:`models.tasks.problems_of_chain_length`). Elsewhere, problems are
    drawn, half of them rich in chains, until every length that was met has ``n``, at most :data:`MOST_DRAWS` of them:
    rare lengths have fewer. No problem is taken twice.
    """
    generator = torch.Generator().manual_seed(seed)
    if adds_pairs_below(task) == LIMIT:
        found = torch.cat([problems_of_chain_length(length, n, generator) for length in range(DIGITS + 1)])
        source = f"problems, {n:,} of each carry-chain length 0 to {DIGITS}"
        return Sample(task, found, task.encode(found), Provenance(len(found), seed, source))
    kept: dict[int, Tensor] = {}
    for batch in range(MOST_DRAWS // A_DRAW):
        drawn = [task.sample(A_DRAW, generator)]
        if task.has_long_carries:
            own = torch.Generator().manual_seed(seed + batch) if task.draws_by_seed else generator
            drawn.append(task.sample(A_DRAW, own, long_carries=True))
        problems = torch.cat(drawn)
        length = task.chain_length(problems)
        for each in length.unique().tolist():
            if len(kept.get(each, ())) >= n:
                continue
            kept[each] = torch.cat((kept.get(each, problems[:0]), problems[length == each])).unique(dim=0)
        if batch and all(len(each) >= n for each in kept.values()):
            break
    kept = {length: kept[length][torch.randperm(len(kept[length]), generator=generator)[:n]] for length in sorted(kept)}
    found = torch.cat([*kept.values()])
    source = f"problems, up to {n:,} of each chain length {min(kept)} to {max(kept)}, half of them drawn rich in chains"
    return Sample(task, found, task.encode(found), Provenance(len(found), seed, source))


def every_problem(task: Task, at_most: int) -> Int[Tensor, "n *operand"] | None:
    """All problems of a task that has no more than ``at_most``; None if it has more, or states no domain."""
    try:
        few = task.domain.size <= at_most
    except NoDomain:
        return None
    return domain_of(task).every() if few else None


def _rests_on(task: Task, problems: Any, n: int, seed: int) -> Provenance:
    """What given problems are: all of the task's, or some."""
    every = every_problem(task, n)
    if every is not None and len(every) == n and len(distinct(task.as_problems(problems))) == n:
        return Provenance(n, seed, ALL_THERE_ARE, "exhaustive")
    return Provenance(n, seed, GIVEN)
