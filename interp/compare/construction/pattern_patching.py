"""Whether a head's pattern is enough: replace it by a role's ideal one, or silence the head, and count right answers.

A hook on ``attn.hook_pattern`` replaces, for one head (or all that have a role) and in the same way for every problem,

    ideal sum, ideal carry, ...   rows by equal weights on the role's keys: 1/2 on each of the two tokens that are
                                  needed, or 1/3 on each and on BOS, as constructed, in heads that give BOS a share
                                  themselves; at the targets where the role is defined, elsewhere the head's own weights
    own mean                      every row of a response token by its mean over the problems: the head can no longer
                                  choose between keys by value (mean ablation of the pattern)
    zero                          all rows by zeros: the head writes nothing (zero ablation)

``own_role`` marks the ideal of the role that :mod:`interp.compare.construction.key_attention` finds. The ideals of
the other roles are the control: if they do as well, the head is not needed for this and "faithful" means nothing.

The outcome is exact match of the whole response, teacher-forced (equal to greedy decoding for whole responses), on the
same problems before and after, with Clopper-Pearson intervals; ``p_changed`` is McNemar's exact test on the problems
that are right in only one of the two cases. Sampled.

Limits: those of :mod:`interp.causal.ablation.replaced_patterns`. The constructed arrow and EOS heads are read where
digits end, on BOS, so that at digits other patterns do them no harm.

Source: the patterns are those of Position Coupling (ICLR 2025), section 4.4 and appendix D.5; the test is this
project's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.ablation.replaced_patterns import Pattern, mean_patterns, right_with_patterns
from interp.compare.construction.key_attention import key_attention
from interp.compare.construction.needed_keys import ROLE_NAMES, KeySets, draw_coupled, key_sets, resolve_coupled_task
from interp.core.probe import Summary, probe, task_of
from interp.core.results import Provenance
from interp.core.significance import sign_test
from interp.core.stats import proportion
from interp.core.table_result import Measure, TableResult, at
from interp.core.wording import listed
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.tasks import MultiOperandAddition, TaskLike
from models.transformer import HookedModel, head_name

OWN_MEAN, ZERO, OWN_ROLES = "own mean", "zero", "ideal, own roles"
EVERYONE = "all heads with a role"
KEYS = ("unit", "pattern")
ALL_OWN = {"unit": EVERYONE, "pattern": OWN_ROLES}
MEASURES = (Measure("exact", "share", ("whole_model",), "responses entirely right"),)


def _ideal_name(role: str) -> str:
    return f"ideal {ROLE_NAMES[role]}"


def compute_pattern_patching(
    before: Bool[np.ndarray, "n target"],
    after: Mapping[tuple[str, str], Bool[np.ndarray, "n target"]],
    roles: Mapping[str, str | None],
    provenance: Provenance,
    bos: Sequence[str] = (),
) -> TableResult:
    """The table, from which targets are right before and after each (unit, pattern): for every unit ("L0H0", ... and
    "all heads with a role") its ``role`` ("own" of all together), and whether its ideal patterns give BOS a share
    (``bos``); for every pattern whether it is the ideal of the unit's ``own_role``, how many problems are ``right``
    (``exact``: the share), ``lost`` and ``won`` (right only before, right only after, with ``p_changed``), and the
    share of all response ``tokens`` that are right.

    Args:
        roles: the role of each unit, None without one.
        bos: the heads whose ideal patterns give BOS a share.

    Raises:
        UserError: no problem.
    """
    if not len(before):
        raise UserError("There is no problem to compare.")
    whole, rows = before.all(1), []
    for (unit, pattern), targets in after.items():
        right, role = targets.all(1), roles[unit]
        share = proportion(right)
        lost, won = int((whole & ~right).sum()), int((right & ~whole).sum())
        own = OWN_ROLES if role == "own" else None if role is None else _ideal_name(role)
        row = {"unit": unit, "pattern": pattern, "role": role, "own_role": pattern == own}
        row |= {"bos": unit in bos or (unit == EVERYONE and bool(bos))}
        row |= MEASURES[0].cells(share.value, share.low, share.high, whole_model=float(whole.mean()))
        row |= {"right": share.successes, "lost": lost, "won": won, "p_changed": sign_test(won, lost)}
        rows.append(row | {"tokens": targets.mean()})
    found = TableResult("", pd.DataFrame(rows), provenance, KEYS, MEASURES)
    if EVERYONE not in roles:
        return found.saying("Nothing is said of ideal patterns: no head has a role, with a pattern to replace its own.")
    all_heads = found.cell("exact", **ALL_OWN)
    shared = f"; the ideals of {listed(bos)} give BOS a share" if bos else ""
    return found.saying(
        f"With the ideal pattern of its role in place of its own in every head, {all_heads} of responses are right "
        f"({all_heads.against}{shared})."
    )


@probe(
    "Is the ideal attention pattern enough?",
    needs=[task_of(MultiOperandAddition)],
    summary=Summary(
        "right with ideal patterns", "share", at("exact", unit=EVERYONE, pattern=OWN_ROLES), 0.01, asked_by=()
    ),
)
def pattern_patching(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 500,
    seed: Seed = 0,
    heads: Sequence[tuple[int, int]] | None = None,
    bos: bool | None = None,
) -> TableResult:
    """Exact match of a hooked model with substituted patterns, head by head.

    Args:
        model: any model with TransformerLens hooks; ``attn.hook_pattern`` is set.
        task: multi-operand addition in the shape to use; by default ``model.task``.
        problems: problems to answer; by default ``n`` are drawn from T_A with ``seed`` (500, as one has hundreds of
            tokens).
        heads: (layer, head) to try; by default all.
        bos: give BOS a share in the ideal patterns; by default in those of heads that give it one themselves, as the
            construction's do (:meth:`KeyAttention.shares_with_bos`).

    Cost: one forward pass over the problems for each head and pattern.

    Raises:
        UserError: as for :func:`key_attention`; an unknown head.
    """
    task = resolve_coupled_task(model, task)
    sample, keys = draw_coupled(task, problems, n, seed), key_sets(task)
    roles = key_attention(model, task=task, n=64, seed=seed + 1)  # on other problems
    found = roles.roles()
    chosen = list(found) if heads is None else list(heads)
    unknown = [head for head in chosen if head not in found]
    if unknown:
        raise UserError(f"There is no head {head_name(unknown[0][0], unknown[0][1])}.")
    targets = task.targets(sample.problems)

    def right(patterns: Mapping[tuple[int, int], Pattern]) -> Bool[np.ndarray, "n target"]:
        return right_with_patterns(model, task, sample.tokens, targets, patterns).numpy()

    with_bos = {head for head in found if (roles.shares_with_bos(*head) if bos is None else bos)}
    ideals = {head: {role: _ideal_rows(keys, role, head in with_bos) for role in keys.roles} for head in chosen}
    means = mean_patterns(model, sample.tokens, keys.queries, chosen)
    after: dict[tuple[str, str], np.ndarray] = {}
    for head in chosen:
        unit = head_name(head[0], head[1])
        for role, rows in ideals[head].items():
            after[unit, _ideal_name(role)] = right({head: rows})
        after[unit, OWN_MEAN] = right({head: means[head]})
        after[unit, ZERO] = right({head: "zero"})
    units = {head_name(layer, head): found[layer, head] for layer, head in chosen}
    playing = {head: ideals[head][role] for head, role in found.items() if role is not None and head in chosen}
    if playing:
        after[EVERYONE, OWN_ROLES] = right(playing)
        units[EVERYONE] = "own"
    shared = [head_name(*head) for head in chosen if head in with_bos]
    return compute_pattern_patching(right({}), after, units, sample.provenance, shared)


def _ideal_rows(keys: KeySets, role: str, bos: bool) -> Float[Tensor, "target key"]:
    """Ideal weights; NaN at the targets where the role is not defined, so that a head keeps its own weights."""
    defined = keys.defined[keys.index(role)][:, None]
    return torch.from_numpy(np.where(defined, keys.ideal(role, bos), np.nan)).float()
