"""Whether a model computes what its effective weights say.

A certificate, a score by the fast forward, a patching engine that computes the forward by itself: each is about the
function that config and effective weights define. A hook, a replaced ``forward``, dropout or autocast makes the module
compute something else, and only a run of the module itself shows it. Everything that does not run the module asks here.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def alterations(model: nn.Module) -> tuple[str, ...]:
    """What makes ``model`` compute something else than its effective weights say; empty if nothing does.

    Looked for, on the model and on every module in it: hooks of any kind (of TransformerLens and PyTorch, forward and
    backward, pre-hooks and global ones), a ``forward`` that was replaced on the module or is not its library's, an
    epsilon that differs from the config's, dropout in training mode; and autocast on the model's device.

    Each is a clause for an error message, such as ``"blocks.0.mlp has a hook"``. Hooks that only read are listed too:
    a hook cannot be asked what it does. The weight map's own modules may have hooks, since effective weights are what
    it returns, but its output must not depend on anything else.
    """
    found = [f"every module has a global hook ({kind})" for kind in _global_hooks()]
    for name, module in model.named_modules():
        where = name or "the model"
        if in_weight_map(name):
            continue
        if any(getattr(module, kind, None) for kind in _HOOKS):
            found.append(f"{where} has a hook")
        if "forward" in vars(module) or not _knows_forward(module):
            found.append(f"{where} has a forward pass of its own")
        config = getattr(module, "config", None)
        if hasattr(module, "eps") and hasattr(config, "eps") and module.eps != config.eps:
            found.append(f"{where}.eps is {module.eps}, and the config says {config.eps}")
    if model.training and getattr(getattr(model, "config", None), "dropout", 0):
        found.append("the model is in training mode, with dropout")
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    if torch.is_autocast_enabled(device.type):
        found.append("autocast is on")
    return tuple(found)


def in_weight_map(name: str) -> bool:
    """Whether the module of that name makes the weights, and is not part of the forward pass."""
    return name == "weight_map" or name.startswith("weight_map.")


def _global_hooks() -> list[str]:
    kinds = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
    return [kind for kind in kinds if getattr(torch_module, kind, None)]


def _knows_forward(module: nn.Module) -> bool:
    """Whether the class's ``forward`` is defined in this project, TransformerLens or torch, and so is the known one."""
    home = getattr(type(module).forward, "__module__", "") or ""
    return home.split(".")[0] in ("models", "transformer_lens", "torch")
