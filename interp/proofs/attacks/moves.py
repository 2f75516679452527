"""What a search may do to a problem: change a digit, move it between operands, let a run of columns pass carries on.

All moves are of digits in the task's space; the answer that follows from them is the task's business.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.attacks.space import Digits, ProblemSpace


def changed_digits(space: ProblemSpace, digits: Int[Tensor, "operand column"]) -> Digits:
    """Every problem that differs in one digit."""
    operand, column, digit = space.allowed.nonzero().T
    other = digits[operand, column] != digit
    operand, column, digit = operand[other], column[other], digit[other]
    found = digits.repeat(len(digit), 1, 1)
    return found.index_put_((torch.arange(len(digit)), operand, column), digit)


def moved_digits(space: ProblemSpace, digits: Int[Tensor, "operand column"]) -> Digits:
    """Every problem in which two operands share one column's sum otherwise; carries and answer stay."""
    found = []
    for first in range(space.n_operands):
        for second in range(first + 1, space.n_operands):
            value = torch.arange(space.base).expand(space.n_columns, -1)
            rest = (digits[first] + digits[second])[:, None] - value
            valid = (value != digits[first][:, None]) & (rest >= 0) & (rest < space.base)
            column, index = valid.nonzero().T
            rows = torch.arange(len(column))
            moved = digits.repeat(len(column), 1, 1)
            moved[rows, first, column] = value[column, index]
            moved[rows, second, column] = rest[column, index]
            found.append(moved)
    moved = torch.cat(found) if found else digits[None][:0]
    return moved[space.contains(moved)]


def runs_of_nines(
    space: ProblemSpace, digits: Int[Tensor, "operand column"], sums: Int[Tensor, "operand column"]
) -> Digits:
    """Every problem in which one operand's digits make a run of columns add up to nine, so that a carry passes.

    ``sums``: what each digit's column adds up to, see :meth:`ProblemSpace.digit_sums`.
    """
    columns = torch.arange(space.n_columns)
    low, high = torch.triu_indices(space.n_columns, space.n_columns)
    inside = (columns >= low[:, None]) & (columns <= high[:, None])  # [run, column]
    found = []
    for operand in range(space.n_operands):
        nine = digits[operand] + space.base - 1 - sums[operand]
        made = digits.repeat(len(inside), 1, 1)
        made[:, operand] = torch.where(inside, nine, digits[operand])
        found.append(made)
    made = torch.cat(found)
    made = made[space.contains(made)]
    return made[(made != digits).flatten(1).any(1)]


def crossed(digits: Int[Tensor, "operand column"], other: Int[Tensor, "operand column"]) -> Digits:
    """Every problem with the low columns of one of two and the high columns of the other."""
    columns = digits.shape[1]
    below = torch.arange(columns) < torch.arange(1, columns)[:, None]  # [cut, column]
    below = below[:, None].expand(-1, digits.shape[0], -1)
    return torch.cat((torch.where(below, digits, other), torch.where(below, other, digits)))
