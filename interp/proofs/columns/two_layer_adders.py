"""Adders of two layers: what both attentions write at a query are ratios of sums over positions, and one region.

The first layer's attention is that of a one-layer adder. What it writes at a key lies in a box, which is cut into
pieces. First-order forms (:mod:`interp.proofs.numbers.affine_forms`) follow each piece through the first MLP to the
second layer's queries, keys and values, and their hulls over all pieces hold for every problem. So the second attention
is a ratio of two sums over positions as well, up to errors that are small where scores depend on positions alone and
values on the token at the key. Where they do not, the verdict is that nothing could be proved.

A region of what attention writes then has two parts: forms go from the first through the first MLP, where units whose
difference counts are followed together, add the second part, and go on as in one layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import torch
from jaxtyping import Float

from interp.proofs.columns.adder_weights import AdderWeights, read_adder, read_layers
from interp.proofs.columns.lead_enclosure import CHUNK, LeadEnclosure, Regions, downstream_of
from interp.proofs.columns.ratio_attention import (
    QueryTerms,
    RatioAttention,
    attention_of_keys,
    read_ratio_attention,
)
from interp.proofs.columns.small_margins import after_mlp
from interp.proofs.numbers.affine_forms import Forms, exactly, linear, multiply
from interp.proofs.numbers.enclosed_forward import turned
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import DOUBLE, UP, roundings, up
from interp.proofs.verdict.time_limit import check_time
from interp.proofs.verdict.verdict import Targets
from models.tasks import Task
from models.transformer import HookedModel

#: About how many pieces a box of what the first attention writes is cut into.
PIECES = 512


@dataclass(frozen=True, eq=False)
class TwoLayerAdder(AdderWeights):
    """The second layer of an adder, and the first one in front of it. What attention writes has 2 d numbers: those of
    the first layer's attention, then those of the second's."""

    first: AdderWeights = field(kw_only=True)

    def after_attention(self, token: int, position: int, written: Float[np.ndarray, "n both"]) -> np.ndarray:
        d = len(self.W_in)
        y = self.first.after_attention(token, position, written[:, :d])
        return after_mlp(self.first, y) + self.b_O + written[:, d:]


def read_columns(model: HookedModel, task: Task | None = None, targets: Targets = "all") -> AdderWeights:
    """As :func:`interp.proofs.columns.adder_weights.read_adder`, for a model of one or two layers."""
    if model.cfg.n_layers == 1:
        return read_adder(model, task, targets)
    first, second = read_layers(model, task, targets, 2)
    return TwoLayerAdder(**vars(second), first=first)


class TwoLayers(LeadEnclosure):
    """As :class:`LeadEnclosure`, for what both attentions write at the query."""

    adder: TwoLayerAdder

    def __init__(self, adder: TwoLayerAdder, arithmetic: Rounding):
        super().__init__(adder, arithmetic)
        self.first, self.written = LeadEnclosure(adder.first, arithmetic), 2 * self.d
        self.moderate &= self.first.moderate

    def stream(self, regions: Regions) -> Forms:
        regions = _with_errors_along(regions)
        below, above = (_part(regions, part) for part in (slice(0, self.d), slice(self.d, None)))
        y, valid = self.first.after_mlp(self.first.stream(below))
        return self.attended(y, y.size(), above).widened(np.where(valid, 0.0, np.nan))


downstream_of.register(TwoLayerAdder, TwoLayers)


def _with_errors_along(regions: Regions) -> Regions:
    """The same regions or larger ones: the part of the error along the basis is in the radius, so that units whose
    difference counts are followed together there, too.

    Lemma: ``e = B^T (B e) + (1 - B^T B) e`` for every matrix B, whose rows are the basis here.
    """
    basis, error = regions.basis, regions.error[..., None]
    rest = np.eye(basis.shape[-1]) - basis.swapaxes(-1, -2) @ basis
    rest = np.abs(rest) + roundings(len(rest) + 1) * (np.abs(basis.swapaxes(-1, -2)) @ np.abs(basis) + 1)
    along, across = (matrix @ error for matrix in (np.abs(basis), rest))
    return replace(regions, radius=(regions.radius + along[..., 0]) * UP, error=across[..., 0] * UP)


def _part(regions: Regions, part: slice) -> Regions:
    cut = {name: getattr(regions, name)[..., part] for name in ("center", "basis", "error")}
    return replace(regions, **cut)


@read_ratio_attention.register
def _read(adder: TwoLayerAdder, arithmetic: Rounding) -> RatioAttention:
    """The terms of both attentions, first layer first, at every query of a two-layer adder.

    Precondition and postcondition are those of :func:`interp.proofs.columns.ratio_attention.read_ratio_attention`, with
    heads and components of both layers one after the other.
    """
    everywhere = replace(adder.layout, queries=tuple(range(adder.layout.queries[-1] + 1)))
    first = replace(adder.first, layout=everywhere)
    below = read_ratio_attention(first, arithmetic)
    if below.obstacle is not None:
        return below
    above = _second(adder, arithmetic, first, below)
    if above.obstacle is not None:
        return above
    (heads, *places, r), (others, *_, s) = below.coords.shape, above.coords.shape
    coords = np.zeros((heads + others, *places, r + s))
    coords[:heads, ..., :r], coords[heads:, ..., r:] = below.coords, above.coords
    d = below.basis.shape[1]
    basis = np.zeros((r + s, 2 * d))
    basis[:r, :d], basis[r:, d:] = below.basis, above.basis
    queries = {}
    for (target, token), terms in above.queries.items():
        both = below.queries[adder.layout.queries[target], token], terms
        spreads = [np.zeros_like(one.weights) if one.spread is None else one.spread for one in both]
        queries[target, token] = QueryTerms(
            np.concatenate([one.weights for one in both]),
            None if both[0].spread is None and both[1].spread is None else np.concatenate(spreads),
            np.concatenate([one.error for one in both]),
        )
    return RatioAttention(basis, coords, queries, above.tokens)


def _second(adder: TwoLayerAdder, arithmetic: Rounding, first: AdderWeights, below: RatioAttention) -> RatioAttention:
    """The terms of the second layer's attention."""
    middle, radius = [], []
    for low, high in hulls(adder, arithmetic, first, below):  # [cell, head, e], and what is written [cell, head, d]
        ends = torch.from_numpy(np.stack((low, high))).transpose(1, 2)
        middle.append(ends.mean(0))
        radius.append(up((ends - middle[-1]).abs().amax(0) + 2 * DOUBLE * ends.abs().amax(0)))
    cells = list(below.queries)  # (position, token)
    q, k, v, written = (Enclosure.of(*x) for x in zip(middle, radius, strict=True))
    config = adder.model.config
    if config.positional_embedding_type == "rotary":
        at = torch.tensor(cells)[:, 0]
        q, k = (x.heads_first() for x in turned(arithmetic, config, (q.heads_first(), k.heads_first()), at))
    return attention_of_keys(adder, arithmetic, cells, (q, k, v), written)


