"""The shape checks of the tests: jaxtyping's, checked by beartype, at a tenth of the time of jaxtyping's own wrapper.

jaxtyping's import hook wraps every function in :func:`jaxtyping.jaxtyped`, which binds each call's arguments in Python
and checks them twice. :func:`checked` makes the same checks in one pass, once for calls that differ in values alone,
and builds a function's check at its first call. Functions without arrays are left to pyright. Of a function that one
test calls very often, `make test` looks at the first calls and then at some.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
import numpy as np
import torch
from beartype import BeartypeConf, beartype
from beartype.door import die_if_unbearable

_CONF = BeartypeConf(violation_type=jaxtyping.TypeCheckError)
_CONTEXT = jaxtyping.jaxtyped("context")  # axes named within it have one size each
_slow = jaxtyping.jaxtyped


class Share:
    """Which of a function's calls in one test are looked at: the first ``first``, and then every ``every``-th."""

    first, every = 30, 1
    test = 0  # the number of the test that runs


def install() -> None:
    """Check every annotated shape in the packages; sees only what is imported after it."""
    jaxtyping.jaxtyped = lambda *, typechecker: checked
    jaxtyping.install_import_hook(["models", "interp", "studies", "benchmarks.circuits"], "beartype.beartype")


@contextmanager
def unchecked_shapes() -> Iterator[None]:
    """For what others have checked, and for bad input as users give it: they run without the checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def checked(function: Any) -> Any:
    """A function, or a dataclass, whose arguments and results are checked if arrays are among them."""
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "_is_checked"):
            function.__init__ = checked(function.__init__)
        return function
    if inspect.isgeneratorfunction(function) or not isinstance(function, types.FunctionType):
        return _slow(function, typechecker=beartype)
    if _INNER.get(function.__code__, ()) is None:
        return function
    check: Callable[..., Any] | None = None

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal check
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if check is None:
            check = _check(function)
        return check(*args, **kwargs)

    wrapped._is_checked = True
    return wrapped


#: Of functions within functions, whose code is the same in every call of the outer one: their annotations, and the
#: kinds of arguments, and of results with them, that were found right; None without arrays.
_INNER: dict[types.CodeType, tuple[dict[str, Any], dict[Any, set[Any]]] | None] = {}


def _check(function: types.FunctionType) -> Callable[..., Any]:
    if (known := _INNER.get(function.__code__)) is not None:
        hints, passed = known
    else:
        hints, passed = _hints(function), {}
        dims = list(map(_dims, hints.values()))
        if any("{" in each for each in dims):
            raise NotImplementedError(f"{function.__qualname__}: axes computed from arguments are not checked.")
        if "<locals>" in function.__qualname__:
            _INNER[function.__code__] = (hints, passed) if any(dims) else None
        if not any(dims):
            return function
    parameters = inspect.signature(function).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in variadic for parameter in parameters.values()):
        return _in_context(_by_beartype(function, hints))
    start = int(next(iter(parameters), "return") not in hints)  # self can be anything
    plain: Callable[..., Any] | None = None
    test = calls = 0

    def in_context(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal plain, test, calls
        if test != Share.test:
            test, calls = Share.test, 0
        calls += 1
        if calls > Share.first and calls % Share.every:
            return function(*args, **kwargs)
        key = _kind((*args[start:], *kwargs, *kwargs.values()))
        if key not in passed:
            if plain is None:
                plain = _by_beartype(function, hints)
            with _CONTEXT:
                result = plain(*args, **kwargs)
            if key is not None:
                passed[key] = {_kind(result)} - {None}
            return result
        result = function(*args, **kwargs)
        if (kind := _kind(result)) not in passed[key]:
            arguments = inspect.signature(function).bind(*args, **kwargs).arguments
            with _CONTEXT:
                for name, value in (arguments | {"return": result}).items():
                    die_if_unbearable(value, hints.get(name, Any), conf=_CONF)
            passed[key] |= {kind} - {None}
        return result

    return in_context


def _by_beartype(function: types.FunctionType, hints: dict[str, Any]) -> Callable[..., Any]:
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return beartype(copy, conf=_CONF)


def _in_context(plain: Callable[..., Any]) -> Callable[..., Any]:
    def in_context(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with _CONTEXT:
            return plain(*args, **kwargs)

    return in_context


def _kind(value: Any) -> Any:
    """What a check depends on: an array's shape and dtype, an object's type; None where that does not say it all."""
    of = type(value)
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return of, value.shape, value.dtype
    if of is tuple:
        kinds = tuple(map(_kind, value))
        return None if None in kinds else (tuple, kinds)
    if of is dict:  # of which beartype looks at the first item
        kinds = tuple(map(_kind, next(iter(value.items()), ())))
        return None if None in kinds else (dict, kinds)
    if of in (str, bool):
        return of, value
    return None if hasattr(of, "__iter__") or hasattr(of, "__getitem__") else of


def _hints(function: types.FunctionType) -> dict[str, Any]:
    """The annotations as types; those of names that exist for type checkers alone count as anything."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        hints = {}
        for name, annotation in function.__annotations__.items():
            one = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(one, function.__globals__, include_extras=True)
            except Exception:
                hints[name] = Any
        return hints


def _dims(hint: Any) -> str:
    """All axes that a type names anywhere in it; empty without arrays."""
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return f"{hint.dim_str} "
    return "".join(map(_dims, typing.get_args(hint)))
