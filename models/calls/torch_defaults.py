"""The state of the process in which public functions run, and what of the caller's state differs from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from models.errors import UserError


@contextmanager
def plain_state() -> Iterator[None]:
    """A context with float32 as torch's default dtype, the CPU as its default device, no autocast, and no inference
    mode, in which nothing can follow gradients; gradients are as off as they were in it.

    Settings that a program made for its own computations would change how models are built and what they compute.
    torch has one default dtype for all threads: the last of several calls that are open gives it back.
    """
    with ExitStack() as stack:
        if not is_plain_dtype():
            stack.enter_context(_PlainDtype())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        yield


def is_plain_dtype() -> bool:
    """Whether torch's default dtype is float32, and not only for as long as a call of another thread is open."""
    return torch.get_default_dtype() == torch.float32 and not _PlainDtype.users


def is_plain_state() -> bool:
    """Whether :func:`plain_state` has nothing to change, autocast aside."""
    if torch.is_inference_mode_enabled():
        return False
    # A default device is a mode of torch functions, and asking for it is slow.
    return is_plain_dtype() and (not torch._C._len_torch_function_stack() or torch.get_default_device().type == "cpu")


class _PlainDtype:
    """A context with float32 as torch's default dtype, which several threads may enter."""

    lock, users, before = threading.Lock(), 0, torch.float32

    def __enter__(self) -> None:
        with self.lock:
            if not _PlainDtype.users:
                _PlainDtype.before = torch.get_default_dtype()
            _PlainDtype.users += 1
            torch.set_default_dtype(torch.float32)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            _PlainDtype.users -= 1
            if not _PlainDtype.users:
                torch.set_default_dtype(self.before)


class CallerState:
    """What of the caller's state changes what a model computes. It is read before :func:`plain_state` sets it aside."""

    def __init__(self) -> None:
        self.autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        self.dtype = torch.get_default_dtype()
        self.is_plain = not self.autocast and is_plain_state()

    def require_plain(self, name: str, model: Any) -> None:
        """Raise UserError where a model computes something else for the caller than it does in the plain state."""
        if self.autocast:
            raise UserError(
                f"{name} computes something else under torch.autocast than its weights say; ask outside of it."
            )
        if self.dtype == torch.get_default_dtype() or not hasattr(model, "effective_weights"):
            return
        weights = model.effective_weights()
        torch.set_default_dtype(self.dtype)
        try:
            its = model.effective_weights()
        finally:
            torch.set_default_dtype(torch.float32)
        if any(x.dtype != its[key].dtype or not torch.equal(x, its[key]) for key, x in weights.items()):
            raise UserError(f"{name} has other weights where torch's default dtype is {self.dtype}; set it to float32.")
