"""Python's own words for the interpreter: builtins, and the methods of texts, lists and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.importers.board.interpreter import Interpreter
from models.importers.board.module_words import method
from models.importers.board.objects import MOST_ENTRIES, Class, Function, Instance, Missing, what
from models.importers.board.words import Kind, kind_of, numbers_of, renamed, transposed


def _isinstance(value: Any, types: Any) -> bool:
    types = types if isinstance(types, tuple) else (types,)
    return any(
        isinstance(value, Instance) and value.cls.is_a(one.name)
        if isinstance(one, Class)
        else isinstance(one, type) and isinstance(value, one)
        for one in types
    )


def _listed(interpreter: Interpreter, value: Any = ()) -> list[Any]:
    found = list(interpreter._items(value))
    if len(found) > MOST_ENTRIES:
        raise UserError("it has a list that is too long")
    return found


def _range(*ends: int) -> range:
    found = range(*(int(end) for end in ends))
    if len(found) > MOST_ENTRIES:
        raise UserError("it has a loop that is too long")
    return found


def _number(kind: type) -> Callable[..., Any]:
    def number(value: Any = 0) -> Any:
        if isinstance(value, str) and len(value) > 400:
            raise UserError("it reads a number that is too long")
        return kind(value)

    return number


def builtins(interpreter: Interpreter) -> dict[str, Any]:
    """The names that are always defined."""
    listed = partial(_listed, interpreter)

    def has(value: Any, name: str) -> bool:
        try:
            interpreter.attribute(value, name)
        except UserError:
            return False
        return True

    def get(value: Any, name: str, *default: Any) -> Any:
        try:
            return interpreter.attribute(value, name)
        except UserError:
            if default:
                return default[0]
            raise

    found: dict[str, Any] = {word.__name__: word for word in (int, float, str, bool, list, tuple, dict, abs, id)}
    found |= {name: Missing(name) for name in ("ValueError", "AssertionError", "SystemExit")}
    return found | {
        "__name__": "submission",
        "__file__": "submission.py",
        "object": Class("object", []),
        "range": _range,
        "len": lambda value: len(interpreter._items(value)),
        "enumerate": lambda value, start=0: enumerate(listed(value), start),
        "zip": lambda *values, **named: zip(*map(listed, values), strict=False),
        "reversed": lambda value: list(reversed(listed(value))),
        "sorted": lambda value, **named: sorted(listed(value)),
        "set": lambda value=(): set(listed(value)),
        "frozenset": lambda value=(): frozenset(listed(value)),
        "next": lambda value: listed(value)[0],
        "sum": lambda value, start=0: sum(listed(value), start),
        "min": lambda first, *rest: min(first, *rest) if rest else min(listed(first)),
        "max": lambda first, *rest: max(first, *rest) if rest else max(listed(first)),
        "round": lambda value, n=None: round(value, n),
        "any": lambda value: any(listed(value)),
        "all": lambda value: all(listed(value)),
        "map": lambda function, value: [interpreter.call(function, [one]) for one in listed(value)],
        "isinstance": _isinstance,
        "hasattr": has,
        "getattr": get,
        "print": lambda *values, **named: None,
    }


_TENSOR_TEXT = (
    "reshape view permute expand unsqueeze squeeze sum mean pow rsqrt sqrt cos sin exp abs argmax argmin item "
    "tolist clone contiguous copy_ fill_ zero_ numel size dim repeat repeat_interleave flatten masked_fill "
    "split chunk t any all long max min add mul softmax log expand_as view_as data_ptr masked_fill_ flip triu "
    "tril detach unbind clamp add_ mul_ div_ new_zeros new_ones square round int bool outer mv dot matmul bmm "
    "roll gather"
)
_TENSOR = _TENSOR_TEXT.split()
_SELF = ("cpu", "numpy", "cuda", "requires_grad_", "eval", "to_dense", "contiguous")
_TEXT = ("isdigit", "join", "ljust", "rjust", "lstrip", "rstrip", "strip", "zfill", "split", "replace", "startswith",
         "endswith", "index", "lower", "upper")  # fmt: skip
_LIST = ("append", "extend", "index", "count", "insert", "pop", "copy", "reverse")
_DICT = ("items", "keys", "values", "get", "update", "pop", "copy")
_SET = ("add", "update", "issubset", "union")


def attribute(interpreter: Interpreter, holder: Any, name: str) -> Any:
    """An attribute of a plain value, or of an object of a module. Raises UserError for a name that is not a word."""
    if isinstance(holder, Tensor):
        return _of_tensor(holder, name)
    if isinstance(holder, Instance) and holder.cls.is_a("Module"):
        return method(interpreter, holder, name)
    for kind, names in ((str, _TEXT), (list, _LIST), (dict, _DICT), (set, _SET), (tuple, ("index", "count"))):
        if isinstance(holder, kind) and name in names:
            if name in ("ljust", "rjust", "zfill"):
                return lambda width, *fill: getattr(holder, name)(min(int(width), 1000), *fill)
            if name in ("join", "replace", "extend"):
                return _growing(interpreter, holder, name)
            return getattr(holder, name)
    if isinstance(holder, Function) and name == "name":
        return holder.name

    raise UserError(f"it asks for {name} of {what(holder)}")


def _growing(interpreter: Interpreter, holder: Any, name: str) -> Any:
    """Methods of texts and lists whose result can be large; their size is checked before they are called."""

    def called(*given: Any) -> Any:
        if name == "replace":
            size = len(holder) * max(1, len(given[1]))
        else:
            given = (_listed(interpreter, given[0]),)
            size = len(holder) + sum(1 if name == "extend" else len(part) + len(holder) for part in given[0])
        if size > MOST_ENTRIES:
            raise UserError("it has a list that is too long")
        return getattr(holder, name)(*given)

    return called


def _repeating(x: Tensor, name: str) -> Any:
    """``repeat`` and ``repeat_interleave``, whose size is checked before they are called."""

    def called(*times: Any, **named: Any) -> Any:
        known = [*(times[:1] if name == "repeat_interleave" else times), *named.values()]
        sizes = [each for many in known for each in (many if isinstance(many, (list, tuple)) else [many])]
        if x.numel() * math.prod(max(int(each), 1) for each in sizes if isinstance(each, int)) > MOST_ENTRIES:
            raise UserError(f"it makes a table of more than {MOST_ENTRIES:,} numbers")
        return renamed(getattr(x, name))(*times, **named)

    return called


def _of_tensor(x: Tensor, name: str) -> Any:
    if name in ("T", "mT"):
        return x.permute(*reversed(range(x.ndim))) if name == "T" else x.mT
    if name == "shape":
        return tuple(x.shape)
    if name in ("data", "dtype", "is_floating_point", "requires_grad", "ndim"):
        return getattr(x, name)
    if name == "device":
        return "cpu"
    if name in _SELF:
        return lambda *given, **named: x
    if name in ("float", "double"):
        kind = torch.float64 if name == "double" else Kind.float32
        return lambda: x.to(kind)
    if name in ("to", "astype", "type_as", "type"):
        return lambda *given, **named: _converted(x, *given, **named)
    if name == "transpose":
        return lambda *order: x.transpose(*order) if len(order) == 2 else transposed(x, *order)
    if name == "new_tensor":
        return lambda value: torch.tensor(numbers_of(value), dtype=x.dtype)
    name = "reshape" if name == "view" else name  # copies if the entries are not contiguous
    if name in ("repeat", "repeat_interleave"):
        return _repeating(x, name)
    if name in _TENSOR:
        function = getattr(x.data if name.endswith("_") else x, name)
        return renamed(function)
    raise UserError(f"it uses {name} of a table, which the reader does not know")


def _converted(x: Tensor, *given: Any, **named: Any) -> Tensor:
    for kind in (*given, named.get("dtype")):
        if isinstance(kind, Tensor):
            return x.to(kind.dtype)
        if isinstance(kind, torch.dtype) or kind in (int, float, bool):
            return x.to(kind_of(kind))
    return x
