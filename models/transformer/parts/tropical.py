"""AddLM's attention scores, and attention with them that keeps neither patterns nor [query, key, d] differences.

For one query q and the keys k_j up to its own position, where larger is better:

    neg_l1     score_j = -sum_c |q_c - k_jc|          max_plus   score_j = max_c (q_c + k_jc)

AddLM calls the first tropical. It is not the inner product of tropical (max-plus) algebra, which is the second; it is
``2 sum_c min(q_c, k_jc) - sum_c q_c - sum_c k_jc``. Scores are then divided by the config's scale; the softmax runs
over the best ``top_k`` of them, and keys that equal the last of those take part as well.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from models.transformer.config import ScoreKind
from models.transformer.parts.tropical_kernel import Keys, Queries, fused_tropical_attention

#: Scores to hold at a time, over all heads and problems: 4 MiB of float32, which stays in a core's cache.
SCORES_AT_ONCE = 2**20
FEWEST_QUERIES = 16


def pair_scores(
    q: Float[Tensor, "*batch query d_head"], k: Float[Tensor, "*batch key d_head"], kind: ScoreKind
) -> Float[Tensor, "*batch query key"]:
    """Unscaled scores of all pairs, in at least float32. No tensor holds more than one number per pair.

    Gradients: for |q_c - k_c| the sign, 0 where both are equal; for the maximum, 1 at the first coordinate to reach it.
    """
    if kind == "dot":
        return q @ k.transpose(-1, -2)
    precision = torch.promote_types(q.dtype, torch.float32)  # torch has no half-precision cdist
    q, k = q.to(precision), k.to(precision)
    return -torch.cdist(q, k, p=1.0) if kind == "neg_l1" else _max_plus(q, k)


def attend(q: Queries, k: Keys, v: Keys, kind: ScoreKind, scale: float, top_k: int | None) -> Queries:
    """``z = softmax(best top_k of scores / scale) v`` for queries at the last positions of the keys, causally.

    The numbers are those of the hooked forward, without its patterns: queries are taken a few at a time. With
    ``top_k`` the backward pass touches the chosen keys only, which is the exact gradient (it is zero for other keys);
    without, it computes each block's scores again. Memory in addition to input and output: top_k numbers per query, or
    a few :data:`SCORES_AT_ONCE`. Cost: query x key x d_head for the scores, which top-k does not reduce.

    Negative L1 with ``top_k`` in float32 on a CPU uses the compiled kernel if there is a compiler.
    """
    dtype, precision = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k, v = (x.to(precision) for x in (q, k, v))
    if kind == "neg_l1" and top_k is not None and precision == torch.float32 and q.device.type == "cpu":
        return fused_tropical_attention(q, k, v, scale, top_k).to(dtype)
    return attend_in_blocks(q, k, v, kind, scale, top_k).to(dtype)


def attend_in_blocks(q: Queries, k: Keys, v: Keys, kind: ScoreKind, scale: float, top_k: int | None) -> Queries:
    """:func:`attend` in torch alone, for every kind of score and every device."""
    if top_k is not None:
        return _ChosenKeys.apply(q, k, v, kind, scale, top_k)
    parts = []
    bounds = _blocks(q, k)
    for a, b in bounds:
        seen = k.shape[2] - q.shape[2] + b
        block = (q[:, :, a:b], k[:, :, :seen], v[:, :, :seen], kind, scale)
        alone = len(bounds) == 1 or not torch.is_grad_enabled()
        parts.append(_attend_densely(*block) if alone else checkpoint(_attend_densely, *block, use_reentrant=False))
    return torch.cat(parts, 2)


def _blocks(q: Tensor, k: Tensor) -> list[tuple[int, int]]:
    step = max(FEWEST_QUERIES, SCORES_AT_ONCE // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    return [(a, min(a + step, q.shape[2])) for a in range(0, q.shape[2], step)]


def _causal_scores(q: Tensor, k: Tensor, kind: ScoreKind, scale: float) -> Float[Tensor, "batch head query key"]:
    """Scaled scores of queries at the last positions of the keys, -inf at keys after them."""
    n_query, n_key = q.shape[2], k.shape[2]
    future = torch.ones(n_query, n_key, dtype=torch.bool, device=q.device).triu(1 + n_key - n_query)
    return (pair_scores(q, k, kind) / scale).masked_fill(future, float("-inf"))


def _attend_densely(q: Tensor, k: Tensor, v: Tensor, kind: ScoreKind, scale: float) -> Tensor:
    return F.softmax(_causal_scores(q, k, kind, scale), -1) @ v


class _ChosenKeys(torch.autograd.Function):
    """Top-k attention whose backward pass sees only the chosen keys."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kind: ScoreKind, scale: float, top_k: int) -> Tensor:
        parts, saved = [], []
        for a, b in _blocks(q, k):
            seen = k.shape[2] - q.shape[2] + b
            scores = _causal_scores(q[:, :, a:b], k[:, :, :seen], kind, scale)
            chosen, weight = _choose(scores, top_k)
            parts.append(torch.einsum("bhqk,bhqkd->bhqd", weight, _rows(v, chosen)))
            saved += [chosen, weight]
        ctx.save_for_backward(q, k, v, *saved)
        ctx.kind, ctx.scale = kind, scale
        return torch.cat(parts, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved = ctx.saved_tensors
        d_q, d_k, d_v = [], k.new_zeros(k.shape), v.new_zeros(v.shape)
        for (a, b), chosen, weight in zip(_blocks(q, k), saved[::2], saved[1::2], strict=True):
            grad = d_z[:, :, a:b]
            d_weight = (grad[:, :, :, None] * _rows(v, chosen)).sum(-1)
            d_score = weight * (d_weight - (weight * d_weight).sum(-1, keepdim=True)) / ctx.scale
            _add_rows(d_v, chosen, weight[..., None] * grad[:, :, :, None])
            to_query, to_key = _score_gradients(q[:, :, a:b, None], _rows(k, chosen), d_score[..., None], ctx.kind)
            d_q.append(to_query.sum(3))
            _add_rows(d_k, chosen, to_key)
        return torch.cat(d_q, 2), d_k, d_v, None, None, None


def _choose(
    scores: Float[Tensor, "batch head query key"], top_k: int
) -> tuple[Int[Tensor, "batch head query chosen"], Float[Tensor, "batch head query chosen"]]:
    """Indices and softmax weights of the keys that take part; places that a query does not need have weight 0."""
    k = min(top_k, scores.shape[-1])
    best, chosen = scores.topk(k, -1)
    least = best[..., -1:]
    most = int(((scores >= least) & (scores > float("-inf"))).sum(-1).max())
    if most > k:  # a tie for the last place: all of them take part
        best, chosen = scores.topk(most, -1)
        best = best.masked_fill(best < least, float("-inf"))
    return chosen, best.softmax(-1)


def _score_gradients(q: Tensor, k: Tensor, d_score: Tensor, kind: ScoreKind) -> tuple[Tensor, Tensor]:
    """Gradients from ``d_score`` [..., query, key, 1] for queries [..., query, 1, d] and keys [..., query, key, d]."""
    if kind == "dot":
        return d_score * k, d_score * q
    if kind == "neg_l1":
        towards = d_score * (k - q).sign()
        return towards, -towards
    first = F.one_hot((q + k).argmax(-1), q.shape[-1]).to(d_score.dtype) * d_score
    return first, first


def _rows(x: Keys, index: Int[Tensor, "batch head query chosen"]) -> Float[Tensor, "batch head query chosen d_head"]:
    """Row ``index`` of each head's own ``x``."""
    flat = _flat_index(x, index)
    return x.reshape(-1, x.shape[-1])[flat].view(*index.shape, x.shape[-1])


def _add_rows(x: Keys, index: Tensor, rows: Float[Tensor, "batch head query chosen d_head"]) -> None:
    x.view(-1, x.shape[-1]).index_add_(0, _flat_index(x, index), rows.reshape(-1, x.shape[-1]))


def _flat_index(x: Tensor, index: Tensor) -> Int[Tensor, " n"]:
    first = torch.arange(0, x.shape[0] * x.shape[1] * x.shape[2], x.shape[2], device=x.device)
    return (index + first.view(*x.shape[:2], 1, 1)).flatten()


# ---- max-plus


class _MaxPlus(torch.autograd.Function):
    """One coordinate at a time, forward and backward, so that no tensor [query, key, d] is kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor) -> Tensor:
        best = _sums(q, k, 0)
        for c in range(1, q.shape[-1]):
            best = torch.maximum(best, _sums(q, k, c))
        return best

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        q, k, best = ctx.saved_tensors
        d_q, d_k = [], []
        for c in range(q.shape[-1]):
            here = torch.where(_sums(q, k, c) == best, grad, 0.0)
            grad = grad - here  # the first coordinate gets all of the gradient
            d_q.append(here.sum(-1))
            d_k.append(here.sum(-2))
        return torch.stack(d_q, -1), torch.stack(d_k, -1)


def _sums(q: Tensor, k: Tensor, c: int) -> Tensor:
    return q[..., :, None, c] + k[..., None, :, c]


def _max_plus(
    q: Float[Tensor, "*batch query d_head"], k: Float[Tensor, "*batch key d_head"]
) -> Float[Tensor, "*batch query key"]:
    """``max_c (q_c + k_c)``, the inner product of tropical algebra."""
    found = _MaxPlus.apply(q, k)
    assert isinstance(found, Tensor)
    return found
