"""Queries, keys and values of every (position, token) in the first layer of a model, enclosed with every rounding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.numbers.enclosed_forward import EnclosedForward, turned
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import LARGEST
from models import TransformerConfig


class TokenTables(EnclosedForward):
    """Queries, keys and values of all placed tokens of a task, for a model of one layer."""

    def __init__(
        self,
        config: TransformerConfig,
        weights: dict[str, Tensor],
        rounding: Rounding,
        placed: Sequence[tuple[int, int]],
        ids: Int[Tensor, "pos level"],
        bias: Float[Tensor, "head query key"] | None,
    ):
        """``placed`` are (position, token); ``ids`` the position ids of any problem; ``bias`` is added to scores."""
        super().__init__(config, weights, rounding)
        self.number = {pair: i for i, pair in enumerate(placed)}
        self.position, tokens = torch.tensor(placed, dtype=torch.int64).unbind(1)
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

    def scores_of_query(self, own: int, rows: Int[Tensor, " placed"]) -> Enclosure:
        """Scaled scores [head, placed] of the query's placed token with all that it can see."""
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

    def within(self, own: int) -> bool:
        """Whether no score or value of any placed token overflows for this query, hidden ones included: infinity is NaN
        also with a weight of 0, and with a bias of -inf."""
        scores = (1 + self.q.length[:, own]) * (1 + self.k.length.amax(1))
        return bool((scores < LARGEST).all() and (self.v.length < LARGEST).all())

    def out_of_sight(self, own: int, rows: Int[Tensor, " placed"]) -> Tensor:
        """[head, placed]: which placed tokens a bias of -inf hides from the query."""
        if self.bias is None:
            return torch.zeros(len(self.q.mid), len(rows), dtype=torch.bool)
        return self.bias[:, int(self.position[own]), self.position[rows]] == -torch.inf
