"""Trained heads next to the four constructed ones: which head does what, and how far apart they are.

Both models read the same problems. A head's row is converted to *role coordinates*: its attention, without BOS and
renormalised, on the keys of

    sum, carry, eos      the constructed keys of these roles (:mod:`interp.papers.position_coupling.keys`)
    same digit           digit k of the other numbers, which only the arrow head attends to
    rest                 everything else up to the query

at the targets where all four roles are defined (digits k >= 1 of b_1 ... b_m). Two heads are

    distance = mean over problems and targets of the total variation distance of their rows     0 same, 1 disjoint

apart, and pairs are matched so that the sum of distances is smallest (Hungarian algorithm). How attention is split
within a role does not count, so a head that chooses one of two digits by value is at distance 0 from one that weighs
both.

Nulls: freshly initialised copies, matched the same way (p: share of copies as close, where the observation counts as
one); role groups shuffled, independently for each target, in the trained model; and random pairings of the same heads,
only for reference: the matched sum is the smallest of them by construction, so they give no p-value.

What is not compared. Boundaries: the constructed arrow and EOS heads are read where a number ends, but pairs are
compared where digits are predicted (:func:`interp.papers.position_coupling.errors.first_errors` shows how boundaries go
wrong). Every constructed head gets a partner, so read the distance before calling it a counterpart. BOS: the
construction keeps 1/3 or more there, trained heads need not (``bos`` is kept next to it). What a head writes lies in
another basis, and norms after the attention rescale it by all heads' sum, so that only the shape of what it writes over
the ten digits can be compared (:mod:`interp.probes.head_writes`). Sampled, ids from 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float

import models
from interp.compare.heads import head_distances, total_variation
from interp.compare.matching import match
from interp.core.controls import untrained_models
from interp.core.model import HookedModel
from interp.core.probe import OnPage, probe, task_of
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.core.stats import mean_intervals, permutation_p
from interp.papers.position_coupling.keys import (
    HAND_BUILT_HEADS,
    ROLE_NAMES,
    constructed_roles,
    draw_coupled,
    key_sets,
    resolve_coupled_task,
)
from interp.probes.key_sets import CLIP, KeySets, read_patterns
from models.hand_built.position_coupling_addition import NAME
from models.tasks.multi_addition import MultiOperandAddition

GROUPS = ("sum", "carry", "same digit", "eos", "rest")
_PAIRINGS = 720
_FEW, _DRAWS = 64, 199  # problems and draws for the null of shuffled groups
Masses = Float[np.ndarray, "n head target group"]


@dataclass(frozen=True, eq=False)
class CoupledComparison(Result):
    """Heads of a model matched with those of a reference, by default the hand-built model.

    ``distance`` is a Dataset over (head, reference): ``distance``, ``low``, ``high`` (over problems), ``std`` (over
    problems). ``pairs`` over (reference): the matched ``head``, its ``distance``, ``low``, ``high``, ``bos`` and
    ``reference_bos``, ``untrained`` (mean matched distance of the copies), ``p_untrained``, ``shuffled``,
    ``p_shuffled``. ``total``: mean over pairs, with ``untrained``, ``shuffled``, ``random pairing`` means and p-values.
    ``profile`` and ``reference_profile`` [head, group]: mean masses.
    """

    distance: xr.Dataset
    pairs: xr.Dataset
    total: dict[str, float]
    profile: xr.DataArray
    reference_profile: xr.DataArray
    names: tuple[str, str]
    provenance: Provenance

    def sentence(self) -> str:
        texts = []
        for reference in self.pairs.reference.values.tolist():
            cell = self.pairs.sel(reference=reference)
            texts.append(
                f"{reference} - {cell['head'].values!s} {float(cell.distance):.3f} [{float(cell.low):.3f}, "
                f"{float(cell.high):.3f}]"
            )
        total = self.total
        control = (
            ""
            if np.isnan(total["untrained"])
            else f", untrained {total['untrained']:.3f} (p = {total['p_untrained']:.3f})"
        )
        return (
            f"Matched with {self.names[1]}: {'; '.join(texts)}; mean {total['distance']:.3f}{control}, shuffled roles "
            f"{total['shuffled']:.3f} (p = {total['p_shuffled']:.3f}), random pairing {total['random pairing']:.3f}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per matched pair."""
        return self.pairs.to_dataframe().reset_index().assign(n=self.provenance.n)

    def difference(self) -> xr.DataArray:
        """The mean mass by group [reference, group], of the matched head minus the reference."""
        heads = [str(head) for head in self.pairs["head"].values]
        others = self.pairs.reference.values.tolist()
        values = self.profile.sel(head=heads).values - self.reference_profile.sel(head=others).values
        coords = {"reference": others, "head": ("reference", heads), "group": list(GROUPS)}
        return xr.DataArray(values, dims=("reference", "group"), coords=coords)