def hulls(
    adder: TwoLayerAdder, arithmetic: Rounding, first: AdderWeights, below: RatioAttention
) -> list[Float[np.ndarray, "end cell head e"]]:
    """Least and largest normed queries and keys, values and written vectors of the second layer, at each of its cells.

    A cell is a position and a token at it. Its bounds hold for every problem with that token there.
    """
    heads, d, width = adder.W_V.shape
    read = np.concatenate((adder.W_Q, adder.W_K, adder.W_V))
    biases = np.concatenate((adder.b_Q, adder.b_K, adder.b_V)).reshape(-1)
    reading = {"W_in": np.moveaxis(read, 0, 1).reshape(d, -1), "b_in": biases, "W_out": np.zeros((len(biases), d))}
    reader = LeadEnclosure(replace(adder, W_gate=None, ln2=adder.ln1, ln2_b=adder.ln1_b, **reading), arithmetic)
    down = LeadEnclosure(first, arithmetic)
    regions, pieces = _pieces(below)
    found: list[list[np.ndarray]] = []
    with np.errstate(all="ignore"):
        for start in range(0, len(regions), CHUNK):
            check_time()
            y, valid = down.after_mlp(down.stream(regions.take(np.arange(start, min(start + CHUNK, len(regions))))))
            units, _, _, known = reader.read_by(y)
            parts = [units.rows(slice(width * n, width * (n + 1))) for n in range(3 * heads)]
            q, k, v = parts[:heads], parts[heads : 2 * heads], parts[2 * heads :]
            of_heads = (
                [_normed(reader, x, adder.q_norm) for x in q],
                [_normed(reader, x, adder.k_norm) for x in k],
                v,
                [linear(x, exactly(w)) for x, w in zip(v, adder.W_O, strict=True)],
            )
            lost = np.where(valid & known, 0.0, np.nan)
            found.append([np.stack([x.widened(lost).ends() for x in part], 1) for part in of_heads])
    ends = [np.concatenate(part, -1) for part in zip(*found, strict=True)]  # [end, head, e, region]
    apart = [np.moveaxis(part, -1, 1).reshape(2, -1, pieces, heads, part.shape[2]) for part in ends]
    return [np.stack((part[0].min(1), part[1].max(1))) for part in apart]


def _normed(reader: LeadEnclosure, x: Forms, gain: Float[np.ndarray, " e"] | None) -> Forms:
    """The queries or keys of one head after their norm, if they have one."""
    if gain is None:
        return x
    x = linear(multiply(x, reader.inverse_scale(x, x.size())[0]), exactly(np.diag(gain)))
    return x.widened(reader.growth(3) * x.size() + reader.tiny)


def _pieces(below: RatioAttention) -> tuple[Regions, int]:
    """What the first attention can write at each cell, cut into pieces, and how many there are for a cell."""
    r = below.coords.shape[-1]
    k = max(1, int(PIECES ** (1 / r)))
    shares = np.array(list(product((2 * np.arange(k) + 1 - k) / k, repeat=r)))
    low, high, errors = [], [], []
    for terms in below.queries.values():
        # A head writes a mean of vectors, so that its coordinates lie between the keys' own.
        reached = [head[stands] for head, stands in zip(below.coords, terms.weights > 0, strict=True)]
        low.append(sum(x.min(0) for x in reached))
        high.append(sum(x.max(0) for x in reached))
        errors.append(terms.error)
    middle, half = (np.array(high) + np.array(low)) / 2, (np.array(high) - np.array(low)) / 2
    size = np.abs(middle) + half
    center = (middle[:, None] + half[:, None] * shares).reshape(-1, r)
    radius = np.repeat(half / k * UP + roundings(len(below.coords) + 4) * size, len(shares), 0)
    rounding = roundings(r + 4) * size.sum(1, keepdims=True) * np.abs(below.basis).max(0)
    position, token = np.repeat(np.array(list(below.queries)), len(shares), 0).T
    return Regions(
        target=position,
        token=token,
        answer=np.zeros_like(token),
        center=center @ below.basis,
        basis=below.basis,
        radius=radius,
        error=np.repeat((np.array(errors) + rounding) * UP, len(shares), 0),
    ), len(shares)
