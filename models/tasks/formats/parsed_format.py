"""What a format, a function and a vocabulary say of a task: its fields, functions and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from models.errors import UserError
from models.tasks.formats.answer_functions import AnswerFunction, SeveralAnswers, answers_of
from models.tasks.formats.format_grammar import WITHIN, NumberField, literal_tokens, whole_numbers_of, with_pieces
from models.tasks.held_out import DrawnTask

EXACT = 2**53  # digits are split in float64, which is exact below
LARGEST = 2**62  # of the digits of all numbers of an answer together
SIGNS = "+-"


class FormatDefinition(DrawnTask):
    """The part of :class:`models.tasks.formats.formatted_task.FormattedTask` that reads its definition."""

    format: str
    base: int
    #: The answer as one number; of several numbers, all their digits.
    answer_field: NumberField
    #: Its numbers, one for each function.
    answer_numbers: tuple[NumberField, ...]
    #: What gives it, for each operator or the only one.
    functions: tuple[AnswerFunction | SeveralAnswers, ...]

    def _read_answer(self, parts: Sequence[NumberField | str], answer: Any) -> None:
        fields = whole_numbers_of(parts)
        self.operators: tuple[str, ...] = tuple(answer) if isinstance(answer, Mapping) else ()
        given = [answers_of(each) for each in (answer.values() if isinstance(answer, Mapping) else (answer,))]
        if not given or not all(given):
            raise UserError("answer needs a function, or one for each operator.")
        op = next((field for field in fields if field.name == "op"), None) if self.operators else None
        if self.operators and (op is None or not op.one_token):
            raise UserError(
                f"Answers by operator ({', '.join(self.operators)}) need a field {{op}} in {self.format!r}."
            )
        numbers = [field for field in fields if field is not op]
        if len(given[0]) > 1:
            self._read_several(numbers, given)
        else:
            parts, numbers = self._read_one(parts, numbers, [only for (only, *_) in given])
        names = [field.name for field in self.answer_numbers]
        self.parts = tuple(parts)
        self.answer_pieces = [part for part in self.parts if isinstance(part, NumberField) and part.name in names]
        self.numbers_fields = tuple(numbers[: len(numbers) - len(names)])
        self.fields = tuple(field for field in fields if field is op or field in self.numbers_fields)
        first = self.parts.index(self.answer_pieces[0])
        if any(isinstance(part, NumberField) and part.name not in names for part in self.parts[first:]):
            raise UserError(f"The answer {self.answer_field.name!r} must be the last field of {self.format!r}.")
        alone = len(self.answer_numbers) == 1
        if any(field.signed for field in (*self.numbers_fields, *self.answer_numbers[alone:])):
            raise UserError(f"Only an answer of one number can have a sign, and {self.format!r} has another sign.")
        for field in (*self.numbers_fields, *self.answer_numbers):
            if self.base**field.width > EXACT:
                raise UserError(f"The field {field.name!r} of {field.width} digits in base {self.base} passes 2^53.")
        if self.base**self.answer_field.width > LARGEST:
            raise UserError(f"The numbers of the answer of {self.format!r} have too many digits together (2^62).")

    def _read_one(
        self, parts: Sequence[NumberField | str], numbers: list[NumberField], functions: Sequence[Any]
    ) -> tuple[Sequence[NumberField | str], list[NumberField]]:
        """Take the answer of one function (per operator): the last field, a number in several fields, or none of the
        format's, as it follows. Returns the parts and their numbers with that field."""
        self.functions = tuple(self._function(function, [field.name for field in numbers]) for function in functions)
        count = self.functions[0].arguments
        if not count:
            raise UserError(f"The answer of {self.format!r} is a function of its fields, and it names none.")
        if 0 < count < len(numbers) - 1:
            parts = self._joined(parts, [field.name for field in numbers[count:]])
            numbers = [field for field in whole_numbers_of(parts) if field.name != "op" or not self.operators]
        if any(function.arguments != count for function in self.functions) or len(numbers) not in (count, count + 1):
            raise UserError(
                f"The answer is a function of {count} numbers, and {self.format!r} has the fields "
                f"{', '.join(field.name for field in numbers)}: the operands, and the answer last or not at all. For "
                "an answer of several numbers give one function for each, as in 'a // b, a % b'."
            )
        follows = len(numbers) == count
        if follows and any(field.name == "answer" for field in numbers):
            raise UserError(f"The answer follows {self.format!r}, where a field is named 'answer' already.")
        operands = [field.name for field in numbers[:count]]
        if outside := [name for function in self.functions for name in function.chosen if name not in operands]:
            raise UserError(
                f"The answer reads {outside[0]!r}, the last field of {self.format!r}: the answer must come last."
            )
        if follows:
            own = NumberField("answer", one_token=True)
            parts, numbers = (*parts, own), [*numbers, own]
        self.answer_field = numbers[-1]
        self.answer_numbers = (self.answer_field,)
        return parts, numbers

    def _joined(self, parts: Sequence[NumberField | str], names: Sequence[str]) -> Sequence[NumberField | str]:
        """The parts with the last fields as the pieces of one number, where only punctuation stands between them."""
        first = next(i for i, part in enumerate(parts) if isinstance(part, NumberField) and part.name == names[0])
        last = next(i for i, part in enumerate(parts) if isinstance(part, NumberField) and part.name == names[-1])
        if not all(isinstance(part, NumberField) or {*part} <= WITHIN for part in parts[first : last + 1]):
            return parts
        renamed = [replace(part, name=names[0]) if isinstance(part, NumberField) else part for part in parts[first:]]
        return with_pieces([*parts[:first], *renamed], self.format)

    def _read_several(self, numbers: list[NumberField], given: Sequence[tuple[Any, ...]]) -> None:
        """Take the last fields as the answer, one for each function; their digits together are ``answer_field``'s."""
        n = len(given[0])
        if any(len(functions) != n for functions in given) or len(numbers) <= n:
            raise UserError(
                f"The answer is {n} numbers, and {self.format!r} has the fields "
                f"{', '.join(field.name for field in numbers)}: the operands, and one last field for each number."
            )
        self.answer_numbers = tuple(numbers[-n:])
        operands, limits = [each.name for each in numbers[:-n]], [self.base**each.width for each in numbers[-n:]]
        self.functions = tuple(SeveralAnswers(functions, operands, limits) for functions in given)
        unread = [name for name in operands if not any(name in function.chosen for function in self.functions)]
        if unread:
            raise UserError(f"No number of the answer of {self.format!r} is a function of its field {unread[0]!r}.")
        width = sum(field.width for field in self.answer_numbers)
        self.answer_field = NumberField(" ".join(field.name for field in self.answer_numbers), width)

    @cached_property
    def answer_layout(self) -> tuple[int | str, ...]:
        """What the answer writes after its sign: the columns of its digits, from the units of the last number on, and
        the literal tokens between them."""
        found: list[int | str] = []
        for part in self._answer_parts:
            if isinstance(part, str):
                found += self._literals[part]
            else:
                found += [self._offsets[part.name] + column for column in part.columns]
        return tuple(found)

    @cached_property
    def _answer_parts(self) -> Sequence[NumberField | str]:
        """The pieces of the answer, and what stands between them."""
        first, last = (self.parts.index(self.answer_pieces[end]) for end in (0, -1))
        return self.parts[first : last + 1]

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """By the name of each number of the answer, the column of its units."""
        widths = [field.width for field in self.answer_numbers]
        return {field.name: sum(widths[i + 1 :]) for i, field in enumerate(self.answer_numbers)}

    @cached_property
    def in_pieces(self) -> bool:
        """Whether a number is written in several pieces, or the answer has several numbers."""
        whole = (*self.fields, self.answer_field)
        return any(isinstance(part, NumberField) and part not in whole for part in self.parts)

    def _function(self, function: Any, names: Sequence[str] = ()) -> AnswerFunction:
        return AnswerFunction(function, names or [field.name for field in self.fields])

    def _read_tokens(self, vocabulary: Sequence[str] | Mapping[str, int] | None) -> None:
        for operator in self.operators:
            if not operator or not operator.isprintable():
                raise UserError(f"An operator is text that can be seen, not {operator!r}.")
        digits = [str(value) for value in range(self.base)]
        known = list(vocabulary) if vocabulary is not None else []
        self._literals = {part: literal_tokens(part, known) for part in self.parts if isinstance(part, str)}
        signs = list(SIGNS) if self.answer_field.signed else []
        needed = [*digits, *(token for tokens in self._literals.values() for token in tokens), *self.operators, *signs]
        if vocabulary is None:
            vocabulary = list(dict.fromkeys(needed))
        ids = dict(vocabulary) if isinstance(vocabulary, Mapping) else {text: i for i, text in enumerate(vocabulary)}
        if missing := [token for token in needed if token not in ids]:
            raise UserError(f"The token {missing[0]!r} of {self.format!r} is not in the vocabulary.")
        if (
            not all(type(i) is int and 0 <= i < 2**31 for i in ids.values())
            or len({ids[d] for d in digits}) != self.base
        ):
            raise UserError("A vocabulary gives each token a number from 0 on, and different digits different numbers.")
        self.ids: Mapping[str, int] = ids
        self.d_vocab = 1 + max(ids.values())
        text_of = {i: text for text, i in reversed(list(ids.items()))}
        self.vocabulary = [text_of.get(i, f"<{i}>") for i in range(self.d_vocab)]
        self.digit_tokens = tuple(ids[digit] for digit in digits)
        self._digit_ids = torch.tensor(self.digit_tokens)
        self._digits_are_ids = self.digit_tokens == tuple(range(self.base))
        self.separator = " " if self.base > 10 else ""


def _values(given: Any) -> tuple[Any, ...]:
    return tuple(given.values()) if isinstance(given, Mapping) else (given,)


def _joint(answer: Any) -> Any:
    """The answer as one text where it is a list of texts."""
    listed = isinstance(answer, (list, tuple)) and all(isinstance(text, str) for text in answer)
    return ", ".join(answer) if listed else answer


def as_json(*arguments: Any) -> dict[str, Any] | None:
    """The arguments of a formatted task by name, as JSON; None if one of them is Python code."""
    names = ("format", "answer", "base", "vocabulary", "where", "variables", "held_out", "seed", "name")
    given = dict(zip(names, arguments, strict=True))
    answer = given["answer"]
    by = {operator: _joint(each) for operator, each in answer.items()} if isinstance(answer, Mapping) else {}
    given["answer"] = by or _joint(answer)
    texts = (*_values(given["where"] or ""), *_values(given["answer"]), *_values(given["variables"] or ""))
    if not all(isinstance(text, str) for text in texts):
        return None
    if given["vocabulary"] is not None and not isinstance(given["vocabulary"], (Mapping, str)):
        given["vocabulary"] = list(given["vocabulary"])
    given = {name: value for name, value in given.items() if value is not None}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
