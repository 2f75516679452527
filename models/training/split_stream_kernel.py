"""The objective of a one-layer model with a split residual stream, computed by the algebra that the split allows.

When tokens and positions occupy different dimensions, all tokens have one norm, queries and keys read positions
and values read tokens (MicroAdder 57, 67, 74), then

* the RMS of the stream before attention depends on the position alone, and so does the pattern: one matrix per seed
  and step instead of one per example (fixed numbers on the scores, as in ALiBi, do not change this);
* the value that a token sends through head and output matrix is a table over the vocabulary, of the rank of W_O
  (one number per digit for a rank-1 output), looked up and mixed by that matrix;
* only the rows of the queries that carry loss are needed after attention.

What remains is elementwise over (query, example), kept contiguous by putting features before rows. On a CPU with a C
compiler one fused kernel does it, gradient included (``native/split_stream.c``). It equals the general forward in loss
and gradient up to rounding; the tests check this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from models.training.compiled_loss import FusedLoss, is_plain_layer
from models.training.native.compiled_kernels import FAST, LANES, library, pointers
from models.training.stacked_objective import (
    GeneralObjective,
    Logits,
    Parameters,
    PerSeed,
    Targets,
    Tokens,
    cross_entropy,
)
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.mlp import ACTIVATIONS
from models.transformer.parts.weights import Weights, is_bias


class Tables(NamedTuple):
    """All weights that the row-wise part needs; everything has a leading seed axis."""

    mixing: Float[Tensor, "seed signal query pos"]  # pattern over RMS, per head and rank of W_O
    sent: Float[Tensor, "seed signal vocab"]  # what a token sends through a head, one number per rank
    own: Float[Tensor, "seed vocab token_dim"]
    place: Float[Tensor, "seed query position_dim"]
    right: Float[Tensor, "seed signal d_model"]
    w_in: Float[Tensor, "seed d_model d_mlp"]  # norm gains folded in
    w_out: Float[Tensor, "seed d_mlp d_model"]
    w_u: Float[Tensor, "seed d_model vocab"]


class PositionOnlyObjective(GeneralObjective):
    """:class:`GeneralObjective` for models whose weight map declares ``split_stream``."""

    def __init__(self, model: ArithmeticTransformer):
        super().__init__(model)
        self.kernel = self.build_kernel()
        self._tables_for_loss = self.tables
        if self.kernel is not None:
            self.group_size = 64  # the kernel takes one seed at a time, so only the overhead of the rest counts

    def compile(self) -> None:
        """Compile what the kernel does not do with torch.compile; evaluation keeps the plain functions."""
        if self.kernel is None:
            super().compile()
        else:
            self._tables_for_loss = torch.compile(self.tables, dynamic=False)

    @staticmethod
    def applies_to(model: ArithmeticTransformer) -> bool:
        cfg = model.config
        return (
            model.weight_map.split_stream is not None
            and is_plain_layer(cfg)
            and cfg.normalization_type == "RMS"
            and not any(is_bias(key) for key in model.effective_weights() if not key.endswith(("_left", "_right")))
        )

    def tables(self, parameters: Parameters, n_pos: int) -> Tables:
        """Attention and token tables, one set per seed."""
        cfg, w = self.model.config, self.effective_weights(parameters)
        first, t = self.queries[0], self.model.weight_map.split_stream
        embed, position = w["embed.W_E"], w["pos_embed.W_pos"][:, :n_pos]
        mean_square = (embed[:, :1].square().sum(-1) + position.square().sum(-1)) / cfg.d_model  # as for any token
        inverse_rms = (mean_square + cfg.eps).rsqrt()  # [seed, pos]
        normalized = position * inverse_rms[..., None] * w["blocks.0.ln1.w"][:, None]
        q = torch.einsum("spd,shde->shpe", normalized[:, first:], w["blocks.0.attn.W_Q"])
        k = torch.einsum("spd,shde->shpe", normalized, w["blocks.0.attn.W_K"])
        scores = q @ k.transpose(-1, -2) / cfg.score_scale
        if cfg.attn_bias:
            scores = scores + w["blocks.0.attn.bias"][:, :, first:n_pos, :n_pos]
        future = torch.ones(len(self.queries), n_pos, dtype=torch.bool, device=scores.device).triu(first + 1)
        mixing = F.softmax(scores.masked_fill(future, float("-inf")), -1) * inverse_rms[:, None, None]
        left, right = _output_factors(w)
        gained = embed * w["blocks.0.ln1.w"][:, None]
        sent = torch.einsum("svd,shde,sher->shrv", gained, w["blocks.0.attn.W_V"], left)
        return Tables(
            mixing=mixing.repeat_interleave(sent.shape[2], dim=1),
            sent=sent.flatten(1, 2),
            own=embed[:, :, :t],
            place=position[:, first:, t:],
            right=right.flatten(1, 2),
            w_in=w["blocks.0.ln2.w"][..., None] * w["blocks.0.mlp.W_in"],
            w_out=w["blocks.0.mlp.W_out"],
            w_u=w["ln_final.w"][..., None] * w["unembed.W_U"],
        )

    def logits(self, parameters: Parameters, tokens: Tokens) -> Logits:
        return self._logits(self.tables(parameters, tokens.shape[1]), tokens.long())

    def _logits(self, tables: Tables, tokens: Tokens) -> Logits:
        cfg, (n_seeds, n_pos, n_rows) = self.model.config, tokens.shape
        first, n_query, n_signal = self.queries[0], len(self.queries), tables.sent.shape[1]
        index = tokens.reshape(n_seeds, 1, -1).expand(-1, n_signal, -1)
        arriving = tables.sent.gather(2, index).view(n_seeds, n_signal, n_pos, n_rows)
        signal = tables.mixing @ arriving  # [seed, signal, query, row]

        # The residual stream of the queries, features first.
        n, t = n_query * n_rows, tables.own.shape[2]
        query_tokens = tokens[:, first:].reshape(n_seeds, 1, n).expand(-1, t, -1)
        own = tables.own.transpose(1, 2).gather(2, query_tokens).view(n_seeds, t, n_query, n_rows)
        place = tables.place.transpose(1, 2)[..., None].expand(-1, -1, -1, n_rows)
        stream = torch.cat((own, place), 1).view(n_seeds, cfg.d_model, n)
        if n_signal == 1:  # a product that fuses with the sum, instead of a matrix product
            stream = stream + tables.right.transpose(1, 2) * signal.view(n_seeds, 1, n)
        else:
            stream = stream + _mix(tables.right, signal.view(n_seeds, -1, n))
        pre = _mix(tables.w_in, stream) * _inverse_rms(stream, cfg.eps)
        stream = stream + _mix(tables.w_out, ACTIVATIONS[cfg.act_fn](pre))
        logits = _mix(tables.w_u, stream) * _inverse_rms(stream, cfg.eps)
        return logits.view(n_seeds, -1, n_query, n_rows)

    def loss(self, parameters: Parameters, tokens: Tokens, targets: Targets) -> PerSeed:
        if not self.takes_kernel(tokens):
            return cross_entropy(self._logits(self.tables(parameters, tokens.shape[1]), tokens.long()), targets)
        tables = self._tables_for_loss(parameters, tokens.shape[1])
        return FusedLoss.apply(self.kernel, pointers, self.model.config.eps, tokens, targets, *tables)

    def build_kernel(self) -> Any:
        """The fused kernel (``native/split_stream.c``) for this model's shapes, or None if it does not apply or cannot
        be built."""
        cfg = self.model.config
        if cfg.d_vocab > LANES or cfg.act_fn != "gelu":
            return None
        left, _ = _output_factors({k: w[None] for k, w in self.model.effective_weights().items()})
        shape = {
            "NQ": len(self.queries),
            "NP": self.model.task.input_length,
            "FIRST": self.queries[0],
            "ND": cfg.d_model,
            "NT": self.model.weight_map.split_stream,
            "NM": cfg.d_mlp,
            "NV": cfg.d_vocab,
            "NR": cfg.n_heads * left.shape[-1],
        }
        return library("split_stream.c", *FAST, *(f"-D{key}={value}" for key, value in shape.items()))


def _mix(
    matrix: Float[Tensor, "seed rows columns"], x: Float[Tensor, "seed rows n"]
) -> Float[Tensor, "seed columns n"]:
    return torch.bmm(matrix.transpose(1, 2), x)


def _inverse_rms(stream: Float[Tensor, "seed d_model n"], eps: float) -> Float[Tensor, "seed 1 n"]:
    return (stream.square().mean(1, keepdim=True) + eps).rsqrt()


def _output_factors(w: Weights) -> tuple[Tensor, Tensor]:
    """W_O as left [seed, head, d_head, rank] times right [seed, head, rank, d_model]."""
    if "blocks.0.attn.W_O_left" in w:
        return w["blocks.0.attn.W_O_left"], w["blocks.0.attn.W_O_right"]
    w_o = w["blocks.0.attn.W_O"]
    identity = torch.eye(w_o.shape[2], dtype=w_o.dtype, device=w_o.device)
    return identity.expand(*w_o.shape[:2], -1, -1), w_o
