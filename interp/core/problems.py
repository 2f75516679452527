"""The problems that a probe looks at, and the checks that every probe makes before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.core.results import GIVEN, Provenance
from interp.core.thresholds import ABLE
from models.errors import UserError
from models.number_format import in_percent
from models.tasks import (
    DIGITS,
    LIMIT,
    NoDomain,
    ProblemPairs,
    Task,
    column_layout,
    domain_of,
    first_rows,
    problem_pairs,
    problems_of_chain_length,
    require_sound,
)
from models.tasks.named.addition import adds_pairs_below
from models.tasks.roles import with_rest
from models.transformer import HookedModel

A_DRAW, MOST_DRAWS = 2_048, 2**16  # problems at once, and in all, to find chains of every length

#: How many problems a probe draws. Where that is too dear, its docstring says how many it draws instead, and why.
N_PROBLEMS = 2048


#: What the inputs are where none is left out.
ALL_THERE_ARE = "problems, all there are"


def digit_ids(task: Task) -> list[int]:
    """The rows of ``W_E`` that are digits, by value; all rows where the task states no domain."""
    try:
        return list(task.digit_tokens)
    except NoDomain:
        return list(range(task.d_vocab))


def resolve_task(model: HookedModel, task: Any) -> Task:
    """The task to ask about: the one given, else the model's own.

    Raises:
        UserError: not a hooked model, no task, a task whose vocabulary or length is not the model's, a task that cannot
            be as it says it is (:func:`models.tasks.check_task.require_sound`), or a model with dropout in training
            mode.
    """
    for needed in ("run_with_hooks", "cfg"):
        if not hasattr(model, needed):
            raise UserError(f"A {type(model).__name__} is not a model with TransformerLens hooks: it has no {needed}.")
    task = getattr(model, "task", None) if task is None else task
    if task is None:
        raise UserError(
            f"This {type(model).__name__} does not say what its task is; pass task=, for example TenDigitAddition()."
        )
    if not isinstance(task, Task):
        raise UserError(f"task must be a models.tasks Task, not {type(task).__name__}.")
    if task.d_vocab != model.cfg.d_vocab:
        raise UserError(
            f"Task {task.name!r} has {task.d_vocab} tokens and the model {model.cfg.d_vocab}: "
            "it is not the model's task."
        )
    if task.input_length > model.cfg.n_ctx:
        raise UserError(
            f"Task {task.name!r} needs {task.input_length} positions and the model takes {model.cfg.n_ctx}: "
            "it is not the model's task."
        )
    require_sound(task)
    dropout = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]
    if model.training and (dropout or getattr(model.cfg, "dropout", 0)):
        raise UserError("The model is in training mode and has dropout; call model.eval() first.")
    return task


def require_able(name: str, right: float, what: str) -> None:
    """Refuse to explain what a model does not do: any part of it, and any hypothesis, would restore all of nothing.

    Raises:
        UserError: the share ``right`` of ``what`` is not above :data:`ABLE`.
    """
    if not right > ABLE:
        raise UserError(
            f"{name} answers {in_percent(right)} of {what} right, and this asks how a model does what it does: more "
            f"than {ABLE:.0%} must be right."
        )


def middle_carry_pairs(task: Task, n: int, seed: int) -> ProblemPairs:
    """Pairs of problems that differ in the carry into a middle column."""
    return problem_pairs(task, "carry", column=len(column_layout(task)) // 2, n=n, seed=seed, side="mixed")


@dataclass(frozen=True)
class Sample:
    """Problems, their teacher-forced tokens [n, pos], and where they come from.

    ``rows``: which of the given problems these are, where some were given twice; else None.
    """

    problems: Any  # whatever the task takes
    tokens: Tensor
    provenance: Provenance
    rows: Int[Tensor, " n"] | None = None


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
        return Sample(problems, tokens, _rests_on(task, problems, len(tokens), seed), rows)
    if n < 2:
        raise UserError(f"A probe compares problems and needs n of at least 2, not {n}.")
    if not 0.0 <= carry_heavy <= 1.0:
        raise UserError(f"carry_heavy is a share between 0 and 1, not {carry_heavy}.")
    generator = torch.Generator().manual_seed(seed)
    if (every := every_problem(task, n)) is not None and len(every) > 1:
        every = every[torch.randperm(len(every), generator=generator)]
        return Sample(every, task.encode(every), Provenance(len(every), seed, ALL_THERE_ARE, "exhaustive"))
    n_heavy = round(n * carry_heavy) if task.has_long_carries else 0
    heavy = task.sample(n_heavy, generator, long_carries=True) if n_heavy else None
    drawn = task.sample(n - n_heavy, generator)
    source = "uniform problems"
    if heavy is not None:
        drawn = torch.cat((drawn, heavy))
        source = f"problems ({n - n_heavy:,} uniform, {n_heavy:,} rich in carry chains)"
    return Sample(drawn, task.encode(drawn), Provenance(n, seed, source))


def _numbered(labels: Any, n: int) -> Int[Tensor, "n k"]:
    """Labels, one for each of ``n`` problems, as numbers; problems as they are."""
    if not isinstance(labels, Tensor) or labels.ndim < 2:
        values = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        labels = torch.from_numpy(pd.factorize(pd.Series(values, dtype=object))[0])[:, None]
    if len(labels) != n:
        raise UserError(f"Strata need one label for each of the {n} problems.")
    return labels.flatten(1)


def has_chains(task: Task) -> bool:
    """Whether some of a few problems have a carry or a borrow, or digits that are passed over, as in a comparison."""
    try:
        few = task.sample(64, torch.Generator().manual_seed(0))
        named = any(word in name for name in task.variables(few) for word in ("carry", "borrow", "chain"))
        return named and bool(task.chain_length(few).any())
    except UserError:  # no problems to draw, or no variables
        return False


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
        return Sample(found, task.encode(found), Provenance(len(found), seed, source))
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
    return Sample(found, task.encode(found), Provenance(len(found), seed, source))


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


def visible_roles(task: Task, target: int) -> dict[str, list[int]]:
    """A target's relative roles over the positions up to its query; positions without a role are added to "rest"."""
    return with_rest(task.relative_roles(target), task.query_positions[target])


