"""A module's tensors, and whether their values can be read: not while a program is traced, batched, or run without
memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor


def has_values(x: Tensor) -> bool:
    """False under ``torch.compile``, ``torch.export``, ``torch.func``'s transforms, and for meta and fake tensors.

    There, checks that would read a value are skipped, as in a stock model.
    """
    if torch.compiler.is_compiling():
        return False
    return not (is_functorch_wrapped_tensor(x) or x.is_meta or isinstance(x, FakeTensor))


def any_tensor(module: nn.Module) -> Tensor | None:
    """The first parameter or buffer of a module or of its parts; None if there is none."""
    left = [module]
    for each in left:
        own = each.__dict__
        for table in (own["_parameters"], own["_buffers"]):
            for tensor in table.values():
                if tensor is not None:
                    return tensor
        left += [child for child in own["_modules"].values() if child is not None]
    return None
