"""Reading an argument as its annotation says: the value as a function gets it, or one sentence that refuses it.

:func:`reader_of` makes a :class:`AnnotationReader` of an annotation once. Every item of a sequence or mapping is looked
at, Python's own random state is not touched, and NumPy's numbers and arrays become Python's where the annotation names
Python's types.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from models.calls.argument_kinds import Check, shown
from models.errors import UserError

_MOST_FITTING = 1000  # kinds and shapes of tensors that are remembered for one annotation


class AnnotationReader(NamedTuple):
    """How values of an annotation are read.

    Attributes:
        said: what it takes, in words.
        is_kind: whether a value is of the outer kind (a number, a list), whatever is in it.
        read: (what a message calls the value, value) -> the value as the function gets it. It is asked only where
            ``is_kind`` holds, and raises UserError.
        classes: the plain classes whose own objects fit without a further look.
    """

    said: str
    is_kind: Callable[[Any], bool]
    read: Callable[[str, Any], Any]
    classes: frozenset[type] = frozenset()

    def __call__(self, name: str, value: Any) -> Any:
        if type(value) in self.classes:
            return value
        if not self.is_kind(value):
            raise UserError(f"{name} must be {self.said}, not {shown(value)}.")
        return self.read(name, value)


ANYTHING = AnnotationReader("anything", lambda value: True, lambda name, value: value)


@functools.cache
def reader_of(hint: Any) -> AnnotationReader:
    """The reader of an annotation. One that names nothing to look at (a TypeVar, say) takes anything."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return ANYTHING
    if origin is Annotated:
        check = next((mark for mark in parts[1:] if isinstance(mark, Check)), None)
        return reader_of(parts[0]) if check is None else AnnotationReader(check.said, lambda value: True, check.convert)
    if origin in (Union, UnionType):
        return _of_union([reader_of(part) for part in parts])
    if origin is Literal:
        return _of_literal(parts)
    if isinstance(origin, type) and issubclass(origin, (Mapping, Iterable)):
        return _of_several(origin, parts, hint)
    if hint is None or hint is NoneType:
        return _looking("None", lambda value: value is None, NoneType)
    kind = origin or hint
    if not isinstance(kind, type) or (getattr(kind, "_is_protocol", False) and kind is not Callable):
        return ANYTHING
    return _of_class(kind)


def _of_literal(choices: tuple[Any, ...]) -> AnnotationReader:
    """One of the choices. If these are names, any text: a function refuses an unknown name itself, with the closest."""
    names = (str,) if any(isinstance(choice, str) for choice in choices) else ()
    is_kind = lambda value: isinstance(value, names) or (isinstance(value, Hashable) and value in choices)  # noqa: E731
    return _looking(" or ".join(map(repr, choices)), is_kind)


def _looking(said: str, is_kind: Callable[[Any], bool], *classes: type) -> AnnotationReader:
    """The reader of values of one kind. NumPy's numbers become Python's."""
    plain = lambda name, value: value.item() if isinstance(value, np.generic) else value  # noqa: E731
    return AnnotationReader(said, is_kind, plain, frozenset(classes))


#: What passes for Python's numbers, beside which bool is a kind of int.
_NUMBERS: Mapping[type, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
}


def _of_class(cls: type) -> AnnotationReader:
    if cls in _NUMBERS:
        kinds, no = _NUMBERS[cls], () if cls is bool else (bool,)
        return _looking(_said(cls), lambda value: isinstance(value, kinds) and not isinstance(value, no), cls)
    if cls.__module__ == "jaxtyping":
        return _looking(_said(cls), _fits_shape(cls))
    return _looking(_said(cls), lambda value: isinstance(value, cls), *((cls,) if type(cls) is type else ()))


def _said(hint: Any) -> str:
    """An annotation as one writes it, without its modules."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return re.sub(r"[\w.]+\.(\w+)", r"\1", text)


def _fits_shape(hint: type) -> Callable[[Any], bool]:
    """Whether a tensor is of jaxtyping's kind and shape. Asking jaxtyping is slow, so that what fitted is kept."""
    fitting: set[tuple[torch.dtype, torch.Size]] = set()

    def fits(value: Any) -> bool:
        if isinstance(value, Tensor) and value.is_nested:  # which has no shape
            return False
        key = (value.dtype, value.shape) if type(value) is Tensor else None
        if key in fitting:
            return True
        if not isinstance(value, hint):
            return False
        if key is not None:
            if len(fitting) == _MOST_FITTING:
                fitting.clear()
            fitting.add(key)
        return True

    return fits


def _of_union(readers: list[AnnotationReader]) -> AnnotationReader:
    """A value that one of the readers takes, the first that does."""

    def read(name: str, value: Any) -> Any:
        possible = [each for each in readers if each.is_kind(value)]
        for each in possible[:-1]:
            try:
                return each.read(name, value)
            except UserError:
                continue
        return possible[-1].read(name, value)

    classes = frozenset().union(*(each.classes for each in readers))
    said = " or ".join(each.said for each in readers)
    return AnnotationReader(said, lambda value: any(each.is_kind(value) for each in readers), read, classes)


def _of_several(kind: type, parts: tuple[Any, ...], hint: Any) -> AnnotationReader:
    """Values that hold others: mappings, tuples of so many entries, and sequences, whose entries are alike."""
    fixed = kind is tuple and parts[-1] is not Ellipsis
    readers = [reader_of(part) for part in parts if part is not Ellipsis]
    said = _said(hint)
    if "Annotated[" in said:  # which nobody writes: a check says what it takes
        said = f"{kind.__name__}[{', '.join(reader.said for reader in readers)}]"

    def is_kind(value: Any) -> bool:
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, (str, bytes)):  # a text is a sequence of texts, and of nothing else
            return isinstance(value, str) and isinstance(value, kind) and readers[0].is_kind(value)
        return isinstance(value, kind) and (not fixed or len(value) == len(parts))

    def read(name: str, value: Any) -> Any:
        value = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(value, Mapping):
            for key, entry in value.items():
                readers[0](f"Every key of {name}", key)
                readers[-1](f"{name}[{key!r}]", entry)
        elif isinstance(value, Collection):  # what can be gone through once is left as it is
            for entry, reader in zip(value, readers if fixed else repeat(readers[0])):  # noqa: B905
                reader(f"Every one of {name}", entry)
        return value

    return AnnotationReader(said, is_kind, read)
