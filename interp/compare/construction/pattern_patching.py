"""Whether a head's pattern is enough: replace it by a role's ideal one, or silence the head, and count right answers.

A hook on ``attn.hook_pattern`` replaces, for one head (or all that have a role) and in the same way for every problem,

    ideal sum, ideal carry, ...   rows by equal weights on the role's keys: 1/2 on each of the two tokens that are
                                  needed, or 1/3 on each and on BOS, as constructed, in heads that give BOS a share
                                  themselves; at the targets where the role is defined, elsewhere the head's own weights
    own mean                      every row of a response token by its mean over the problems: the head can no longer
                                  choose between keys by value (mean ablation of the pattern)
    zero                          all rows by zeros: the head writes nothing (zero ablation)

``own role`` names the ideal of the role that :mod:`interp.compare.construction.key_attention` finds. The ideals of
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
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.ablation.replaced_patterns import Pattern, mean_patterns, right_with_patterns
from interp.compare.construction.key_attention import key_attention
from interp.compare.construction.needed_keys import ROLE_NAMES, KeySets, draw_coupled, key_sets, resolve_coupled_task
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, probe, task_of
from interp.core.results import Provenance, Result
from interp.core.significance import sign_test
from interp.core.stats import clopper_pearson
from interp.core.views import Line, Picture, Points, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.tasks import MultiOperandAddition, TaskLike
from models.transformer import HookedModel, head_name

OWN_MEAN, ZERO = "own mean", "zero"


EVERYONE = "all heads with a role"


@dataclass(frozen=True, eq=False)
class PatternPatching(Result):
    """Exact match with substituted patterns. ``table`` is a Dataset over (unit, pattern): ``right`` (problems),
    ``exact``, ``low``, ``high``, ``lost`` and ``won`` (problems right only before, right only after), ``p_changed``;
    and ``tokens``, the share of all response tokens that are right. Units are "L0H0", ... and "all heads with a role".
    ``before``: how many problems the whole model has right. ``roles``: the role of each unit, None without one.
    ``bos``: the heads whose ideal patterns give BOS a share.
    """

    table: xr.Dataset
    before: int
    roles: Mapping[str, str | None]
    bos: tuple[str, ...]
    provenance: Provenance

    @property
    def n(self) -> int:
        return self.provenance.n

    def own(self, unit: str) -> xr.Dataset:
        """The cell of a unit with the ideal pattern of its own role. Raises UserError if it has no role."""
        role = self.roles.get(unit)
        if role is None:
            raise UserError(f"{unit} has no role; units with one: {', '.join(u for u, r in self.roles.items() if r)}.")
        return self.table.sel(unit=unit, pattern=_ideal_name(role) if role != "own" else "ideal, own roles")

    def sentence(self) -> str:
        low, high = clopper_pearson(self.before, self.n)
        texts = [
            f"Whole model right on {self.before:,} of {self.n:,} ({self.before / self.n:.3f} [{low:.3f}, {high:.3f}])"
        ]
        for unit, role in self.roles.items():
            if role is None:
                continue
            cell, name = self.own(unit), ROLE_NAMES.get(role, "own role")
            text = f"{unit} with the ideal {name} pattern {_rate(cell)}"
            if role != "own":
                text += f", silenced {_rate(self.table.sel(unit=unit, pattern=ZERO))}"
            texts.append(text)
        shared = f" (of which BOS has a third in {', '.join(self.bos)})" if self.bos else ""
        return "; ".join(texts) + f"{shared}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per unit and pattern, with the whole model's rate next to it."""
        frame = self.table.to_dataframe().reset_index().dropna(subset="exact")
        frame.insert(1, "role", [self.roles[unit] for unit in frame["unit"]])
        return frame.assign(before=self.before / self.n, n=self.n)


def _rate(cell: xr.Dataset) -> str:
    return f"{float(cell.exact):.3f} [{float(cell.low):.3f}, {float(cell.high):.3f}]"


def _ideal_name(role: str) -> str:
    return f"ideal {ROLE_NAMES[role]}"


