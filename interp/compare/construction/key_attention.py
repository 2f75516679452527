"""Which keys each head attends to, next to those that the four heads of Theorem 4.1 attend to.

Each constructed head attends to BOS and, equally, to the keys S of its role
(:mod:`interp.compare.construction.needed_keys`): digit sum, carry, arrow or EOS. For a head with weights p in one row
and w = 1 - p[BOS],

    overlap  = sum over S of min(p, w / |S|) / w       1 minus the total variation distance to the constructed row
    share    = sum over S of p / w                     attention on S off BOS, however it is split
    weight   = sum over S of p                         attention on S; constructed digit sum and carry heads: 2/3
    bos      = p[BOS]                                  constructed: 1/3; arrow: 1/(1 + |S|)

are means over the targets where the role is defined; the first two are weighted by w. ``overlap`` is that of the mean
pattern over problems, which does not distinguish a head that picks one of two digits by value from one that weighs both
equally; ``overlap_each``, the mean over problems of single rows, does. Only ``overlap`` distinguishes "arrow" from
"sum", whose keys are among its own.

A head plays the role with the largest overlap if (1) more than half of its attention without BOS is on the role's keys,
(2) shuffled key sets overlap as much in at most 5% of draws, (3) no head of an untrained copy does, and (4) it does not
rest: less than 90% of its attention is on BOS there. The construction is the positive control: its heads play exactly
their roles, with an overlap of 1.

Limits: a pattern says where a head looks, not what it does with it; :mod:`interp.compare.construction.pattern_patching`
tests that. At targets where a role is not defined, any pattern is allowed. Sampled, teacher-forced, ids from 1.

With ``keys``, the same measures apply to any other task's heads, by the roles that the task gives its positions.

Source: Position Coupling (ICLR 2025), section 4.4, Figure 7, and appendix D.5; the measures are this project's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from interp.compare.construction.key_sets import CLIP, KeySets
from interp.compare.construction.needed_keys import ROLE_NAMES, draw_coupled, key_sets, resolve_coupled_task
from interp.core.controls import untrained_models
from interp.core.estimate import Estimate
from interp.core.frames import select
from interp.core.probe import Summary, probe, task_of
from interp.core.results import Provenance
from interp.core.runs import read_patterns
from interp.core.samples import draw
from interp.core.significance import permutation_p
from interp.core.stats import mean_intervals
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.thresholds import MAJORITY, RESTING, SIGNIFICANT
from interp.core.wording import listed
from models.calls import Index
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import counted
from models.tasks import MultiOperandAddition, TaskLike
from models.transformer import HookedModel, head_name

ANY = "any head"


KEYS = ("layer", "head", "role")
OVERLAP = Measure("overlap", "share", ("shuffled", "untrained"), "overlap with the constructed pattern")
SHARE = Measure("share", "share", title="share of attention on the role's keys")


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyAttention(TableResult):
    """Heads compared with constructed roles. ``table`` is a Dataset over (layer, head, role):

    * ``overlap``, ``overlap_each``, ``share`` with ``share_low``, ``share_high`` (95% over problems), ``weight``,
      ``bos``
    * ``overlap_shuffled``, ``overlap_shuffled_high`` (97.5%), ``p_value``; ``overlap_untrained``, the largest of
      untrained heads (NaN without control models)
    * ``plays``: whether the head plays the role

    ``attended`` [unit]: keys without BOS that weigh more than 0.01 in one step, mean over problems and the targets of
    the first role; units are "L0H0", ... and "any head" (keys that weigh so much in at least one head).
    """

    attended: xr.DataArray

    def role(self, layer: int, head: int) -> str | None:
        """The role of a head, or None. Raises UserError for a head that the model does not have."""
        plays = select(self.table, layer=layer, head=head).plays
        return str(plays.role.values[int(np.argmax(plays.values))]) if plays.any() else None

    def shares_with_bos(self, layer: int, head: int) -> bool:
        """Whether a head gives BOS more than half of the third that the construction gives it, beside its two keys."""
        cell = select(self.table, layer=layer, head=head)
        return float(cell.bos.isel(role=int(np.argmax(cell.overlap.values)))) > 1 / 6

    def roles(self) -> dict[tuple[int, int], str | None]:
        """The role of every head."""
        sizes = self.table.sizes
        return {head: self.role(*head) for head in np.ndindex(sizes["layer"], sizes["head"])}


def compute_key_attention(
    rows: Iterable[Float[np.ndarray, "_ layer head target key"]],
    keys: KeySets,
    provenance: Provenance,
    untrained: Float[np.ndarray, "copy layer head role"] | None = None,
    resamples: int = 199,
) -> KeyAttention:
    """The measures and roles, from the rows of patterns at the targets.

    Args:
        rows: chunks of problems.
        keys: the key sets of the task's shape.
        provenance: what the problems are; its seed also draws the shuffled key sets.
        untrained: overlaps of control models.
        resamples: how many shuffled key sets to draw.

    Raises:
        UserError: no problem, or rows of another shape.
    """
    each, shares, counts, sums = [], [], [], 0.0
    for chunk in rows:
        if chunk.shape[-2:] != keys.visible.shape:
            raise UserError(f"Rows of {chunk.shape[-2:]} do not fit key sets of {keys.visible.shape}.")
        overlap, share = _overlaps(chunk, keys)
        each.append(overlap)
        shares.append(share)
        counts.append(count_attended(chunk, keys))
        sums = sums + chunk.sum(0, dtype=np.float64)
    n = sum(map(len, each))
    if not n:
        raise UserError("There is no attention pattern to compare.")
    mean = np.asarray(sums) / n
    (overlap,), (share,) = _overlaps(mean[None], keys)
    _, low, high = mean_intervals(np.concatenate(shares))
    null = _shuffled_overlaps(mean, keys, resamples, provenance.resampling_seed)
    resting = mean[..., keys.resting].sum(-1)
    on_keys = np.stack([np.where(member, mean, 0).sum(-1) for member in keys.member], -2)
    measures = {
        "overlap": overlap,
        "overlap_each": np.concatenate(each).mean(0),
        "share": share,
        "share_low": low.clip(0, 1),
        "share_high": high.clip(0, 1),
        "weight": np.stack([on_keys[..., i, where].mean(-1) for i, where in enumerate(keys.defined)], -1),
        "bos": np.stack([resting[..., where].mean(-1) for where in keys.defined], -1),
        "overlap_shuffled": null.mean(0),
        "overlap_shuffled_high": np.quantile(null, 0.975, axis=0),
        "p_value": permutation_p(overlap, null),
    }
    layers, heads = mean.shape[:2]
    highest = np.full(len(keys.roles), np.nan) if untrained is None else untrained.max((0, 1, 2))
    plays = (share > MAJORITY) & (measures["p_value"] <= SIGNIFICANT) & (measures["bos"] < RESTING)
    plays &= ~(overlap <= highest) & (np.arange(len(keys.roles)) == overlap.argmax(-1)[..., None])
    table = xr.Dataset(
        {name: (KEYS, value) for name, value in measures.items()}
        | {"overlap_untrained": ("role", highest), "plays": (KEYS, plays)},
        coords={"layer": np.arange(layers), "head": np.arange(heads), "role": list(keys.roles)},
    )
    units = [head_name(layer, head) for layer, head in np.ndindex(layers, heads)]
    attended = xr.DataArray(np.concatenate(counts).mean(0), dims="unit", coords={"unit": [*units, ANY]})
    found = KeyAttention("", table, provenance, KEYS, (OVERLAP, SHARE), attended=attended)
    return found.saying(_sentence(found))


def _sentence(found: KeyAttention) -> str:
    """Which heads play a role, and how far the one that plays its own worst is from it."""
    roles = {head: role for head, role in found.roles().items() if role is not None}
    n = len(found.roles())
    if not roles:
        best = found.largest("overlap")
        return f"None of {counted(n, 'head')} plays a constructed role; the nearest is {best.name}: overlap {best}."
    by_name = {each.name: each for each in found.estimates("overlap")}
    cells = [by_name[f"{head_name(*head)}, {role}"] for head, role in roles.items()]
    least, names = min(cells, key=lambda each: each.value), [head_name(*head) for head in roles]
    played = [f"{name} {ROLE_NAMES.get(role, role)}" for name, role in zip(names, roles.values(), strict=True)]
    some = f"{len(roles)} of {counted(n, 'head')} play{'s' * (len(roles) == 1)} a constructed role"
    return f"{some} ({listed(played)}), with an overlap of at least {least} ({least.against})."


def count_attended(
    rows: Float[np.ndarray, "n layer head target key"], keys: KeySets
) -> Float[np.ndarray, "n head_or_any"]:
    """Keys that weigh more than 0.01 in each problem, without BOS: mean over the targets of the first role, for every
    head and then for any head."""
    heavy = rows[..., keys.defined[0], :][..., ~keys.resting] > CLIP
    heads = heavy.sum(-1).mean(-1).reshape(len(rows), -1)
    return np.concatenate((heads, heavy.any((1, 2)).sum(-1).mean(-1)[:, None]), 1)


def _overlaps(
    rows: Float[np.ndarray, "n layer head target key"], keys: KeySets
) -> tuple[Float[np.ndarray, "n layer head role"], Float[np.ndarray, "n layer head role"]]:
    """(overlap, share), weighted by the attention that is not on BOS."""
    rest = 1 - rows[..., keys.resting].sum(-1, dtype=np.float64)
    overlaps, shares = [], []
    for member in keys.member:
        where = member.any(-1)
        size = member.sum(-1)[where]
        inside = np.where(member[where], rows[..., where, :], 0)
        limit = (rest[..., where] / size)[..., None]
        total = np.maximum(rest[..., where].sum(-1), 1e-9)
        overlaps.append(np.minimum(inside, limit).sum((-1, -2)) / total)
        shares.append(inside.sum((-1, -2), dtype=np.float64) / total)
    return np.stack(overlaps, -1), np.stack(shares, -1)


def _shuffled_overlaps(
    mean: Float[np.ndarray, "layer head target key"], keys: KeySets, resamples: int, seed: int
) -> Float[np.ndarray, "draw layer head role"]:
    """The overlap of the mean pattern with shuffled key sets, target by target."""
    rest = 1 - mean[..., keys.resting].sum(-1)
    result = np.zeros((resamples, *mean.shape[:2], len(keys.roles)))
    shuffled = keys.shuffled(resamples, seed)
    for role, member in enumerate(keys.member):
        where = np.flatnonzero(member.any(-1))
        total = np.maximum(rest[..., where].sum(-1), 1e-9)
        for target in where:
            limit = rest[..., target] / member[target].sum()
            capped = np.minimum(mean[:, :, target], limit[..., None])
            overlap = shuffled[:, role, target].astype(float) @ capped.reshape(-1, capped.shape[-1]).T
            result[..., role] += overlap.reshape(resamples, *total.shape) / total
    return result


def _with_role(found: KeyAttention) -> Estimate:
    roles = found.roles()
    return Estimate(sum(role is not None for role in roles.values()) / len(roles), note=f"of {len(roles)} heads")


@probe(
    "Which keys does each head attend to, next to the constructed heads?",
    by_default=[task_of(MultiOperandAddition)],
    summary=Summary("heads with a constructed role", "share", _with_role, 0.01, asked_by=()),
)
def key_attention(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 256,
    seed: Seed = 0,
    untrained: Index = 4,
    keys: Callable[[Any], KeySets] | None = None,
) -> KeyAttention:
    """Which keys every head of a hooked model attends to, and which constructed role it plays; see the module.

    Args:
        model: any model with TransformerLens hooks.
        task: multi-operand addition in the shape to use, for example ``model.task.at(11, 11)`` (operands, digits); by
            default ``model.task``.
        problems: the problems to use; by default ``n`` are drawn from T_A with ``seed`` (256, as a problem has hundreds
            of tokens).
        untrained: how many freshly initialised copies to compare with; none if the model has no parameters.
        keys: the key sets of a task, for other tasks and roles
        (:func:`interp.compare.construction.key_sets.keys_by_role`).

    Raises:
        UserError: another task without ``keys``, ids beyond the model's tables, fewer than 2 problems, a model that
            diverged.
    """
    if keys is None:
        task = resolve_coupled_task(model, task)
        sample, sets = draw_coupled(task, problems, n, seed), key_sets(task)
    else:
        task = resolve_task(model, task)
        sample, sets = draw(task, problems, n, seed), keys(task)
    controls = []
    for control in untrained_models(model, untrained, seed):
        rows = np.concatenate(list(read_patterns(control, sample.tokens[:32], sets.queries)))
        controls.append(_overlaps(rows.mean(0, keepdims=True), sets)[0][0])
    rows = read_patterns(model, sample.tokens, sets.queries)
    return compute_key_attention(rows, sets, sample.provenance, np.stack(controls) if controls else None)
