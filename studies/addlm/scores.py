"""Reading L1 scores: per-coordinate terms, and similarity plus key bias in place of W_QK.

A score is a sum over coordinates, so its attribution to them is exact: ``score = sum_c -|q_c - k_c| / s``. It is not
bilinear, and there is no W_QK whose singular vectors could be read. Instead, |a - b| = a + b - 2 min gives:

    score(q, k) = 2 sum_c min(q_c, k_c) / s  -  sum_c k_c / s  -  sum_c q_c / s
                  similarity                   key bias          the same for all keys of a query

and the last term drops out of the softmax and of the choice of the best keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.stats import mean_interval
from interp.core.views import Bars, Picture, Series
from models.errors import UserError
from models.number_format import small
from models.transformer import model_name
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.part_names import head_name, in_block

_AT_ONCE = 4  # windows: the terms are [window, head, query, key, d_head]


def score_terms(
    q: Float[Tensor, "*batch query d_head"], k: Float[Tensor, "*batch key d_head"], scale: float
) -> Float[Tensor, "*batch query key d_head"]:
    """``-|q_c - k_c| / scale`` for every coordinate; the sum over the last axis is the score."""
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs() / scale


@dataclass(frozen=True)
class MinSimilarity:
    """The three parts that add up to L1 scores."""

    similarity: Float[Tensor, "*batch query key"]
    key_bias: Float[Tensor, "*batch key"]
    query_term: Float[Tensor, "*batch query"]

    @property
    def scores(self) -> Float[Tensor, "*batch query key"]:
        return self.similarity + self.key_bias.unsqueeze(-2) + self.query_term.unsqueeze(-1)


def min_similarity(
    q: Float[Tensor, "*batch query d_head"], k: Float[Tensor, "*batch key d_head"], scale: float
) -> MinSimilarity:
    """``2 sum min(q, k) / s``, ``-sum k / s`` and ``-sum q / s``."""
    similarity = 2 * torch.minimum(q.unsqueeze(-2), k.unsqueeze(-3)).sum(-1) / scale
    return MinSimilarity(similarity, -k.sum(-1) / scale, -q.sum(-1) / scale)


@dataclass(frozen=True, eq=False)
class ScoreReading(Result):
    """One row per head, with means over windows and intervals over them.

    The advantage of a query's best key is its score minus the mean score of all earlier keys. It is a sum over
    coordinates, and also the sum of similarity and key bias.

    ``coordinates``: how many carry it, ``(sum_c |a_c|)^2 / sum_c a_c^2`` of the mean advantage ``a_c`` of each, between
    1 and d_head. ``top_share``: the largest coordinate's share. ``bias_share``: the key bias's share of the advantage
    (negative where it works against the choice). ``bias_spread``: variance of the key bias over earlier keys, over that
    of the whole score; the similarity can cancel it, so it may exceed 1. ``error``: the largest difference between a
    score and the sum of its parts, float32."""

    model: str
    table: pd.DataFrame
    error: float
    provenance: Provenance

    def sentence(self) -> str:
        n, share = self.table["coordinates"], self.table["bias_share"]
        return (
            f"The advantage of the best key is spread over {n.min():.1f} to {n.max():.1f} coordinates of a head; the "
            f"key bias gives {share.min():+.0%} to {share.max():+.0%} of it."
        )


def read_scores(model: ArithmeticTransformer, tokens: Int[Tensor, "window pos"], source: str) -> ScoreReading:
    """How coordinates and key bias give each query's best key its advantage, for queries with more than ``top_k`` keys.

    Raises:
        UserError: a model whose scores are not L1 distances.
    """
    cfg = model.config
    if cfg.attn_scores != "neg_l1":
        raise UserError(f"Only L1 scores are sums over coordinates; this model's are {cfg.attn_scores!r}.")
    first, error = cfg.attn_top_k or 1, 0.0
    parts: dict[str, list[Tensor]] = {}
    advantage = [torch.zeros(cfg.n_heads, cfg.d_head, dtype=torch.float64) for _ in range(cfg.n_layers)]
    for rows in tokens.split(_AT_ONCE):
        with torch.no_grad():
            _, cache = model.run_with_cache(
                rows, names_filter=lambda n: n.endswith(("hook_q", "hook_k", "attn_scores"))
            )
        measured: dict[str, list[Tensor]] = {}
        for layer in range(cfg.n_layers):
            q, k = (cache[name, layer].transpose(1, 2) for name in ("q", "k"))
            scores = cache[in_block(layer, "attn.hook_attn_scores")]
            found, by_coordinate, difference = _read_layer(q, k, scores, cfg.score_scale, first)
            advantage[layer] += by_coordinate.double().sum(0)
            error = max(error, difference)
            for name, value in found.items():
                measured.setdefault(name, []).append(value)
        for name, layers in measured.items():
            parts.setdefault(name, []).append(torch.stack(layers, 1))
    joined = {name: torch.cat(part).double() for name, part in parts.items()}
    table = []
    for layer in range(cfg.n_layers):
        for head in range(cfg.n_heads):
            a = advantage[layer][head].abs()
            row: dict[str, Any] = {
                "head": head_name(layer, head),
                "coordinates": float(a.sum() ** 2 / (a**2).sum()),
                "top_share": float(a.max() / a.sum()),
            }
            for name, values in joined.items():
                row[name], row[f"{name}_low"], row[f"{name}_high"] = mean_interval(values[:, layer, head].numpy())
            table.append(row)
    provenance = Provenance(len(tokens), None, source)
    return ScoreReading(model_name(model), pd.DataFrame(table), error, provenance)


def _read_layer(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head key d_head"],
    scores: Float[Tensor, "batch head query key"],
    scale: float,
    first: int,
) -> tuple[dict[str, Tensor], Float[Tensor, "batch head d_head"], float]:
    """Measures [batch, head], the advantage by coordinate, and the largest error of the two decompositions."""
    seen = scores > float("-inf")
    terms, parts = score_terms(q, k, scale), min_similarity(q, k, scale)
    whole = torch.where(seen, scores, torch.zeros_like(scores))
    errors = (((x - whole) * seen).abs().max() for x in (terms.sum(-1), parts.scores))
    difference = float(torch.stack(list(errors)).max())

    n_seen = seen.sum(-1, keepdim=True)
    best = scores.argmax(-1, keepdim=True)
    mean_term = (terms * seen[..., None]).sum(-2) / n_seen
    at_best = terms.gather(-2, best[..., None].expand(*best.shape, terms.shape[-1])).squeeze(-2)
    by_coordinate = (at_best - mean_term)[:, :, first:].mean(2)

    bias = parts.key_bias[:, :, None].expand_as(scores)
    mean_bias = (bias * seen).sum(-1, keepdim=True) / n_seen
    of_bias = (bias.gather(-1, best) - mean_bias)[:, :, first:, 0].mean(2)
    variance = lambda x, mean: (((x - mean) ** 2) * seen).sum(-1, keepdim=True) / n_seen  # noqa: E731
    mean_score = whole.sum(-1, keepdim=True) / n_seen
    spread = variance(bias, mean_bias)[:, :, first:, 0].mean(2) / variance(whole, mean_score)[:, :, first:, 0].mean(2)
    found = {"bias_share": of_bias / by_coordinate.sum(-1), "bias_spread": spread}
    return found, by_coordinate, difference


@drawing(ScoreReading)
def score_reading_view(result: ScoreReading) -> Picture:
    """How many coordinates carry the best key's advantage, and the key bias's share of it."""
    rows, ends = result.table, ("bias_share_low", "bias_share_high")
    counts = Series.of(rows, "head", "coordinates", said=("top_share",))
    shares = Series.of(rows, "head", "bias_share", "key bias", ends)
    views = [Bars("", "coordinates", series=[counts]), Bars("", "key bias's share", series=[shares], scale="share")]
    note = f"Scores and sums of their parts differ by at most {small(result.error)} (float32)"
    return Picture(views, columns=1, note=note, shared="x")
