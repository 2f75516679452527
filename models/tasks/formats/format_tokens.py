"""Tokens of a formatted task: their roles, and problems and answers as tokens and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.calls.argument_kinds import Place
from models.calls.bound_arguments import checked_method
from models.errors import UserError, known_name
from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.parsed_format import SIGNS, FormatDefinition
from models.tasks.named.ten_digits import digit_rows
from models.tasks.task import Role


class FormatTokens(FormatDefinition):
    """The part of :class:`models.tasks.formats.formatted_task.FormattedTask` that writes and reads tokens."""

    @cached_property
    def _prompt_parts(self) -> Sequence[NumberField | str]:
        return self.parts[: self.parts.index(self.answer_pieces[0])]

    @cached_property
    def _ending(self) -> list[str]:
        """The literal tokens after the answer, which are predicted too."""
        after = self.parts[self.parts.index(self.answer_pieces[-1]) + 1 :]
        return [token for part in after if isinstance(part, str) for token in self._literals[part]]

    @property
    def ending_ids(self) -> list[int]:
        """The tokens after the answer."""
        return [self.ids[token] for token in self._ending]

    @cached_property
    def delimiters(self) -> Sequence[Sequence[int]]:
        """The tokens before each operand, before the answer, and after it; pieces of numbers count as numbers."""
        written: list[tuple[int, ...]] = [()]
        for part in self.parts:
            if isinstance(part, str):
                written[-1] += tuple(self.literal_ids(part))
            elif part.name != self._operator_name:
                written.append(())
        return tuple(written)

    @checked_method
    def operand_position(self, operand: Place, column: Place) -> int:
        """The position of an operand's digit in a column (0 is units).

        Raises:
            UserError: there is no such operand or column.
        """
        wanted = ("operand", operand, column)
        found = [i for i, role in enumerate(self.roles) if (role.kind, role.index, role.column) == wanted]
        if not found:
            sizes = " and ".join(str(field.width) for field in self.numbers_fields)
            raise UserError(
                f"The operands of {self.name} have {sizes} digits; there is no digit {column} of operand {operand}."
            )
        return found[0]

    @checked_method
    def literal_ids(self, text: str) -> list[int]:
        """The tokens of one of the format's literal texts. Raises UserError for another text."""
        known_name("literal text", text, self._literals)
        return [self.ids[token] for token in self._literals[text]]

    @cached_property
    def _all_roles(self) -> tuple[list[Role], list[Role]]:
        prompt: list[Role] = []
        for part in self._prompt_parts:
            if isinstance(part, str):
                prompt += [Role("delimiter", token) for token in self._literals[part]]
            elif part.name != self._operator_name:
                index = self._number_names.index(part.name)
                labels = [part.name if part.one_token else f"{part.name}{column}" for column in part.columns]
                prompt += [Role("operand", *each, index) for each in zip(labels, part.columns, strict=True)]
            else:
                prompt.append(Role("operator", part.name))
        answer = [Role("sign", "+-")] if self.answer_field.signed else []
        answer += [self._answer_role(each) for each in self.answer_layout]
        return prompt, answer + [Role("eos", token.strip("<>")) for token in self._ending]

    def _answer_role(self, written: int | str) -> Role:
        """The role of a digit of the answer, whose column counts from the units of its own number, or of a literal."""
        if isinstance(written, str):
            return Role("delimiter", written)
        name, offset = next(each for each in self._offsets.items() if each[1] <= written)
        label = name if len(self.answer_numbers) > 1 else "s"
        return Role("answer", label if self.answer_field.one_token else f"{label}{written - offset}", written - offset)

    @cached_property
    def _number_names(self) -> list[str]:
        return [field.name for field in self.numbers_fields]

    @cached_property
    def _operator_name(self) -> str | None:
        return self.fields[self._operator].name if self.operators else None

    @cached_property
    def roles(self) -> Sequence[Role]:
        prompt, answer = self._all_roles
        return (*prompt, *answer)

    @cached_property
    def target_roles(self) -> Sequence[Role]:
        return tuple(self._all_roles[1])

    @cached_property
    def query_positions(self) -> Sequence[int]:
        first = len(self._all_roles[0]) - 1
        return tuple(range(first, first + len(self.target_roles)))

    @cached_property
    def input_length(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.roles) - 1

    # Tokens are made row by row, [pos, n]: training reads them so, and a digit's quotient is one row of float64.

    def _digits(
        self, numbers: Int[Tensor, " n"], field: NumberField, dtype: torch.dtype
    ) -> Integer[Tensor, "column n"]:
        """The tokens of the digits of a field, or of a piece of a number, in the order in which they are written."""
        if field.lowest:
            numbers = numbers // self.base**field.lowest
        rows = digit_rows(numbers, field.width, self.base).to(dtype)
        rows = rows if field.reversed else rows.flip(0)
        return rows if self._digits_are_ids else self._digit_ids.to(numbers.device, dtype)[rows.long()]

    def _constant(self, tokens: Sequence[str], n: int, dtype: torch.dtype, device: Any) -> Integer[Tensor, "token n"]:
        return torch.tensor([self.ids[token] for token in tokens], dtype=dtype, device=device)[:, None].expand(-1, n)

    def _prompt(self, found: Int[Tensor, "n field"], dtype: torch.dtype) -> Integer[Tensor, "pos n"]:
        rows = []
        for part in self._prompt_parts:
            if isinstance(part, str):
                rows.append(self._constant(self._literals[part], len(found), dtype, found.device))
            elif part.name != self._operator_name:
                rows.append(self._digits(found[:, self._field_names.index(part.name)], part, dtype))
            else:
                chosen = torch.tensor([self.ids[text] for text in self.operators], dtype=dtype, device=found.device)
                rows.append(chosen[found[:, self._operator]][None])
        return torch.cat(rows)

    def _answers(self, found: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
        """The numbers that are the answers. Raises UserError for one that does not fit its field."""
        answers = self._by_operator(found) if self.operators else self.functions[0].of_columns(self._operands(found))
        field = self.answer_field
        limit = self.base**field.width
        outside = (answers.abs() if field.signed else answers.where(answers >= 0, limit)) >= limit
        if outside.any():
            wrong = self.problem_text(found[outside][0].tolist())
            fits = f"{-limit + 1 if field.signed else 0} to {limit - 1}"
            if len(self.answer_numbers) > 1:
                raise UserError(f"A number of the answer of {wrong!r} does not fit its field, {field.name}.")
            raise UserError(
                f"The answer of {wrong!r} is {answers[outside][0].item()}, and the field {field.name!r} takes {fits}."
            )
        return answers

    def _by_operator(self, found: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
        """The number that each problem's operator gives."""
        operands, chosen = self._operands(found), found[:, self._operator]
        try:
            every = [function.of_columns(operands) for function in self.functions]
        except UserError:  # one cannot be computed of another's problems, such as a quotient by zero
            answers = torch.zeros_like(chosen)
            for i, function in enumerate(self.functions):
                answers[chosen == i] = function.of_columns(operands[chosen == i])
            return answers
        return torch.stack(every, 1).gather(1, chosen[:, None])[:, 0]

    def answers(self, problems: Any) -> Int[Tensor, " n"]:
        """The numbers that the task's function gives."""
        return self._answers(self.as_problems(problems))

    @cached_property
    def _operator(self) -> int:
        """Which field is the operator, of a task that has one."""
        return next(i for i, field in enumerate(self.fields) if field not in self.numbers_fields)

    @cached_property
    def _field_names(self) -> list[str]:
        return [field.name for field in self.fields]

    def _operands(self, found: Int[Tensor, "n field"]) -> Int[Tensor, "n operand"]:
        return found[:, [self.fields.index(field) for field in self.numbers_fields]]

    def _targets(self, found: Int[Tensor, "n field"], dtype: torch.dtype) -> Integer[Tensor, "target n"]:
        answers, field = self._answers(found), self.answer_field
        signs = torch.tensor([self.ids.get(sign, 0) for sign in SIGNS], dtype=dtype, device=found.device)
        sign = [signs[(answers < 0).long()][None]] if field.signed else []
        ending = self._constant(self._ending, len(found), dtype, found.device)
        if not self.in_pieces:
            return torch.cat((*sign, self._digits(answers.abs(), field, dtype), ending))
        written, left = [], answers.abs()
        for part in self._answer_parts:
            if isinstance(part, str):
                written.append(self._constant(self._literals[part], len(found), dtype, found.device))
            else:
                number = left // self.base ** self._offsets[part.name] % self.base ** self._width_of[part.name]
                written.append(self._digits(number, part, dtype))
        return torch.cat((*sign, *written, ending))

    @cached_property
    def _width_of(self) -> dict[str, int]:
        return {field.name: field.width for field in self.answer_numbers}

    def _rows(self, found: Int[Tensor, "n field"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        targets = self._targets(found, dtype)
        return torch.cat((self._prompt(found, dtype), targets[:-1])), targets

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        return self._rows(self.as_problems(problems), torch.int64)[0].T.contiguous()

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n pos"]:
        return self._prompt(self.as_problems(problems), torch.int64).T.contiguous()

    def targets(self, problems: Any) -> Int[Tensor, "n target"]:
        return self._targets(self.as_problems(problems), torch.int64).T

    def encode_rows(self, problems: Int[Tensor, "n field"]) -> tuple[Tensor, Tensor]:
        """Tokens [pos, n] and targets [target, n], as uint8 if the vocabulary fits, without checks of the problems."""
        return self._rows(problems, torch.uint8 if self.d_vocab <= 256 else torch.int64)

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[int]:
        field, tokens = self.answer_field, torch.as_tensor(answer_tokens)
        length = field.signed + len(self.answer_layout)
        if tokens.shape[-1] < length:
            raise UserError(f"An answer of {self.name} has {length} tokens, not {tokens.shape[-1]}.")
        places = [field.signed + i for i, each in enumerate(self.answer_layout) if not isinstance(each, str)]
        columns = [each for each in self.answer_layout if not isinstance(each, str)]
        values = self.digit_values(tokens[..., places])
        number = (values * self.base ** torch.tensor(columns, device=values.device)).sum(-1)
        good = (values >= 0).all(-1)
        for i, each in enumerate(self.answer_layout):
            if isinstance(each, str):  # what stands within the answer is a part of it
                good = good & (tokens[..., field.signed + i] == self.ids[each])
        if field.signed:
            plus, minus = (self.ids[sign] for sign in SIGNS)
            first = tokens[..., 0]
            good = good & ((first == plus) | ((first == minus) & (number != 0)))  # zero is written with a plus
            number = torch.where(first == minus, -number, number)
        return torch.where(good, number, self.no_number).reshape(-1).tolist()
