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
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.compare.construction.key_sets import CLIP, KeySets
from interp.compare.construction.needed_keys import ROLE_NAMES, draw_coupled, key_sets, resolve_coupled_task
from interp.core.controls import untrained_models
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, probe, task_of
from interp.core.results import Provenance, Result
from interp.core.runs import read_patterns
from interp.core.samples import draw
from interp.core.significance import permutation_p
from interp.core.stats import mean_intervals
from interp.core.task_checks import resolve_task
from interp.core.thresholds import MAJORITY, RESTING, SIGNIFICANT
from interp.core.views import Grid, Picture
from models.calls import Index
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.tasks import MultiOperandAddition, TaskLike
from models.transformer import HookedModel, head_name

ANY = "any head"


@dataclass(frozen=True, eq=False)
class KeyAttention(Result):
    """Heads compared with constructed roles. ``table`` is a Dataset over (layer, head, role):

    * ``overlap``, ``overlap_each``, ``share`` with ``share_low``, ``share_high`` (95% over problems), ``weight``,
      ``bos``
    * ``shuffled``, ``shuffled_high`` (97.5%), ``p_value``; ``untrained_max`` (NaN without control models)

    ``attended`` [unit]: keys without BOS that weigh more than 0.01 in one step, mean over problems and the targets of
    the first role; units are "L0H0", ... and "any head" (keys that weigh so much in at least one head).
    """

    table: xr.Dataset
    attended: xr.DataArray
    provenance: Provenance

    @property
    def heads(self) -> list[tuple[int, int]]:
        return [(i, h) for i in self.table.layer.values.tolist() for h in self.table["head"].values.tolist()]

    def role(self, layer: int, head: int) -> str | None:
        """The role of a head, or None."""
        if (layer, head) not in self.heads:
            raise UserError(f"There is no head {head_name(layer, head)}.")
        cell = self.table.sel(layer=layer, head=head)
        cell = cell.isel(role=int(np.argmax(cell.overlap.values)))
        beaten = not np.isnan(cell.untrained_max) and float(cell.overlap) <= float(cell.untrained_max)
        plays = float(cell.share) > MAJORITY and float(cell.p_value) <= SIGNIFICANT and float(cell.bos) < RESTING
        return str(cell.role.values) if plays and not beaten else None

    def shares_with_bos(self, layer: int, head: int) -> bool:
        """Whether a head gives BOS more than half of the third that the construction gives it, beside its two keys."""
        cell = self.table.sel(layer=layer, head=head)
        return float(cell.bos.isel(role=int(np.argmax(cell.overlap.values)))) > 1 / 6

    def roles(self) -> dict[tuple[int, int], str | None]:
        return {head: self.role(*head) for head in self.heads}

    def sentence(self) -> str:
        texts = []
        for (layer, head), role in self.roles().items():
            cell = self.table.sel(layer=layer, head=head)
            best = cell.isel(role=int(np.argmax(cell.overlap.values)))
            nearest = str(best.role.values)
            name = ROLE_NAMES.get(nearest, nearest)
            if role is None:
                if len(self.heads) <= 8:
                    texts.append(f"{head_name(layer, head)} plays none (nearest {name}, share {float(best.share):.2f})")
                continue
            texts.append(
                f"{head_name(layer, head)} {name} (share {float(best.share):.3f} [{float(best.share_low):.3f}, "
                f"{float(best.share_high):.3f}] of its attention off BOS, overlap {float(best.overlap):.2f}, "
                f"shuffled {float(best.shuffled):.2f})"
            )
        silent = sum(role is None for role in self.roles().values())
        if len(self.heads) > 8:
            texts.append(f"{silent} of {len(self.heads)} heads play none")
        return "; ".join(texts) + f"; {float(self.attended.sel(unit=ANY)):.1f} keys are attended to in one step."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, head and role; ``plays`` marks the verdict."""
        frame = self.table.to_dataframe().reset_index()
        roles = self.roles()
        frame["plays"] = [roles[row.layer, row.head] == row.role for row in frame.itertuples()]
        return frame.assign(n=self.provenance.n)


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
        "shuffled": null.mean(0),
        "shuffled_high": np.quantile(null, 0.975, axis=0),
        "p_value": permutation_p(overlap, null),
    }
    layers, heads = mean.shape[:2]
    table = xr.Dataset(
        {name: (("layer", "head", "role"), value) for name, value in measures.items()},
        coords={"layer": np.arange(layers), "head": np.arange(heads), "role": list(keys.roles)},
    )
    highest = np.full(len(keys.roles), np.nan) if untrained is None else untrained.max((0, 1, 2))
    table["untrained_max"] = ("role", highest)
    units = [head_name(layer, head) for layer, head in np.ndindex(layers, heads)]
    attended = xr.DataArray(np.concatenate(counts).mean(0), dims="unit", coords={"unit": [*units, ANY]})
    return KeyAttention(table, attended, provenance)


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
    scalar=Scalar("heads with a constructed role", "share", _with_role, 0.01, asked_by=()),
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


@drawing(KeyAttention)
def keys_view(result: KeyAttention) -> Picture:
    """The overlap of every head's mean pattern with every constructed role; the role that it plays is outlined."""
    heads, roles, plays = result.heads, result.table.role.values.tolist(), result.roles()
    overlap, share, shuffled, p = (
        np.array([result.table[name].sel(layer=i, head=h).values for i, h in heads])
        for name in ("overlap", "share", "shuffled_high", "p_value")
    )
    text = [
        [f"{o:.2f}<br>share {s:.2f}" for o, s in zip(*row, strict=True)] for row in zip(overlap, share, strict=True)
    ]
    names = [ROLE_NAMES.get(role, role) for role in roles]
    frames = [(row, roles.index(plays[head])) for row, head in enumerate(heads) if plays[head] is not None]
    played = [ROLE_NAMES.get(role, role) for role in plays.values() if role is not None]
    found = [f"{played.count(name)} {name}" for name in names if name in played]
    none = len(heads) - len(played)
    title = f"Roles of {len(heads)} heads: {', '.join(found + [f'{none} none'] * bool(found and none)) or 'none'}"
    at = "role in the construction", "head", "", overlap, [head_name(i, h) for i, h in heads], names, "overlap"
    said = {"97.5% of shuffled tokens below": shuffled, "p =": p}
    note = "Outlined: the role that a head plays. Overlap 1: the constructed pattern; share: attention on its tokens"
    return Picture([Grid(*at, text=text, said=said, frames=frames)], title=title, note=note)