def membership(
    groups: Sequence[Mapping[str, Sequence[int]]], n_keys: int
) -> tuple[list[str], Bool[np.ndarray, "target role key"]]:
    """The roles of positions relative to each target, in order of appearance, and which keys have which role."""
    names = list(dict.fromkeys(name for group in groups for name in group))
    member = np.zeros((len(groups), len(names), n_keys), dtype=bool)
    for target, group in enumerate(groups):
        for name, keys in group.items():
            member[target, names.index(name), list(keys)] = True
    return names, member


def slices(n: int, size: int) -> list[slice]:
    """``range(n)`` in slices of at most ``size``."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


#: Attention weights of one layer, over all its heads, that are computed at once.
WEIGHTS_AT_ONCE = 2**24


def chunks(
    tokens: Int[Tensor, "n pos"], model: HookedModel, size: int | None = None
) -> Iterator[Int[Tensor, "chunk pos"]]:
    """Tokens in batches on the model's device, of ``size``, else of at most 512 and no more than memory allows."""
    device = getattr(model.cfg, "device", None)
    size = size or min(512, max(1, WEIGHTS_AT_ONCE // (model.cfg.n_heads * tokens.shape[1] ** 2)))
    for batch in tokens.split(size):
        yield batch if device is None else batch.to(device)


def right_tokens(logits: Float[Tensor, "n read d_vocab"], right: Int[Tensor, "n read"]) -> Bool[Tensor, "n read"]:
    """Mask, on the CPU, of where the right token has the largest logit; False where any logit is NaN."""
    logits = logits.cpu()
    return (logits.argmax(-1) == right) & ~logits.isnan().any(-1)


def distinct(
    problems: Int[Tensor, "n *operand"], as_key: Callable[[Tensor], Tensor] = lambda problems: problems
) -> Any:
    """Each problem once, in order of first appearance; problems with the same key count as one."""
    return problems[first_rows(as_key(problems).flatten(1))]


def derangement(n: int, seed: int) -> Int[Tensor, " n"]:
    """A random order of ``n`` examples in which none keeps its place. Raises UserError for fewer than two."""
    if n < 2:
        raise UserError("Resampling takes another example of the sample, so that it needs at least two.")
    generator = torch.Generator().manual_seed(seed)
    cycle = torch.randperm(n, generator=generator)  # one cycle through all of them
    return torch.empty_like(cycle).scatter(0, cycle, cycle.roll(1))


def check_targets(task: Task, targets: Sequence[int] | None) -> list[int]:
    """The given targets, else all of the task's. Raises UserError for one that does not exist."""
    known = len(task.query_positions)
    found = list(range(known)) if targets is None else list(targets)
    if wrong := [target for target in found if not 0 <= target < known]:
        raise UserError(f"There is no target {wrong[0]}; there are {known}, counted from 0.")
    return found


def target_labels(task: Task, targets: Sequence[int] | None = None) -> list[str]:
    """A name for each target: its role's label. Labels that several targets share are numbered: ">", "> (2)", ..."""
    seen: dict[str, int] = {}
    names = []
    for role in task.target_roles:
        seen[role.label] = seen.get(role.label, 0) + 1
        names.append(role.label if seen[role.label] == 1 else f"{role.label} ({seen[role.label]})")
    return names if targets is None else [names[target] for target in targets]
