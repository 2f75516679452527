"""Addition and subtraction by one rule for every column, and which pairs are problems: what proofs need of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interp.core.results import Provenance
from interp.proofs.verdict.verdict import STRENGTHS, ArithmeticName
from interp.proofs.verdict.verdict_files import read_fields
from models.errors import UserError
from models.tasks.columns.column_places import ColumnPlaces
from models.tasks.columns.schoolbook import Column
from models.tasks.expressions import Expression
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.machines.equal_expressions import first_difference
from models.tasks.refusals import NoDomain, NoMachine
from models.tasks.task import Task


@dataclass(frozen=True)
class ColumnRule(Column):
    """Two numbers are added, or the second is subtracted from the first, column by column.

    Out of the last column of a difference comes no borrow, unless it is signed: that is what ``a >= b`` says, and it
    leaves (n^2 + n) / 2 of the n^2 pairs of numbers below n.

    Attributes:
        digits: how many each number has. written: how many the answer has; one more than ``digits`` shows the carry out
            of the last column, 0 or 1.
        signed: whether the second number of a difference may be the larger one; the answer then shows the borrow that
            is left.
        tried: on how many problems the rule was compared with the task's own answer, where nothing else is known of
            that, such as of a function in Python; None where the two were derived to be equal on all problems.
    """

    digits: int = 10
    written: int = 11
    signed: bool = False
    tried: int | None = None

    @property
    def operator(self) -> str:
        return "-" if self.subtracts else "+"

    @property
    def result(self) -> str:
        return "difference" if self.subtracts else "sum"

    @property
    def ordered(self) -> bool:
        """Whether the first number must not be smaller than the second."""
        return self.subtracts and not self.signed

    @property
    def ends(self) -> tuple[int, ...]:
        """The carries that may come out of the last column."""
        return (0,) if self.ordered else (0, 1)

    @property
    def all_end(self) -> bool:
        """Whether any carry may come out of the last column, so that the columns above another one are free."""
        return len(self.ends) == 2

    def carry_into(self, a: Any, b: Any, column: Any) -> Any:
        """The carry into a column of pairs of numbers."""
        power = self.base**column
        return self.sign * (self.total(a % power, b % power) // power)

    # ---- problems

    @property
    def limit(self) -> int:
        """The numbers are below this."""
        return self.base**self.digits

    def free(self, columns: int) -> tuple[int, int]:
        """How many choices of digits the highest ``columns`` columns have, by the carry into the lowest of them.

        The numbers that they make are x and y below n. All n^2 pairs are allowed, but in :attr:`ordered` ones x - carry
        must not be smaller than y: (n^2 + n) / 2 pairs without a borrow, and (n^2 - n) / 2 with one.
        """
        n = self.base**columns
        return ((n * n + n) // 2, (n * n - n) // 2) if self.ordered else (n * n, n * n)

    @property
    def size(self) -> int:
        """How many problems there are."""
        return self.free(self.digits)[0]

    def holds(self, a: Any, b: Any) -> Any:
        """Which pairs of whole numbers are problems."""
        inside = (a >= 0) & (a < self.limit) & (b >= 0) & (b < self.limit)
        return inside & (a >= b) if self.ordered else inside

    def expression(self, a: str, b: str) -> str:
        """The answer, as an expression of the two numbers' names."""
        low = f"({a} {self.operator} {b}) % {self.base ** (self.written - self.signed)}"
        return f"{low} + {self.base ** (self.written - 1)} * ({a} < {b})" if self.signed else low

    def targets(self, a: int, b: int) -> list[int]:
        """The digits of the answer, units first."""
        digits = [self.total(a, b) // self.base**i % self.base for i in range(self.written)]
        return [*digits[:-1], self.carry_into(a, b, self.digits)] if self.signed else digits

    # ---- words

    @property
    def among(self) -> str:
        return " with a >= b" if self.ordered else ""

    @property
    def all_pairs(self) -> str:
        """How many problems there are, such as "all 10^20 pairs"."""
        return f"all {self.size:,} pairs{self.among}" if self.ordered else f"all 10^{2 * self.digits} pairs"

    @property
    def caveat(self) -> str:
        """What is left to say of a proof about this rule, if it is not known to be the task's."""
        if self.tried is None:
            return ""
        return f"that a {self.operator} b is the task's answer was only tried on {self.tried:,} problems"

    @property
    def all_claimed(self) -> str:
        """:attr:`all_pairs`, with the caveat."""
        return self.all_pairs + (f" ({self.caveat})" if self.caveat else "")

    @property
    def pairs(self) -> str:
        """What the problems are."""
        return f"pairs of {'ten' if self.digits == 10 else self.digits}-digit numbers{self.among}"

    @property
    def domain(self) -> str:
        return f"all pairs of numbers from 0 to {self.limit - 1}{self.among}"

    @property
    def count(self) -> str:
        """How many digits an answer has."""
        return {10: "ten", 11: "eleven"}.get(self.written, str(self.written))

    def label(self, target: int) -> str:
        """A target's name: "s3", or "EOS" after the digits."""
        return f"s{target}" if target < self.written else "EOS"

    def problem(self, a: Any, b: Any) -> str:
        return f"{a} {self.operator} {b}"

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON, without what is said of few rules only."""
        return {name: value for name, value in asdict(self).items() if name not in ("signed", "tried") or value}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ColumnRule:
        """The inverse of :meth:`to_dict`. Raises KeyError, TypeError or ValueError for anything but a stored rule."""
        found = read_fields(cls, value, ("signed", "tried"))
        if not all(0 < x < 20 for x in (found.digits, found.written, found.base)) or found.tried == 0:
            raise ValueError("digits, written and base lie between 1 and 19, and problems were tried")
        return found


SUMS = ColumnRule()  # of ten-digit numbers


def over_all_pairs(rule: ColumnRule, arithmetic: ArithmeticName) -> Provenance:
    """What a proof about a rule on all pairs rests on: no more than the problems on which the rule was tried, where it
    is not known to be the task's."""
    if rule.tried is not None:
        return Provenance(rule.tried, None, f"problems on which the task's answer is a {rule.operator} b")
    return Provenance(rule.size, None, rule.pairs, STRENGTHS[arithmetic])


def column_rule(layout: ColumnPlaces) -> ColumnRule:
    """The rule of a task with columns.

    Raises:
        UserError: an answer that starts with its highest digit, running sums, numbers of different lengths, or problems
            that are not all pairs of a sum, all pairs of a signed difference, or the pairs with ``a >= b``.
    """
    task, columns = layout.task, layout.operands
    if layout.highest_first:
        raise UserError(
            f"The carry is followed here from the units on, by what was written of it before, and the answer of "
            f"{task.name} starts with its highest digit, for which all columns below are read at once: certify judges "
            "it by other means; with an r after its width an answer starts with the units."
        )
    digits = sum(len(places) == 2 for places in columns)
    try:
        domain = task.domain
    except NoDomain as error:
        raise UserError(str(error)) from None
    widths = [domain.width(i) for i in range(domain.n_operands)]
    alike = not any(domain.lowest) and domain.highest is None and domain.n_columns is None
    if layout.step is not None or widths != [digits, digits] or len(columns) > digits + 1 or not alike:
        raise UserError(f"The task {task.name} has other problems than two numbers of equally many digits.")
    ordered, signed = _ordered(task), layout.subtracts and domain.where is None and len(columns) > digits
    if domain.where is not None if not layout.subtracts else not (ordered or signed):
        raise UserError(
            f"The problems of {task.name} must be all pairs of a sum, of a difference that shows a borrow in its last "
            "digit, or the pairs with where='a >= b' of a difference."
        )
    return ColumnRule(digits, len(columns), signed, subtracts=layout.subtracts, base=layout.base)


def _ordered(task: Task) -> bool:
    """Whether a rule in text says that the first number is not smaller; what Python code says is not known."""
    if not isinstance(task, FormattedTask) or len(task.parsed.operand_fields) != 2:
        return False
    names, rule = [field.name for field in task.parsed.operand_fields], getattr(task.parsed.rule, "function", None)
    if not isinstance(rule, Expression):
        return False
    limit = task.domain.base ** task.domain.width()
    try:
        return first_difference(f"({rule}) != 0", f"{names[0]} >= {names[1]}", names, limit) is None
    except NoMachine:
        return False
