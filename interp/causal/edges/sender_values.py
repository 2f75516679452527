"""What every sender writes in each of many examples. It is kept if it is small, and computed on each read if not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.batches import slices

#: Numbers that are held, and that one batch of examples may take (256 MB in float32).
NUMBERS_HELD = 2**26
#: Examples that are run at once, if so many fit into :data:`NUMBERS_HELD`.
EXAMPLES_AT_ONCE = 256


def batches(n: int, numbers: int) -> list[slice]:
    """``n`` examples in batches, where one of them takes so many ``numbers``."""
    return slices(n, min(EXAMPLES_AT_ONCE, max(1, NUMBERS_HELD // numbers)))


class SenderWrites:
    """``written[senders, examples]`` is [sender, batch, seen, d_model] of two slices, computed when it is asked for."""

    def __init__(self, compute: Callable[[slice], Tensor], shape: tuple[int, int, int, int]):
        self.shape = torch.Size(shape)
        self._compute = compute

    def __getitem__(self, which: tuple[slice, slice]) -> Float[Tensor, "sender batch seen d_model"]:
        senders, examples = which
        return self._compute(examples)[senders]


#: What senders write, [sender, n, seen, d_model].
Writes = Tensor | SenderWrites


def written(compute: Callable[[slice], Tensor], shape: tuple[int, int, int, int]) -> Writes:
    """What ``compute`` gives for all examples if that can be held, else by the slice."""
    senders, n, places, width = shape
    if senders * n * places * width > NUMBERS_HELD:
        return SenderWrites(compute, shape)
    return torch.cat([compute(at) for at in slices(n, EXAMPLES_AT_ONCE)], 1)
