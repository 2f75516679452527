"""Pairs of ten-digit numbers and their digits: what formats of addition, test sets and hard problems share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from models.errors import UserError
from models.notation import check_below, pairs_below
from models.tasks.columns.schoolbook import schoolbook
from models.tasks.task import are_integers, problem_list

DIGITS = 10
LIMIT = 10**DIGITS


def parse_problem(problem: Any, limit: int = LIMIT) -> tuple[int, int]:
    """(57, 48) or "57+48" as two integers in [0, limit).

    Raises:
        UserError: not two integers, or a number outside 0..limit - 1.
    """
    if isinstance(problem, str):
        problem = tuple(int(operand) for operand in pairs_below(limit).read(problem))
    if isinstance(problem, (str, bytes)) or not isinstance(problem, Iterable):
        raise UserError(f"{problem!r} is not a problem; give two integers such as (57, 48).")
    pair = tuple(problem)
    if len(pair) != 2:
        raise UserError(f"A problem has two operands, not {len(pair)}: {pair!r}.")
    for number in pair:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise UserError(f"Operands must be integers, and {number!r} is not one.")
        check_below(int(number), limit)
    return int(pair[0]), int(pair[1])


def as_problems(problems: Any, limit: int = LIMIT) -> Int[Tensor, "n 2"]:
    """Problems as an int64 tensor [n, 2], checked; a single (57, 48) or "57+48" counts as one problem."""
    if isinstance(problems, np.ndarray) and problems.dtype.kind not in "iufb":  # objects, text, complex
        problems = problems.tolist()
    if isinstance(problems, (Tensor, np.ndarray)):
        tensor = torch.as_tensor(problems)
        if not are_integers(tensor):
            raise UserError(f"Operands must be integers, not {tensor.dtype}.")
        if tensor.ndim != 2 or tensor.shape[1] != 2:
            raise UserError(f"A tensor of problems has shape [n, 2], not {list(tensor.shape)}.")
        tensor = tensor.long()
        outside = (tensor < 0) | (tensor >= limit)
        if outside.any():
            raise UserError(f"Operands must lie in 0..{limit - 1}, and {tensor[outside][0].item()} does not.")
        return tensor
    listed = problem_list(problems, "pairs such as [(57, 48)]")
    return torch.tensor([parse_problem(problem, limit) for problem in listed], dtype=torch.int64)


def digit_rows(numbers: Num[Tensor, " n"], width: int, base: int = 10) -> Float[Tensor, "width n"]:
    """Digits of (the integer part of) numbers in [0, 2^53) as float64, least significant first, one row per digit.

    Quotients are taken in float64, which is exact after flooring (a correctly rounded quotient of integers below
    2^53 never crosses an integer) and several times faster than int64 division, the bulk of the sampling cost.
    """
    powers = float(base) ** torch.arange(width + 1, device=numbers.device, dtype=torch.float64)
    quotient = (numbers.double() / powers[:, None]).floor_()
    return quotient[:-1] - base * quotient[1:]


def chain_length(pairs: Int[Tensor, "n 2"]) -> Int[Tensor, " n"]:
    """Columns that the longest-travelling carry passes: 0 none, 1 generated and consumed, 1 + k past k nines."""
    a, b = (digit_rows(numbers, DIGITS + 1).long().T for numbers in pairs.T)
    return schoolbook(a, b)["chain"].max(1).values
