"""Problems that a caller gives: texts, tuples, lists, arrays and tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import shown
from models.errors import UserError


def problem_list(problems: Any, such_as: str, tuples: bool = True) -> list[Any]:
    """Problems as a list. A text is one problem, and with ``tuples`` so is a tuple of numbers.

    Raises:
        UserError: not a list (``such_as`` says what to give), or an empty one.
    """
    one = tuples and isinstance(problems, tuple) and problems and not isinstance(problems[0], (tuple, list, str))
    if isinstance(problems, str) or one:
        return [problems]
    if not isinstance(problems, Iterable) or getattr(problems, "ndim", 1) == 0:
        raise UserError(f"{shown(problems)} is not a list of problems; give {such_as}.")
    found = list(problems)
    if not found:
        raise UserError("There is no problem to encode: the list is empty.")
    return found


def are_integers(tensor: Tensor) -> bool:
    """Whether a tensor has an integer dtype, booleans excluded."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def numbers_in(text: str) -> list[int]:
    """The whole numbers that a text has, in their order: "47 + 85" and "47 85" are 47 and 85."""
    return [int(number) for number in re.findall(r"\d{1,18}", text)] if text.isascii() else []


def as_rows(
    problems: Any, width: int, such_as: str, read: Callable[[str], Sequence[int]], names: Sequence[str] = ()
) -> tuple[Int[Tensor, "n width"], dict[int, str]]:
    """(problems as int64 rows, the texts among them by their row): of a tensor, an array, or a list of texts and rows.

    Args:
        width: how many numbers a problem has. such_as: what to give, for messages.
        read: gives the numbers of a text. names: texts that stand for a number in a row, such as operators.

    Raises:
        UserError: what is not that, booleans and numbers beyond int64 among it.
    """
    if isinstance(problems, np.ndarray) and problems.dtype.kind not in "iufb":  # objects, text, complex
        problems = problems.tolist()
    if isinstance(problems, (Tensor, np.ndarray)):
        found = torch.as_tensor(problems)
        if not are_integers(found):
            raise UserError(f"Problems must be whole numbers, not {found.dtype}.")
        if found.ndim != 2 or found.shape[1] != width:
            raise UserError(f"A tensor of problems has shape [n, {width}], not {list(found.shape)}.")
        return found.long(), {}
    listed = problem_list(problems, such_as)
    rows = [_row(problem, width, such_as, read, names) for problem in listed]
    return torch.tensor(rows, dtype=torch.int64), {i: text for i, text in enumerate(listed) if isinstance(text, str)}


def _row(problem: Any, width: int, such_as: str, read: Callable[[str], Sequence[int]], names: Sequence[str]) -> list:
    if isinstance(problem, str):
        row: Any = list(read(problem))
    elif isinstance(problem, (Tensor, np.ndarray)):
        row = problem.tolist()
    elif isinstance(problem, Iterable) and not isinstance(problem, (bytes, Mapping)):
        row = [names.index(each) if isinstance(each, str) and each in names else each for each in problem]
    else:
        row = None
    if not isinstance(row, list) or len(row) != width:
        raise UserError(f"{shown(problem)} is not a problem; give {such_as}, of {width} each.")
    for number in row:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or abs(int(number)) >= 2**63:
            raise UserError(f"The numbers of a problem are whole and below 2^63, and {shown(number)} is not.")
    return [int(number) for number in row]
