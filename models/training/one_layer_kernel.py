"""The objective of small one-layer models whose attention depends on the tokens, by one compiled kernel.

It is for the 456-parameter family and the upper rungs of MicroAdder's ladder: one layer, normalised before each
sublayer and at the end, softmax attention over learned positions, an erf-GELU MLP. The kernel
(``native/one_layer.c``) takes sixteen problems as one vector and computes the loss and its gradient in one pass; after
attention, it takes only the queries that carry loss. What happens once per step and not once per problem stays in
torch, where autograd sees it:

* a norm's gain and bias are folded into the matrices that read it;
* low ranks are used: with ``W_K = L R`` scores are ``(h W_Q R^T) . (h L)``, with ``W_O = L R`` values are ``h W_V L``,
  both of the rank's size. A weight map then gives the factors (:data:`FACTORS`) in addition to the matrices.

It equals :class:`models.training.stacked_objective.GeneralObjective` up to rounding, which is its fallback without a
compiler, on CUDA and in other dtypes; the tests check this.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from models.training.compiled_loss import FusedLoss, in_a_struct, is_plain_layer
from models.training.native.compiled_kernels import FAST, LANES, library, pointers
from models.training.stacked_objective import GeneralObjective, Parameters, PerSeed, Targets, Tokens
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.weights import Weights, is_bias

#: Factors that weight maps may add to ``blocks.0.attn.W_K`` and ``W_O``: [head, rows, rank] and [head, rank, columns].
FACTORS = tuple(f"blocks.0.attn.{name}" for name in ("W_K_left", "W_K_right", "W_O_left", "W_O_right"))


class Folded(NamedTuple):
    """What the kernel reads, all with a leading seed axis; the scale of the scores is in ``w_q`` and ``b_q``."""

    embed: Float[Tensor, "seed vocab d_model"]
    place: Float[Tensor, "seed pos d_model"]
    w_q: Float[Tensor, "seed head d_model key"]
    w_k: Float[Tensor, "seed head d_model key"]
    w_v: Float[Tensor, "seed head d_model value"]
    w_o: Float[Tensor, "seed head value d_model"]
    w_in: Float[Tensor, "seed d_model d_mlp"]
    w_out: Float[Tensor, "seed d_mlp d_model"]
    w_u: Float[Tensor, "seed d_model vocab"]
    b_q: Float[Tensor, "seed head key"]
    b_k: Float[Tensor, "seed head key"]
    b_v: Float[Tensor, "seed head value"]
    b_o: Float[Tensor, "seed d_model"]
    b_in: Float[Tensor, "seed d_mlp"]
    b_out: Float[Tensor, "seed d_model"]
    b_u: Float[Tensor, "seed vocab"]


class OneLayerObjective(GeneralObjective):
    """:class:`GeneralObjective` for one-layer models, through the kernel if rows and device allow it."""

    def __init__(self, model: ArithmeticTransformer):
        super().__init__(model)
        weights = {key: value[None] for key, value in model.effective_weights().items()}
        self.has_biases = any(is_bias(key) for key in weights)
        self.kernel = self._kernel(self.fold(weights))
        if self.has_kernel:
            self.group_size = 64  # the kernel takes one seed at a time; stacking hides the overhead of the rest

    @staticmethod
    def applies_to(model: ArithmeticTransformer) -> bool:
        cfg, queries = model.config, list(model.task.query_positions)
        return (
            is_plain_layer(cfg)
            and not cfg.attn_bias
            and cfg.d_mlp <= 64
            and cfg.act_fn == "gelu"
            and cfg.d_vocab <= LANES
            and cfg.d_model <= 16  # in wider models the accumulators leave the cache and matrix products are better
            and queries == list(range(queries[0], queries[-1] + 1))
        )

    def compile(self) -> None:
        """Compile the general objective with torch.compile; with the kernel, do nothing."""
        if not self.has_kernel:
            super().compile()

    def fold(self, w: Weights) -> Folded:
        """The kernel's arrays from effective weights with a leading seed axis."""
        cfg, attn, mlp = self.model.config, "blocks.0.attn", "blocks.0.mlp"
        n_pos = self.queries[-1] + 1
        like = w["embed.W_E"]

        def bias(key: str, *shape: int) -> Tensor:
            return w[key] if key in w else like.new_zeros(like.shape[0], *shape)

        def after(norm: str, matrix: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
            """Matrix and bias for the normalised stream before gain; ``matrix`` is [seed, *head, d_model, columns]."""
            gain = w[f"{norm}.w"].view(-1, *[1] * (matrix.ndim - 3), cfg.d_model, 1)
            if f"{norm}.b" in w:
                shift = w[f"{norm}.b"].view(-1, *[1] * (matrix.ndim - 3), 1, cfg.d_model)
                own = own + (shift @ matrix).squeeze(-2)
            return gain * matrix, own

        heads = (cfg.n_heads, cfg.d_head)
        w_q, b_q = w[f"{attn}.W_Q"], bias(f"{attn}.b_Q", *heads)
        w_k, b_k = w[f"{attn}.W_K"], bias(f"{attn}.b_K", *heads)
        if f"{attn}.W_K_left" in w and f"{attn}.b_K" not in w:
            right = w[f"{attn}.W_K_right"].mT
            w_q, b_q, w_k = w_q @ right, (b_q[..., None, :] @ right).squeeze(-2), w[f"{attn}.W_K_left"]
            b_k = like.new_zeros(like.shape[0], cfg.n_heads, w_k.shape[-1])
        w_v, b_v, w_o = w[f"{attn}.W_V"], bias(f"{attn}.b_V", *heads), w[f"{attn}.W_O"]
        if f"{attn}.W_O_left" in w:
            left, w_o = w[f"{attn}.W_O_left"], w[f"{attn}.W_O_right"]
            w_v, b_v = w_v @ left, (b_v[..., None, :] @ left).squeeze(-2)
        w_q, b_q = after("blocks.0.ln1", w_q / cfg.score_scale, b_q / cfg.score_scale)
        w_k, b_k = after("blocks.0.ln1", w_k, b_k)
        w_v, b_v = after("blocks.0.ln1", w_v, b_v)
        w_in, b_in = after("blocks.0.ln2", w[f"{mlp}.W_in"], bias(f"{mlp}.b_in", cfg.d_mlp))
        w_u, b_u = after("ln_final", w["unembed.W_U"], bias("unembed.b_U", cfg.d_vocab))
        return Folded(
            embed=like,
            place=w["pos_embed.W_pos"][:, :n_pos],
            w_q=w_q,
            w_k=w_k,
            w_v=w_v,
            w_o=w_o,
            w_in=w_in,
            w_out=w[f"{mlp}.W_out"],
            w_u=w_u,
            b_q=b_q,
            b_k=b_k,
            b_v=b_v,
            b_o=bias(f"{attn}.b_O", cfg.d_model),
            b_in=b_in,
            b_out=bias(f"{mlp}.b_out", cfg.d_model),
            b_u=b_u,
        )

    def loss(self, parameters: Parameters, tokens: Tokens, targets: Targets) -> PerSeed:
        if not self.takes_kernel(tokens):
            return super().loss(parameters, tokens, targets)
        folded = self.fold(self.effective_weights(parameters))
        tokens = tokens[:, : self.queries[-1] + 1]
        return FusedLoss.apply(self.kernel, in_a_struct, self.model.config.eps, tokens, targets, *folded)

    def predictions(self, parameters: Parameters, tokens: Tokens) -> Targets:
        """The most likely token for every target, by the kernel's forward pass; NaN among the logits gives 255."""
        n_rows = tokens.shape[-1]
        padded = F.pad(tokens, (0, -n_rows % LANES)).to(torch.uint8)
        if not self.takes_kernel(padded):
            return super().predictions(parameters, tokens)
        padded = padded[:, : self.queries[-1] + 1].contiguous()
        arrays = [array.detach().contiguous() for array in self.fold(self.effective_weights(parameters))]
        predicted = torch.empty(len(padded), len(self.queries), padded.shape[-1], dtype=torch.uint8)
        self.kernel.predictions(
            len(padded),
            padded.shape[-1],
            *pointers([padded]),
            ctypes.c_float(self.model.config.eps),
            *in_a_struct(arrays),
            *pointers([predicted]),
        )
        return predicted[..., :n_rows]

    def _kernel(self, folded: Folded) -> Any:
        """The kernel for this model's shapes, or None if it cannot be built."""
        cfg = self.model.config
        shape = {
            "NQ": len(self.queries),
            "NP": self.queries[-1] + 1,
            "FIRST": self.queries[0],
            "ND": cfg.d_model,
            "NM": cfg.d_mlp,
            "NV": cfg.d_vocab,
            "NH": cfg.n_heads,
            "NK": folded.w_k.shape[-1],
            "NR": folded.w_v.shape[-1],
            "CENTRE": int(cfg.normalization_type == "LN"),
            "BIAS": int(self.has_biases),
        }
        return library("one_layer.c", *FAST, *(f"-D{key}={value}" for key, value in shape.items()))
