"""Binding a call's arguments to a function's parameters, and reading each as its annotation says.

:func:`typed` wraps a function that is asked of no model; :mod:`models.calls.checked_calls` adds what is special to
questions of models. :func:`checked_method` wraps a method of a task, which may be called in loops, in about a
microsecond. :func:`check_fields` checks a dataclass. All of them read arguments with
:mod:`models.calls.annotation_readers`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import torch

from models.calls.annotation_readers import AnnotationReader, reader_of
from models.calls.argument_kinds import Check
from models.calls.torch_defaults import plain_state
from models.errors import UserError, unknown_name

P = ParamSpec("P")
R = TypeVar("R")


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``function`` so that it raises a UserError, in one sentence, for an argument that its annotation does not
    allow, and runs in :func:`models.calls.torch_defaults.plain_state`."""
    plan = Plan(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = plan.read(args, kwargs)
        with plain_state():
            return plan.call(arguments)

    return called


class Plan:
    """How a function's arguments are bound to its parameters, as ``inspect.Signature.bind`` does it, and read."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.signature = function, inspect.signature(function)
        parameters = self.signature.parameters.values()
        self.places = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
        self.names = frozenset(self.signature.parameters)
        self.needed = frozenset(each.name for each in parameters if each.default is each.empty)
        self.is_plain = all(each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in parameters)

    @functools.cached_property
    def readers(self) -> dict[str, tuple[Any, Callable[[str, Any], Any]]]:
        """(default, how a value is read) by parameter. They are made at the first call, as annotations may name classes
        that come later."""
        hints = hints_of(self.function)
        return {
            each.name: (each.default, reader_of(hints.get(each.name, Any)))
            for each in self.signature.parameters.values()
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        }

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, as the function gets them.

        Raises:
            UserError: in one sentence, arguments that the function does not take.
        """
        arguments = self._bound(args, kwargs)
        readers = self.readers
        for name, value in arguments.items():
            if name in readers:
                default, read = readers[name]
                if value is not default:
                    arguments[name] = read(name, value)
        return arguments

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.is_plain and len(args) <= len(self.places):
            found = {**dict(zip(self.places, args, strict=False)), **kwargs}
            if len(found) == len(args) + len(kwargs) and self.needed <= found.keys() <= self.names:
                return found
        try:
            return dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise _misfit(self.function.__name__, self.signature, args, kwargs, error) from None

    def call(self, arguments: dict[str, Any]) -> Any:
        """The function's value for these arguments."""
        if self.is_plain:
            return self.function(**arguments)
        given = inspect.BoundArguments(self.signature, arguments)  # pyright: ignore[reportArgumentType]
        return self.function(*given.args, **given.kwargs)


def _misfit(name: str, signature: inspect.Signature, args: Any, kwargs: Any, error: TypeError) -> UserError:
    """The error for arguments that a function does not take, or does not get."""
    parameters = signature.parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if unknown := next((key for key in kwargs if key not in named), None):
        return unknown_name(f"option of {name}", unknown, named)
    missing = [each for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    missing = [each.name for each in missing[len(args) :] if each.name not in kwargs]
    if missing:
        return UserError(f"{name} needs {', '.join(missing)}.")
    return UserError(f"{name} takes other arguments ({error}): {', '.join(named)}.")


def check_fields(record: Any, but: tuple[str, ...] = ()) -> None:
    """Check that each field of a frozen dataclass holds what its annotation says, and make NumPy's numbers Python's.

    Raises:
        UserError: a field, none of those in ``but``, that holds something else.
    """
    for name, read in _fields(type(record)):
        value = getattr(record, name)
        if name not in but and (plain := read(name, value)) is not value:
            object.__setattr__(record, name, plain)  # a NumPy number


@functools.cache
def _fields(cls: type) -> list[tuple[str, AnnotationReader]]:
    hints = hints_of(cls)
    return [(each.name, reader_of(hints[each.name])) for each in fields(cls)]


def checked_method(method: Callable[..., Any], like: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap a task's method so that arguments whose annotation is a kind, a text, a switch or a generator are checked.

    It is cheap enough for methods that are called for every batch, and does what a compiler can follow. ``like`` is the
    method that this one overrides, whose annotations count.
    """
    hints = hints_of(method if like is None else inspect.unwrap(like))
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    checks = [_of_method(hints.get(name, Any)) for name in names]
    if not any(checks):
        return method
    by_name = {name: check for name, check in zip(names, checks, strict=True) if check is not None}

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            return method(self, *args, **kwargs)  # raises
        taken = [
            value if check is None else check(self, name, value)
            for name, check, value in zip(names, checks, args, strict=False)
        ]
        for name in kwargs:
            if name in by_name:
                kwargs[name] = by_name[name](self, name, kwargs[name])
        return method(self, *taken, **kwargs)

    return called


def _of_method(hint: Any) -> Callable[[Any, str, Any], Any] | None:
    """(the task, what a message calls the value, value) -> the value, for the annotations that methods check."""
    check = next((mark for mark in get_args(hint)[1:] if isinstance(mark, Check)), None)
    if get_origin(hint) is Annotated and check is not None:
        convert = check.convert
        return (
            (lambda task, name, value: convert(name, value, task))
            if check.of_owner
            else (lambda task, name, value: convert(name, value))
        )
    if hint in (str, bool, torch.Generator):
        reader = reader_of(hint)
        return lambda task, name, value: reader(name, value)
    return None


def has_check(hint: Any) -> bool:
    """Whether a kind stands anywhere in an annotation."""
    return isinstance(hint, Check) or any(has_check(part) for part in get_args(hint))


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters. The return type is left out, as only type checkers may know its name."""
    said = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    holder = SimpleNamespace(__annotations__=said)
    return get_type_hints(holder, vars(inspect.getmodule(function)), include_extras=True)
