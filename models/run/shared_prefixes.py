"""Logits of many sequences of which neighbours begin alike, such as all strings in order: each beginning is run once.

What a causal transformer computes at a position follows from the tokens up to there. So the rows that begin alike up to
a position share its residual streams, keys and values, and a new row costs the positions from its first new token on.
For all strings of n tokens out of v in their order that is v / (v - 1) positions a string, in place of n.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import UserError
from models.lens.lens_contract import LensContract
from models.run.decoding import Cached
from models.run.formulas import Formulas, has_run
from models.transformer.parts.shapes import Tokens
from models.transformer.parts.weights import Weights

#: Embeddings of a token that follow from it and its position alone.
BY_POSITION = ("standard", "rotary", "fire", "none")


def shares_prefixes(model: object) -> TypeGuard[LensContract]:
    """Whether :func:`logits_by_prefix` computes what a model does, up to rounding that hardly matters.

    It does matter in half precision, where sums in another order change logits by tenths, and where only the largest
    scores count, since another key is chosen wherever two are as good as equal.
    """
    if not has_run(model) or model.dtype not in (torch.float32, torch.float64):
        return False
    cfg = model.config
    return cfg.positional_embedding_type in BY_POSITION and cfg.attn_window is None and cfg.attn_top_k is None


def numbers_kept(model: LensContract, n_pos: int, n_positions: int) -> int:
    """How many numbers :func:`logits_by_prefix` holds for each row of ``n_pos`` tokens: keys, values and logits."""
    cfg = model.config
    return 2 * cfg.n_layers * n_pos * cfg.n_heads * cfg.d_head + n_positions * cfg.d_vocab


def beginnings(tokens: Tokens) -> Int[Tensor, "n pos"]:
    """Which beginning each row has up to each position, counted from 0; rows that begin alike must be neighbours."""
    new = torch.ones_like(tokens, dtype=torch.bool)
    new[1:] = (tokens[1:] != tokens[:-1]).cummax(1).values
    return new.cumsum(0) - 1


@torch.no_grad()
def logits_by_prefix(
    model: LensContract, tokens: Tokens, positions: list[int], weights: Weights
) -> Float[Tensor, "n position d_vocab"]:
    """The model's logits at some positions, the same as ``model(tokens)`` gives up to rounding.

    Cost: every weight once for each different beginning, and for each of them the keys and values of the positions
    before it, copied.

    Raises:
        UserError: a model of which :func:`shares_prefixes` is false.
    """
    if not shares_prefixes(model):
        raise UserError(f"{model.name_or_path} has parts whose beginnings cannot be shared.")
    which, last, found = beginnings(tokens), max(positions), []
    step = Cached(Formulas(model, weights), 1, last + 1)
    for place in range(last + 1):
        own = which[:, place].contiguous()
        rows = torch.searchsorted(own, torch.arange(int(own[-1]) + 1, device=own.device))  # one for each beginning
        step.follow(which[rows, place - 1] if place else torch.zeros_like(rows))
        if place in positions:
            found.append(step(tokens[rows, : place + 1], None)[own])
        else:
            step.read(tokens[rows, : place + 1], None, to_the_end=False)
    return torch.stack(found, 1)
