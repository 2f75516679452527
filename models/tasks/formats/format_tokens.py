"""Problems and answers of a format as tokens, and back.

Widths are fixed, and tokens are made row by row, [pos, n]: training reads them so, as uint8, and a digit's quotient is
one row of float64. (Numbers of varying width are written by
:mod:`models.tasks.named.position_coupling.written_numbers`, all rows of a batch at once.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.parsed_format import SIGNS, ParsedFormat
from models.tasks.number_digits import digit_rows
from models.tasks.roles import Role


class FormatTokens:
    """Where a format's tokens stand, what writes them and what reads them."""

    def __init__(self, parsed: ParsedFormat):
        self.parsed = parsed
        self._digit_ids = torch.tensor(parsed.digit_tokens)
        self._digits_are_ids = parsed.digit_tokens == tuple(range(parsed.base))

    @cached_property
    def prompt_roles(self) -> tuple[Role, ...]:
        """The roles of what is read before the answer."""
        parsed, found = self.parsed, []
        names = [field.name for field in parsed.operand_fields]
        for part in parsed.prompt_parts:
            if isinstance(part, str):
                found += [Role("delimiter", token) for token in parsed.literals[part]]
            elif part.name == parsed.operator_name:
                found.append(Role("operator", part.name))
            else:
                labels = [part.name if part.one_token else f"{part.name}{column}" for column in part.columns]
                index = names.index(part.name)
                found += [Role("operand", *each, index) for each in zip(labels, part.columns, strict=True)]
        return tuple(found)

    @cached_property
    def answer_roles(self) -> tuple[Role, ...]:
        """The roles of the targets. A digit's column counts from the units of its own number."""
        parsed = self.parsed
        found = [Role("sign", "+-")] if parsed.signed else []
        for part in parsed.answer_parts:
            if isinstance(part, str):
                found += [Role("delimiter", token) for token in parsed.literals[part]]
            else:
                label = part.name if len(parsed.answer_fields) > 1 else "s"
                found += [
                    Role("answer", label if part.one_token else f"{label}{column}", column) for column in part.columns
                ]
        return (*found, *(Role("eos", token.strip("<>")) for token in parsed.ending))

    @property
    def input_length(self) -> int:
        return len(self.prompt_roles) + len(self.answer_roles) - 1

    # ---- writing

    def _digits(
        self, numbers: Int[Tensor, " n"], field: NumberField, dtype: torch.dtype
    ) -> Integer[Tensor, "column n"]:
        """The tokens of the digits of a field, or of a piece of a number, in the order in which they are written."""
        if field.lowest:
            numbers = numbers // self.parsed.base**field.lowest
        rows = digit_rows(numbers, field.width, self.parsed.base).to(dtype)
        rows = rows if field.reversed else rows.flip(0)
        return rows if self._digits_are_ids else self._digit_ids.to(numbers.device, dtype)[rows.long()]

    def _constant(self, texts: Sequence[str], n: int, dtype: torch.dtype, device: Any) -> Integer[Tensor, "token n"]:
        ids = [self.parsed.ids[text] for text in texts]
        return torch.tensor(ids, dtype=dtype, device=device)[:, None].expand(-1, n)

    def prompt(self, problems: Int[Tensor, "n field"], dtype: torch.dtype) -> Integer[Tensor, "pos n"]:
        """What is read before the answer."""
        parsed, rows = self.parsed, []
        names = [field.name for field in parsed.fields]
        for part in parsed.prompt_parts:
            if isinstance(part, str):
                rows.append(self._constant(parsed.literals[part], len(problems), dtype, problems.device))
            elif part.name == parsed.operator_name:
                ids = [parsed.ids[text] for text in parsed.operators]
                chosen = torch.tensor(ids, dtype=dtype, device=problems.device)
                rows.append(chosen[problems[:, names.index(part.name)]][None])
            else:
                rows.append(self._digits(problems[:, names.index(part.name)], part, dtype))
        return torch.cat(rows)

    def answer(self, numbers: Int[Tensor, "n number"], dtype: torch.dtype) -> Integer[Tensor, "target n"]:
        """What is predicted where these numbers are the answer. Precondition: they fit their fields."""
        parsed, n, device = self.parsed, len(numbers), numbers.device
        written = []
        if parsed.signed:
            signs = torch.tensor([parsed.ids[sign] for sign in SIGNS], dtype=dtype, device=device)
            written.append(signs[(numbers[:, 0] < 0).long()][None])
        names = [field.name for field in parsed.answer_fields]
        for part in parsed.answer_parts:
            if isinstance(part, str):
                written.append(self._constant(parsed.literals[part], n, dtype, device))
            else:
                written.append(self._digits(numbers[:, names.index(part.name)].abs(), part, dtype))
        return torch.cat((*written, self._constant(parsed.ending, n, dtype, device)))

    # ---- reading

    @property
    def answer_length(self) -> int:
        """How many tokens an answer has, without what stands after it."""
        return len(self.answer_roles) - len(self.parsed.ending)

    def read(
        self, tokens: Int[Tensor, "n target"], values: Int[Tensor, "n target"]
    ) -> tuple[Int[Tensor, "n number"], Bool[Tensor, " n"]]:
        """The numbers that answers spell, and which rows spell some. What stands between digits is a part of an answer,
        and zero is written with a plus.

        Args:
            values: of the digits that the tokens are; -1 where a token is none.
        """
        parsed, at = self.parsed, int(self.parsed.signed)
        names = [field.name for field in parsed.answer_fields]
        numbers = torch.zeros(*tokens.shape[:-1], len(names), dtype=torch.int64, device=tokens.device)
        good = torch.ones_like(numbers[..., 0], dtype=torch.bool)
        for part in parsed.answer_parts:
            if isinstance(part, str):
                for token in parsed.literals[part]:
                    good, at = good & (tokens[..., at] == parsed.ids[token]), at + 1
                continue
            digits = values[..., at : at + part.width]
            powers = parsed.base ** torch.tensor(list(part.columns), device=digits.device)
            numbers[..., names.index(part.name)] += (digits * powers).sum(-1)
            good, at = good & (digits >= 0).all(-1), at + part.width
        if parsed.signed:
            plus, minus = (parsed.ids[sign] for sign in SIGNS)
            first, zero = tokens[..., 0], numbers[..., 0] == 0
            good = good & ((first == plus) | ((first == minus) & ~zero))
            numbers = torch.where((first == minus)[..., None], -numbers, numbers)
        return numbers, good
