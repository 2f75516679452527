"""Tokens in batches, and examples in another order: what runs over many problems share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import UserError
from models.tasks import (
    first_rows,
)
from models.transformer import HookedModel


def slices(n: int, size: int) -> list[slice]:
    """``range(n)`` in slices of at most ``size``."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


#: Attention weights of one layer, over all its heads, that are computed at once.
WEIGHTS_AT_ONCE = 2**24


def chunks(
    tokens: Int[Tensor, "n pos"], model: HookedModel, size: int | None = None
) -> Iterator[Int[Tensor, "chunk pos"]]:
    """Tokens in batches on the model's device, of ``size``, else of at most 512 and no more than memory allows."""
    device = getattr(model.cfg, "device", None)
    size = size or min(512, max(1, WEIGHTS_AT_ONCE // (model.cfg.n_heads * tokens.shape[1] ** 2)))
    for batch in tokens.split(size):
        yield batch if device is None else batch.to(device)


def right_tokens(logits: Float[Tensor, "n read d_vocab"], right: Int[Tensor, "n read"]) -> Bool[Tensor, "n read"]:
    """Mask, on the CPU, of where the right token has the largest logit; False where any logit is NaN."""
    logits = logits.cpu()
    return (logits.argmax(-1) == right) & ~logits.isnan().any(-1)


def distinct(
    problems: Int[Tensor, "n *operand"], as_key: Callable[[Tensor], Tensor] = lambda problems: problems
) -> Any:
    """Each problem once, in order of first appearance; problems with the same key count as one."""
    return problems[first_rows(as_key(problems).flatten(1))]


def derangement(n: int, seed: int) -> Int[Tensor, " n"]:
    """A random order of ``n`` examples in which none keeps its place. Raises UserError for fewer than two."""
    if n < 2:
        raise UserError("Resampling takes another example of the sample, so that it needs at least two.")
    generator = torch.Generator().manual_seed(seed)
    cycle = torch.randperm(n, generator=generator)  # one cycle through all of them
    return torch.empty_like(cycle).scatter(0, cycle, cycle.roll(1))
