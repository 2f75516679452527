"""Intermediate values of a format's problems: those of a family of columns, or the digits and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError, known_name
from models.tasks.columns.column_families import FAMILIES, require_operands
from models.tasks.columns.long_carries import digits_with_long_carries
from models.tasks.formats.parsed_format import ParsedFormat
from models.tasks.held_out import Draws

#: A name of :data:`FAMILIES`, one for each operator, or functions of digit arrays [n, column] by the variable's name.
VariablesOf = str | Mapping[str, str] | Mapping[str, Callable[..., Any]]
#: What a carry and a borrow are called where the operator says which it is.
EITHER = {name: f"carry_or_borrow_{end}" for end in ("in", "out") for name in (f"carry_{end}", f"borrow_{end}")}


class FormatVariables:
    """The variables of a format's problems.

    Attributes:
        families: of each operator, or of the only one; empty without a family.
        own: functions of the operands' digits [n, column], by the variable's name.
    """

    def __init__(self, parsed: ParsedFormat, variables: VariablesOf | None):
        self.parsed = parsed
        self.families = self._families(variables)
        self.own: Mapping[str, Any] = {} if self.families or not variables else variables  # pyright: ignore

    def _families(self, variables: VariablesOf | None) -> tuple[str, ...]:
        operators = self.parsed.operators
        if isinstance(variables, str):
            names: tuple[Any, ...] = (variables,) * max(1, len(operators))
        elif variables and all(isinstance(value, str) for value in variables.values()):
            if set(variables) != set(operators):
                raise UserError(
                    f"variables names a family for {', '.join(variables)}, and the operators of "
                    f"{self.parsed.format!r} are {', '.join(operators) or 'none'}."
                )
            names = tuple(variables[operator] for operator in operators)
        else:
            return ()
        for name in names:
            known_name("family of variables", name, FAMILIES)
            require_operands(name, len(self.parsed.operand_fields))
        return names

    def require_right(self, problems: Int[Tensor, "n field"], answers: Int[Tensor, "n number"]) -> None:
        """Raise UserError if the variables of a family are not those of these answers."""
        for family, at in self._by_family(problems):
            found = self._of_family(family, problems[at])
            if not FAMILIES[family].explains(found, answers[at, 0], self.parsed.base):
                raise UserError(f"The variables of {family!r} do not give the answers of {self.parsed.format!r}.")

    def of(self, problems: Int[Tensor, "n field"], answers: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The family's variables; without one the operands' and the answer's digits by name, units first, and what is
        computed from digits. ``answers`` gives the numbers of the answers."""
        if self.families:
            parts = [(at, self._of_family(family, problems[at])) for family, at in self._by_family(problems)]
            if len(set(self.families)) == 1:
                return parts[0][1]
            named = [{EITHER.get(name, name): value for name, value in part.items()} for _, part in parts]
            order = torch.cat([at for at, _ in parts]).argsort()
            shared = [name for name in named[0] if all(name in part for part in named)]
            return {name: torch.cat([part[name] for part in named])[order] for name in shared}
        rows, fields = self._digit_rows(problems), self.parsed.answer_fields
        values = dict(rows)
        for field, numbers in zip(fields, answers(problems).abs().T, strict=True):
            digits = numbers[:, None] // self.parsed.base ** torch.arange(field.width) % self.parsed.base
            values[field.name if len(fields) > 1 else "s"] = digits
        for name, function in self.own.items():
            found = torch.as_tensor(function(*rows.values())).long()
            if len(found) != len(problems):
                raise UserError(f"The variable {name!r} has {list(found.shape)} values for {len(problems)} problems.")
            values[name] = found[:, None] if found.ndim == 1 else found
        return values

    def _digit_rows(self, problems: Int[Tensor, "n field"]) -> dict[str, Int[Tensor, "n column"]]:
        """Every operand's digits, units first, in as many columns as the widest field has."""
        parsed, operands = self.parsed, self.parsed.operands(problems)
        widest = max(field.width for field in (*parsed.operand_fields, *parsed.answer_fields))
        powers = parsed.base ** torch.arange(widest)
        names = [field.name for field in parsed.operand_fields]
        return {name: operands[:, i, None] // powers % parsed.base for i, name in enumerate(names)}

    def _by_family(self, problems: Int[Tensor, "n field"]) -> list[tuple[str, Int[Tensor, " m"]]]:
        """Every family with the rows that are its problems; one family alone has all rows."""
        names = dict.fromkeys(self.families)
        if len(names) < 2:
            return [(name, torch.arange(len(problems), device=problems.device)) for name in names]
        index = torch.tensor([list(names).index(name) for name in self.families], device=problems.device)
        own = index[problems[:, self.parsed.operator_at]]
        return [(name, (own == i).nonzero()[:, 0]) for i, name in enumerate(names)]

    def _of_family(self, family: str, problems: Int[Tensor, "n field"]) -> dict[str, Int[Tensor, "n column"]]:
        rows: Sequence[Tensor] = list(self._digit_rows(problems).values())
        width = self.parsed.answer_fields[0].width if FAMILIES[family].as_wide_as_answer else rows[0].shape[1]
        return FAMILIES[family].variables([row[:, :width] for row in rows], self.parsed.base)

    def with_long_carries(self, uniform: Int[Tensor, "n field"], draw: Draws) -> Int[Tensor, "n field"]:
        """Problems in which carries or borrows travel far, made of uniform ones and of further draws."""
        parsed, width = self.parsed, max(field.width for field in self.parsed.operand_fields)
        digits = digits_with_long_carries(width, parsed.base, draw)
        # a + b = base - 1 becomes a = b, which passes a borrow on, whichever digit is replaced. Were it always the
        # same one, the larger number would have the larger digit in most columns, and no borrow would start.
        first = torch.stack([draw(4 * width + 1 + column) < 0.5 for column in range(width)], 1)
        for family, at in self._by_family(uniform):
            if FAMILIES[family].complement:
                replaced = torch.stack((first[at], ~first[at]), 1)
                digits[at] = torch.where(replaced, parsed.base - 1 - digits[at], digits[at])
        for i, field in enumerate(parsed.operand_fields):
            powers = parsed.base ** torch.arange(field.width, device=uniform.device)
            uniform[:, parsed.fields.index(field)] = (digits[:, i, : field.width] * powers).sum(1)
        return uniform

    @property
    def have_long_carries(self) -> bool:
        """Whether there are such problems."""
        return len(self.parsed.operand_fields) == 2 and any(FAMILIES[family].long_carries for family in self.families)
