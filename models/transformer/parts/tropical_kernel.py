"""Causal attention by negative L1 distance over the best k keys: eager, and as one compiled kernel.

AddLM's attention (papers: AddLM, "Tropical attention"), for one query at position i of the keys:

    score_j = -|q - k_j|_1 / scale,  j <= i;   chosen = {j: score_j >= the top_k-th best};   z = softmax(chosen) v

Keys that equal the top_k-th best all take part. The compiled kernel (``models/training/native/tropical.c``) writes no
[query, key] matrix: memory is top_k numbers per query, and the gradient touches the chosen keys only. That gradient is
exact, as it is zero for other keys. There are no patterns to hook, so the hooked forward is always eager.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from models.errors import UserError
from models.training.native.compiled_kernels import library, pointers

Queries = Float[Tensor, "batch head query d_head"]
Keys = Float[Tensor, "batch head key d_head"]

# No reassociation: the source fixes the order of every sum.
_FLAGS = ("-fno-math-errno", "-fno-trapping-math")
_WIDEST = 512  # a block of queries lies on the stack
_LARGEST_SUM = torch.finfo(torch.float32).max / 8  # limit for sums of coordinates, over keys or a head


def fused_available(d_head: int = 32) -> bool:
    """Whether the compiled kernel is available for heads of this width; the first call builds it (seconds)."""
    return kernel_of_width(d_head) is not None


def fused_tropical_attention(q: Queries, k: Keys, v: Keys, scale: float, top_k: int | None) -> Queries:
    """``z`` by the compiled kernel where it applies (float32, CPU, a compiler), else :func:`eager_tropical_attention`.

    The queries stand at the last positions of the keys. Cost: query * key * d_head / 2 minima and additions per head,
    and for the gradient top_k * d_head per query. Equal scores are equal in the kernel too if sums are exact; scores
    that differ in the last bits can swap, as they do between any two orders of summation.

    Raises:
        UserError: no ``top_k``, more queries than keys, shapes that do not fit.
    """
    top_k = _checked(q, k, v, scale, top_k)
    if q.dtype in (torch.bfloat16, torch.float16):  # autocast: distances, as sums of many terms, are float32
        return fused_tropical_attention(q.float(), k.float(), v.float(), scale, top_k).to(q.dtype)
    kernel = kernel_of_width(q.shape[-1]) if _takes(q) and _takes(k) and _takes(v) else None
    if kernel is None or 0 in (q.numel(), k.numel()):
        return eager_tropical_attention(q, k, v, scale, top_k)
    return _outside_compilation()(kernel, q, k, v, float(scale), top_k)


def eager_tropical_attention(q: Queries, k: Keys, v: Keys, scale: float, top_k: int | None) -> Queries:
    """The same attention in torch, for any dtype and device; scores and patterns are [batch, head, query, key].

    Raises:
        UserError: as for :func:`fused_tropical_attention`.
    """
    top_k = _checked(q, k, v, scale, top_k)
    n_query, n_key = q.shape[2], k.shape[2]
    scores = -torch.cdist(q, k, p=1.0) / scale
    future = torch.ones(n_query, n_key, dtype=torch.bool, device=q.device).triu(1 + n_key - n_query)
    scores = scores.masked_fill(future, float("-inf"))
    threshold = scores.topk(min(top_k, n_key), dim=-1).values[..., -1:]
    return F.softmax(scores.masked_fill(scores < threshold, float("-inf")), -1) @ v


def _checked(q: Tensor, k: Tensor, v: Tensor, scale: float, top_k: int | None) -> int:
    """``top_k``, if all arguments fit together."""
    if top_k is None or top_k < 1:
        raise UserError(f"The fused attention chooses the best top_k keys; top_k must be at least 1, not {top_k}.")
    if scale <= 0:
        raise UserError(f"The scale of the scores must be positive, not {scale}.")
    if k.shape != v.shape or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise UserError(f"Queries {list(q.shape)}, keys {list(k.shape)} and values {list(v.shape)} do not fit.")
    if q.shape[2] > k.shape[2]:
        raise UserError(f"{q.shape[2]} queries do not stand among {k.shape[2]} keys.")
    return int(top_k)


def _takes(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[-1] <= _WIDEST


def kernel_of_width(d_head: int) -> ctypes.CDLL | None:
    """The compiled kernel for heads of this width, or None if it cannot be built."""
    return library("tropical.c", *_FLAGS, f"-DND={d_head}")


class _Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "row")]


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("heads", "queries", "keys", "top", "room")),
        ("scale", ctypes.c_float),
        ("one", ctypes.c_float),
        *((name, _Strides) for name in "qkvz"),
    ]


def _shape(q: Tensor, k: Tensor, v: Tensor, z: Tensor, scale: float, top_k: int, room: int) -> _Shape:
    strides = (_Strides(*x.stride()[:3]) for x in (q, k, v, z))
    return _Shape(q.shape[1], q.shape[2], k.shape[2], min(top_k, k.shape[2]), room, scale, 1.0, *strides)


def _rows_contiguous(x: Tensor) -> Tensor:
    """``x`` with contiguous coordinates and no shared elements (as when expanded), so its gradient has its layout."""
    x = x.detach()
    return x if x.stride(-1) == 1 and torch.empty_like(x).stride() == x.stride() else x.contiguous()


def _run(function: Any, problems: int, shape: _Shape, arrays: list[ctypes.c_void_p]) -> int:
    """The largest return value of a C function over all (batch, head) pairs, split over torch's number of threads."""
    n = min(torch.get_num_threads(), problems)
    edges = [ctypes.c_int64(problems * i // n) for i in range(n + 1)]
    call = lambda first, last: function(first, last, ctypes.byref(shape), *arrays)  # noqa: E731
    if n == 1:
        found = [call(*edges)]
    else:
        with ThreadPoolExecutor(n) as pool:
            found = list(pool.map(call, edges[:-1], edges[1:]))
    if min(found) < 0:
        raise MemoryError("The attention kernel found no memory for its buffers.")
    return max(found)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, top_k: int) -> Tensor:
        q, k, v = (_rows_contiguous(x) for x in (q, k, v))
        z = torch.empty_like(q)
        rows = q.shape[:3].numel()
        room = min(top_k, k.shape[2])
        count = torch.empty(rows, dtype=torch.int32)
        while True:
            key, weight = torch.empty(rows, room, dtype=torch.int32), torch.empty(rows, room)
            shape = _shape(q, k, v, z, scale, top_k, room)
            arrays = pointers([q, k, v, z, key, weight, count])
            found = _run(kernel.forward, q.shape[0] * q.shape[1], shape, arrays)
            if found <= room:
                break
            room = found  # equal scores: a query chose more than top_k keys
        ctx.save_for_backward(q, k, v, key, weight, count)
        ctx.kernel, ctx.scale, ctx.top_k = kernel, scale, top_k
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, key, weight, count = ctx.saved_tensors
        d_z = d_z if d_z.stride(-1) == 1 else d_z.contiguous()
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        shape = _shape(q, k, v, d_z, ctx.scale, ctx.top_k, key.shape[1])
        arrays = pointers([q, k, v, d_z, key, weight, count, d_q, d_k, d_v])
        _run(ctx.kernel.backward, q.shape[0] * q.shape[1], shape, arrays)
        return None, d_q, d_k, d_v, None, None


@cache
def _outside_compilation() -> Any:
    """The kernel, excluded from torch.compile. It is made on first use, as it imports the compiler (a second)."""
    return torch.compiler.disable(_fused_or_eager)


def _fused_or_eager(kernel: ctypes.CDLL, q: Tensor, k: Tensor, v: Tensor, scale: float, top_k: int) -> Any:
    """The kernel if its sums over keys are finite, else eager attention. The kernel would never choose an infinite or
    undefined key, and so hide what eager attention shows."""
    if not k.detach().abs().amax().item() * max(k.shape[2:]) < _LARGEST_SUM:  # false for NaN as well
        return eager_tropical_attention(q, k, v, scale, top_k)
    return _Fused.apply(kernel, q, k, v, scale, top_k)
