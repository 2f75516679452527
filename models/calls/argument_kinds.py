"""Kinds of arguments: what a parameter takes beyond a type, said in its annotation.

    def score(model: Model, batch_size: Count = 256): ...

A kind is ``Annotated[type, Check(convert, said)]``: to a type checker it is the type, and a checked function
(:mod:`models.calls.checked_calls`) also asks the check. A kind that needs more than this package stands where its type
does, as :data:`models.tasks.task_definitions.TaskLike` does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from models.errors import UserError

MOST_NESTED = 4  # lists of lists of problems; an axis of tensors of problems each
MOST = 10**8  # the most problems, draws or steps that one question may be asked for


@dataclass(frozen=True)
class Check:
    """What a kind takes.

    Attributes:
        convert: (what a message calls the argument, value) -> the value as the function gets it. It raises UserError
            for a value that the kind does not have. If ``of_owner``, it gets the object whose method is called as well.
        said: what the kind takes, in a few words.
    """

    convert: Callable[..., Any]
    said: str
    of_owner: bool = False


# ---- numbers


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_)) or (isinstance(value, Tensor) and value.ndim == 0)


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number of Python, NumPy or torch within bounds, as an int."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        number = operator.index(value)
    except (TypeError, RuntimeError, ValueError):  # a fraction, a tensor of several numbers
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or not least <= number <= most:
        raise UserError(f"{name} must be {_whole_said(least, most)}, not {shown(value)}.")
    return number


def real(name: str, value: Any, least: float, most: float, above: bool = False) -> float:
    """A finite number within bounds, as a float; if ``above``, the least itself is not allowed."""
    try:
        number = float(value) if is_number(value) and not isinstance(value, (bool, np.bool_)) else math.nan
    except (OverflowError, TypeError):  # an integer of too many digits, a complex number
        number = math.nan
    if not least <= number <= most or not math.isfinite(number) or (above and number == least):
        raise UserError(f"{name} must be {_real_said(least, most, above)}, not {shown(value)}.")
    return number


def _whole_said(least: int, most: int) -> str:
    return f"a whole number from {least} to {'2^63 - 1' if most == 2**63 - 1 else f'{most:,}'}"


def _real_said(least: float, most: float, above: bool) -> str:
    return f"above {least:g} and at most {most:g}" if above else f"between {least:g} and {most:g}"


def whole_within(least: int, most: int) -> Check:
    return Check(lambda name, value: whole(name, value, least, most), _whole_said(least, most))


def real_within(least: float, most: float, above: bool = False) -> Check:
    return Check(lambda name, value: real(name, value, least, most, above), _real_said(least, most, above))


Count = Annotated[int, whole_within(1, MOST)]
Natural = Annotated[int, whole_within(0, MOST)]  # as Count, for what may be asked for none
Index = Annotated[int, whole_within(0, 10**6)]
Place = Annotated[int, whole_within(-1, MOST)]  # of an operand, step or column; column -1 is the sign after a number
Seed = Annotated[int, whole_within(0, 2**63 - 1)]
Several = Annotated[int, whole_within(2, 10**4)]
Share = Annotated[float, real_within(0.0, 1.0)]
Seconds = Annotated[float, real_within(0.0, 1e9, above=True)]


def _target(name: str, value: Any, task: Any) -> int:
    return whole(name, value, 0, len(task.query_positions) - 1)


Target = Annotated[int, Check(_target, "the number of one of the task's targets", of_owner=True)]


# ---- tensors of tokens


def dense(name: str, value: Tensor, with_values: bool = True) -> Tensor:
    """A tensor whose numbers can be read. Raises UserError for one that is nested, sparse or quantized, and, if it must
    be ``with_values``, for one on the meta device."""
    if value.is_nested or value.layout is not torch.strided or value.is_quantized or (with_values and value.is_meta):
        kind = "nested" if value.is_nested else "quantized" if value.is_quantized else "sparse"
        kind = "on the meta device, without numbers" if value.is_meta else kind
        raise UserError(f"{name} must be a dense tensor of numbers, and this one is {kind}.")
    return value


def whole_numbers(name: str, value: Any) -> Tensor:
    """Whole numbers in a tensor, an array or lists, as a tensor. Raises UserError for anything else."""
    if isinstance(value, Tensor):
        dense(name, value)
    else:
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise UserError(f"{name} must be whole numbers, not {shown(value)}.") from None
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise UserError(f"{name} must be whole numbers, not of {value.dtype}.")
    return value


def _rows(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        dense(name, value, with_values=False)
    if not isinstance(value, Tensor) or value.ndim != 2 or value.is_floating_point() or value.is_complex():
        raise UserError(f"{name} must be a tensor of whole numbers [n, position], not {shown(value)}.")
    return value


def _answers(name: str, value: Any) -> Tensor:
    found = whole_numbers(name, value)
    if found.ndim not in (1, 2) or not found.shape[-1]:
        raise UserError(f"{name} must be whole numbers [n, target], not {shown(value)}.")
    return found if found.ndim == 2 else found[None]


def _keys(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.ndim != 1:
        raise UserError(f"{name} must be an int64 tensor [row], not {shown(value)}.")
    return value


TokenRows = Annotated[Tensor, Check(_rows, "a tensor of whole numbers [n, position]")]
AnswerRows = Annotated[Tensor, Check(_answers, "whole numbers [n, target]; a single row counts as one")]
RowKeys = Annotated[Tensor, Check(_keys, "an int64 tensor [row]")]


# ---- models and problems


def _hooked(name: str, value: Any) -> Any:
    if isinstance(value, nn.Module) and hasattr(value, "run_with_hooks") and hasattr(value, "cfg"):
        if value._forward_hooks or value._forward_pre_hooks:
            raise UserError(
                f"{name} has a torch hook on the model itself, which run_with_hooks does not run; take it off."
            )
        return value
    hint = f" models.load({value!r}) makes one of a name." if isinstance(value, str) else ""
    raise UserError(f"{name} is {shown(value)}, which is not a model with TransformerLens hooks.{hint}")


def _problems(name: str, value: Any) -> Any:
    """Tensors and arrays of integers as tensors; anything else that a task takes (texts, lists) unchanged."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        value = torch.from_numpy(value.astype(np.int64))
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"):
        return whole_numbers(name, value)
    if not isinstance(value, (str, Iterable)) or isinstance(value, (nn.Module, Mapping, bytes)):
        raise UserError(f"{name} must be whole numbers in a tensor, or a list of texts, not {shown(value)}.")
    return value


