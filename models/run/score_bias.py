"""What is added to attention scores: -inf at later keys, FIRE's bias, and what hides keys outside a window of ids."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from models.lens.lens_contract import LensContract
from models.transformer.parts.positions import WindowBias
from models.transformer.parts.weights import Weights

#: ``window(start, stop)`` is added to the scores of those queries on the first ``stop`` keys.
Window = WindowBias


def future(start: int, stop: int, n_keys: int, like: Tensor) -> Float[Tensor, "query key"]:
    """-inf at keys after the queries at ``start`` to ``stop - 1``, else 0: numbers, as torch's attention would convert
    booleans at each call, which costs as much as some products."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _future(start, stop, n_keys, like.dtype, like.device)
    return _kept_future(start, stop, n_keys, like.dtype, like.device)


def _future(start: int, stop: int, n_keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((stop - start, n_keys), float("-inf"), dtype=dtype, device=device).triu(1 + start)


@lru_cache(maxsize=256)
def _kept_future(start: int, stop: int, n_keys: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # else a later run with gradients could not save it
        return _future(start, stop, n_keys, dtype, device)


class FireTable:
    """FIRE's bias for many batches and layers: computed once, and again when longer sequences come.

    The hooked forward's [query, key, 32] would take half a gigabyte at 2,013 tokens; rows are taken a few at a time.
    With gradients it is computed in one piece for each length.
    """

    def __init__(self, model: LensContract, weights: Weights):
        self.model, self.weights = model, weights
        self.table: Tensor | None = None

    def __call__(self, n: int) -> Float[Tensor, "head n n"]:
        """The bias of the first ``n`` positions on themselves."""
        if torch.is_grad_enabled():
            whole = self.table
            if whole is None or whole.shape[1] != n:
                whole = self.table = self.model.fire(n, self.weights)
            return whole
        if self.table is None or self.table.shape[1] < n:
            size = n if self.table is None else max(n, self.table.shape[1] * 3 // 2)
            rows = max(1, 2**17 // size)
            parts = [self.model.fire.rows(a, min(a + rows, size), size, self.weights) for a in range(0, size, rows)]
            self.table = torch.cat(parts, 1)
        return self.table[:, :n, :n]


def repeated(window: Window | None, times: int, inner: bool = False) -> Window | None:
    """The window of a batch that is repeated, as a whole or (``inner``) row by row."""
    if window is None or len(window.ids) == 1:
        return window
    ids = window.ids.repeat_interleave(times, 0) if inner else window.ids.repeat(times, 1, 1)
    return type(window)(ids, window.offsets)
