"""Whether a model computes what its effective weights say.

A certificate, a score by the fast forward, and a patching engine with its own forward are all about the function that
config and effective weights define. A hook, a replaced ``forward``, dropout or autocast makes the module compute
something else, and only a run of the module itself shows it. So all code that does not run the module asks here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from models.errors import UserError
from models.hooked import HookedModel

_WEIGHT_MAP = "weight_map"


def alterations(model: HookedModel) -> tuple[str, ...]:
    """What makes ``model`` compute something other than its effective weights say; empty if nothing does.

    It looks, on the model and on every module in it, for hooks of any kind (of TransformerLens and PyTorch, forward and
    backward, pre-hooks and global ones), a ``forward`` or another method that was replaced on the module, a ``forward``
    that is not its library's, an epsilon that differs from the config's, and dropout in training mode; and for autocast
    on the model's device. Stock TransformerLens models have none of these.

    Each is a clause for an error message, such as ``"blocks.0.mlp has a hook"``. Hooks that only read are listed too,
    as there is no way to know what a hook does. The weight map's own modules may have hooks, since effective weights
    are what it returns, but its output must not depend on anything else.

    Cost: a few microseconds per module. Sweeps of a millisecond call this, so it is written for speed: it reads
    attributes where a module keeps them, without ``nn.Module``'s search.
    """
    if not isinstance(model, nn.Module):
        return ()  # nothing that could be hooked
    found = [f"every module has a global hook ({kind})" for kind in _global_hooks()]
    left: list[tuple[str, nn.Module]] = [("", model)]
    while left:
        name, module = left.pop()
        own, cls = module.__dict__, type(module)
        hooks = (own["_forward_hooks"], own["_forward_pre_hooks"], own["_backward_hooks"], own["_backward_pre_hooks"])
        if any(hooks) and not all(_is_wiring(hook) for kind in hooks for hook in kind.values()):
            found.append(f"{name or 'the model'} has a hook")
        known, methods = _class(cls, cls.forward)
        if not known:
            found.append(f"{name or 'the model'} has a forward pass of its own")
        if not methods.isdisjoint(own):
            replaced = ", ".join(sorted(methods.intersection(own)))
            found.append(f"{name or 'the model'} has a {replaced} of its own")
        if "eps" in own and own["eps"] != getattr(own.get("config"), "eps", own["eps"]):
            found.append(f"{name or 'the model'}.eps is {own['eps']}, and the config says {own['config'].eps}")
        for key, child in own["_modules"].items():
            if child is not None and (name or key != _WEIGHT_MAP):
                left.append((f"{name}.{key}" if name else key, child))
    if model.training and getattr(getattr(model, "config", None), "dropout", 0):
        found.append("the model is in training mode, with dropout")
    if torch.is_autocast_enabled(_device_type(model)):
        found.append("autocast is on")
    return tuple(found)


def require_unaltered(model: HookedModel, what: str) -> None:
    """Raise UserError if ``model`` does not compute what its weights say, from which ``what`` is computed."""
    found = alterations(model)
    if found:
        first, *others = found
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(
            f"{what} is computed from the model's weights, and this model computes something else: {first}{more}; "
            "take that off first, hooks by reset_hooks()."
        )


def _is_wiring(hook: Any) -> bool:
    """Whether transformer_lens 4's bridge made this hook itself, in its first run, for its hook points."""
    inside = (getattr(hook, "__module__", None) or "").startswith("transformer_lens.model_bridge.")
    return inside and "_maybe_wire_capture_hooks" in getattr(hook, "__qualname__", "")


def _global_hooks() -> list[str]:
    kinds = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
    return [kind for kind in kinds if getattr(torch_module, kind, None)]


@cache
def _class(cls: type, forward: Any) -> tuple[bool, frozenset[str]]:
    """(whether a class's ``forward`` is defined in this project, TransformerLens or torch, and so is known; the names
    of its methods, which an attribute of the module itself may replace)."""
    home = getattr(forward, "__module__", "") or ""
    methods = frozenset(name for name in dir(cls) if callable(getattr(cls, name, None)))
    return home.split(".")[0] in ("models", "transformer_lens", "torch"), methods


def _device_type(model: nn.Module) -> str:
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                return tensor.device.type
    return "cpu"
