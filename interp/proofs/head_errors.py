"""Error bounds of attention whose inputs lie in balls: to first order in the errors of what heads read, and beyond.

A head's output moves with its values and with its scores, ``dz = sum_j p_j dv_j + sum_j p_j ds_j (v_j - z)``. To first
order each is a matrix times the error of what the heads read at one node. What several heads and keys make of one such
error is added up as matrices before a length is taken, and may be followed through what comes after attention.
:mod:`interp.proofs.steepness` uses this for deep models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.proofs.enclosed import DOUBLE, Enclosure, stretch_of
from interp.proofs.error_propagation import KNOWN, Stages

AT_ONCE = 64  # nodes whose matrices are multiplied together, so that they stay in the processor's cache
SINGLE = 2.0**-24  # the unit roundoff of products in float32


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """The heads of one layer as maps of the residual stream.

    Attributes:
        queries, keys, out: W_Q, W_K and the transpose of W_O, [head, d_model, d_head]. ov: W_V W_O.
        written: [head, d_head, d_model] in float32, each of Frobenius norm 1, so that no product with it underflows;
            ``|W_V W_O A| = size |written A|`` whatever A is, up to float32's rounding.
        stretch: of each head's W_O.
        together: [head, head]; ``|sum_h p_h W_V W_O|^2`` is at most ``p together p`` for any p >= 0.
    """

    queries: Tensor
    keys: Tensor
    out: Tensor
    ov: Float[Tensor, "head d_model d_model"]
    written: Tensor
    size: Float[Tensor, " head"]
    stretch: Float[Tensor, " head"]
    together: Float[Tensor, "head head"]

    @classmethod
    def of(cls, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> HeadMaps:
        """From W_Q, W_K, W_V [head, d_model, d_head] and W_O [head, d_head, d_model].

        Lemma: with ``S = sum_h p_h M_h``, ``|S|^2 = |S S'| <= sum p_h p_g |M_h M_g'|``.
        """
        ov = w_v @ w_o
        together = torch.tensor([[stretch_of(a @ b.T) for b in ov] for a in ov], dtype=torch.float64)
        together = together + KNOWN * float(ov.norm()) ** 2
        written = torch.linalg.qr(w_v, mode="r").R @ w_o
        size = written.flatten(1).norm(dim=1).clamp_min(1e-300)
        written = (written / size[:, None, None]).float()
        stretch = torch.tensor([stretch_of(w) for w in w_o], dtype=torch.float64)
        return cls(w_q, w_k, w_o.transpose(1, 2).contiguous(), ov, written, size, stretch, together)


@dataclass(frozen=True, eq=False)
class Attended:
    """What is known of some queries after the softmax, each over the same number of keys.

    Attributes:
        above: the keys' nodes, the query's own last.
        weight: the softmax of the scores' midpoints. stray: how far the pattern may be from it.
        beyond: how far what the heads write is off apart from the first order in the errors of what they read.
        first: how far it is off to first order.
    """

    above: Int[Tensor, "query key"]
    weight: Float[Tensor, "query key head"]
    stray: Float[Tensor, "query key head"]
    beyond: Float[Tensor, " query"]
    first: Float[Tensor, " query"]

    def __getitem__(self, rows: Tensor) -> Attended:
        return Attended(*(getattr(self, part.name)[rows] for part in fields(self)))

    def padded(self, n: int) -> Attended:
        """The same over n keys, with keys of weight 0 in front."""
        more = n - self.above.shape[1]
        above = torch.cat((self.above[:, -1:].expand(-1, more), self.above), 1)
        weight, stray = (F.pad(part, (0, 0, more, 0)) for part in (self.weight, self.stray))
        return replace(self, above=above, weight=weight, stray=stray)

    @classmethod
    def joined(cls, parts: list[Attended]) -> Attended:
        """All queries of some parts, over as many keys as the longest has."""
        n = max(part.above.shape[1] for part in parts)
        same = [part.padded(n) for part in parts]
        return cls(*(torch.cat([getattr(one, part.name) for one in same]) for part in fields(cls)))


@dataclass(frozen=True, eq=False)
class Heads:
    """One layer's queries, keys and values [head, node, d_head], and how far off what they are made of is.

    ``reach`` [node] is the length of the error of what the heads read. ``to_*`` [node, head, d_model] are W_Q times
    the keys, W_K times the queries, and the values times W_O. ``done`` has what was attended to so far.
    """

    stages: Stages
    maps: HeadMaps
    q: Enclosure
    k: Enclosure
    v: Enclosure
    reach: Float[Tensor, " node"]
    to_queries: Tensor
    to_keys: Tensor
    to_stream: Tensor
    done: list[Attended] = field(default_factory=list)

    @classmethod
    def of(cls, stages: Stages, maps: HeadMaps, q: Enclosure, k: Enclosure, v: Enclosure, reach: Tensor) -> Heads:
        pairs = (k, maps.queries), (q, maps.keys), (v, maps.out)
        to_queries, to_keys, to_stream = (torch.einsum("hne,hde->nhd", x.mid, w) for x, w in pairs)
        return cls(stages, maps, q, k, v, reach, to_queries, to_keys, to_stream)

    @cached_property
    def longest(self) -> tuple[Tensor, Tensor]:
        """Bounds of the lengths that scores are made of, keys minus their mean and queries together; and of values."""
        score = 2 * self.to_queries.norm(dim=-1).amax() + self.to_keys.norm(dim=-1).amax()
        return score, self.to_stream.norm(dim=-1).amax()

    def attend(self, scores: Enclosure, above: Int[Tensor, "query key"]) -> Enclosure:
        """The pattern [head, query, key] of the nodes at one position, from their scaled scores."""
        patterns = []
        for rows in torch.arange(len(above)).split(AT_ONCE):
            pattern, done = self._attended(Enclosure.apart(scores.mid[:, rows], scores.rad[:, rows]), above[rows])
            patterns.append(pattern)
            self.done.append(done)
        return Enclosure.apart(*(torch.cat([getattr(one, part) for one in patterns], 1) for part in ("mid", "rad")))

    def _attended(self, scores: Enclosure, above: Tensor) -> tuple[Enclosure, Attended]:
        weight = scores.mid.softmax(-1).permute(1, 2, 0)
        keys, values = (self._around_mean(x, above, weight) for x in (self.to_queries, self.to_stream))
        whole, rest = self._scores_off(weight, above, keys, self.to_keys[above[:, -1]])
        better = whole.amax(-1, keepdim=True) < scores.rad.amax(-1, keepdim=True)
        narrow = Enclosure.apart(scores.mid, torch.where(better, whole, scores.rad))
        rounding = self.stages.enclosed.rounding
        pattern, own = rounding.softmax(narrow), rounding.exponents(narrow)[1] - narrow.rad
        rest, wide = ((part + own).permute(1, 2, 0) for part in (rest, whole))
        mid, rad = (part.permute(1, 2, 0) for part in (pattern.mid, pattern.rad))
        stray = (rad + (mid - weight).abs()) * (1 + KNOWN)
        beyond = self._beyond(mid, weight, stray, values, rest, wide) + self._roundings(pattern.size, above)
        done = Attended(above, weight, stray, beyond * (1 + KNOWN), torch.zeros_like(beyond))
        first = self._summed(done, keys, values, values.norm(dim=-1), self.maps.together, 0.0)
        return pattern, replace(done, first=first)

    @staticmethod
    def _around_mean(vectors: Tensor, above: Tensor, weight: Tensor) -> Float[Tensor, "query key head d"]:
        """The keys' vectors, minus their mean in the pattern."""
        vectors = vectors[above]
        return vectors - (weight[..., None] * vectors).sum(1, keepdim=True)

    def _scores_off(self, weight: Tensor, above: Tensor, keys: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """How far scores [head, query, key] are off, each up to a number that all keys share, and how much of this is
        not first order in the errors of what the heads read.

        A softmax does not see a number that all keys share. Lemma: with c the query's error times any vector k0,
        ``q' k_j' - q k_j - c = (q' - q)(k_j - k0) + q (k_j' - k_j) + (q' - q)(k_j' - k_j)``. Here k0 is the mean of the
        keys in the pattern. The error of a query is that of what the heads read, times W_Q, plus the query's own
        rounding; the same holds for keys.
        """
        stages, cfg, at = self.stages, self.stages.enclosed.config, above[:, -1]
        assert self.q.own is not None and self.k.own is not None
        scale, query_length, lengths = abs(cfg.score_scale), self.q.length[:, at, None], self.k.length[:, above]
        longest = lengths.amax(-1, keepdim=True)
        first = self.reach[at, None] * keys.norm(dim=-1).permute(2, 0, 1)
        first = (first + self.reach[above] * query.norm(dim=-1).T[..., None]) / scale
        apart = self.k.mid[:, above]
        apart = (apart - weight.permute(2, 0, 1)[..., None, :] @ apart).norm(dim=-1) + KNOWN * longest
        rest = self.q.own[:, at, None] * apart + self.k.own[:, above] * query_length
        rest = rest + self.q.norm[:, at, None] * self.k.norm[:, above]
        rest = (rest + (stages.grown(cfg.d_head + 4) * 1.001 + KNOWN) * query_length * longest) / scale
        rest = rest * (1 + KNOWN) + (cfg.d_head + 4) * stages.tiny * (1 + 1 / scale)
        return first * (1 + KNOWN) + rest, rest

    def _beyond(
        self, mid: Tensor, weight: Tensor, stray: Tensor, values: Tensor, rest: Tensor, wide: Tensor
    ) -> Float[Tensor, " query"]:
        """What scores move beyond the first order, and the gap between the pattern's midpoint and the softmax.

        Lemma: let p(t) be the pattern while the exponents go from their midpoints to where they are, each by at most
        ``wide``, and z(t) the mean of the values' midpoints. The derivative of z is
        ``sum_j p_j(t) (dw_j/dt) (v_j - z(t))``, and ``z(t) - z(0) = sum_k (p_k(t) - p_k(0))(v_k - z(0))``. The first
        order has p(0) and z(0) in their place.
        """
        lengths = values.norm(dim=-1)
        apart = lengths * (1 + KNOWN) + KNOWN * (1 + lengths.amax(1, keepdim=True))
        moved = (stray * apart).sum(1, keepdim=True)
        off = weight * rest * apart + wide * (stray * apart + (weight + stray) * moved)
        gap = ((weight - mid)[..., None] * values).sum(1).norm(dim=-1)
        lost = (mid.sum(1) - 1).abs() * self.longest[1]
        return (off.sum(1) + gap + lost).sum(1) + KNOWN * apart.sum((1, 2))

    def _roundings(self, most: Tensor, above: Tensor) -> Float[Tensor, " query"]:
        """What the roundings of values, of the pattern's last steps and of the values' mean move."""
        n = above.shape[1]
        assert self.v.own is not None
        lengths = self.v.length[:, above]
        own = most * (self.v.own[:, above] + self.stages.grown(3 * n + 12) * 1.001 * lengths)
        own = own + n * self.stages.tiny * (1 + lengths)
        return (own * self.maps.stretch[:, None, None]).sum((0, 2))

    # ---- the first order

    def through(self, done: Attended, matrix: Float[Tensor, "query d d"]) -> Float[Tensor, " query"]:
        """How far the product of what the heads write and a float32 matrix is off, to first order.

        Products with the matrix are computed in float32. Each is off by less than d u times its factors' lengths, and
        the factor that is rounded to float32 by as much again.
        """
        # Made again, since to keep them for all queries takes more memory than a processor's cache has.
        keys, values = (self._around_mean(x, done.above, done.weight) for x in (self.to_queries, self.to_stream))
        d, length = matrix.shape[1], lengths_of(matrix)
        after = (values.flatten(1, 2).float() @ matrix).double().view(values.shape)
        together = self._together(matrix, length)
        lengths = values.norm(dim=-1) * length.clamp_min(1.0)[:, None, None]
        return self._summed(done, keys, after, lengths, together, 2.1 * d * SINGLE)

    def _together(self, matrix: Float[Tensor, "query d d"], length: Tensor) -> Float[Tensor, "query head head"]:
        """``together`` of :class:`HeadMaps` after a matrix of this length. ``|S|^2`` is at most that of ``S S'``."""
        (n_heads, d_head, d), size = self.maps.written.shape, self.maps.size
        written = self.maps.written.flatten(0, 1) @ matrix
        blocks = (written @ written.mT).unflatten(2, (n_heads, d_head)).unflatten(1, (n_heads, d_head)).transpose(2, 3)
        squares = lengths_of(blocks @ blocks.mT)
        own = 6.1 * d * SINGLE * length**2
        found = (squares + 3.1 * d_head * SINGLE * lengths_of(blocks) ** 2).sqrt() + own[:, None, None]
        return found * size[:, None] * size

    def _summed(
        self, done: Attended, keys: Tensor, values: Tensor, lengths: Tensor, together: Tensor, slack: float
    ) -> Float[Tensor, " query"]:
        """The error that each node's error makes, over all heads and keys, added up over the nodes.

        ``lengths`` bound the values' lengths, and ``slack`` their errors relative to that.

        Lemma: ``|sum_i a_i (x) b_i|`` is at most the root of ``sum_ij (a_i a_j)(b_i b_j)``.
        """
        weighted, size = done.weight[..., None] * values, done.weight * lengths
        query, slack = self.to_keys[done.above[:, -1]][:, None], slack + cancelled(size[0].numel(), keys.shape[-1])
        of_query = _length_of_sum(keys.flatten(1, 2), weighted.flatten(1, 2))
        of_query = of_query + slack * (keys.norm(dim=-1) * size).sum((1, 2))
        of_keys = _length_of_sum(query.expand_as(weighted).flatten(0, 1), weighted.flatten(0, 1)).view(done.above.shape)
        of_keys = of_keys + slack * (query.norm(dim=-1) * size).sum(-1)
        most = (done.weight + done.stray)[:, :, None]
        of_values = (most @ together.view(-1, 1, *together.shape[-2:]) @ most.mT)[..., 0, 0].sqrt()
        reach, scale = self.reach[done.above], abs(self.stages.enclosed.config.score_scale)
        return (reach[:, -1] * of_query / scale + (reach * (of_keys / scale + of_values)).sum(1)) * (1 + KNOWN)

    def along(self, done: Attended, vectors: Float[Tensor, "query d other"]) -> Float[Tensor, "query other"]:
        """How far the products of what the heads write and some vectors are off, to first order."""
        keys, values = (self._around_mean(x, done.above, done.weight) for x in (self.to_queries, self.to_stream))
        share = done.weight[..., None] * (values.flatten(1, 2) @ vectors).unflatten(1, done.weight.shape[1:])
        of_query = (share.flatten(1, 2).mT @ keys.flatten(1, 2)).norm(dim=-1)
        of_keys = (share.mT @ self.to_keys[done.above[:, -1]][:, None]).norm(dim=-1)  # [query, key, other]
        read = (self.maps.ov @ vectors[:, None]).permute(0, 3, 1, 2)  # [query, other, head, d]
        of_values = (done.weight[:, :, None, None] @ read[:, None])[..., 0, :].norm(dim=-1)
        of_values = of_values + done.stray @ read.norm(dim=-1).mT
        scale, reach = abs(self.stages.enclosed.config.score_scale), self.reach[done.above][..., None]
        found = reach[:, -1] * of_query / scale + (reach * (of_keys / scale + of_values)).sum(1)
        score, stream = self.longest
        known = KNOWN * self.reach.amax() * (1 + 1 / scale) * (1 + score) * (stream + self.maps.ov.norm())
        return found * (1 + KNOWN) + known * vectors.norm(dim=1)


def lengths_of(x: Tensor) -> Tensor:
    """Upper bounds of the Frobenius norms of float32 matrices along the last two axes.

    In float32 the squares of numbers below 2^-63 are less exact, or zero. What they add up to is added.
    """
    flat = x.flatten(-2)
    return flat.norm(dim=-1).double() * (1 + flat.shape[-1] * SINGLE) + flat.shape[-1] * 2.0**-62


def cancelled(terms: int, d: int) -> float:
    """How far a root of ``sum_ij (a_i a_j)(b_i b_j)`` may be off because the sum cancels, relative to its terms."""
    return 2.0 * math.sqrt((terms**2 + 2 * d) * DOUBLE)


def _length_of_sum(a: Float[Tensor, "n term d"], b: Float[Tensor, "n term d"]) -> Float[Tensor, " n"]:
    return ((a @ a.mT) * (b @ b.mT)).sum((1, 2)).clamp_min(0.0).sqrt()
