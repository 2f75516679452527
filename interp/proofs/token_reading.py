"""What the attention of a one-layer model reads at one query: a weight and a value for every token at every position.

A key's query-independent part depends on its token and position alone, which is called a *letter* here. Head h writes
``z_h = sum_j w_hj v_hj / sum_j w_hj`` over the letters of a problem. So all that a query can compute is made of the
numbers here, which are enclosed with every rounding (:mod:`interp.proofs.enclosures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.enclosed import Enclosure
from interp.proofs.enclosures import Rounding
from interp.proofs.prefix_tree import EnclosedForward, turned
from interp.proofs.rounding_errors import LARGEST, OWN
from interp.proofs.visible_paths import QueryPaths, VisibleStep
from models import TransformerConfig


@dataclass(frozen=True, eq=False)
class QueryReading:
    """What one query reads. Letters are numbered; all numbers are float64.

    Attributes:
        base: the stream at the query without what heads write, [d]. W_O: [head, d_head, d].
        exponents: each letter's score, less a number that all share; -inf where a head does not see it: [head, letter].
        shown: which letters a head sees: [head, letter].
        values: [head, letter, d_head].
        number: the letter of (position, token).
        size: upper bounds of the magnitudes of the stream after attention as it is computed, [d].
        sink: the exponent of softmax1's further key, whose value is 0, or -inf: [head].
        eta: how far each weight may be off, relative to it, but for a factor that all share: [head, letter].
        rad: how far each value may be off, and what a sum rounds of it: [head, letter, d_head].
        mixed_off: upper bounds of how far ``z`` may be off, over all problems of the query: [head, d_head].
        after: how far the operations from ``z`` to the stream may be off: [d].
    """

    base: Float[Tensor, " d"]
    W_O: Float[Tensor, "head d_head d"]
    exponents: Float[Tensor, "head letter"]
    shown: Bool[Tensor, "head letter"]
    values: Float[Tensor, "head letter d_head"]
    number: dict[tuple[int, int], int]
    size: Float[Tensor, " d"]
    sink: Float[Tensor, " head"]
    eta: Float[Tensor, "head letter"]
    rad: Float[Tensor, "head letter d_head"]
    mixed_off: Float[Tensor, "head d_head"]
    after: Float[Tensor, " d"]

    @cached_property
    def _numbers(self) -> Int[Tensor, "position token"]:
        """``number`` as a table; -1 where nothing stands."""
        positions, tokens = zip(*self.number, strict=True)
        table = torch.full((max(positions) + 1, max(tokens) + 1), -1)
        table[positions, tokens] = torch.tensor(list(self.number.values()))
        return table

    def letters_of(self, step: VisibleStep) -> Int[Tensor, "option position"]:
        """The letters that each option of a step puts at its positions."""
        return self._numbers[list(step.positions), torch.from_numpy(step.tokens)].view(len(step), len(step.positions))

    def weights_beside(
        self, letters: Int[Tensor, " some"]
    ) -> tuple[Float[Tensor, "head letter"], Float[Tensor, " head"]]:
        """The weights of all letters and of softmax1's further key, of which the largest among some letters is 1. No
        weight is more than 1; those of other letters mean nothing where they would be."""
        top = torch.maximum(self.exponents[:, letters].amax(1), self.sink)[:, None]
        return (self.exponents - top).clamp_max(0.0).exp(), (self.sink - top[:, 0]).exp()

    def off(self, mixed_off: Float[Tensor, "*node head d_head"]) -> Float[Tensor, "*node d"]:
        """How far the computed stream after attention may be from the exact one, if ``z`` is off by so much."""
        return torch.einsum("...he,hed->...d", mixed_off, self.W_O.abs()) + self.after


class TokenReading(EnclosedForward):
    """Queries, keys and values of all letters of a task, for a model of one layer."""

    def __init__(
        self,
        config: TransformerConfig,
        weights: dict[str, Tensor],
        rounding: Rounding,
        letters: Sequence[tuple[int, int]],
        ids: Int[Tensor, "pos level"],
        bias: Float[Tensor, "head query key"] | None,
    ):
        """``letters`` are (position, token); ``ids`` the position ids of any problem; ``bias`` is added to scores."""
        super().__init__(config, weights, rounding)
        self.number = {letter: i for i, letter in enumerate(letters)}
        self.position, tokens = torch.tensor(letters, dtype=torch.int64).unbind(1)
        self.bias = bias
        self.x = self.embedded(tokens, ids[self.position], self.position)
        self.read = self._before(self.x, "blocks.0.ln1")
        q, k, v = self._queries_keys_values("blocks.0.attn", self.read)
        if config.use_qk_norm:
            q, k = self._per_head(q, "q"), self._per_head(k, "k")
        if config.positional_embedding_type == "rotary":
            q, k = turned(self.rounding, config, (q, k), self.position)
        self.q, self.k, self.v = (y.heads_first() for y in (q, k, v))

    def _per_head(self, x: Enclosure, which: str) -> Enclosure:
        """Queries or keys after the RMS norm of each head."""
        cfg, gain = self.config, self.weights[f"blocks.0.attn.{which}_norm.w"]
        return self.rounding.normed(x, gain, None, cfg.eps, cfg.norm_eps_outside, False).whole

    def at(self, paths: QueryPaths) -> QueryReading:
        """What the query of some paths reads."""
        cfg, rounding = self.config, self.rounding
        seen = [*paths.fixed]
        for step in paths.steps:
            seen += [(p, int(t)) for i, p in enumerate(step.positions) for t in sorted(set(step.tokens[:, i].tolist()))]
        rows = torch.tensor([self.number[letter] for letter in seen])
        own = self.number[paths.query, paths.token]
        scores = self.scores_of_query(own, rows)
        if cfg.attn_softmax == "softmax1":  # one more key, of score 0 and value 0
            zero = torch.zeros_like(scores.mid[:, :1])
            scores = Enclosure.apart(torch.cat((scores.mid, zero), 1), torch.cat((scores.rad, zero), 1))
        below, wide = rounding.exponents(scores)
        sink = torch.full((len(below),), -torch.inf, dtype=torch.float64)
        if cfg.attn_softmax == "softmax1":
            below, sink = below[:, :-1], below[:, -1]
        shown = ~self._out_of_sight(own, rows)
        below = below.masked_fill(~shown, -torch.inf)
        v, rad = self.v.mid[:, rows], self.v.rad[:, rows]
        n = paths.query + 2  # keys
        # Weights w (1 + t), |t| <= eta, move a mean by at most eta / (1 - eta) of the mean of what lies around it.
        eta = torch.expm1(wide[:, : len(rows)]) + OWN
        eta = torch.where(eta.amax() < 0.5, eta / (1 - eta.amax()), torch.inf)
        rad = rad + (rounding.growth(2 * n + 8) + OWN) * (v.abs() + rad)
        low, high = v.amin(1), v.amax(1)
        if cfg.attn_softmax == "softmax1":
            low, high = low.clamp_max(0.0), high.clamp_min(0.0)
            eta = torch.maximum(eta, torch.expm1(wide[:, -1:]) * 2.1 + OWN)
        rad = rad * (1 + 4 * eta.amax())  # it is weighted by computed shares
        off = eta.amax(1, keepdim=True) * (high - low) + rad.amax(1)  # [head, d_head]
        # What underflows is no share of a weight: it may be any letter's value, with a tiny weight.
        vanished = n * rounding.tiny * (2 + v.abs().amax(1) + rad.amax(1))
        W_O = self.weights["blocks.0.attn.W_O"]
        mixed, d = torch.maximum(high.abs(), low.abs()) + off + vanished, W_O.shape[1] * W_O.shape[0]
        sizes = torch.einsum("he,hed->d", mixed, W_O.abs())
        x, bias = self.x[torch.tensor([own])], self.weights.get("blocks.0.attn.b_O")
        bias = torch.zeros_like(sizes) if bias is None else bias
        base, added, added_off = x.mid[0] + bias, x.size[0], x.rad[0]
        # A parallel MLP reads the query's own letter, and nothing that attention writes.
        if cfg.parallel_attn_mlp and cfg.d_mlp:
            out, _ = self.mlp("blocks.0", x)
            base, added, added_off = base + out.mid[0], added + out.size[0], added_off + out.rad[0]
        size = sizes + bias.abs() + added
        after = (rounding.growth(d) + OWN) * sizes + (rounding.growth(3) + OWN) * size + added_off
        after = after + (d + 3) * rounding.tiny + torch.einsum("he,hed->d", vanished, W_O.abs())
        size = size + torch.einsum("he,hed->d", off, W_O.abs()) + after
        sees = (shown.any(1) | sink.isfinite()).all()  # the softmax of no keys is NaN
        after = torch.where((size < LARGEST) & sees & self._within(own), after, torch.inf)
        number = {letter: i for i, letter in enumerate(seen)}
        return QueryReading(base, W_O, below, shown, v, number, size, sink, eta, rad, off, after)

    def scores_of_query(self, own: int, rows: Int[Tensor, " letter"]) -> Enclosure:
        """Scaled scores [head, letter] of the query's letter with all that it can see."""
        q = self.q[:, [own]]
        plain = self.config.attn_scores == "dot" and self.config.attn_softmax == "softmax" and self.bias is None
        if plain:
            return self.rounding.scores_of_one(q, self.k[:, rows], self.config.score_scale)
        keys = self.rounding.keys(self.k).at(rows[None])
        found = self.rounding.scores(q, keys, self.config.attn_scores)
        found = self.rounding.scaled(found, self.config.score_scale)
        found = Enclosure.apart(found.mid[:, 0], found.rad[:, 0])
        if self.bias is None:
            return found
        added = self.bias[:, int(self.position[own]), self.position[rows]]
        hidden = added == -torch.inf
        found = self.rounding.add(found, Enclosure.exact(added.masked_fill(hidden, 0.0)))
        least = found.mid.masked_fill(hidden, torch.inf).amin(1, keepdim=True)
        return Enclosure.apart(torch.where(hidden, least, found.mid), found.rad.masked_fill(hidden, 0.0))

    def _within(self, own: int) -> bool:
        """Whether no score or value of any letter overflows for this query, hidden ones included: infinity is NaN also
        with a weight of 0, and with a bias of -inf."""
        scores = (1 + self.q.length[:, own]) * (1 + self.k.length.amax(1))
        return bool((scores < LARGEST).all() and (self.v.length < LARGEST).all())

    def _out_of_sight(self, own: int, rows: Int[Tensor, " letter"]) -> Tensor:
        """[head, letter]: which letters a bias of -inf hides from the query."""
        if self.bias is None:
            return torch.zeros(len(self.q.mid), len(rows), dtype=torch.bool)
        return self.bias[:, int(self.position[own]), self.position[rows]] == -torch.inf