def role_groups(keys: KeySets) -> tuple[Bool[np.ndarray, "group target key"], Bool[np.ndarray, " target"]]:
    """The one group that every visible key belongs to, and the targets where all four roles are defined.

    The format must have them; see :func:`interp.papers.position_coupling.keys.constructed_roles`.
    """
    total, carry, arrow, eos = (keys.member[keys.index(role)] for role in ("sum", "carry", "arrow", "eos"))
    same = arrow & ~total
    rest = keys.visible & ~(total | carry | same | eos)
    groups = np.stack((total, carry, same, eos, rest))
    assert (groups.sum(0) == keys.visible).all(), "a key is in two groups"
    return groups, np.all(keys.defined, axis=0)


def role_masses(model: HookedModel, tokens: Any, keys: KeySets) -> tuple[Masses, Float[np.ndarray, " head"]]:
    """(masses by group without BOS, mean weight on BOS) of every head; rows with all weight on BOS are NaN."""
    groups, where = role_groups(keys)
    parts, bos = [], []
    for rows in read_patterns(model, tokens, tuple(np.array(keys.queries)[where].tolist())):
        mass = np.einsum("nlhtk,gtk->nlhtg", rows, groups[:, where].astype(rows.dtype), optimize=True)
        total = mass.sum(-1, keepdims=True)
        mass = np.where(total > CLIP, mass / np.maximum(total, CLIP), np.nan)
        parts.append(mass.reshape(len(rows), -1, *mass.shape[3:]))
        bos.append(rows[..., keys.resting].sum(-1).mean(-1).reshape(len(rows), -1))
    return np.concatenate(parts), np.concatenate(bos).mean(0).astype(np.float64)


def distances(masses: Masses, reference: Masses) -> Float[np.ndarray, "n head reference"]:
    """The total variation distance of every pair of heads, mean over targets; 1 for a head with all weight on BOS."""
    return head_distances(masses, reference, total_variation)


def _profile(masses: Masses, heads: list[str]) -> xr.DataArray:
    return xr.DataArray(
        np.nanmean(masses, (0, 2)), dims=("head", "group"), coords={"head": heads, "group": list(GROUPS)}
    )


def _matched(masses: Masses, reference: Masses) -> Float[np.ndarray, " pair"]:
    """The distances of the matched pairs."""
    distance = distances(masses, reference).mean(0)
    return np.array([distance[head, other] for other, head in match(distance)])


def _shuffle_groups(masses: Masses, rng: np.random.Generator) -> Masses:
    """Masses with the groups' labels permuted, separately for every target (but alike for all problems and heads)."""
    order = np.argsort(rng.random(masses.shape[2:]), axis=-1)
    return np.take_along_axis(masses, order[None, None], axis=-1)


def _random_pairings(distance: Float[np.ndarray, "head reference"], rng: np.random.Generator) -> list[float]:
    """Mean distance over all pairings of heads (a sample of them if there are many)."""
    heads, others = distance.shape
    count = min(heads, others)
    if heads == others and heads <= 6:
        pairings = [np.array(order) for order in itertools.permutations(range(heads))]
    else:
        pairings = [rng.permutation(heads)[:count] for _ in range(_PAIRINGS)]
    places = [rng.permutation(others)[:count] if heads != others else np.arange(others) for _ in pairings]
    return [float(distance[order, place].mean()) for order, place in zip(pairings, places, strict=True)]


