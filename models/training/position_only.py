"""The objective of a one-layer model with a split residual stream, in about a twentieth of the time.

When tokens and positions occupy different dimensions, all tokens have one norm, queries and keys read positions
and values read tokens (MicroAdder 57, 67, 74), then

* the RMS of the stream before attention depends on the position alone, and so does the pattern: one matrix a seed
  and step instead of one an example;
* the value that a token sends through head and output matrix is a table over the vocabulary, of the rank of W_O
  (one number a digit for a rank-1 output), looked up and mixed by that matrix;
* only the rows of the queries that carry loss are needed after attention.

What remains is elementwise over (query, example), kept contiguous by putting features before rows. Equal to the
general forward in loss and gradient up to rounding; the tests check it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from models.parts.mlp import ACTIVATIONS
from models.parts.weights import is_bias
from models.training.objective import GeneralObjective, Parameters
from models.transformer import ArithmeticTransformer


def _mix(matrix: Float[Tensor, "seed rows columns"], x: Float[Tensor, "seed rows n"]) -> Float[Tensor, "seed columns n"]:
    return torch.bmm(matrix.transpose(1, 2), x)


class PositionOnlyObjective(GeneralObjective):
    """:class:`GeneralObjective` for models whose weight map declares ``split_stream``."""

    @staticmethod
    def applies_to(model: ArithmeticTransformer) -> bool:
        cfg = model.config
        return (
            model.weight_map.split_stream is not None
            and cfg.n_layers == 1
            and cfg.normalization_type == "RMS"
            and cfg.norm_placement == "pre"
            and not cfg.norm_eps_outside
            and cfg.final_norm
            and cfg.positional_embedding_type == "standard"
            and cfg.attn_scores == "dot"
            and cfg.attn_top_k is None
            and cfg.d_mlp > 0
            and not cfg.gated_mlp
            and not cfg.dropout
            and not any(is_bias(key) for key in model.effective_weights() if not key.endswith(("_left", "_right")))
        )

    def logits(
        self, parameters: Parameters, tokens: Integer[Tensor, "seed pos row"]
    ) -> Float[Tensor, "seed vocab target row"]:
        cfg, w, tokens = self.model.config, self.effective_weights(parameters), tokens.long()
        n_seeds, n_pos, n_rows = tokens.shape
        first, n_query = self.queries[0], len(self.queries)
        t = self.model.weight_map.split_stream
        embed, position = w["embed.W_E"], w["pos_embed.W_pos"][:, :n_pos]

        # Attention, once a seed: every token has the norm of token 0.
        mean_square = (embed[:, :1].square().sum(-1) + position.square().sum(-1)) / cfg.d_model
        inverse_rms = (mean_square + cfg.eps).rsqrt()  # [seed, pos]
        normalized = position * inverse_rms[..., None] * w["blocks.0.ln1.w"][:, None]
        q = torch.einsum("spd,shde->shpe", normalized[:, first:], w["blocks.0.attn.W_Q"])
        k = torch.einsum("spd,shde->shpe", normalized, w["blocks.0.attn.W_K"])
        scores = q @ k.transpose(-1, -2) / cfg.score_scale
        future = torch.ones(n_query, n_pos, dtype=torch.bool, device=tokens.device).triu(first + 1)
        mixing = F.softmax(scores.masked_fill(future, float("-inf")), -1) * inverse_rms[:, None, None]

        # What each token sends through each head, in the coordinates of the output's rank.
        left, right = self._output_factors(w)
        sent = torch.einsum("svd,shde,sher->shrv", embed * w["blocks.0.ln1.w"][:, None], w["blocks.0.attn.W_V"], left)
        n_heads, rank = sent.shape[1:3]
        index = tokens.reshape(n_seeds, 1, -1).expand(-1, n_heads * rank, -1)
        arriving = sent.flatten(1, 2).gather(2, index).view(n_seeds, n_heads, rank, n_pos, n_rows)
        signal = torch.matmul(mixing[:, :, None], arriving).flatten(1, 2)  # [seed, head*rank, query, row]

        # The residual stream of the queries, features first.
        n = n_query * n_rows
        query_tokens = tokens[:, first:].reshape(n_seeds, 1, n).expand(-1, t, -1)
        own = embed[:, :, :t].transpose(1, 2).gather(2, query_tokens).view(n_seeds, t, n_query, n_rows)
        place = position[:, first:, t:].transpose(1, 2)[..., None].expand(-1, -1, -1, n_rows)
        stream = torch.cat((own, place), 1).view(n_seeds, cfg.d_model, n)
        right = right.flatten(1, 2)
        if right.shape[1] == 1:  # rank 1: a product that fuses with the sum, instead of a matrix product
            stream = stream + right.transpose(1, 2) * signal.view(n_seeds, 1, n)
        else:
            stream = stream + _mix(right, signal.view(n_seeds, -1, n))

        def gain(key: str) -> Float[Tensor, "seed d_model 1"]:
            return w[key][..., None]

        inverse_rms = (stream.square().mean(1, keepdim=True) + cfg.eps).rsqrt()
        pre = _mix(gain("blocks.0.ln2.w") * w["blocks.0.mlp.W_in"], stream) * inverse_rms
        stream = stream + _mix(w["blocks.0.mlp.W_out"], ACTIVATIONS[cfg.act_fn](pre))
        inverse_rms = (stream.square().mean(1, keepdim=True) + cfg.eps).rsqrt()
        logits = _mix(gain("ln_final.w") * w["unembed.W_U"], stream) * inverse_rms
        return logits.view(n_seeds, -1, n_query, n_rows)

    @staticmethod
    def _output_factors(w: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """W_O as left [seed, head, d_head, rank] times right [seed, head, rank, d_model]."""
        if "blocks.0.attn.W_O_left" in w:
            return w["blocks.0.attn.W_O_left"], w["blocks.0.attn.W_O_right"]
        w_o = w["blocks.0.attn.W_O"]
        identity = torch.eye(w_o.shape[2], dtype=w_o.dtype, device=w_o.device)
        return identity.expand(*w_o.shape[:2], -1, -1), w_o
