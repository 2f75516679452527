"""A verdict's file: bytes, JSON or gzipped JSON, and fields that are read by their types. Files are not trusted.

A dataclass is an object of its fields. Numbers that are not finite are null. A field whose type is ``Annotated`` with a
:class:`Form` is written and read by it, such as a table of classes (:class:`TableForm`), and a class with ``to_dict``
and ``from_dict`` by these.
"""

from __future__ import annotations

import gzip
import io
import math
import sys
import types
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.as_json import replied
from models import UserError
from models.files import parse_json

LARGEST_FILE = 2**26  # most bytes of a certificate, unpacked; the zoo's have up to 0.7 MB


def parse_verdict(data: bytes, path: object) -> dict[str, Any]:
    """The result of :meth:`Verdict.to_dict`, from a file's bytes, JSON or gzipped JSON.

    Raises:
        UserError: a damaged file, not a JSON object, or one that unpacks to more than a certificate can have.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(LARGEST_FILE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is damaged ({error}); restore it from where it came from.") from None
    if len(data) > LARGEST_FILE:
        raise UserError(f"{path} is larger than a certificate can be ({LARGEST_FILE >> 20} MB).")
    value = replied(parse_json(data, path))
    texts = ("model", "fingerprint", "task", "method", "status")
    versions, seconds = value.get("versions", {}), value.get("seconds", 0.0)
    if (
        not all(isinstance(value.get(name, ""), str) for name in texts)
        or not isinstance(versions, dict)
        or not all(isinstance(version, str) for version in versions.values())
        or not is_number(seconds)
    ):
        raise UserError(f"{path} is not a complete certificate: a field has another type than a certificate's.")
    return value


class Form(Protocol):
    """How values of one field stand in a file. ``read`` raises KeyError, TypeError or ValueError for others."""

    def write(self, value: Any) -> Any: ...

    def read(self, value: Any) -> Any: ...


@dataclass(frozen=True)
class AsText:
    """Whole numbers as text, since readers of JSON round those above 2^53."""

    def write(self, value: int) -> str:
        return str(value)

    def read(self, value: Any) -> int:
        if not isinstance(value, str) or not value.isdecimal():
            raise ValueError(f"{value!r} is no number of problems")
        return int(value)


LargeCount = Annotated[int, AsText()]


@dataclass(frozen=True)
class TableForm:
    """A table as one list for each column: ``whole`` numbers, ``real`` ones (null: NaN or an infinity), and ``texts``.

    It is read as a dataset over ``axis``, or as a data frame where there is none.
    """

    whole: tuple[str, ...]
    real: tuple[str, ...]
    texts: tuple[str, ...] = ()
    axis: str | None = None

    def write(self, value: Any) -> dict[str, list[Any]]:
        columns = {name: np.asarray(value[name]).tolist() for name in (*self.whole, *self.texts)}
        return columns | {name: [_finite(x) for x in np.asarray(value[name], float).tolist()] for name in self.real}

    def read(self, value: Any) -> Any:
        if len({len(value[name]) for name in (*self.whole, *self.real, *self.texts)}) != 1:
            raise ValueError("columns of unequal length")
        allowed: dict[str, Callable[[Any], bool]] = dict.fromkeys(self.whole, is_whole)
        allowed |= dict.fromkeys(self.real, lambda x: x is None or is_number(x))
        allowed |= dict.fromkeys(self.texts, lambda x: isinstance(x, str))
        for name, fits in allowed.items():
            if not all(map(fits, value[name])):
                raise ValueError(f"{name} has other values than a certificate's")
        kinds = dict.fromkeys(self.whole, np.int64) | dict.fromkeys(self.real, np.float64)
        found = {name: np.array(value[name], dtype) for name, dtype in kinds.items()}
        found |= {name: np.array(value[name], object) for name in self.texts}
        if self.axis is None:
            return pd.DataFrame(found)
        return xr.Dataset({name: (self.axis, column) for name, column in found.items()})


def written(value: Any, kind: Any = None) -> Any:
    """A value, such as a dataclass of evidence, in a form that JSON can hold. ``kind`` is its type, which may name a
    form for it or for what a tuple holds."""
    if (form := _form(kind)) is not None:
        return form.write(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return written_fields(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, Mapping):
        return {key: written(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        arguments = get_args(kind)
        each_kind = arguments[0] if arguments[-1:] == (Ellipsis,) else None
        return [written(each, each_kind) for each in value]
    return value


def written_fields(value: Any) -> dict[str, Any]:
    """A dataclass as an object of its fields."""
    return {name: written(getattr(value, name), kind) for name, kind in _kinds(type(value)).items()}


def read_fields(kind: Any, value: Mapping[str, Any], left_out: tuple[str, ...] = ()) -> Any:
    """The dataclass ``kind`` in a file's fields; fields in ``left_out`` may be missing, and have their default then.

    Raises:
        KeyError, TypeError, ValueError: the fields do not make one.
    """
    given = {name: of for name, of in _kinds(kind).items() if name in value or name not in left_out}
    return kind(**{name: reader(of)(value[name]) for name, of in given.items()})


@cache
def reader(kind: Any) -> Callable[[Any], Any]:
    """A function that reads values of a type. It raises KeyError, TypeError or ValueError for others.

    An int is a count, 0 or more; a float is a finite number, or null, which is NaN.
    """
    if (form := _form(kind)) is not None:
        return form.read
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (some,) = [each for each in arguments if each is not types.NoneType]
        read = reader(some)
        return lambda value: None if value is None else read(value)
    if origin is Literal:
        return lambda value: _checked(value, value in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        read = reader(arguments[0])
        return lambda value: tuple(map(read, _checked(value, isinstance(value, list))))
    if origin is tuple:
        readers = [reader(each) for each in arguments]
        return lambda value: tuple(read(x) for read, x in zip(readers, value, strict=True))
    if origin is dict:
        read = reader(arguments[1])
        return lambda value: {str(key): read(x) for key, x in value.items()}
    if hasattr(kind, "from_dict"):
        return kind.from_dict
    if is_dataclass(kind):
        return lambda value: read_fields(kind, value)
    if kind is float:
        return lambda value: math.nan if value is None else float(_checked(value, is_number(value)))
    if kind is int:
        return lambda value: _checked(value, is_count(value))
    return lambda value: _checked(value, isinstance(value, kind))


def _checked(value: Any, fits: bool) -> Any:
    if not fits:
        raise ValueError(f"{str(value)[:60]!r} has another type than a certificate's")
    return value


@cache
def _kinds(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _form(kind: Any) -> Form | None:
    return kind.__metadata__[0] if get_origin(kind) is Annotated else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number, as a float holds it."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: Any) -> bool:
    """Whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: Any, limit: int | None = None) -> bool:
    """Whether a JSON value is a whole number that is at least 0 and below ``limit``."""
    return is_whole(value) and value >= 0 and (limit is None or value < limit)
