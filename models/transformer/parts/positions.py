"""Where a token stands: learned tables, coupled ids, rotary angles and the FIRE bias."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import UserError
from models.transformer.config import TransformerConfig
from models.transformer.parts.shapes import PositionIds, ScoreBias, Stream, Tokens
from models.transformer.parts.values import has_values
from models.transformer.parts.weights import Weights, WeightView, weight_view


class PosEmbed(WeightView):
    """Adds ``W_pos``: by absolute position ("standard") or by the task's position ids ("coupled").

    Coupled positions (Position Coupling, ICLR 2025): level ``l`` of token ``t`` has an id, and the embedding is
    the sum of the levels' rows. The ids are a function of the tokens alone, so that tools that pass only tokens still
    work.
    """

    W_pos = weight_view("W_pos")  # [n_ctx, d_model], or [level, id, d_model]

    def forward(
        self, tokens: Tokens, position_ids: PositionIds | None = None, weights: Weights | None = None
    ) -> Stream:
        table = self.get(self.weights_or_own(weights), "W_pos")
        if self.config.positional_embedding_type == "coupled":
            ids = self._root[0].task.position_ids(tokens) if position_ids is None else position_ids
            if ids.shape[-1] != table.shape[0]:
                raise UserError(
                    f"This model has {table.shape[0]} levels of position ids, and these have {ids.shape[-1]}: "
                    "they belong to another task or format."
                )
            self.check_ids(ids)
            return reduce(torch.add, (table[level][ids[..., level]] for level in range(table.shape[0])))
        return table[: tokens.shape[1]].repeat(tokens.shape[0], 1, 1)  # a copy, as patches write in place

    def check_ids(self, ids: PositionIds) -> None:
        if not has_values(ids):
            return  # training draws offsets that stay within the table
        limits = self._root[0].position_limits
        for level, (highest, limit) in enumerate(zip(ids.flatten(0, 1).amax(0).tolist(), limits, strict=True)):
            if highest > limit:
                raise UserError(
                    f"This sequence needs position id {highest}, and this model's tables end at {limit} on level "
                    f"{level + 1}: fewer or shorter numbers are needed."
                )


def rotate(
    x: Float[Tensor, "batch pos head d_head"],
    cfg: TransformerConfig,
    positions: Int[Tensor, " pos"] | None = None,
) -> Float[Tensor, "batch pos head d_head"]:
    """Rotary embedding (RoFormer): pair ``i`` of position ``t`` is turned by ``t / factor * base^(-2i / rotary_dim)``,
    or by ``t`` times the config's own frequency. Dimensions from ``rotary_dim`` on stay as they are.

    ``positions`` says where the rows of ``x`` stand, if not at 0, 1, 2, ...
    """
    n_pos, turned_dims, adjacent_pairs = x.shape[1], cfg.rotated, cfg.rotary_adjacent_pairs
    if turned_dims < x.shape[-1]:
        return torch.cat((rotate(x[..., :turned_dims], cfg, positions), x[..., turned_dims:]), -1)
    half = turned_dims // 2
    precision = torch.float64 if x.dtype == torch.float64 else torch.float32  # never half: angles reach n_pos
    if cfg.rotary_frequencies is None:
        exponent = -torch.arange(half, device=x.device, dtype=precision) * 2 / turned_dims
        frequency = cfg.rotary_base**exponent / cfg.rotary_scaling_factor
    else:
        frequency = torch.tensor(cfg.rotary_frequencies, device=x.device, dtype=precision)
    positions = torch.arange(n_pos, device=x.device) if positions is None else positions
    angle = positions.to(precision)[:, None] * frequency  # [pos, half]
    cos, sin = angle.cos().to(x.dtype)[None, :, None], angle.sin().to(x.dtype)[None, :, None]
    if adjacent_pairs:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x[..., :half], x[..., half:]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(turned, -1).flatten(-2) if adjacent_pairs else torch.cat(turned, -1)


@dataclass(frozen=True, eq=False)
class WindowBias:
    """The bias that hides far keys: what a config with ``attn_window`` adds to the scores of all heads.

    A query sees the keys whose position ids minus its own are one of ``offsets``, and those without an id (BOS). So
    every pair of ids that can meet in a problem larger than those of training has met in training.
    """

    ids: Int[Tensor, "#batch pos level"]
    offsets: tuple[tuple[int, ...], ...]

    def __call__(self, start: int, stop: int) -> ScoreBias:
        """0 at visible keys and -inf at the others, for queries ``start`` to ``stop - 1`` and the first ``stop`` keys:
        [batch, 1, query, key]."""
        keys = self.ids[:, None, :stop]
        away = keys - self.ids[:, start:stop, None]
        visible = (keys == 0).all(-1)
        for offset in self.offsets:
            visible = visible | (away == torch.tensor(offset, device=away.device)).all(-1)
        return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, float("-inf"))[:, None]

    def of_rows(self, rows: Bool[Tensor, " batch"]) -> WindowBias:
        """The bias for some of the problems."""
        return self if len(self.ids) == 1 else replace(self, ids=self.ids[rows])


class FireBias(WeightView):
    """FIRE (Li et al., 2024): a learned bias on the scores, one function shared by all layers.

    ``b(i, j) = f(psi(i - j) / psi(max(L, i)))`` with ``psi(x) = log(c x + 1)`` and ``f`` an MLP 1-32-32-heads;
    ``c`` and ``L`` are learned in log form around ``fire_c`` and ``fire_L0`` by the weight map, if at all.
    ``fire_normaliser="min"`` is a mistake of the public Position Coupling code, kept for reproduction.
    """

    def forward(self, n_pos: int, weights: Weights | None = None) -> ScoreBias:
        return self.rows(0, n_pos, n_pos, weights)

    def rows(self, start: int, stop: int, n_keys: int, weights: Weights | None = None) -> ScoreBias:
        """The bias of queries ``start`` to ``stop - 1`` on the first ``n_keys`` keys."""
        weights = self.weights_or_own(weights)
        w_in = self.get(weights, "W_in")
        query = torch.arange(start, stop, device=w_in.device, dtype=w_in.dtype)
        distance = (query[:, None] - torch.arange(n_keys, device=w_in.device, dtype=w_in.dtype)).clamp(min=0)
        limit = torch.full_like(query, self.config.fire_L0)
        pick = torch.maximum if self.config.fire_normaliser == "max" else torch.minimum
        c = self.config.fire_c
        ratio = torch.log1p(c * distance) / torch.log1p(c * pick(limit, query)).clamp(min=1e-6)[:, None]
        hidden = torch.relu(ratio[..., None] @ w_in + self.get(weights, "b_in"))
        hidden = torch.relu(hidden @ self.get(weights, "W_mid") + self.get(weights, "b_mid"))
        return (hidden @ self.get(weights, "W_out") + self.get(weights, "b_out")).permute(2, 0, 1)
