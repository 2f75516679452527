"""Check the arguments of public functions and methods, and run functions in a known state of the process.

:func:`typed` wraps a function that is not called in loops: its annotations are checked. :func:`checked_method` wraps a
method
of a task, which may be: it looks at the parameters' names alone, in about a microsecond. :func:`check_fields` checks a
dataclass. :mod:`models.calls.checked_calls` adds what is special to questions of models.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from types import SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from models.errors import UserError, unknown_name

P = ParamSpec("P")
R = TypeVar("R")

MOST = 10**8  # the most problems, draws or steps that one question may be asked for
#: Integer parameters by name, with their least and greatest values.
WHOLE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("seed", "run_seed", "initial_seed"), (0, 2**63 - 1)),
    **dict.fromkeys(("n", "n_fit", "n_per_length", "runs", "steps", "batch_size", "most_variants"), (1, MOST)),
    "resamples": (1, 10**6),
    **dict.fromkeys(("points", "folds"), (2, 10**4)),
    **dict.fromkeys(("n_random", "max_ablated", "controls", "untrained", "layer", "target", "column"), (0, 10**6)),
    **dict.fromkeys(("digits", "step"), (1, MOST)),
}
#: Real parameters by name, with their bounds; for those in ``OPEN``, the lower bound itself is not allowed.
REAL: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("carry_heavy", "threshold"), (0.0, 1.0)),
    **dict.fromkeys(("seconds", "period"), (0.0, 1e9)),
}
OPEN = ("seconds", "period")


def typed(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``function`` so that it raises a UserError, in one sentence, for an argument that its annotation or its name
    does not allow, and runs in :func:`plain_state`. NumPy's numbers become Python's."""
    plan = Plan(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        given = plan.bind(args, kwargs)
        for name, value in given.arguments.items():
            parameter = given.signature.parameters[name]
            if value is parameter.default or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if name in WHOLE and is_number(value) and not isinstance(parameter.default, bool):
                value = whole(name, value, *WHOLE[name])
            given.arguments[name] = of_type(name, value, function)
        with plain_state():
            return plan.call(given)

    return called


class Plan:
    """How a function's arguments are bound to its parameters: as ``inspect.Signature.bind`` does it, read once."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.signature = function, inspect.signature(function)
        parameters = self.signature.parameters.values()
        self.places = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
        self.names = frozenset(self.signature.parameters)
        self.needed = frozenset(each.name for each in parameters if each.default is each.empty)
        self.is_plain = all(each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """The arguments by name. Raises UserError, in one sentence, where the function does not take them."""
        if self.is_plain and len(args) <= len(self.places):
            found = {**dict(zip(self.places, args, strict=False)), **kwargs}
            if len(found) == len(args) + len(kwargs) and self.needed <= found.keys() <= self.names:
                return inspect.BoundArguments(self.signature, found)  # pyright: ignore[reportArgumentType]
        try:
            return self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise misfit(self.function.__name__, self.signature, args, kwargs, error) from None

    def call(self, given: inspect.BoundArguments) -> Any:
        """The function's value for these arguments."""
        if self.is_plain:
            return self.function(**given.arguments)
        return self.function(*given.args, **given.kwargs)


def check_fields(record: Any, but: tuple[str, ...] = ()) -> None:
    """Check that each field of a frozen dataclass holds what its annotation says, and make NumPy's numbers Python's.

    Raises:
        UserError: a field, none of those in ``but``, that holds something else.
    """
    cls = type(record)
    simple = _simple(cls)
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name in but or type(value) in simple.get(each.name, ()):
            continue
        plain = of_type(each.name, value, cls)
        if plain is not value:
            object.__setattr__(record, each.name, plain)  # a NumPy number


@functools.cache
def _simple(cls: type) -> dict[str, tuple[type, ...]]:
    """The fields of a dataclass that are plain types or unions of such: a look at the value's type is enough."""
    found = {}
    for name, hint in hints_of(cls).items():
        parts = get_args(hint) or (hint,)
        if all(part in (bool, int, str, type(None)) for part in parts):
            found[name] = parts
    return found


def misfit(name: str, signature: inspect.Signature, args: Any, kwargs: Any, error: TypeError) -> UserError:
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


@contextmanager
def plain_state() -> Iterator[None]:
    """A context with float32 as torch's default dtype, the CPU as its default device, and no autocast.

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
        yield


def is_plain_dtype() -> bool:
    """Whether torch's default dtype is float32, and not only for as long as a call of another thread is open."""
    return torch.get_default_dtype() == torch.float32 and not _PlainDtype.users


def is_plain_state() -> bool:
    """Whether :func:`plain_state` has nothing to change, autocast aside."""
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


# ---- methods of tasks, by the names of their parameters


def checked_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task's method so that arguments with the names in :data:`BY_NAME` are checked.

    It is cheap enough for methods that are called for every batch, and does what a compiler can follow.
    """
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    by_name = {name: BY_NAME[name] for name in names if name in BY_NAME}
    if method.__name__ == "position_ids":  # elsewhere, tokens may have any shape
        by_name["tokens"] = _tokens
    checks = [by_name.get(name) for name in names]
    if not by_name:
        return method

    @functools.wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            return method(self, *args, **kwargs)  # raises
        taken = [
            value if check is None else check(self, name, value)
            for name, check, value in zip(names, checks, args, strict=False)
        ]
        for name in kwargs:
            if (check := by_name.get(name)) is not None:
                kwargs[name] = check(self, name, kwargs[name])
        return method(self, *taken, **kwargs)

    return called


def _natural(task: Any, name: str, value: Any) -> int:
    """A whole number from 0 to the most that a question may be asked for."""
    return value if type(value) is int and 0 <= value <= MOST else whole(name, value, 0, MOST)


def _seed(task: Any, name: str, value: Any) -> int:
    return whole(name, value, *WHOLE["seed"])


def _target(task: Any, name: str, value: Any) -> int:
    """The number of one of the task's targets."""
    return whole(name, value, 0, len(task.query_positions) - 1)


def _place(task: Any, name: str, value: Any) -> int:
    """The number of an operand, step, segment or column; column -1 is the delimiter after a number."""
    return value if type(value) is int and abs(value) <= MOST else whole(name, value, -1, MOST)


def _generator(task: Any, name: str, value: Any) -> torch.Generator:
    if not isinstance(value, torch.Generator):
        raise UserError(f"{name} must be a torch.Generator, not {shown(value)}.")
    return value


def _text(task: Any, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{name} must be a text, not {shown(value)}.")
    return value


def _tokens(task: Any, name: str, value: Any) -> Tensor:
    """Rows of tokens, in a tensor."""
    if not isinstance(value, Tensor) or value.ndim != 2 or value.is_floating_point() or value.is_complex():
        raise UserError(f"{name} must be a tensor of whole numbers [n, position], not {shown(value)}.")
    return value


def _answers(task: Any, name: str, value: Any) -> Tensor:
    """Rows of answer tokens; a single row counts as one."""
    found = whole_numbers(name, value)
    if found.ndim not in (1, 2) or not found.shape[-1]:
        raise UserError(f"{name} must be whole numbers [n, target], not {shown(value)}.")
    return found if found.ndim == 2 else found[None]


def whole_numbers(name: str, value: Any) -> Tensor:
    """Whole numbers in a tensor, an array or lists, as a tensor. Raises UserError for anything else."""
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise UserError(f"{name} must be whole numbers, not {shown(value)}.") from None
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise UserError(f"{name} must be whole numbers, not of {value.dtype}.")
    return value


def _keys(task: Any, name: str, value: Any) -> Tensor:
    """One 64-bit key per problem."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.ndim != 1:
        raise UserError(f"{name} must be an int64 tensor [row], not {shown(value)}.")
    return value


def _share(task: Any, name: str, value: Any) -> float:
    if not is_number(value):
        raise UserError(f"{name} must be between 0 and 1, not {shown(value)}.")
    return real(name, value, 0.0, 1.0)


BY_NAME: dict[str, Callable[[Any, str, Any], Any]] = {
    "n": _natural,
    **dict.fromkeys(("operand", "column", "step", "segment"), _place),
    "seed": _seed,
    "target": _target,
    "generator": _generator,
    "text": _text,
    "answer_tokens": _answers,
    "keys": _keys,
    **dict.fromkeys(("hard", "share"), _share),
}


# ---- values and annotations


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters. The return type is left out, as only type checkers may know its name."""
    said = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=said), vars(inspect.getmodule(function)))


