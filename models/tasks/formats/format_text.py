"""Problems of a formatted task: which there are, as numbers, and as text in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import shown
from models.errors import UserError
from models.tasks.formats.answer_functions import AnswerFunction, RulesByOperator
from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.format_tokens import FormatTokens
from models.tasks.formats.problem_text import ProblemText, bits
from models.tasks.task import are_integers, problem_list


class FormatProblems(FormatTokens):
    """The part of :class:`models.tasks.formats.formatted_task.FormattedTask` that reads and writes problems."""

    where: AnswerFunction | RulesByOperator | None
    families: tuple[str, ...]

    def _values(self, field: NumberField) -> range:
        return range(self.base**field.width) if field in self.numbers_fields else range(len(self.operators))

    def allowed(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]:
        every = torch.ones(len(problems), dtype=torch.bool, device=problems.device)
        return every if self.where is None else self.where.of_columns(problems).bool()

    @cached_property
    def _reader(self) -> ProblemText:
        prompt = self.parts[: self.parts.index(self.answer_pieces[0])]
        return ProblemText(prompt, self.operators, self.base)

    def problem_text(self, numbers: Sequence[int]) -> str:
        """A problem as text, such as "57+48" or "5 7", in decimal and without padding, but in base 2 as the bits of its
        fields ("0101^0011"); :meth:`as_problems` reads it."""
        return self._reader.text(numbers)

    def answer_text(self, answer_tokens: Int[Tensor, "1 target"]) -> str:
        """The number in decimal, or in base 2 its bits; of a difference in ten's complement also the difference. An
        answer in several pieces or numbers is the text of its tokens."""
        number, field = self.decode(answer_tokens)[0], self.answer_field
        if number == self.no_number:
            return super().answer_text(answer_tokens)
        if self.in_pieces:
            return self.token_text(answer_tokens[0, : field.signed + len(self.answer_layout)])
        if self.base == 2:
            return "-" * (number < 0) + bits(abs(number), field.width)
        size = self.base ** (field.width - 1)
        if set(self.families) == {"complement"} and size <= number < 2 * size:  # its highest digit is the borrow
            return f"{number - 2 * size} (written {number})"
        return str(number)

    @property
    def problem_form(self) -> dict[str, Any]:
        """How problems are written, for a reader in another language (:attr:`ProblemText.form`)."""
        return self._reader.form

    def _require_right(self, problem: Int[Tensor, "1 field"], text: str) -> None:
        """Raise UserError for a text that goes on with another answer than the problem's."""
        answer, squeezed = self._targets(problem, torch.int64).T, lambda said: "".join(said.split())
        whole = squeezed(self.token_text(answer[0]))
        ending = len(squeezed("".join(self._ending)))
        right = {whole, whole[: len(whole) - ending], squeezed(self.answer_text(answer))}
        if squeezed(self._reader.answer(text)) not in right:
            raise UserError(
                f"{text!r} is not a problem of {self.name} with its answer, which is {self.answer_text(answer)}."
            )

    def as_problems(self, problems: Any) -> Int[Tensor, "n field"]:
        answered: dict[int, str] = {}
        if isinstance(problems, np.ndarray) and problems.dtype.kind not in "iufb":
            problems = problems.tolist()
        if isinstance(problems, (Tensor, np.ndarray)):
            found = torch.as_tensor(problems)
            if not are_integers(found):
                raise UserError(f"Operands must be integers, not {found.dtype}.")
            if found.ndim != 2 or found.shape[1] != len(self.fields):
                raise UserError(f"A tensor of problems has shape [n, {len(self.fields)}], not {list(found.shape)}.")
            found = found.long()
        else:
            such_as = f"a list such as [{self.problem_text([0] * len(self.fields))!r}] or tuples of numbers"
            listed = problem_list(problems, such_as)
            found = torch.tensor([self._row(problem) for problem in listed], dtype=torch.int64)
            answered = {i: text for i, text in enumerate(listed) if isinstance(text, str) and self._reader.answer(text)}
        for i, field in enumerate(self.fields):
            values = self._values(field)
            outside = (found[:, i] < 0) | (found[:, i] >= len(values))
            if outside.any():
                wrong = found[outside][0, i].item()
                raise UserError(f"{field.name} must lie in 0..{len(values) - 1}, and {wrong} does not.")
        if not (inside := self.allowed(found)).all():
            wrong = self.problem_text(found[~inside][0].tolist())
            raise UserError(f"{wrong!r} is not a problem of {self.name}: where does not hold for it.")
        for i, text in answered.items():
            self._require_right(found[i : i + 1], text)
        return found

    def _row(self, problem: Any) -> list[int]:
        if isinstance(problem, str):
            return self._reader.read(problem)
        if isinstance(problem, (Tensor, np.ndarray)):
            problem = problem.tolist()
        if not isinstance(problem, Iterable) or isinstance(problem, (bytes, Mapping)):
            raise UserError(f"{shown(problem)} is not a problem; give text or {len(self.fields)} numbers.")
        row = [self.operators.index(x) if isinstance(x, str) and x in self.operators else x for x in problem]
        if len(row) != len(self.fields):
            raise UserError(
                f"A problem of {self.name} has {len(self.fields)} fields, not {len(row)}: {shown(problem)}."
            )
        for number in row:
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or abs(int(number)) >= 2**63:
                raise UserError(f"Operands must be integers below 2^63, and {shown(number)} is not one.")
        return [int(number) for number in row]
