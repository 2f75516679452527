"""A proposal for the task of some examples: :func:`guess`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.formats.operations import OPERATIONS, BinaryOperation

_BASES = (10, *range(2, 10))
_MOST_MODULUS = 1000
_NAMED = 6  # alternatives that the sentence names
_PIECES = re.compile(r"\d+|[^\d]+")


@dataclass(frozen=True)
class Guess:
    """``task`` is the first of the definitions that fit all ``n`` examples; ``alternatives`` are the others."""

    task: FormattedTask
    alternatives: tuple[dict[str, Any], ...]
    n: int

    def __str__(self) -> str:
        said = _said(self.task.definition or {})
        all_examples = f"all {self.n} examples" if self.n > 1 else "the example"
        if not self.alternatives:
            return f"{said} fits {all_examples}, and nothing else that was tried does."
        others = "; ".join(map(_said, self.alternatives[:_NAMED]))
        more = f"; and {len(self.alternatives) - _NAMED} more" if len(self.alternatives) > _NAMED else ""
        return f"{said} fits {all_examples}, and so do: {others}{more}. More examples would tell them apart."


def _said(definition: Mapping[str, Any]) -> str:
    base, where = definition.get("base", 10), definition.get("where")
    said = f"{definition['format']!r} with {definition['answer']}" + ("" if base == 10 else f" in base {base}")
    return said + (f" where {where}" if where else "")


@dataclass(frozen=True)
class _Example:
    """What stands before, between and after the two operands and the answer, and the three as text."""

    literals: tuple[str, str, str, str]
    numbers: tuple[str, str, str]
    sign: str

    @classmethod
    def read(cls, text: str) -> _Example:
        pieces = _PIECES.findall(text.strip())
        numbers = [piece for piece in pieces if piece[0].isdigit()]
        if len(numbers) != 3:
            raise UserError(f"{text!r} has {len(numbers)} numbers; two operands and an answer can be recognised.")
        if pieces[0][0].isdigit():
            pieces = ["", *pieces]
        if pieces[-1][0].isdigit():
            pieces = [*pieces, ""]
        before, _, between, _, equals, _, after = pieces if len(pieces) == 7 else [""] * 7
        if not between or not equals:
            raise UserError(f"{text!r} has numbers that touch; a separator must stand between them.")
        signed = len(equals) > 1 and equals[-1] in "+-"
        literals = (before, between, equals[:-1] if signed else equals, after)
        return cls(literals, (numbers[0], numbers[1], numbers[2]), equals[-1] if signed else "")


def _alike(texts: Sequence[str]) -> list[_Example]:
    """The examples, which are all written in the same way. Raises UserError with the first that is not.

    Where spaces stand around numbers of several widths and none starts with a zero, each number is one token.
    """
    found = [_Example.read(text) for text in texts]
    one_token = all(" " in part for part in found[0].literals[1:3]) and not any(
        len(number) > 1 and number.startswith("0") for example in found for number in example.numbers
    )
    for text, example in zip(texts, found, strict=True):
        fixed = [*map(len, example.numbers)] == [*map(len, found[0].numbers)] or one_token
        if example.literals != found[0].literals or not fixed:
            raise UserError(
                f"{text!r} is not written as {texts[0]!r} is: numbers must have fixed widths (pad them with zeros) or "
                "be tokens of their own between spaces, and all else must be the same."
            )
        if bool(example.sign) != bool(found[0].sign):
            raise UserError("Some answers have a sign and others have none; write all of them with one.")
    return found


def _one_token_each(examples: Sequence[_Example]) -> Iterator[dict[str, Any]]:
    """Yield the definitions modulo a number under which every example is right; a number is one token."""
    (before, between, equals, after) = (part.strip() for part in examples[0].literals)
    numbers = [tuple(map(int, example.numbers)) for example in examples]
    format = f"{before}{{a}}{between}{{b}}{equals}{{s}}{after}"
    residues = [each for each in OPERATIONS.values() if each.of_residues]
    for operation, p in product(residues, range(max(max(row) for row in numbers) + 1, _MOST_MODULUS + 1)):
        if all(operation(a, b) % p == s for a, b, s in numbers):
            yield {"format": format, "answer": f"({operation.answer}) % {p}", "base": p}


def _fitting(examples: Sequence[_Example]) -> Iterator[dict[str, Any]]:
    """Yield the definitions under which every example is right."""
    if any([*map(len, each.numbers)] != [*map(len, examples[0].numbers)] for each in examples):
        yield from _one_token_each(examples)
        return
    (before, between, equals, after), (a, b, s) = examples[0].literals, map(len, examples[0].numbers)
    highest = max(int(digit) for example in examples for number in example.numbers for digit in number)
    compared = s == 1 and not examples[0].sign
    operations = [each for each in OPERATIONS.values() if compared or not each.compares]
    bases = [base for base in _BASES if base > highest]
    sign = "+" if examples[0].sign else ""
    for base, up, answer_up, operation in product(bases, ("", "r"), ("", "r"), operations):
        if (up and a == b == 1) or (answer_up and s == 1):
            continue  # one digit has no order
        value = lambda text, r: int(text[::-1] if r else text, base)  # noqa: B023, E731
        pairs = [(value(one, up), value(two, up)) for one, two, _ in (example.numbers for example in examples)]
        given = [(-1 if each.sign == "-" else 1) * value(each.numbers[2], answer_up) for each in examples]
        format = f"{before}{{a:{a}{up}}}{between}{{b:{b}{up}}}{equals}{{s:{sign}{s}{answer_up}}}{after}"
        found: dict[str, Any] = {"format": format, "answer": operation.answer, "base": base}
        where = _where_it_fits(operation, base, a, b, s, bool(sign))
        if [operation(x, y) for x, y in pairs] == given:
            yield found | ({"where": where} if where else {})
        if where and operation.of_residues and not sign and [operation(x, y) % base**s for x, y in pairs] == given:
            yield found | {"answer": f"({operation.answer}) % {base**s}"}


def _where_it_fits(operation: BinaryOperation, base: int, a: int, b: int, s: int, signed: bool) -> str:
    """For which problems of ``a`` and ``b`` digits an answer fits ``s`` digits, as text; empty for all of them."""
    corners = [operation(x, y) for x in (0, base**a - 1) for y in (0, base**b - 1)]  # where each has its extremes
    rules = [operation.where] if operation.where and min(corners) < 0 and not signed else []
    if max(map(abs, corners)) >= base**s and not (rules and max(corners) < base**s):
        name = operation.answer
        rules.append(f"{f'abs({name})' if min(corners) < 0 and signed else name} < {base**s}")
    return rules[0] if len(rules) == 1 else " & ".join(f"({rule})" for rule in rules)


def _as_written(definition: Mapping[str, Any], examples: Sequence[_Example]) -> int:
    """How long the sign of the definition's operation is that stands in the examples; 0 if it does not."""
    texts, signs = (
        examples[0].literals[:3],
        [each.signs.split() for each in OPERATIONS.values() if each.answer in definition["answer"]],
    )
    return max((len(sign) for each in signs for sign in each if any(sign in text for text in texts)), default=0)


