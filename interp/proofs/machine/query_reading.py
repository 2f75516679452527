"""What the attention of a one-layer model reads at one query: a weight and a value for every token at every position.

A key's query-independent part depends on its token and position alone, which is called a *placed token* here. Head h
writes ``z_h = sum_j w_hj v_hj / sum_j w_hj`` over the placed tokens of a problem. So all that a query can compute is
made of the numbers here, which are enclosed with every rounding (:mod:`interp.proofs.numbers.rounded_operations`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.machine.path_graph import QueryPaths, VisibleStep
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounding_errors import LARGEST, OWN
from interp.proofs.numbers.token_tables import TokenTables


@dataclass(frozen=True, eq=False)
class QueryReading:
    """What one query reads. Letters are numbered; all numbers are float64.

    Attributes:
        base: the stream at the query without what heads write, [d]. W_O: [head, d_head, d].
        exponents: each one's score, less a number that all share; -inf where a head does not see it: [head, placed].
        shown: which placed tokens a head sees: [head, placed].
        values: [head, placed, d_head].
        number: the placed token of (position, token).
        size: upper bounds of the magnitudes of the stream after attention as it is computed, [d].
        sink: the exponent of softmax1's further key, whose value is 0, or -inf: [head].
        eta: how far each weight may be off, relative to it, but for a factor that all share: [head, placed].
        rad: how far each value may be off, and what a sum rounds of it: [head, placed, d_head].
        mixed_off: upper bounds of how far ``z`` may be off, over all problems of the query: [head, d_head].
        after: how far the operations from ``z`` to the stream may be off: [d].
    """

    base: Float[Tensor, " d"]
    W_O: Float[Tensor, "head d_head d"]
    exponents: Float[Tensor, "head placed"]
    shown: Bool[Tensor, "head placed"]
    values: Float[Tensor, "head placed d_head"]
    number: dict[tuple[int, int], int]
    size: Float[Tensor, " d"]
    sink: Float[Tensor, " head"]
    eta: Float[Tensor, "head placed"]
    rad: Float[Tensor, "head placed d_head"]
    mixed_off: Float[Tensor, "head d_head"]
    after: Float[Tensor, " d"]

    @cached_property
    def _numbers(self) -> Int[Tensor, "position token"]:
        """``number`` as a table; -1 where nothing stands."""
        positions, tokens = zip(*self.number, strict=True)
        table = torch.full((max(positions) + 1, max(tokens) + 1), -1)
        table[positions, tokens] = torch.tensor(list(self.number.values()))
        return table

    def placed_of(self, step: VisibleStep) -> Int[Tensor, "option position"]:
        """The placed tokens that each option of a step puts at its positions."""
        return self._numbers[list(step.positions), torch.from_numpy(step.tokens)].view(len(step), len(step.positions))

    def weights_beside(
        self, placed: Int[Tensor, " some"]
    ) -> tuple[Float[Tensor, "head placed"], Float[Tensor, " head"]]:
        """The weights of all placed tokens and of softmax1's further key, of which the largest among some placed tokens
        is 1. No weight is more than 1; those of other placed tokens mean nothing where they would be."""
        top = torch.maximum(self.exponents[:, placed].amax(1), self.sink)[:, None]
        return (self.exponents - top).clamp_max(0.0).exp(), (self.sink - top[:, 0]).exp()

    def off(self, mixed_off: Float[Tensor, "*node head d_head"]) -> Float[Tensor, "*node d"]:
        """How far the computed stream after attention may be from the exact one, if ``z`` is off by so much."""
        return torch.einsum("...he,hed->...d", mixed_off, self.W_O.abs()) + self.after


def query_reading(tables: TokenTables, paths: QueryPaths) -> QueryReading:
    """What the query of some paths reads."""
    cfg, rounding = tables.config, tables.rounding
    seen = [*paths.fixed]
    for step in paths.steps:
        seen += [(p, int(t)) for i, p in enumerate(step.positions) for t in sorted(set(step.tokens[:, i].tolist()))]
    rows = torch.tensor([tables.number[pair] for pair in seen])
    own = tables.number[paths.query, paths.token]
    scores = tables.scores_of_query(own, rows)
    if cfg.attn_softmax == "softmax1":  # one more key, of score 0 and value 0
        zero = torch.zeros_like(scores.mid[:, :1])
        scores = Enclosure.apart(torch.cat((scores.mid, zero), 1), torch.cat((scores.rad, zero), 1))
    below, wide = rounding.exponents(scores)
    sink = torch.full((len(below),), -torch.inf, dtype=torch.float64)
    if cfg.attn_softmax == "softmax1":
        below, sink = below[:, :-1], below[:, -1]
    shown = ~tables.out_of_sight(own, rows)
    below = below.masked_fill(~shown, -torch.inf)
    v, rad = tables.v.mid[:, rows], tables.v.rad[:, rows]
    n = paths.query + 2  # keys
    # Weights w (1 + t), |t| <= eta, move a mean by at most eta / (1 - eta) of the mean of what lies around it. Columns
    # have another lemma of the same eta (:mod:`interp.proofs.columns.ratio_attention`), which leaves keys out and knows
    # no softmax1.
    eta = torch.expm1(wide[:, : len(rows)]) + OWN
    eta = torch.where(eta.amax() < 0.5, eta / (1 - eta.amax()), torch.inf)
    rad = rad + (rounding.growth(2 * n + 8) + OWN) * (v.abs() + rad)
    low, high = v.amin(1), v.amax(1)
    if cfg.attn_softmax == "softmax1":
        low, high = low.clamp_max(0.0), high.clamp_min(0.0)
        eta = torch.maximum(eta, torch.expm1(wide[:, -1:]) * 2.1 + OWN)
    rad = rad * (1 + 4 * eta.amax())  # it is weighted by computed shares
    off = eta.amax(1, keepdim=True) * (high - low) + rad.amax(1)  # [head, d_head]
    # What underflows is no share of a weight: it may be any placed token's value, with a tiny weight.
    vanished = n * rounding.tiny * (2 + v.abs().amax(1) + rad.amax(1))
    W_O = tables.weights["blocks.0.attn.W_O"]
    mixed, d = torch.maximum(high.abs(), low.abs()) + off + vanished, W_O.shape[1] * W_O.shape[0]
    sizes = torch.einsum("he,hed->d", mixed, W_O.abs())
    x, bias = tables.x[torch.tensor([own])], tables.weights.get("blocks.0.attn.b_O")
    bias = torch.zeros_like(sizes) if bias is None else bias
    base, added, added_off = x.mid[0] + bias, x.size[0], x.rad[0]
    # A parallel MLP reads the query's own placed token, and nothing that attention writes.
    if cfg.parallel_attn_mlp and cfg.d_mlp:
        out, _ = tables.mlp("blocks.0", x)
        base, added, added_off = base + out.mid[0], added + out.size[0], added_off + out.rad[0]
    size = sizes + bias.abs() + added
    after = (rounding.growth(d) + OWN) * sizes + (rounding.growth(3) + OWN) * size + added_off
    after = after + (d + 3) * rounding.tiny + torch.einsum("he,hed->d", vanished, W_O.abs())
    size = size + torch.einsum("he,hed->d", off, W_O.abs()) + after
    sees = (shown.any(1) | sink.isfinite()).all()  # the softmax of no keys is NaN
    after = torch.where((size < LARGEST) & sees & tables.within(own), after, torch.inf)
    number = {pair: i for i, pair in enumerate(seen)}
    return QueryReading(base, W_O, below, shown, v, number, size, sink, eta, rad, off, after)