def readable_problems(name: str, value: Any, with_values: bool = True) -> Any:
    """Problems that a task's own check can look at. Raises UserError for a tensor that :func:`dense` refuses, or lists
    that are nested too deeply."""
    if isinstance(value, Tensor):
        return dense(name, value, with_values)
    if isinstance(value, (list, tuple)) and _is_deep(value):
        raise UserError(f"{name} must be problems, and this {type(value).__name__} is nested too deeply.")
    return value


def _is_deep(value: Any, left: int = MOST_NESTED) -> bool:
    """Whether lists, tuples and mappings lie in each other more often than ``left`` times."""
    inside = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, (list, tuple, Mapping)) and (not left or any(_is_deep(each, left - 1) for each in inside))


HOOKED = Check(_hooked, "a model with TransformerLens hooks")
#: Problems in any form that a task takes, for its own methods; for questions, with NumPy's numbers as tensors.
Problems = Annotated[Any, Check(readable_problems, "problems that the task takes")]
GivenProblems = Annotated[Any, Check(_problems, "whole numbers in a tensor, or a list of texts")]


def shown(value: object) -> str:
    """A description of a value in a few words."""
    if isinstance(value, (Tensor, np.ndarray)):
        of = "" if isinstance(value, Tensor) and value.is_nested else f" of shape {list(value.shape)}"
        return f"a {type(value).__name__}{of}"
    if isinstance(value, nn.Module):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be shown
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
