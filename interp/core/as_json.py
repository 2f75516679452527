"""Results as JSON and back, by the types of their fields.

A dataclass becomes an object of its fields, without those at their default. Numbers, strings, lists and objects with
string keys stay as they are; NaN and infinities become the strings "nan", "inf" and "-inf". Types that JSON does not
know become an object or a list:

    array or tensor   {"dtype": "float64", "shape": [...], "data": nested lists; null for NaN}; an array of mixed
                      contents has a flat list in which NaN is {"float": "nan"}
    labelled array    {"dims", "coords", "data", "attrs", "name"} as xarray gives it; a dataset has "data_vars"
    table             {"columns": [[name, array], ...], "index": array, unless it counts from 0}
    other mapping     [[key, value], ...]
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import torch
import xarray as xr

from models.errors import UserError

PACKAGE = "carrylens"
#: The two kinds of tables, by a word that only the form of one has.
TABLES: Mapping[Any, str] = {pd.DataFrame: "columns", xr.Dataset: "data_vars"}
#: What fields and coordinates are called now, by their names in files of earlier versions.
EARLIER = {"rung": "strength"}


def encode(value: Any) -> Any:
    """``value`` in a form that JSON can hold. Raises UserError for what has none, such as a model or a function."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, torch.Tensor):
        return _encode_array(value.detach().cpu().numpy())
    if isinstance(value, xr.DataArray | xr.Dataset):
        return encode(value.to_dict(data="array"))
    if isinstance(value, pd.DataFrame):
        columns = [[encode(name), _encode_array(value[name].to_numpy())] for name in value]
        counted = value.index.equals(pd.RangeIndex(len(value)))
        return {"columns": columns} | ({} if counted else {"index": _encode_array(value.index.to_numpy())})
    if is_dataclass(value):
        kept = {field.name: getattr(value, field.name) for field in fields(value) if not _left_at_default(field, value)}
        return {name: encode(each) for name, each in kept.items()}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: encode(each) for key, each in value.items()}
        return [[encode(key), encode(each)] for key, each in value.items()]
    if isinstance(value, Sequence | set | frozenset):
        return [encode(each) for each in value]
    raise UserError(f"A {type(value).__name__} has no form in JSON.")


def decode(kind: Any, value: Any) -> Any:
    """The value of type ``kind`` that :func:`encode` wrote.

    Raises:
        UserError: ``value`` is not the stored form of a ``kind``.
    """
    try:
        return _decode(kind, replied(value))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(f"This is not a stored {getattr(kind, '__name__', kind)}: {error!r}.") from None


def replied(value: Any) -> Any:
    """What a reply (:mod:`interp.core.replies`) holds, such as a command's file; anything else as it is."""
    match value:
        case {"made_by": _, "result": {"data": dict() as data}}:
            return data
    return value


def _decode(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {arguments}")
        return value
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_decode(*pair) for pair in zip(kinds, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {_decode(arguments[0], key): _decode(arguments[1], each) for key, each in pairs}
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        found = [_decode(arguments[0], each) for each in value]
        return found if issubclass(origin, Sequence) else set(found)
    if hasattr(kind, "array_type"):  # jaxtyping's
        array = _decode_array(value)
        return torch.from_numpy(array) if kind.array_type is torch.Tensor else array
    if kind is np.ndarray:
        return _decode_array(value)
    if kind is xr.DataArray:
        return xr.DataArray(
            _decode_array(value["data"]), _coordinates(value), value["dims"], value["name"], value["attrs"]
        )
    if kind is xr.Dataset:
        # Not Dataset.from_dict, which would take the order of the dimensions from the coordinates.
        return xr.Dataset(
            {k: _variable(each) for k, each in value["data_vars"].items()}, _coordinates(value), value["attrs"]
        )
    if kind is pd.DataFrame:
        index = _decode_array(value["index"]) if "index" in value else None
        names, columns = [name for name, _ in value["columns"]], [_decode_array(each) for _, each in value["columns"]]
        table = pd.DataFrame(dict(enumerate(columns)), index=index)
        return table.set_axis(names, axis="columns")
    if is_dataclass(kind):
        types_of, given = get_type_hints(kind), _named_now(value)
        return kind(**{name: _decode(types_of[name], each) for name, each in given.items()})  # type: ignore[operator]
    if kind is float:
        return float(value)
    if kind in (bool, int, str) and not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _decode_union(kinds: Sequence[Any], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if (is_dataclass(kind) and not _fits(kind, value)) or (kind in TABLES and TABLES[kind] not in (value or {})):
            continue
        if kind is not type(None):
            return _decode(kind, value)
    raise ValueError(f"{value!r} is none of {kinds}")


def _fits(kind: Any, value: Any) -> bool:
    """Whether an object has all fields of a dataclass that have no default, and no fields but the dataclass's."""
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    return needed <= set(_named_now(value)) <= {field.name for field in fields(kind)}


def _named_now(value: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, by the names that they have in this version."""
    return {EARLIER.get(name, name): each for name, each in value.items()}


def _left_at_default(field: Any, value: Any) -> bool:
    own = getattr(value, field.name)
    return field.default is not MISSING and type(own) is type(field.default) and own == field.default


def _encode_array(array: np.ndarray) -> dict[str, Any]:
    if array.dtype.kind in "OT":  # objects and texts of any length
        data = [{"float": str(x)} if _is_no_number(x) else encode(x) for x in array.ravel()]
        return {"dtype": "object", "data": data, "shape": list(array.shape)}
    if array.dtype.kind == "f":
        objects = array.astype(object)
        objects[np.isnan(array)] = None
        objects[np.isinf(array)] = array[np.isinf(array)].astype(str)
        data = objects.tolist()
    else:
        data = array.tolist()
    return {"dtype": str(array.dtype), "data": data, "shape": list(array.shape)}


def _is_no_number(value: Any) -> bool:
    """Whether it is NaN or an infinity; among strings, "nan" could not be told from a string."""
    return isinstance(value, float | np.floating) and not math.isfinite(value)


def _decode_array(value: Any) -> np.ndarray:
    if value["dtype"] == "object":
        array = np.empty(len(value["data"]), dtype=object)
        array[:] = [float(each["float"]) if isinstance(each, Mapping) else each for each in value["data"]]
        return array.reshape(value["shape"])
    return np.array(value["data"], dtype=value["dtype"]).reshape(value["shape"])


def _variable(value: Any) -> tuple[Any, np.ndarray, Any]:
    return value["dims"], _decode_array(value["data"]), value["attrs"]


def _coordinates(value: Any) -> dict[str, Any]:
    return {name: _variable(each) for name, each in _named_now(value["coords"]).items()}