def _family(answer: str) -> str | None:
    return OPERATIONS[answer].family if answer in OPERATIONS else None


@typed
def guess(examples: Sequence[str]) -> Guess:
    """The task that writes all of these examples, such as ``["012+034=0046", "907+105=1012"]``.

    Orders of digits, bases up to ten and the operations of :data:`OPERATIONS` are tried, and comparisons where the
    answer is one digit; the operation whose sign the examples have is proposed first. Where an answer does not fit its
    field in every problem, the proposal says in which it does, and another keeps the last digits. Numbers of several
    widths between spaces, as in ``["57 + 80 = 24", "5 + 8 = 13"]``, are one token each: sums, differences and products
    modulo up to 1,000 are tried. Nothing is chosen silently: the result says what else fits, and ``str`` of it is a
    sentence.

    Raises:
        UserError: no example, examples that are written in different ways, or that no definition fits.
    """
    listed = [examples] if isinstance(examples, str) else list(examples)
    if not listed:
        raise UserError("Give a list of examples such as ['012+034=0046', '907+105=1012'].")
    read = _alike(listed)
    fitting = sorted(_fitting(read), key=lambda each: (each["base"] != 10, -_as_written(each, read)))
    tasks, refused = [], []
    for definition in fitting:
        try:
            tasks.append(formatted(**definition, variables=_family(definition["answer"])))
        except UserError as error:  # a field or domain that no task can have
            refused.append(f"{_said(definition)} fits, and is no task: {error}")
    if not tasks and refused:
        raise UserError(refused[0])
    if not tasks:
        raise UserError(
            f"No operation that was tried ({', '.join(OPERATIONS)}) gives the answers of these "
            f"{len(listed)} examples; write the task with models.tasks.formatted."
        )
    return Guess(tasks[0], tuple(task.definition or {} for task in tasks[1:]), len(listed))
