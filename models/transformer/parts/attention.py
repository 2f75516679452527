"""Causal multi-head attention with TransformerLens' hooks and the papers' score functions."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from models.transformer.config import TransformerConfig
from models.transformer.parts.circuits import HeadCircuits
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import rotate
from models.transformer.parts.shapes import PerKey, PerQuery, Places, QueryStream, ScoreBias, Scores
from models.transformer.parts.tropical import pair_scores
from models.transformer.parts.weights import Weights, WeightView, weight_view


class Attention(HeadCircuits, WeightView):
    """``pattern = softmax(score(q, k) + bias)`` over earlier keys; ``z = pattern v``; ``out = sum_heads z W_O``.

    Inputs are the normalised residual stream, [batch, pos, d_model], or with a head axis, [batch, pos, head,
    d_model], when ``use_attn_in`` or ``use_split_qkv_input`` is on.
    """

    W_Q, W_K, W_V = weight_view("W_Q"), weight_view("W_K"), weight_view("W_V")  # [head, d_model, d_head]
    W_O = weight_view("W_O")  # [head, d_head, d_model]
    b_Q, b_K, b_V = weight_view("b_Q"), weight_view("b_K"), weight_view("b_V")  # [head, d_head]
    b_O = weight_view("b_O")  # [d_model]

    def __init__(self, cfg: TransformerConfig, runtime: tuple):
        super().__init__(cfg)
        self._runtime = runtime
        self.hook_q = HookPoint()  # [batch, pos, head, d_head]
        self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        if cfg.use_qk_norm:
            self.q_norm, self.k_norm = Norm(cfg, "RMS"), Norm(cfg, "RMS")
        if cfg.positional_embedding_type == "rotary":
            self.hook_rot_q = HookPoint()
            self.hook_rot_k = HookPoint()
        self.hook_attn_scores = HookPoint()  # [batch, head, query, key], -inf where masked
        if cfg.attn_top_k is not None:
            self.hook_top_k_mask = HookPoint()  # [batch, head, query, key], whether a key takes part
        self.hook_pattern = HookPoint()  # [batch, head, query, key]
        self.hook_z = HookPoint()  # [batch, pos, head, d_head]
        self.hook_result = HookPoint()  # [batch, pos, head, d_model], fires with use_attn_result

    @property
    def mask(self) -> Bool[Tensor, "query key"]:
        """[n_ctx, n_ctx], whether a query may see a key: those up to its own position."""
        n = self.config.n_ctx
        return torch.ones(n, n, dtype=torch.bool, device=self._root[0].device).tril()

    def _project(self, x: Tensor, weights: Weights, letter: str) -> Float[Tensor, "batch pos head d_head"]:
        matrix, bias = self.get(weights, f"W_{letter}"), f"b_{letter}"
        if x.ndim == 4:
            return self.add_bias(torch.einsum("bphd,hde->bphe", x, matrix), weights, bias)
        return self.affine(x, weights, matrix.transpose(0, 1).flatten(1), bias).unflatten(-1, matrix.shape[::2])

    def raw_scores(self, q: PerQuery, k: PerKey) -> Scores:
        """Scores divided by the scale, in the dtype of the queries."""
        scores = pair_scores(q.transpose(1, 2), k.transpose(1, 2), self.config.attn_scores)
        return scores.to(q.dtype) / self.config.score_scale

    def masked_scores(
        self, q: PerQuery, k: PerKey, position_bias: ScoreBias | None = None, query_positions: Places | None = None
    ) -> Scores:
        """Scores of (rotated) queries and keys with a bias (FIRE's, the layer's own), -inf at keys after the query."""
        scores = self.raw_scores(q, k)
        if position_bias is not None:
            scores = scores + position_bias.to(scores.dtype)
        keys = torch.arange(scores.shape[-1], device=scores.device)
        future = keys > (keys if query_positions is None else query_positions)[:, None]
        return scores.masked_fill(future, float("-inf"))

    def pattern_of(self, scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
        """The softmax over the keys that take part; zero where all scores of a row are -inf.

        "softmax1" is the softmax with one more key, of score 0 and value 0.
        """
        if self.config.attn_top_k is not None:
            threshold = scores.topk(min(self.config.attn_top_k, scores.shape[-1]), dim=-1).values[..., -1:]
            takes_part = self.hook_top_k_mask((scores >= threshold) & (scores > float("-inf")))
            scores = scores.masked_fill(~takes_part, float("-inf"))
        if self.config.attn_softmax == "softmax1":
            scores = torch.cat((scores, torch.zeros_like(scores[..., :1])), -1)
            pattern = F.softmax(scores, dim=-1)[..., :-1]
        else:
            pattern = F.softmax(scores, dim=-1)
        # A patched row of scores can be all -inf; TransformerLens then attends to nothing.
        return torch.where(pattern.isnan(), torch.zeros_like(pattern), pattern)

    def forward(
        self,
        query_input: Float[Tensor, "batch query *head d_model"],
        key_input: Float[Tensor, "batch key *head d_model"],
        value_input: Float[Tensor, "batch key *head d_model"],
        weights: Weights | None = None,
        position_bias: ScoreBias | None = None,
        query_positions: Places | None = None,
    ) -> QueryStream:
        """``query_positions`` are the queries' positions among the keys; by default there is one query for each key."""
        weights = self.weights_or_own(weights)
        q = self._project(query_input, weights, "Q")
        k = self._project(key_input, weights, "K")
        v = self._project(value_input, weights, "V")
        z = self.mix(q, k, v, position_bias, query_positions, weights)
        w_o = self.get(weights, "W_O")
        if self._runtime[0].use_attn_result:
            out = self.hook_result(torch.einsum("bphe,hed->bphd", z, w_o)).sum(2)
        else:
            out = z.flatten(2) @ w_o.flatten(0, 1)
        return self.add_bias(out, weights, "b_O")  # the proofs' bounds take this for a rounding of its own

    def mix(
        self,
        q: PerQuery,
        k: PerKey,
        v: PerKey,
        position_bias: ScoreBias | None = None,
        query_positions: Places | None = None,
        weights: Weights | None = None,
    ) -> PerQuery:
        """``z = softmax(score(q, k) + bias) v`` from projected inputs; every hook up to ``hook_z`` fires."""
        cfg = self.config
        q, k, v = self.hook_q(q), self.hook_k(k), self.hook_v(v)
        if cfg.use_qk_norm:
            q, k = self.q_norm(q, weights), self.k_norm(k, weights)
        if cfg.positional_embedding_type == "rotary":
            q, k = self.hook_rot_q(rotate(q, cfg, query_positions)), self.hook_rot_k(rotate(k, cfg))
        if cfg.attn_bias:
            own = self.get(self.weights_or_own(weights), "bias")[:, :, : k.shape[1]]
            own = own[:, : q.shape[1]] if query_positions is None else own[:, query_positions]
            position_bias = own if position_bias is None else own + position_bias
        scores = self.hook_attn_scores(self.masked_scores(q, k, position_bias, query_positions))
        pattern = self.hook_pattern(self.pattern_of(scores))
        if cfg.dropout and self.training:
            pattern = F.dropout(pattern, cfg.dropout)
        return self.hook_z(torch.einsum("bhqk,bkhe->bqhe", pattern, v))