def compute_pattern_patching(
    before: Bool[np.ndarray, "n target"],
    after: Mapping[tuple[str, str], Bool[np.ndarray, "n target"]],
    roles: Mapping[str, str | None],
    provenance: Provenance,
    bos: Sequence[str] = (),
) -> PatternPatching:
    """The result, from which targets are right before and after each (unit, pattern).

    Raises:
        UserError: no problem.
    """
    n = len(before)
    if not n:
        raise UserError("There is no problem to compare.")
    units = list(dict.fromkeys(unit for unit, _ in after))
    patterns = list(dict.fromkeys(pattern for _, pattern in after))
    whole = before.all(1)
    names = ("right", "exact", "low", "high", "lost", "won", "p_changed", "tokens")
    data = {name: np.full((len(units), len(patterns)), np.nan) for name in names}
    for (unit, pattern), targets in after.items():
        place = units.index(unit), patterns.index(pattern)
        right = targets.all(1)
        lost, won = int((whole & ~right).sum()), int((right & ~whole).sum())
        low, high = clopper_pearson(int(right.sum()), n)
        values = (right.sum(), right.mean(), low, high, lost, won, sign_test(won, lost), targets.mean())
        for name, value in zip(names, values, strict=True):
            data[name][place] = value
    table = xr.Dataset(
        {name: (("unit", "pattern"), values) for name, values in data.items()},
        coords={"unit": units, "pattern": patterns},
    )
    return PatternPatching(table, int(whole.sum()), dict(roles), tuple(bos), provenance)


def _with_ideal(found: PatternPatching) -> Estimate:
    cell = found.own(EVERYONE)
    before = f"{found.before / found.n:.3f} with its own patterns"
    return Estimate(float(cell.exact), float(cell.low), float(cell.high), note=before)


@probe(
    "Is the ideal attention pattern enough?",
    needs=[task_of(MultiOperandAddition)],
    scalar=Scalar("right with ideal patterns", "share", _with_ideal, 0.01, asked_by=()),
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
) -> PatternPatching:
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
        everyone = EVERYONE
        after[everyone, "ideal, own roles"] = right(playing)
        units[everyone] = "own"
    shared = [head_name(*head) for head in chosen if head in with_bos]
    return compute_pattern_patching(right({}), after, units, sample.provenance, shared)


def _ideal_rows(keys: KeySets, role: str, bos: bool) -> Float[Tensor, "target key"]:
    """Ideal weights; NaN at the targets where the role is not defined, so that a head keeps its own weights."""
    defined = keys.defined[keys.index(role)][:, None]
    return torch.from_numpy(np.where(defined, keys.ideal(role, bos), np.nan)).float()


_MOST_UNITS = 9


@drawing(PatternPatching)
def substitution_view(result: PatternPatching) -> Picture:
    """Exact match for every head and pattern, with the whole model as a line; the own role's ideal is filled."""
    units = [unit for unit in result.roles if unit in result.table.unit.values]
    if len(units) > _MOST_UNITS:
        playing = [unit for unit in units if result.roles[unit] is not None]
        units = (playing or units)[-_MOST_UNITS:]
    role = {
        unit: "no role" if (of := result.roles[unit]) is None else ROLE_NAMES.get(of, "own roles") for unit in units
    }
    series = []
    for pattern in result.table.pattern.values.tolist():
        column = result.table.sel(pattern=pattern)
        kept = [unit for unit in units if not np.isnan(column.exact.sel(unit=unit))]
        if not kept:
            continue
        found = column.sel(unit=kept)
        own = [pattern in ("ideal, own roles", f"ideal {role[unit]}") for unit in kept]
        said = {name: found[name].values for name in ("lost", "won", "tokens")}
        names = [f"{unit}<br>{role[unit]}" for unit in kept]
        values = found.exact.values, found.low.values, found.high.values
        series.append(Series(pattern, names, *values, filled=own, said=said))
    before = result.before / result.n
    points = Points(
        "head and its role", "responses entirely right", "", series, "share", (Line(before, "whole model"),)
    )  # fmt: skip
    own_rates = [float(result.own(unit).exact) for unit, role in result.roles.items() if role not in (None, "own")]
    title = f"No head has a role to substitute; the whole model is right on {before:.2f}"
    if own_rates:
        title = (
            f"With one head's pattern replaced by the ideal of its role, {min(own_rates):.2f} to {max(own_rates):.2f} "
            f"of responses are right ({before:.2f} before)"
        )
    note = "Filled: the ideal pattern of the head's own role; open: other patterns (controls). 95% intervals"
    return Picture([points], title=title, note=note)
