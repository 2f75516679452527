"""Ctrl-C in the middle of a run leaves a model's hooks as they were."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import Any

from torch import nn

#: Where PyTorch and TransformerLens keep a module's hooks.
_TABLES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "fwd_hooks", "bwd_hooks"),
)


@contextmanager
def hooks_kept(models: Iterable[Any]) -> Iterator[None]:
    """A context after whose interruption (KeyboardInterrupt) each model has the hooks that it had before.

    TransformerLens takes its hooks off at the end of a run. An interrupt that comes while it puts them on or takes them
    off, or between the two and the run, leaves some of them.
    """
    kept = [(model, getattr(model, "context_level", None), _hooks_of(model)) for model in models]
    try:
        yield
    except KeyboardInterrupt as error:
        # Contexts that were entered and never left end here and not later, when they would count once more.
        traceback.clear_frames(error.__traceback__)
        gc.collect()
        for model, level, hooks in kept:
            if level == 0:  # else a context of the caller's is open
                _end_contexts(model)
            for module, name, before in hooks:
                held = vars(module).get(name)
                if isinstance(held, dict):  # which the handles of its hooks know
                    held.clear()
                    held.update(before)
                else:
                    setattr(module, name, before)
            if level is not None:
                model.context_level = level
        raise


def _end_contexts(model: nn.Module) -> None:
    """End contexts of hooks that nobody will leave: what still refers to them would end them later."""
    for each in gc.get_objects():
        if not isinstance(each, GeneratorType) or each.gi_code.co_name != "hooks" or not each.gi_suspended:
            continue
        if each.gi_frame is not None and each.gi_frame.f_locals.get("self") is model:
            each.close()


def _hooks_of(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """(module, name of a table of hooks, a copy of it) of all modules."""
    tables = [(module, name, vars(module).get(name)) for module in model.modules() for name in _TABLES]
    return [(module, name, held.copy()) for module, name, held in tables if isinstance(held, (dict, list))]