#: Annotations with the kinds and shapes of tensors that fitted them.
_fitting: dict[tuple[Any, torch.dtype, torch.Size], None] = {}


def of_type(name: str, value: Any, function: Callable[..., Any]) -> Any:
    """``value`` if it fits the function's annotation; NumPy's numbers and arrays are converted to Python's.

    Raises:
        UserError: it does not fit.
    """
    read = _read_hint(function, name)
    hint = read.hint
    if hint is Any or type(value) in read.classes or (type(value) is str and value in read.choices):
        return value
    key = None
    if type(value) is Tensor:  # whether it fits depends on its kind and shape alone, and asking jaxtyping is slow
        key = (hint, value.dtype, value.shape)
        if key in _fitting:
            return value
    plain = value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
    parts = (hint, *get_args(hint))
    if isinstance(plain, bool) and (int in parts or float in parts) and bool not in parts:
        raise UserError(f"{name} must be {_said(name, function)}, not {shown(value)}.")  # bool is a kind of int
    is_bearable = _is_bearable()
    # beartype looks at one entry, drawn at random, of what has several
    state = None if isinstance(plain, (Tensor, nn.Module)) else random.getstate()
    try:
        for candidate in (value, plain):
            if is_bearable(candidate, hint):
                for entry in candidate if isinstance(candidate, (list, tuple)) else ():
                    one = [entry] if isinstance(candidate, list) else (entry,)  # a list of one entry has no other
                    if not is_bearable(one, hint) and _same_for_all(hint):
                        raise UserError(f"{name} must be {_said(name, function)}, and one of it is {shown(entry)}.")
                if key is not None:
                    _fitting[key] = None
                    if len(_fitting) > 1000:
                        _fitting.clear()
                return candidate
    finally:
        if state is not None:
            random.setstate(state)
    if isinstance(value, str) and any(isinstance(choice, str) for choice in _choices(hint)):
        return value  # the function itself raises, with the closest choice
    raise UserError(f"{name} must be {_said(name, function)}, not {shown(value)}.")


