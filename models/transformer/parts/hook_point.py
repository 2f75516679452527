"""TransformerLens' hook point, which looks at what a hook returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformer_lens import hook_points

from models.calls.argument_kinds import shown
from models.errors import UserError

_call = hook_points.HookPoint.__call__  # as this runs at every activation, without super()


class HookPoint(hook_points.HookPoint):
    """A place for hooks. What they return in place of the activation has its shape, dtype and device.

    Raises:
        UserError: they return something else. (Nothing is looked at where no hook returned anything.)
    """

    def __call__(self, x: Tensor) -> Tensor:
        value = _call(self, x)
        return value if value is x else self._checked(x, value)

    def _checked(self, x: Tensor, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            if value.shape == x.shape and value.dtype == x.dtype and value.device == x.device:
                return value
            found = _described(value)
        else:
            found = shown(value)
        raise UserError(f"A hook at {self.name} returns {_described(x)}, or nothing, and not {found}.")


def _described(x: Tensor) -> str:
    dtype = str(x.dtype).removeprefix("torch.")
    where = "" if x.device == torch.device("cpu") else f" on {x.device}"
    return f"a {dtype} tensor of shape {list(x.shape)}{where}"
