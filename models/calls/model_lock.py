"""Context managers: one thread at a time runs a model, and hooks are restored after an interrupted run.

Hooks belong to a model and not to a run of it, and functional calls put other numbers in a weight map's place for a
while. So one thread at a time runs a model, from the beginning to the end of a question, of a context of hooks, and of
a forward pass; a second thread waits. Other models run meanwhile. A thread may take a model's turn as often as it
likes.
"""

from __future__ import annotations

import gc
import os
import threading
import traceback
from collections.abc import Iterator
from types import GeneratorType, TracebackType
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from torch import Tensor, nn

#: Where PyTorch and TransformerLens keep a module's hooks.
_TABLES = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "fwd_hooks", "bwd_hooks"),
)


_turns: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_making = threading.Lock()
os.register_at_fork(after_in_child=_turns.clear)  # no other thread goes on there, to give a turn back


def turn_of(model: nn.Module) -> Any:
    """The lock of a model, to be used in ``with``. Models with one weight map have one lock."""
    owner = model.__dict__["_modules"].get("weight_map", model)
    if (turn := _turns.get(owner)) is None:
        with _making:
            turn = _turns.setdefault(owner, threading.RLock())
    return turn


class Held:
    """A model that a call holds, and what one walk through its modules finds.

    Attributes:
        modules: all of them, by id.
        tensors: their parameters and buffers.
        points: the hook points among them, by id.
        whole, ready: which checks of :mod:`models.calls.checked_calls` the model has passed.
    """

    def __init__(self, model: nn.Module):
        self.model, self.level = model, getattr(model, "context_level", None)
        self.whole = self.ready = self.parametrized = False
        self.modules: dict[int, nn.Module] = {id(model): model}
        self.tensors: list[Tensor] = []
        self.points: set[int] = set()
        self.hooks: dict[tuple[int, str], Any] = {}  # a copy of each table that holds hooks, by module and name
        left = [model]
        while left:
            module = left.pop()
            own = module.__dict__
            if "fwd_hooks" in own:
                self.points.add(id(module))
            if own["_modules"]:
                for name, child in own["_modules"].items():
                    if child is not None and id(child) not in self.modules:
                        self.modules[id(child)] = child
                        left.append(child)
                        self.parametrized |= name == "parametrizations"
            if own["_parameters"] or own["_buffers"]:
                both = (*own["_parameters"].values(), *own["_buffers"].values())
                self.tensors += [x for x in both if x is not None]
            of_torch = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
            if of_torch or own["_backward_pre_hooks"] or own.get("fwd_hooks") or own.get("bwd_hooks"):
                tables = ((name, own.get(name)) for name in _TABLES)
                self.hooks |= {(id(module), name): table.copy() for name, table in tables if _is_table(table) and table}

    def put_hooks_back(self) -> None:
        """Give the model the hooks that it had."""
        for module in self.model.modules():
            for name in _TABLES:
                table = vars(module).get(name)
                if _is_table(table):  # which the handles of its hooks know, so that it is changed in place
                    table.clear()
                    before = self.hooks.get((id(module), name), ())
                    table.update(before) if isinstance(table, dict) else table.extend(before)
        if self.level is not None:
            self.model.context_level = self.level


def _is_table(value: Any) -> TypeGuard[dict[Any, Any] | list[Any]]:
    return isinstance(value, (dict, list))


class _Here(threading.local):
    """What calls of this thread hold, by the id of the model."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}


_here = _Here()


class held:
    """A context in which this thread alone runs the models. It gives all that this call and those around it hold, by
    the id of the model.

    After an interrupt (KeyboardInterrupt) the models have the hooks that they had before. TransformerLens takes its
    hooks off at the end of a run. An interrupt that comes while it puts them on or takes them off, or between the two
    and the run, leaves some of them.
    """

    def __init__(self, models: Iterator[nn.Module]):
        self.new = {id(model): model for model in models if id(model) not in _here.held}
        self.turns: list[Any] = []

    def __enter__(self) -> dict[int, Held]:
        self.before = _here.held
        if self.new:
            try:
                # In one order, so that no two threads wait for each other.
                for turn in sorted({turn_of(model) for model in self.new.values()}, key=id):
                    turn.acquire()
                    self.turns.append(turn)
                _here.held = {**self.before, **{key: Held(model) for key, model in self.new.items()}}
            except BaseException:
                self._leave()
                raise
        return _here.held

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.new:
            return
        try:
            if isinstance(error, KeyboardInterrupt):
                self._put_hooks_back(trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        _here.held = self.before
        for turn in self.turns:
            turn.release()

    def _put_hooks_back(self, trace: TracebackType | None) -> None:
        # Contexts that were entered and never left end here and not later, when they would count once more.
        traceback.clear_frames(trace)
        gc.collect()
        for key in self.new:
            each = _here.held[key]
            if each.level == 0:  # else a context of the caller's is open
                _end_contexts(each.model)
            each.put_hooks_back()


def _end_contexts(model: nn.Module) -> None:
    """End contexts of hooks of a model that were entered and will never be left. After Ctrl-C, one would close later,
    whenever what refers to it goes, and take off hooks that somebody put on since. Only the garbage collector knows
    such generators (``tests/interp/test_altered_models.py`` interrupts one)."""
    for each in gc.get_objects():
        if not isinstance(each, GeneratorType) or each.gi_code.co_name != "hooks" or not each.gi_suspended:
            continue
        if each.gi_frame is not None and each.gi_frame.f_locals.get("self") is model:
            each.close()