@functools.cache
def _is_bearable() -> Callable[[Any, Any], bool]:
    from beartype import BeartypeConf  # takes half a second with its imports, which not every program needs
    from beartype.door import is_bearable

    return functools.partial(is_bearable, conf=BeartypeConf(is_pep484_tower=True))


class _Hint(NamedTuple):
    """A parameter's annotation, the plain classes in it, whose objects fit without a further look, and its choices."""

    hint: Any
    classes: tuple[type, ...]
    choices: tuple[Any, ...]


@functools.cache
def _read_hint(function: Callable[..., Any], name: str) -> _Hint:
    hint = hints_of(function).get(name, Any)
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return _Hint(hint, tuple(part for part in parts if type(part) is type), _choices(hint))


def classes_of(function: Callable[..., Any], name: str) -> tuple[Any, tuple[type, ...]]:
    """A parameter's annotation, and the plain classes in it, whose objects :func:`of_type` takes as they are."""
    read = _read_hint(function, name)
    return read.hint, read.classes


def _said(name: str, function: Callable[..., Any]) -> str:
    """What a parameter takes, in the words of its annotation."""
    said = function.__annotations__[name]
    bounded = name in WHOLE and not isinstance(function, type)  # a field has no bounds
    return whole_number(name) if bounded else said if isinstance(said, str) else said.__name__


def _same_for_all(hint: Any) -> bool:
    """Whether an annotation says the same of all entries of a list, so that a list of one entry fits if it does."""
    if get_origin(hint) is tuple:
        return get_args(hint)[-1:] == (Ellipsis,)
    return all(_same_for_all(part) for part in get_args(hint))


def _choices(hint: Any) -> tuple[Any, ...]:
    """What a Literal allows, or the Literals of a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(choice for part in get_args(hint) for choice in _choices(part))


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_)) or (isinstance(value, Tensor) and value.ndim == 0)


def whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        whole = operator.index(value)
    except (TypeError, RuntimeError, ValueError):  # a fraction, a tensor of several numbers
        whole = None
    if whole is None or isinstance(value, (bool, np.bool_)) or not least <= whole <= most:
        raise UserError(f"{name} must be a whole number from {least} to {_power(most)}, not {shown(value)}.")
    return whole


def whole_number(name: str) -> str:
    least, most = WHOLE[name]
    return f"a whole number from {least} to {_power(most)}"


def _power(number: int) -> str:
    return "2^63 - 1" if number == 2**63 - 1 else f"{number:,}"


def real(name: str, value: Any, least: float, most: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError):  # an integer of too many digits, a complex number
        number = math.nan
    if not least <= number <= most or not math.isfinite(number) or (name in OPEN and number == least):
        bounds = f"positive and at most {most:g}" if name in OPEN else f"between {least:g} and {most:g}"
        raise UserError(f"{name} must be {bounds}, not {shown(value)}.")
    return number


def shown(value: object) -> str:
    """A description of a value in a few words."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    if isinstance(value, nn.Module):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be shown
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
