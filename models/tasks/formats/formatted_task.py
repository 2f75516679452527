"""Tasks from a format and a function: :func:`formatted`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import shown
from models.calls.bound_arguments import typed
from models.errors import UserError, known_name
from models.tasks.columns.column_families import FAMILIES, hard_digits, require_operands
from models.tasks.domain import Domain
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction, RulesByOperator
from models.tasks.formats.format_grammar import parse_format
from models.tasks.formats.format_text import FormatProblems
from models.tasks.formats.parsed_format import as_json
from models.tasks.held_out import LISTED, Draws, HeldOut
from models.tasks.machines.affine_cases import NotDecided
from models.tasks.machines.column_machines import machine_where
from models.tasks.machines.machine import NoPath
from models.tasks.roles import DELIMITERS, OUTPUT, OWN, PREVIOUS

#: A name of :data:`FAMILIES`, one for each operator, or functions of digit arrays [n, column] by the variable's name.
VariablesOf = str | Mapping[str, str] | Mapping[str, Callable[..., Any]]
#: What a carry and a borrow are called where the operator says which it is.
EITHER = {name: f"carry_or_borrow_{end}" for end in ("in", "out") for name in (f"carry_{end}", f"borrow_{end}")}
LARGEST_BASE = 100_000  # each digit has a token
LOOKED_AT = 1024  # problems whose answers must fit when a task is made


class FormattedTask(FormatProblems):
    """A task that a format and a function define; :func:`formatted` makes it and says what the arguments are.

    ``problems`` are int64 [n, field], in the order of the format's fields: numbers, and for an operator its index.
    """

    def __init__(
        self,
        format: str,
        answer: Any,
        base: int = 10,
        vocabulary: Sequence[str] | Mapping[str, int] | None = None,
        where: Any = None,
        variables: VariablesOf | None = None,
        held_out: float | int | str | None = None,
        seed: int = 0,
        name: str | None = None,
    ):
        if not 2 <= base <= LARGEST_BASE:
            raise UserError(f"base must be at least 2 and at most {LARGEST_BASE:,}, not {shown(base)}.")
        if name is not None and not name.isprintable():
            raise UserError(f"A task's name is text that can be seen, not {name!r}.")
        self.format, self.base, self.name = format, base, name or format
        parts = parse_format(format)
        self._read_answer(parts, answer)
        self._read_tokens(vocabulary)
        self.where = self._where(where)
        self._assume_limits()
        self.columns_of = variables
        #: The family of each operator, or of the only one; empty without a family.
        self.families = self._families(variables)
        self._check()
        self.held_out = HeldOut(self, held_out, seed)
        if self.answer_field.signed:
            self.no_number = -(base**self.answer_field.width)
        self._given = {"answer": answer, "where": where, "variables": variables}
        #: What makes this task again, as JSON; None if a part of it is Python code.
        self.definition = as_json(format, answer, base, vocabulary, where, variables, held_out, seed, name)

    def _assume_limits(self) -> None:
        """Tell the texts of answers and of ``where`` how large the numbers are."""
        limits = {field.name: len(self._values(field)) for field in self.fields}
        rules = self.where.rules.values() if isinstance(self.where, RulesByOperator) else (self.where,)
        for function in (*self.functions, *rules):
            for part in () if function is None else function.parts:
                if isinstance(part.function, Expression):
                    part.function.assume(limits)

    def _where(self, where: Any) -> AnswerFunction | RulesByOperator | None:
        if not isinstance(where, Mapping):
            return None if where is None else self._function(where)
        for operator in where:
            known_name("operator", operator, self.operators)
        numbers = [field.name for field in self.numbers_fields]
        rules = {self.operators.index(operator): self._function(rule) for operator, rule in where.items()}
        if outside := [name for rule in rules.values() for name in rule.chosen if name not in numbers]:
            raise UserError(f"A rule of one operator is about the numbers {', '.join(numbers)}, not {outside[0]!r}.")
        return RulesByOperator(rules, self._operator)

    @cached_property
    def by_operator(self) -> dict[str, FormattedTask]:
        """Of a task with several operators, the task of each: the operator stands in its format, as the same token, and
        its problems are the numbers alone. Empty for other tasks, and where a rule reads operator and numbers at once.
        """
        if len(self.operators) < 2 or isinstance(self.where, AnswerFunction):
            return {}

        def own(name: str, operator: str) -> Any:
            given = self._given[name]
            return given.get(operator) if isinstance(given, Mapping) and operator in self.operators else given

        return {
            operator: FormattedTask(
                self.format.replace("{op}", operator),
                own("answer", operator),
                self.base,
                self.ids,
                own("where", operator),
                own("variables", operator),
                name=f"{self.name}, {operator}",
            )
            for operator in self.operators
        }

    def _families(self, variables: VariablesOf | None) -> tuple[str, ...]:
        if isinstance(variables, str):
            names: tuple[Any, ...] = (variables,) * max(1, len(self.operators))
        elif variables and all(isinstance(value, str) for value in variables.values()):
            if set(variables) != set(self.operators):
                raise UserError(
                    f"variables names a family for {', '.join(variables)}, and the operators of {self.format!r} are "
                    f"{', '.join(self.operators) or 'none'}."
                )
            names = tuple(variables[operator] for operator in self.operators)
        else:
            return ()
        for name in names:
            known_name("family of variables", name, FAMILIES)
            require_operands(name, len(self.numbers_fields))
        return names

    def _check(self) -> None:
        """Raise UserError unless the domain has a problem and the answers of a thousand problems fit their field."""
        if self.where is not None and self.domain.combinations <= LISTED and not len(self.domain.kept):
            raise UserError(f"The domain of {self.format!r} is empty: where holds for none of its problems.")
        problems = self.sample(LOOKED_AT, torch.Generator().manual_seed(0))
        extremes = torch.tensor([[self._values(field)[end] for field in self.fields] for end in (0, -1)])
        problems = torch.cat((problems, extremes[self.allowed(extremes)]))
        answers = self._answers(problems)
        for family, at in self._by_family(problems):
            if not FAMILIES[family].explains(self._of_family(family, problems[at]), answers[at], self.base):
                raise UserError(f"The variables of {family!r} do not give the answers of {self.format!r}.")

    # ---- problems

    @cached_property
    def domain(self) -> Domain:
        cells = [(i, column) for i, field in enumerate(self.fields) for column in range(field.width)]
        highest = [
            self.base - 1 if self.fields[i] in self.numbers_fields else len(self.operators) - 1 for i, _ in cells
        ]
        if len(self.operators) > self.base:
            raise UserError(f"There can be at most as many operators as digits ({self.base}).")
        return Domain(
            self.base,
            tuple(i for i, _ in cells),
            tuple(column for _, column in cells),
            (0,) * len(cells),
            highest=tuple(highest) if self.operators else None,
            where=None if self.where is None else self.allowed,
            allowed=self._allowed_count(),
        )

    def _allowed_count(self) -> int | None:
        """How many problems there are, if ``where`` is text that a machine can be made of; None if it is not."""
        if self.where is None:
            return None
        widths, found = {field.name: field.width for field in self.numbers_fields}, 0
        for operator in range(max(1, len(self.operators))):
            rule = self.where.rules.get(operator) if isinstance(self.where, RulesByOperator) else self.where
            trees = [] if rule is None else [rule.function.tree] if isinstance(rule.function, Expression) else None
            if trees is None or (rule is not None and not set(rule.chosen) <= widths.keys()):
                return None
            try:
                found += machine_where(trees, widths, self.base).count()
            except NotDecided:
                return None
            except NoPath:
                continue
        return found

    def _uniform(self, n: int, generator: torch.Generator) -> Int[Tensor, "n field"]:
        draw = lambda most: torch.randint(most, (n,), generator=generator, device=generator.device)  # noqa: E731
        return torch.stack([draw(len(self._values(field))) for field in self.fields], 1)

    def uniform_by(self, draw: Draws) -> Int[Tensor, "n field"]:
        return torch.stack([(draw(i) * len(self._values(field))).long() for i, field in enumerate(self.fields)], 1)

    @property
    def hard_by(self) -> Callable[[Draws], Tensor] | None:
        """As the base says; None without a family of hard problems."""
        if len(self.numbers_fields) != 2 or not any(FAMILIES[family].hard for family in self.families):
            return None
        width = max(field.width for field in self.numbers_fields)

        def made(draw: Draws) -> Int[Tensor, "n field"]:
            found = self.uniform_by(draw)
            drawn = lambda i: draw(len(self.fields) + i)  # noqa: E731
            digits = hard_digits(width, self.base, drawn)
            # a + b = base - 1 becomes a = b, which passes a borrow on, whichever digit is replaced. Were it always the
            # same one, the larger number would have the larger digit in most columns, and no borrow would start.
            first = torch.stack([drawn(4 * width + 1 + column) < 0.5 for column in range(width)], 1)
            for family, at in self._by_family(found):
                if FAMILIES[family].complement:
                    replaced = torch.stack((first[at], ~first[at]), 1)
                    digits[at] = torch.where(replaced, self.base - 1 - digits[at], digits[at])
            for i, field in enumerate(self.numbers_fields):
                powers = self.base ** torch.arange(field.width, device=found.device)
                found[:, self.fields.index(field)] = (digits[:, i, : field.width] * powers).sum(1)
            return found

        return made

    # ---- what it all means

    def variables(self, problems: Any) -> dict[str, Int[Tensor, "n column"]]:
        """The family's variables, or the operands' and the answer's digits by name, units first, with the variables
        that ``variables=`` computes from digits."""
        found = self.as_problems(problems)
        if self.families:
            parts = [(at, self._of_family(family, found[at])) for family, at in self._by_family(found)]
            if len(set(self.families)) == 1:
                return parts[0][1]
            named = [{EITHER.get(name, name): value for name, value in part.items()} for _, part in parts]
            order = torch.cat([at for at, _ in parts]).argsort()
            shared = [name for name in named[0] if all(name in part for part in named)]
            return {name: torch.cat([part[name] for part in named])[order] for name in shared}
        rows = self._digit_rows(found)
        answers = self._answers(found).abs()
        values = rows | self._answer_digits(answers)
        functions: Any = self.columns_of or {}
        for name, function in functions.items():
            of = torch.as_tensor(function(*rows.values())).long()
            if len(of) != len(found):
                raise UserError(f"The variable {name!r} has {list(of.shape)} values for {len(found)} problems.")
            values[name] = of[:, None] if of.ndim == 1 else of
        return values

    def _answer_digits(self, answers: Int[Tensor, " n"]) -> dict[str, Int[Tensor, "n column"]]:
        """The digits of the answer, units first: s, or those of each of its numbers by name."""
        found, digits = {}, answers[:, None] // self.base ** torch.arange(self.answer_field.width) % self.base
        for field in self.answer_numbers:
            at = self._offsets[field.name]
            found[field.name if len(self.answer_numbers) > 1 else "s"] = digits[:, at : at + field.width]
        return found

    def _digit_rows(self, problems: Int[Tensor, "n field"]) -> dict[str, Int[Tensor, "n column"]]:
        """Every operand's digits, units first, in as many columns as the widest field has."""
        powers = self.base ** torch.arange(max(field.width for field in (*self.numbers_fields, self.answer_field)))
        operands = self._operands(problems)
        return {field.name: operands[:, i, None] // powers % self.base for i, field in enumerate(self.numbers_fields)}

    def _by_family(self, problems: Int[Tensor, "n field"]) -> list[tuple[str, Int[Tensor, " m"]]]:
        """Every family with the rows that are its problems; one family alone has all rows."""
        names = dict.fromkeys(self.families)
        if len(names) < 2:
            return [(name, torch.arange(len(problems), device=problems.device)) for name in names]
        index = torch.tensor([list(names).index(name) for name in self.families], device=problems.device)
        own = index[problems[:, self._operator]]
        return [(name, (own == i).nonzero()[:, 0]) for i, name in enumerate(names)]

    def _of_family(self, family: str, problems: Int[Tensor, "n field"]) -> dict[str, Int[Tensor, "n column"]]:
        rows = list(self._digit_rows(problems).values())
        width = self.answer_field.width if FAMILIES[family].as_wide_as_answer else rows[0].shape[1]
        return FAMILIES[family].variables([row[:, :width] for row in rows], self.base)

    def relative_roles(self, target: int) -> dict[str, list[int]]:
        """Positions (up to the query's own) by their meaning to a target; every one in one group."""
        query, own = self.query_positions[target], self.target_roles[target].column
        at = lambda column: [  # noqa: E731
            i for i, role in enumerate(self.roles) if role.kind == "operand" and role.column == column
        ]
        prompt = len(self._all_roles[0])
        groups: dict[str, list[int]] = {
            OWN: [] if own is None else at(own),
            PREVIOUS: at(own - 1) if own else [],
            OUTPUT: [query] if query >= prompt else [],
        }
        if delimiters := [i for i, role in enumerate(self.roles[:prompt]) if role.kind in ("delimiter", "operator")]:
            groups[DELIMITERS] = delimiters
        return self.with_rest(groups, query)

    def chain_length(self, problems: Any) -> Int[Tensor, " n"]:
        """The longest chain of a family's carries, borrows or equal digits; without a family, zeros."""
        found = self.variables(problems)
        for name in ("chain", "carry_out"):
            if name in found:
                return found[name].max(1).values
        return torch.zeros(len(next(iter(found.values()))), dtype=torch.int64)


@typed
def formatted(
    format: str,
    answer: Any,
    base: int = 10,
    vocabulary: Any = None,
    where: Any = None,
    variables: Any = None,
    held_out: float | int | str | None = None,
    seed: int = 0,
    name: str | None = None,
) -> FormattedTask:
    """A task from the format of its sequences and the function that gives the answer.

        formatted("{a:10r}+{b:10r}={s:11r}", lambda a, b: a + b, variables="addition")
        formatted("{a:6}-{b:6}={s:+7}", "a - b", variables="subtraction")
        formatted("{a}{b}=", "(a + b) % 113", base=113)
        formatted("{a:5}{op}{b:5}={s:+6}", {"+": "a + b", "-": "a - b"})
        formatted("${a:2}.{a:2}+${b:2}.{b:2}=${s:3}.{s:2}", "a + b")
        formatted("{a:2}/{b:1}={q:2}r{r:1}", "a // b, a % b", where="b > 0")

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
    return FormattedTask(format, answer, base, vocabulary, where, variables, held_out, seed, name)
