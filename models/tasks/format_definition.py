"""What a format, a function and a vocabulary say of a task: its fields, functions and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from models.errors import UserError
from models.tasks.answer_functions import AnswerFunction
from models.tasks.base import Task
from models.tasks.formats import NumberField, literal_tokens

EXACT = 2**53  # digits are split in float64, which is exact below
SIGNS = "+-"


class FormatDefinition(Task):
    """The part of :class:`models.tasks.formatted_task.FormattedTask` that reads its definition."""

    format: str
    base: int

    def _read_answer(self, parts: Sequence[NumberField | str], answer: Any) -> None:
        fields = [part for part in parts if isinstance(part, NumberField)]
        self.operators: tuple[str, ...] = tuple(answer) if isinstance(answer, Mapping) else ()
        functions = tuple(answer.values()) if isinstance(answer, Mapping) else (answer,)
        if not functions:
            raise UserError("answer needs a function, or one for each operator.")
        op = next((field for field in fields if field.name == "op"), None) if self.operators else None
        if self.operators and (op is None or not op.one_token):
            raise UserError(
                f"Answers by operator ({', '.join(self.operators)}) need a field {{op}} in {self.format!r}."
            )
        numbers = [field for field in fields if field is not op]
        self.functions = tuple(self._function(function, [field.name for field in numbers]) for function in functions)
        count = self.functions[0].arguments
        if not count:
            raise UserError(f"The answer of {self.format!r} is a function of its fields, and it names none.")
        if any(function.arguments != count for function in self.functions) or len(numbers) not in (count, count + 1):
            raise UserError(
                f"The answer is a function of {count} numbers, and {self.format!r} has the fields "
                f"{', '.join(field.name for field in numbers)}: the operands, and the answer last or not at all."
            )
        follows = len(numbers) == count
        if follows and any(field.name == "answer" for field in fields):
            raise UserError(f"The answer follows {self.format!r}, where a field is named 'answer' already.")
        operands = [field.name for field in numbers[:count]]
        if outside := [name for function in self.functions for name in function.chosen if name not in operands]:
            raise UserError(
                f"The answer reads {outside[0]!r}, the last field of {self.format!r}: the answer must come last."
            )
        self.answer_field = NumberField("answer", one_token=True) if follows else numbers[-1]
        self.parts = (*parts, self.answer_field) if follows else tuple(parts)
        self.numbers_fields = tuple(numbers[:count])
        self.fields = tuple(field for field in fields if field is not self.answer_field)
        after = self.parts[self.parts.index(self.answer_field) + 1 :]
        if any(isinstance(part, NumberField) for part in after):
            raise UserError(f"The answer {self.answer_field.name!r} must be the last field of {self.format!r}.")
        if any(field.signed for field in self.numbers_fields):
            raise UserError(f"Only the answer of {self.format!r} can have a sign.")
        for field in (*self.numbers_fields, self.answer_field):
            if self.base**field.width > EXACT:
                raise UserError(f"The field {field.name!r} of {field.width} digits in base {self.base} passes 2^53.")

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


def as_json(*arguments: Any) -> dict[str, Any] | None:
    """The arguments of a formatted task by name, as JSON; None if one of them is Python code."""
    names = ("format", "answer", "base", "vocabulary", "where", "variables", "held_out", "seed", "name")
    given = dict(zip(names, arguments, strict=True))
    texts = (*_values(given["where"] or ""), *_values(given["answer"]), *_values(given["variables"] or ""))
    if not all(isinstance(text, str) for text in texts):
        return None
    if given["vocabulary"] is not None and not isinstance(given["vocabulary"], (Mapping, str)):
        given["vocabulary"] = list(given["vocabulary"])
    given = {name: value for name, value in given.items() if value is not None}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
