"""A format, its answer and its vocabulary, as one object: fields, functions, rules and token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError, known_name
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction, RulesByOperator, answers_of
from models.tasks.formats.format_grammar import (
    WITHIN,
    NumberField,
    literal_tokens,
    parse_format,
    whole_numbers_of,
    with_pieces,
)

EXACT = 2**53  # digits are split in float64, which is exact below
SIGNS = "+-"


class ParsedFormat:
    """What a format, a function, a vocabulary and a rule say of a task.

    Attributes:
        fields: of a problem, in their order; one of them may be the operator. operand_fields: those that are numbers.
        answer_fields: the numbers of the answer. answer_parts: their pieces, and what stands between them.
        operators: the texts that the operator may be; empty without one.
        functions: for each operator, or for the only answer, the function of each of its numbers.
        rule: which problems there are; None if all are.
        ids: the number of every token's text. literals: the tokens of each literal text of the format.
    """

    def __init__(
        self,
        format: str,
        answer: Any,
        base: int = 10,
        vocabulary: Sequence[str] | Mapping[str, int] | None = None,
        where: Any = None,
    ):
        self.format, self.base = format, base
        self._read_answer(parse_format(format), answer)
        self._read_tokens(vocabulary)
        self.rule = self._rule(where)
        self._assume_limits()

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
        names = [field.name for field in self.answer_fields]
        self.parts = tuple(parts)
        pieces = [i for i, part in enumerate(parts) if isinstance(part, NumberField) and part.name in names]
        self.prompt_parts, self.answer_parts = self.parts[: pieces[0]], self.parts[pieces[0] : pieces[-1] + 1]
        self._after = self.parts[pieces[-1] + 1 :]
        self.operand_fields = tuple(numbers[: len(numbers) - len(names)])
        self.fields = tuple(field for field in fields if field is op or field in self.operand_fields)
        #: Which field is the operator; None without one.
        self.operator_at = None if op is None else self.fields.index(op)
        if any(isinstance(part, NumberField) and part.name not in names for part in self.parts[pieces[0] :]):
            raise UserError(f"The answer {' '.join(names)!r} must be the last field of {self.format!r}.")
        alone = len(self.answer_fields) == 1
        if any(field.signed for field in (*self.operand_fields, *self.answer_fields[alone:])):
            raise UserError(f"Only an answer of one number can have a sign, and {self.format!r} has another sign.")
        for field in (*self.operand_fields, *self.answer_fields):
            if self.base**field.width > EXACT:
                raise UserError(f"The field {field.name!r} of {field.width} digits in base {self.base} passes 2^53.")

    def _read_one(
        self, parts: Sequence[NumberField | str], numbers: list[NumberField], functions: Sequence[Any]
    ) -> tuple[Sequence[NumberField | str], list[NumberField]]:
        """Take the answer of one function (per operator): the last field, a number in several fields, or none of the
        format's, as it follows. Returns the parts and their numbers with that field."""
        found = [AnswerFunction(function, [field.name for field in numbers]) for function in functions]
        count = found[0].arguments
        if not count:
            raise UserError(f"The answer of {self.format!r} is a function of its fields, and it names none.")
        if 0 < count < len(numbers) - 1:
            parts = self._joined(parts, [field.name for field in numbers[count:]])
            numbers = [field for field in whole_numbers_of(parts) if field.name != "op" or not self.operators]
        if any(function.arguments != count for function in found) or len(numbers) not in (count, count + 1):
            raise UserError(
                f"The answer is a function of {count} numbers, and {self.format!r} has the fields "
                f"{', '.join(field.name for field in numbers)}: the operands, and the answer last or not at all. For "
                "an answer of several numbers give one function for each, as in 'a // b, a % b'."
            )
        follows = len(numbers) == count
        if follows and any(field.name == "answer" for field in numbers):
            raise UserError(f"The answer follows {self.format!r}, where a field is named 'answer' already.")
        operands = [field.name for field in numbers[:count]]
        if outside := [name for function in found for name in function.chosen if name not in operands]:
            raise UserError(
                f"The answer reads {outside[0]!r}, the last field of {self.format!r}: the answer must come last."
            )
        if follows:
            own = NumberField("answer", one_token=True)
            parts, numbers = (*parts, own), [*numbers, own]
        self.functions: tuple[tuple[AnswerFunction, ...], ...] = tuple((function,) for function in found)
        self.answer_fields: tuple[NumberField, ...] = (numbers[-1],)
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
        """Take the last fields as the answer, one for each function."""
        n = len(given[0])
        if any(len(functions) != n for functions in given) or len(numbers) <= n:
            raise UserError(
                f"The answer is {n} numbers, and {self.format!r} has the fields "
                f"{', '.join(field.name for field in numbers)}: the operands, and one last field for each number."
            )
        self.answer_fields, operands = tuple(numbers[-n:]), [each.name for each in numbers[:-n]]
        self.functions = tuple(tuple(AnswerFunction(each, operands) for each in functions) for functions in given)
        read = {name for functions in self.functions for function in functions for name in function.chosen}
        if unread := [name for name in operands if name not in read]:
            raise UserError(f"No number of the answer of {self.format!r} is a function of its field {unread[0]!r}.")

    def _read_tokens(self, vocabulary: Sequence[str] | Mapping[str, int] | None) -> None:
        for operator in self.operators:
            if not operator or not operator.isprintable():
                raise UserError(f"An operator is text that can be seen, not {operator!r}.")
        digits = [str(value) for value in range(self.base)]
        known = list(vocabulary) if vocabulary is not None else []
        self.literals = {part: literal_tokens(part, known) for part in self.parts if isinstance(part, str)}
        signs = list(SIGNS) if self.signed else []
        needed = [*digits, *(token for tokens in self.literals.values() for token in tokens), *self.operators, *signs]
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
        text_of = {i: text for text, i in reversed(list(ids.items()))}
        self.vocabulary = [text_of.get(i, f"<{i}>") for i in range(1 + max(ids.values()))]
        self.digit_tokens = tuple(ids[digit] for digit in digits)

    def _rule(self, where: Any) -> AnswerFunction | RulesByOperator | None:
        names = [field.name for field in self.fields]
        if not isinstance(where, Mapping):
            return None if where is None else AnswerFunction(where, names)
        for operator in where:
            known_name("operator", operator, self.operators)
        numbers = [field.name for field in self.operand_fields]
        rules = {self.operators.index(operator): AnswerFunction(rule, names) for operator, rule in where.items()}
        if outside := [name for rule in rules.values() for name in rule.chosen if name not in numbers]:
            raise UserError(f"A rule of one operator is about the numbers {', '.join(numbers)}, not {outside[0]!r}.")
        assert self.operator_at is not None
        return RulesByOperator(rules, self.operator_at)

    def _assume_limits(self) -> None:
        """Tell the texts of answers and of the rule how large the numbers are."""
        limits = {field.name: len(self.values(field)) for field in self.fields}
        rules = self.rule.rules.values() if isinstance(self.rule, RulesByOperator) else (self.rule,)
        for function in (*(each for functions in self.functions for each in functions), *rules):
            if function is not None and isinstance(function.function, Expression):
                function.function.assume(limits)

    # ---- what it says of problems

    @property
    def signed(self) -> bool:
        """Whether the answer has a sign, which only an answer of one number can have."""
        return self.answer_fields[0].signed

    @cached_property
    def ending(self) -> list[str]:
        """The literal tokens after the answer, which are predicted too."""
        return [token for part in self._after if isinstance(part, str) for token in self.literals[part]]

    @cached_property
    def delimiters(self) -> Sequence[Sequence[int]]:
        """The tokens before each operand, before the answer, and after it; pieces of numbers count as numbers."""
        written: list[tuple[int, ...]] = [()]
        for part in self.parts:
            if isinstance(part, str):
                written[-1] += tuple(self.literal_ids(part))
            elif part.name != self.operator_name:
                written.append(())
        return tuple(written)

    @cached_property
    def in_pieces(self) -> bool:
        """Whether a number is written in several pieces, or the answer has several numbers."""
        whole = (*self.fields, *(self.answer_fields if len(self.answer_fields) == 1 else ()))
        return any(isinstance(part, NumberField) and part not in whole for part in self.parts)

    @cached_property
    def operator_name(self) -> str | None:
        return None if self.operator_at is None else self.fields[self.operator_at].name

    def literal_ids(self, text: str) -> list[int]:
        """The tokens of one of the format's literal texts. Raises UserError for another text."""
        known_name("literal text", text, self.literals)
        return [self.ids[token] for token in self.literals[text]]

    def values(self, field: NumberField) -> range:
        """What a field of a problem may be."""
        return range(self.base**field.width) if field in self.operand_fields else range(len(self.operators))

    def rule_of(self, operator: int) -> AnswerFunction | None:
        """The rule of the problems with an operator, or of all."""
        return self.rule.rules.get(operator) if isinstance(self.rule, RulesByOperator) else self.rule

    def allowed(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]:
        """For which problems the rule holds."""
        if self.rule is None:
            return torch.ones(len(problems), dtype=torch.bool, device=problems.device)
        return self.rule.of_columns(problems).bool()

    def operands(self, problems: Int[Tensor, "n field"]) -> Int[Tensor, "n operand"]:
        """The numbers of problems, without the operator."""
        return problems[:, [i for i, field in enumerate(self.fields) if i != self.operator_at]]

    def answers(self, problems: Int[Tensor, "n field"]) -> Int[Tensor, "n number"]:
        """The numbers that the functions give, whether they fit their fields or not."""
        operands = self.operands(problems)
        if self.operator_at is None:
            return torch.stack([function.of_columns(operands) for function in self.functions[0]], 1)
        chosen = problems[:, self.operator_at]
        try:
            every = [
                torch.stack([function.of_columns(operands) for function in functions], 1)
                for functions in self.functions
            ]
        except UserError:  # one cannot be computed of another's problems, such as a quotient by zero
            found = torch.zeros(len(chosen), len(self.answer_fields), dtype=torch.int64, device=chosen.device)
            for i, functions in enumerate(self.functions):
                own = operands[chosen == i]
                found[chosen == i] = torch.stack([function.of_columns(own) for function in functions], 1)
            return found
        return torch.stack(every, 1)[torch.arange(len(chosen), device=chosen.device), chosen]

    def misfits(self, answers: Int[Tensor, "n number"]) -> Bool[Tensor, "n number"]:
        """Which numbers do not fit their fields."""
        limits = torch.tensor([self.base**field.width for field in self.answer_fields], device=answers.device)
        return (answers.abs() if self.signed else answers.where(answers >= 0, limits)) >= limits