@probe(
    "How near are trained heads to the constructed ones?",
    needs=[task_of(MultiOperandAddition), constructed_roles],
    page=OnPage({"n": 64}, least=1),  # the construction next to itself shows nothing
)
def coupled_comparison(
    model: HookedModel,
    *,
    task: Any = None,
    reference: HookedModel | None = None,
    problems: Any = None,
    n: int = 200,
    seed: int = 0,
    untrained: Sequence[HookedModel] | None = None,
) -> CoupledComparison:
    """Compare a trained model with the hand-built one, head by head; see the module.

    Args:
        model: any model with TransformerLens hooks on the scratchpad format.
        task: multi-operand addition in the shape to use; by default ``model.task``.
        reference: the model to compare with; by default the hand-built one of the shape's size.
        problems: the problems to use; by default ``n`` are drawn from T_A with ``seed``.
        untrained: control models; by default 39 freshly initialised copies, none if there are no parameters.

    Raises:
        UserError: another task or format, ids beyond the model's tables, operands of one digit.
    """
    task = resolve_coupled_task(model, task)
    keys = key_sets(task)
    sample = draw_coupled(task, problems, n, seed)
    constructed = reference is None
    if reference is None:
        reference = models.build(NAME, max_operands=task.n_operands, max_digits=task.n_digits)
    resolve_coupled_task(reference, task)
    masses, bos = role_masses(model, sample.tokens, keys)
    other, other_bos = role_masses(reference, sample.tokens, keys)
    untrained = untrained_models(model, untrained, 39, seed)
    copies = [role_masses(control, sample.tokens[:_FEW], keys)[0] for control in untrained]
    heads, others = (
        [f"L{i}H{h}" for i, h in np.ndindex(each.cfg.n_layers, each.cfg.n_heads)] for each in (model, reference)
    )
    if constructed:
        others = [ROLE_NAMES[role] for role in HAND_BUILT_HEADS.values()]
    rng = np.random.default_rng(sample.provenance.seed or 0)
    each = distances(masses, other)
    mean, low, high = mean_intervals(each)
    pairs = match(mean)
    order, chosen = [other for other, _ in pairs], [head for _, head in pairs]
    matched = mean[chosen, order]
    few, few_reference = masses[:_FEW], other[:_FEW]
    observed = _matched(few, few_reference)
    shuffled = np.stack([_matched(_shuffle_groups(few, rng), few_reference) for _ in range(_DRAWS)])
    controls = [_matched(copy, other[: len(copy)]) for copy in copies]
    control = np.stack(controls) if controls else np.full((1, len(pairs)), np.nan)
    nearer = lambda value, null: permutation_p(-value, -null) if controls else np.nan + value  # noqa: E731
    data: dict[str, Any] = {
        "head": [heads[head] for head in chosen],
        "distance": matched,
        "low": low[chosen, order].clip(min=0),
        "high": high[chosen, order].clip(max=1),
        "bos": bos[chosen],
        "reference_bos": other_bos[order],
        "untrained": control.mean(0),
        "p_untrained": nearer(matched, control),
        "shuffled": shuffled.mean(0),
        "p_shuffled": permutation_p(-observed, -shuffled),
    }
    total = {
        "distance": float(matched.mean()),
        "untrained": float(control.mean()),
        "p_untrained": float(nearer(matched.mean(), control.mean(1))),
        "shuffled": float(shuffled.mean()),
        "p_shuffled": permutation_p(-observed.mean(), -shuffled.mean(1)),
        "random pairing": float(np.mean(_random_pairings(mean, rng))),
    }
    table = {"distance": mean, "low": low.clip(0, 1), "high": high.clip(0, 1), "std": each.std(0)}
    return CoupledComparison(
        xr.Dataset(
            {name: (("head", "reference"), values) for name, values in table.items()},
            coords={"head": heads, "reference": others},
        ),
        xr.Dataset({k: ("reference", v) for k, v in data.items()}, coords={"reference": [others[i] for i in order]}),
        total,
        _profile(masses, heads),
        _profile(other, others),
        (model_name(model), "the construction" if constructed else model_name(reference)),
        sample.provenance,
    )
