"""Tensors that refuse to be written, for weights that are computed, as a write into them would be lost silently."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError

#: Methods that end in "_" but do not write numbers.
_HARMLESS = frozenset(("requires_grad_", "share_memory_", "detach_", "rename_", "retains_grad_"))
_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul"
_WRITES = frozenset(("__setitem__", *(f"__i{name}__" for name in _OPERATORS.split())))


class ReadOnly(Tensor):
    """A tensor that raises UserError when it, or a view of it, is written in place.

    In everything else it behaves like a plain tensor and gives plain tensors. Views stay read-only; a ``clone()`` does
    not.
    """

    _why: str

    @classmethod
    def of(cls, value: Tensor, why: str) -> ReadOnly:
        """``value`` as a read-only tensor with the same graph; ``why`` is the message of the error on a write."""
        found = value.as_subclass(cls)
        found._why = why
        return found

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        guarded = next((x for x in _written(func, args, kwargs) if isinstance(x, cls)), None)
        if guarded is not None:
            raise UserError(guarded._why)
        source = next((x for x in _flat((*args, *kwargs.values())) if isinstance(x, cls)), None)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            return result if source is None else _guarded_views(result, source)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as a plain tensor."""
        return self._plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return copy.deepcopy(self._plain(), memo)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._plain().__repr__(tensor_contents=tensor_contents)

    def _plain(self) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)


def _written(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that a call writes into."""
    name = getattr(func, "__name__", "")
    written = list(_flat([kwargs["out"]])) if kwargs.get("out") is not None else []
    in_place = name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
    sets_data = name == "__set__" and getattr(func, "__self__", None) is Tensor.data
    if in_place or sets_data or name in _WRITES or kwargs.get("inplace"):
        written += _flat([args[0] if args else next(iter(kwargs.values()), None)])
    return written


def _flat(values: Iterable[Any]) -> list[Any]:
    return [x for value in values for x in (_flat(value) if isinstance(value, (list, tuple)) else [value])]


def _guarded_views(result: Any, source: ReadOnly) -> Any:
    """``result``, in which tensors that share the guarded memory are guarded, and all others plain."""
    if isinstance(result, (list, tuple)):
        found = [_guarded_views(x, source) for x in result]
        return type(result)(*found) if hasattr(result, "_fields") else type(result)(found)
    if not isinstance(result, Tensor):
        return result
    if _same_memory(result, source):
        return ReadOnly.of(result, source._why)
    return result.as_subclass(Tensor) if isinstance(result, ReadOnly) else result


def _same_memory(a: Tensor, b: Tensor) -> bool:
    try:
        return a.untyped_storage()._cdata == b.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # wrappers of torch.func, sparse tensors
        return False
