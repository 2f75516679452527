"""Tasks from a format and a function: :func:`formatted`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import Place, Seed, shown
from models.calls.bound_arguments import checked_method, typed
from models.errors import UserError
from models.tasks.columns.long_carries import digits_with_long_carries
from models.tasks.domain import Domain
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction
from models.tasks.formats.format_data import format_data
from models.tasks.formats.format_text import ProblemText, bits
from models.tasks.formats.format_tokens import FormatTokens
from models.tasks.formats.format_variables import FormatVariables
from models.tasks.formats.machine_by_columns import machine_by_columns
from models.tasks.formats.machine_by_reading import machine_by_reading
from models.tasks.formats.operations import OPERATIONS
from models.tasks.formats.parsed_format import ParsedFormat
from models.tasks.given_problems import as_rows
from models.tasks.held_out import MOST_SPLIT, Draws, SplitDomain
from models.tasks.machines.column_machines import machine_where
from models.tasks.machines.machine import Machine
from models.tasks.refusals import NoMachine, NoProblems, TooManyStates
from models.tasks.roles import Role
from models.tasks.task import Task
from models.tasks.task_definitions import KINDS, as_definition

LARGEST_BASE = 100_000  # each digit has a token
LOOKED_AT = 1024  # problems whose answers must fit when a task is made


class FormattedTask(Task):
    """A task from the format of its sequences and the function that gives the answer.

        formatted("{a:10r}+{b:10r}={s:11r}", lambda a, b: a + b, variables="addition")
        formatted("{a:6}-{b:6}={s:+7}", "a - b", variables="subtraction")
        formatted("{a}{b}=", "(a + b) % 113", base=113)
        formatted("{a:5}{op}{b:5}={s:+6}", {"+": "a + b", "-": "a - b"})
        formatted("${a:2}.{a:2}+${b:2}.{b:2}=${s:3}.{s:2}", "a + b")
        formatted("{a:2}/{b:1}={q:2}r{r:1}", "a // b, a % b", where="b > 0")

    Problems are int64 [n, field], in the order of the format's fields: numbers, and for an operator its index.

    Args:
        format: ``{name:WIDTH}`` is a number of that many digits, the most significant first; ``r`` after the width
            writes units first, ``+`` before it puts a sign in front. ``{name}`` is a number in one token. All else is
            literal, a token per character or per word in angle brackets. The last field is the answer if ``answer``
            takes one number fewer than there are fields; else the answer is one token that follows. What stands after
            the answer is predicted too. A number in several pieces repeats its name, as ``{a:1},{a:3}`` for "1,234"
            (:mod:`models.tasks.formats.format_grammar`).
        answer: a function of int64 tensors [n], whose parameters are matched to fields by name, or else by order; or
            its text (:mod:`models.tasks.expressions`), which a run folder can keep. A mapping gives one for each text
            that the field ``{op}`` may have. A list, or text with commas, gives several numbers, each with a last field
            of its own: a quotient and a rest, or the lines of a scratchpad before the result.
        base: of the digits. A number in one token is one digit.
        vocabulary: the tokens' texts in the order of their numbers, or text -> number (several may share one, and not
            all must be used). By default the digits, the literals in their order, operators and signs.
        where: which problems there are, as a function of the fields or its text ("a >= b"); a mapping gives one for
            some of the operators. By default all.
        variables: the family of intermediate values, "addition", "subtraction", "multiplication", "comparison", "max"
            or "complement"; a mapping that gives one for each operator; or functions of the operands' digits
            [n, column] (units first) by the variable's name. With several families, carries and borrows are called
            ``carry_or_borrow_in`` and ``_out``.
        held_out: the share (below 1) or number of problems that are the test set and never trained on. By default a
            tenth of a domain of up to 4 million problems, at most 10,000. For all pairs of ten-digit numbers it
            may also name a fixed test set, "AdderBoard" or "the ten test sets".
        seed: of the held-out problems.

    Raises:
        UserError: a format that does not parse, an answer that does not fit its field, an empty domain, a token that is
            not in the vocabulary.
    """

    @typed
    def __init__(
        self,
        format: str,
        answer: Any,
        base: int = 10,
        vocabulary: Any = None,
        where: Any = None,
        variables: Any = None,
        held_out: float | int | str | None = None,
        seed: Seed = 0,
        name: str | None = None,
    ):
        if not 2 <= base <= LARGEST_BASE:
            raise UserError(f"base must be at least 2 and at most {LARGEST_BASE:,}, not {shown(base)}.")
        if name is not None and not name.isprintable():
            raise UserError(f"A task's name is text that can be seen, not {name!r}.")
        self.format, self.base, self.name = format, base, name or format
        #: What the format, the answer, the vocabulary and the rule say.
        self.parsed = ParsedFormat(format, answer, base, vocabulary, where)
        self.vocabulary, self.d_vocab = self.parsed.vocabulary, len(self.parsed.vocabulary)
        self.digit_tokens = self.parsed.digit_tokens
        self.separator = " " if base > 10 else ""
        self._written = FormatTokens(self.parsed)
        self._values = FormatVariables(self.parsed, variables)
        self._given = {"answer": answer, "where": where, "variables": variables}
        self._check()
        self.held_out = SplitDomain(self, held_out, seed)
        #: What makes this task again, as JSON; None if a part of it is Python code.
        self.definition = as_definition(format, answer, base, vocabulary, where, variables, held_out, seed, name)

    by_columns, most_run = True, 2**20
    held_out: SplitDomain  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def answer_is_one_token(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.parsed.answer_fields[-1].one_token

    @cached_property
    def by_operator(self) -> dict[str, FormattedTask]:
        """Of a task with several operators, the task of each: the operator stands in its format, as the same token, and
        its problems are the numbers alone. Empty for other tasks, and where a rule reads operator and numbers at once.
        """
        operators = self.parsed.operators
        if len(operators) < 2 or isinstance(self.parsed.rule, AnswerFunction):
            return {}

        def own(name: str, operator: str) -> Any:
            given = self._given[name]
            return given.get(operator) if isinstance(given, Mapping) and operator in operators else given

        return {
            operator: FormattedTask(
                self.format.replace("{op}", operator),
                own("answer", operator),
                self.base,
                self.parsed.ids,
                own("where", operator),
                own("variables", operator),
                name=f"{self.name}, {operator}",
            )
            for operator in operators
        }

    def _check(self) -> None:
        """Raise UserError unless the domain has a problem and the answers of a thousand problems fit their field."""
        if self.domain.where is not None and (self.domain.allowed == 0 or not self._has_problem()):
            raise NoProblems(f"The domain of {self.format!r} is empty: where holds for none of its problems.")
        problems = self.sample(LOOKED_AT, torch.Generator().manual_seed(0))
        ends = [[self.parsed.values(field)[end] for field in self.parsed.fields] for end in (0, -1)]
        extremes = torch.tensor(ends)
        problems = torch.cat((problems, extremes[self.allowed(extremes)]))
        self._values.require_right(problems, self._answers(problems))

    def _has_problem(self) -> bool:
        return self.domain.allowed is not None or self.domain.combinations > MOST_SPLIT or len(self.domain.kept) > 0

    # ---- problems

    @cached_property
    def domain(self) -> Domain:
        parsed = self.parsed
        cells = [(i, column) for i, field in enumerate(parsed.fields) for column in range(field.width)]
        if len(parsed.operators) > self.base:
            raise UserError(f"There can be at most as many operators as digits ({self.base}).")
        highest = [len(parsed.operators) - 1 if i == parsed.operator_at else self.base - 1 for i, _ in cells]
        return Domain(
            self.base,
            tuple(i for i, _ in cells),
            tuple(column for _, column in cells),
            (0,) * len(cells),
            highest=tuple(highest) if parsed.operators else None,
            where=None if parsed.rule is None else self.allowed,
            allowed=self._allowed_count(),
        )

    def _allowed_count(self) -> int | None:
        """How many problems there are, if ``where`` is text that a machine can be made of; None if it is not."""
        if self.parsed.rule is None:
            return None
        widths, found = {field.name: field.width for field in self.parsed.operand_fields}, 0
        for operator in range(max(1, len(self.parsed.operators))):
            rule = self.parsed.rule_of(operator)
            trees = [] if rule is None else [rule.function.tree] if isinstance(rule.function, Expression) else None
            if trees is None or (rule is not None and not set(rule.chosen) <= widths.keys()):
                return None
            try:
                found += machine_where(trees, widths, self.base).count()
            except NoMachine:
                return None
            except NoProblems:
                continue
        return found

    def allowed(self, problems: Int[Tensor, "n field"]) -> Bool[Tensor, " n"]:
        return self.parsed.allowed(problems)

    def _uniform(self, n: int, generator: torch.Generator) -> Int[Tensor, "n field"]:
        """One call of the generator for each field, on which stored draws rest."""
        draw = lambda most: torch.randint(most, (n,), generator=generator, device=generator.device)  # noqa: E731
        return torch.stack([draw(len(self.parsed.values(field))) for field in self.parsed.fields], 1)

    def uniform_by(self, draw: Draws) -> Int[Tensor, "n field"]:
        sizes = [len(self.parsed.values(field)) for field in self.parsed.fields]
        return torch.stack([(draw(i) * size).long() for i, size in enumerate(sizes)], 1)

    @property
    def long_carries_by(self) -> Callable[[Draws], Tensor] | None:
        """As the base says; None without a family in which something travels."""
        if not self._values.have_long_carries:
            return None
        n = len(self.parsed.fields)
        return lambda draw: self._values.with_long_carries(self.uniform_by(draw), lambda i: draw(n + i))

    def as_problems(self, problems: Any) -> Int[Tensor, "n field"]:
        parsed, reader = self.parsed, self._reader
        such_as = f"{self.problem_text([0] * len(parsed.fields))!r} or tuples of numbers"
        found, texts = as_rows(problems, len(parsed.fields), such_as, reader.read, parsed.operators)
        for i, field in enumerate(parsed.fields):
            values = parsed.values(field)
            outside = (found[:, i] < 0) | (found[:, i] >= len(values))
            if outside.any():
                wrong = found[outside][0, i].item()
                raise UserError(f"{field.name} must lie in 0..{len(values) - 1}, and {wrong} does not.")
        if not (inside := self.allowed(found)).all():
            wrong = self.problem_text(found[~inside][0].tolist())
            raise UserError(f"{wrong!r} is not a problem of {self.name}: where does not hold for it.")
        for i, text in texts.items():
            if reader.answer(text):
                self._require_right(found[i : i + 1], text)
        return found

    @cached_property
    def _reader(self) -> ProblemText:
        return ProblemText(self.parsed.prompt_parts, self.parsed.operators, self.base)

    def problem_text(self, numbers: Sequence[int]) -> str:
        """A problem as text, such as "57+48" or "5 7", in decimal and without padding, but in base 2 as the bits of its
        fields ("0101^0011"); :meth:`as_problems` reads it."""
        return self._reader.text(numbers)

    def _require_right(self, problem: Int[Tensor, "1 field"], text: str) -> None:
        """Raise UserError for a text that goes on with another answer than the problem's."""
        answer, squeezed = self.targets(problem), lambda said: "".join(said.split())
        whole = squeezed(self.token_text(answer[0]))
        ending = len(squeezed("".join(self.parsed.ending)))
        right = {whole, whole[: len(whole) - ending], squeezed(self.answer_text(answer))}
        if squeezed(self._reader.answer(text)) not in right:
            raise UserError(
                f"{text!r} is not a problem of {self.name} with its answer, which is {self.answer_text(answer)}."
            )

    def as_data(self) -> dict[str, Any] | None:
        """What a reader in another language needs to encode and to answer problems, as JSON; None where an answer or a
        rule is Python code."""
        data = format_data(self.parsed, self._reader)
        return None if data is None else data | {"families": list(self.families)}

    # ---- tokens

    @cached_property
    def _prompt_roles(self) -> Sequence[Role]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._written.prompt_roles

    @cached_property
    def target_roles(self) -> Sequence[Role]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._written.answer_roles

    @checked_method
    def operand_position(self, operand: Place, column: Place) -> int:
        """The position of an operand's digit in a column (0 is units).

        Raises:
            UserError: there is no such operand or column.
        """
        wanted = ("operand", operand, column)
        found = [i for i, role in enumerate(self.roles) if (role.kind, role.index, role.column) == wanted]
        if not found:
            sizes = " and ".join(str(field.width) for field in self.parsed.operand_fields)
            raise UserError(
                f"The operands of {self.name} have {sizes} digits; there is no digit {column} of operand {operand}."
            )
        return found[0]

    def _answers(self, problems: Int[Tensor, "n field"]) -> Int[Tensor, "n number"]:
        """The numbers that are the answers. Raises UserError for one that does not fit its field."""
        found = self.parsed.answers(problems)
        if (outside := self.parsed.misfits(found)).any():
            row, number = outside.nonzero()[0].tolist()
            field, wrong = self.parsed.answer_fields[number], self.problem_text(problems[row].tolist())
            limit = self.base**field.width
            fits = f"{-limit + 1 if field.signed else 0} to {limit - 1}"
            raise UserError(
                f"The answer of {wrong!r} is {found[row, number].item()}, and the field {field.name!r} takes {fits}."
            )
        return found

    def answers(self, problems: Any) -> Int[Tensor, "n *number"]:
        """The numbers that the task's function gives, [n]; of several functions [n, number]."""
        found = self._answers(self.as_problems(problems))
        return found[:, 0] if found.shape[1] == 1 else found

    def tokens(self, problems: Int[Tensor, "n field"]) -> tuple[Int[Tensor, "n prompt"], Int[Tensor, "n target"]]:
        answer = self._written.answer(self._answers(problems), torch.int64)
        return self._written.prompt(problems, torch.int64).T, answer.T

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        prompt, answer = self.tokens(self.as_problems(problems))
        return torch.cat((prompt, answer[:, :-1]), 1).contiguous()

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n pos"]:
        return self._written.prompt(self.as_problems(problems), torch.int64).T.contiguous()

    def encode_rows(self, problems: Int[Tensor, "n field"]) -> tuple[Tensor, Tensor]:
        """Tokens [pos, n] and targets [target, n], as uint8 if the vocabulary fits, without checks of the problems."""
        dtype = torch.uint8 if self.d_vocab <= 256 else torch.int64
        answer = self._written.answer(self._answers(problems), dtype)
        return torch.cat((self._written.prompt(problems, dtype), answer[:-1])), answer

    def decode(self, answer_tokens: Int[Tensor, "n target"]) -> list[Any]:
        """The number that each row spells, a tuple of them where an answer has several; None for one that spells
        none."""
        tokens, length = torch.as_tensor(answer_tokens), self._written.answer_length
        if tokens.shape[-1] < length:
            raise UserError(f"An answer of {self.name} has {length} tokens, not {tokens.shape[-1]}.")
        numbers, good = self._written.read(tokens, self.digit_values(tokens))
        rows = numbers.reshape(-1, numbers.shape[-1]).tolist()
        spelt = [row[0] if len(row) == 1 else tuple(row) for row in rows]
        return [row if fine else None for row, fine in zip(spelt, good.reshape(-1).tolist(), strict=True)]

    def answer_text(self, answer_tokens: Int[Tensor, "1 target"]) -> str:
        """The number in decimal, or in base 2 its bits; of a difference in ten's complement also the difference. An
        answer in several pieces or numbers is the text of its tokens."""
        number, field = self.decode(answer_tokens)[0], self.parsed.answer_fields[0]
        if number is None:
            return super().answer_text(answer_tokens)
        if self.parsed.in_pieces:
            return self.token_text(answer_tokens[0, : self._written.answer_length])
        if self.base == 2:
            return "-" * (number < 0) + bits(abs(number), field.width)
        size = self.base ** (field.width - 1)
        if set(self.families) == {"complement"} and size <= number < 2 * size:  # its highest digit is the borrow
            return f"{number - 2 * size} (written {number})"
        return str(number)

    # ---- what it all means

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """The family's variables, or the operands' and the answer's digits by name, units first, with the variables
        that ``variables=`` computes from digits."""
        found = self.as_problems(problems)
        return self._values.of(found, self._answers)

    @property
    def families(self) -> tuple[str, ...]:
        """The family of each operator, or of the only one; empty without a family."""
        return self._values.families

    @property
    def own_variables(self) -> tuple[str, ...]:
        """The names of the variables that ``variables=`` computes."""
        return tuple(self._values.own)

    # ---- small memory

    def derived_machine(self) -> Machine:
        """By its columns, or else as it is read. Raises NoMachine with what stands in the way of the columns, or
        TooManyStates where that is what stands in the way of reading."""
        try:
            return machine_by_columns(self.parsed)
        except NoMachine as why:
            try:
                return machine_by_reading(self.parsed)
            except TooManyStates:
                raise
            except NoMachine:
                raise why from None

    def candidate_machines(self) -> Iterator[Callable[[], Machine]]:
        """Machines that an answer in Python may have, one after the other."""
        if len(self.parsed.functions) > 1 or len(self.parsed.answer_fields) > 1:
            return
        names = [number.name for number in self.parsed.operand_fields]
        field = next(iter(self.parsed.answer_fields))
        yield lambda: machine_by_columns(self.parsed)
        texts = [" + ".join(names)]
        texts += [f"({texts[0]}) % {self.base**field.width}"]
        if len(names) == 2:
            high = self.base ** (field.width - 1)
            texts += [operation.of(*names) for operation in OPERATIONS.values()]
            texts.append("({0} - {1}) % {2} + {2} * ({0} < {1})".format(*names, high))
        for text in texts:
            yield lambda text=text: machine_by_columns(self.parsed, [text])

    def adversarial_problems(self, n: int, generator: torch.Generator) -> list[Int[Tensor, "m field"]]:
        """Problems in which a carry or a borrow passes many columns, both numbers are equal, or one of them is the
        least or the largest there is."""
        fields = self.parsed.operand_fields
        if self.parsed.operators or len(fields) < 2:
            return []
        limits, width = torch.tensor([self.base**f.width for f in fields]), max(f.width for f in fields)
        uniform = torch.rand(4 * width + 1, n, generator=generator, dtype=torch.float64)
        digits, found = digits_with_long_carries(width, self.base, lambda i: uniform[i]), []
        for passing in (digits[:, 1], self.base - 1 - digits[:, 1]):  # where a carry passes, or a borrow
            numbers = self.sample(n, generator)
            pair = torch.stack((digits[:, 0], passing), 1)
            numbers[:, :2] = (pair * self.base ** torch.arange(width)).sum(2) % limits[:2]
            found.append(numbers)
        found.append(self.sample(n, generator)[:, :1].expand(-1, len(limits)) % limits.min())
        numbers, row = self.sample(n, generator), torch.arange(n)
        at = row % len(limits)
        numbers[row, at] = torch.where(row // len(limits) % 2 == 0, 0, limits[at] - 1)
        return [kind[self.allowed(kind)] for kind in (*found, numbers)]


formatted = KINDS["format"] = FormattedTask
