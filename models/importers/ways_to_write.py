"""Ways in which problems may be written that a model was trained on: formats, orders of digits and tokens, operations.

Each is a :class:`FormatOption`, with its tokens made directly, as a search makes thousands of them; the task of one
that fits is made by :meth:`FormatOption.task`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations, product

import numpy as np
import torch
from jaxtyping import Int

from models.tasks.expressions import Expression
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.formats.operations import OPERATIONS, BinaryOperation
from models.tasks.formats.parsed_format import EXACT

BOS, EOS, UNUSED = "<BOS>", "<EOS>", "<{}>"
MOST_DIGITS = 10  # of an operand
TRIED = 64  # problems that a proposal is judged by
MOST_OPERANDS = 8  # of a maximum or minimum of numbers of one token
FEW_PROBLEMS = 2**16  # of up to so many problems, each is drawn once
MOST_SPECIAL = 4  # tokens beside digits whose orders are all tried; of more, the first ones
_SEED = 0


@dataclass(frozen=True)
class Operation:
    """``digits`` of the answer for operands of n: (factor, added) to factor * n + added. With ``wraps`` it is modulo
    base^n, with ``ordered`` the larger number comes first, and with ``signed`` it has a sign."""

    of: BinaryOperation
    digits: tuple[int, int]
    wraps: bool = False
    ordered: bool = False
    signed: bool = False


_EXTREMES = [each for each in OPERATIONS.values() if each.many]
DIGITWISE = (
    Operation(OPERATIONS["a + b"], (1, 1)),
    Operation(OPERATIONS["a - b"], (1, 0), ordered=True),
    Operation(OPERATIONS["a - b"], (1, 0), signed=True),
    Operation(OPERATIONS["a - b"], (1, 1), signed=True),
    Operation(OPERATIONS["a * b"], (2, 0)),
    Operation(OPERATIONS["a + b"], (1, 0), wraps=True),
    *(Operation(each, (1, 0)) for each in _EXTREMES),
)
RESIDUES = (
    *(Operation(each, (0, 1), wraps=True) for each in OPERATIONS.values() if each.of_residues),
    *(Operation(each, (0, 1)) for each in _EXTREMES),
)


@dataclass(frozen=True)
class FormatOption:
    """A way to write problems.

    Attributes:
        n: how many digits an operand has; 0 for numbers of one token.
        first, last: whether a token begins and ends the sequence. between, equals: whether tokens stand there.
        up, answer_up: whether operands and answers are written units first.
        ids: token of each literal; the digit 0 has ``zero``, and the others follow.
        operands: how many; more than two have one token each.
    """

    operation: Operation
    base: int
    n: int
    first: bool
    between: bool
    equals: bool
    last: bool
    up: bool
    answer_up: bool
    zero: int
    ids: tuple[tuple[str, int], ...]
    operands: int = 2

    @property
    def names(self) -> str:
        return "abcdefgh"[: self.operands]

    @property
    def width(self) -> int:
        """How many digits the answer has."""
        factor, added = self.operation.digits
        return factor * self.n + added

    @property
    def size(self) -> int:
        """How many problems there are."""
        return self.base ** (self.operands * max(1, self.n))

    @property
    def prompt_length(self) -> int:
        return self.first + self.operands * max(1, self.n) + self.between * (self.operands - 1) + self.equals

    @property
    def input_length(self) -> int:
        return self.prompt_length + self.width + self.operation.signed + self.last - 1

    @property
    def format(self) -> str:
        """As :func:`models.tasks.formats.formatted_task.formatted` takes it; the answer of residues follows it."""
        field = lambda name, n, up: f"{{{name}:{n}{'r' * (up and n > 1)}}}" if self.n else f"{{{name}}}"  # noqa: E731
        sign = self.operation.of.between if self.between else ""
        operands = sign.join(field(name, self.n, self.up) for name in self.names)
        answer = field("s", self.width, self.answer_up).replace(":", ":+" if self.operation.signed else ":")
        return f"{BOS * self.first}{operands}{'=' * self.equals}{answer}{EOS * self.last}"

    @property
    def answer(self) -> str:
        """The answer as text."""
        found = self.operation.of.of(*self.names)
        return f"({found}) % {self.base ** max(1, self.n)}" if self.operation.wraps else found

    @property
    def many_would_fit(self) -> bool:
        """Whether half of the answers say little: they are of one token, of few problems, or those of a mere copy."""
        return self.size < TRIED or self.width <= 1 or self.operation.of.many

    @property
    def said(self) -> str:
        """The operation and how numbers are written, in a few words."""
        return f"{self.answer} of {f'{self.n} digits' if self.n > 1 else 'one digit'} in base {self.base}"

    def task(self, d_vocab: int) -> FormattedTask:
        """The task, whose vocabulary is the model's. Raises UserError where there can be none."""
        vocabulary = {str(value): self.zero + value for value in range(self.base)} | dict(self.ids)
        usual = self._formatted(None)
        if usual.parsed.ids == vocabulary:
            return usual
        free = [token for token in range(d_vocab) if token not in vocabulary.values()]
        vocabulary |= {UNUSED.format(token): token for token in free}
        if len({*vocabulary.values()}) < len(vocabulary):
            return self._formatted(vocabulary)
        listed = sorted(vocabulary, key=lambda text: vocabulary[text])
        return self._formatted("".join(listed) if all(len(text) == 1 for text in listed) else listed)

    def _formatted(self, vocabulary: Sequence[str] | Mapping[str, int] | None) -> FormattedTask:
        own, with_family = self.operation.of, self.n and self.operands == 2 and not self.operation.wraps
        return formatted(
            self.format, self.answer, base=self.base, vocabulary=vocabulary,
            where=own.where if self.operation.ordered else None, variables=own.family if with_family else None,
        )  # fmt: skip

    def tokens(self, rows: int) -> Int[np.ndarray, "row whole"]:
        """Whole sequences, prompt and answer, of drawn problems; of all, if there are fewer."""
        key = (self.answer, self.operation.ordered, self.base, self.n, self.width, self.names)
        numbers, s, negative = _numbers(*key, rows)
        rows, ids = len(negative), dict(self.ids)
        digits = lambda table, up: list(self.zero + (table if up else table[::-1]))  # noqa: E731
        literal = lambda text: [np.full(rows, ids[text])]  # noqa: E731
        columns = literal(BOS) if self.first else []
        for i, number in enumerate(numbers):
            columns += (literal(self.operation.of.between) if i and self.between else []) + digits(number, self.up)
        columns += literal("=") if self.equals else []
        columns += [np.where(negative, ids["-"], ids["+"])] if self.operation.signed else []
        columns += digits(s, self.answer_up) + (literal(EOS) if self.last else [])
        return np.stack(columns, 1)


@cache
def _numbers(
    answer: str, ordered: bool, base: int, n: int, answer_width: int, names: str, rows: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Drawn operands and their answers as digits, units first [column, row], and which answers are negative."""
    draws, width, operands = np.random.default_rng(_SEED), max(1, n), len(names)
    limit = base**width
    if (size := limit**operands) <= FEW_PROBLEMS:
        drawn = draws.choice(size, min(rows, size), replace=False)
        numbers = np.stack([drawn // limit**i % limit for i in range(operands)])
    else:
        numbers = draws.integers(0, limit, (operands, rows))
    if ordered:
        numbers = np.sort(numbers, axis=0)[::-1]
    found = Expression(answer)(**dict(zip(names, torch.from_numpy(numbers.copy()), strict=True))).numpy()
    digits = lambda numbers, k: np.stack([np.abs(numbers) // base**c % base for c in range(k)])  # noqa: E731
    return [digits(number, width) for number in numbers], digits(found, answer_width), found < 0


def candidates(
    d_vocab: int, n_ctx: int | None, operations: Sequence[Operation] | None = None
) -> Iterator[FormatOption]:
    """Yield ways to write problems in ``d_vocab`` tokens, the likeliest first.

    Args:
        n_ctx: how many positions are used up, or nearly; None where that is not known.
    """
    for base in _bases(d_vocab):
        digits = base in (2, 10)
        kinds = [op for op in (DIGITWISE if digits else RESIDUES) if operations is None or op in operations]
        lengths = range(1, MOST_DIGITS + 1) if digits else (0,)
        flags = list(product((False, True), (False, True), (True, False), (True, False)))
        for operands, operation in product(range(2, MOST_OPERANDS + 1), kinds):
            if operands > 2 and not operation.of.many:
                continue
            for (last, first, equals, between), n in product(flags, lengths if operands == 2 else lengths[:1]):
                orders = ((False, True), (False, False), (True, True), (True, False)) if n > 1 else ((False, True),)
                orders = orders if n else ((False, False),)
                if n == 1 and operation.digits != (1, 0):
                    orders = ((False, True), (False, False))
                plain = FormatOption(operation, base, n, first, between, equals, last, False, False, 0, (), operands)
                if base**plain.width > EXACT:
                    continue
                if n_ctx is not None and plain.input_length not in (n_ctx, n_ctx - 1):
                    continue
                for (up, answer_up), (zero, ids) in product(orders, _literals(plain, d_vocab)):
                    yield replace(plain, up=up, answer_up=answer_up, zero=zero, ids=ids)


def _bases(d_vocab: int) -> list[int]:
    digits = [base for base in (10, 2) if base <= d_vocab <= max(4 * base, base + 12)]
    residues = [base for base in range(d_vocab, max(4, d_vocab - 5), -1) if base > 10]
    return digits + residues


def _literals(written: FormatOption, d_vocab: int) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
    """Yield where the digits begin, and the token of each literal, the usual order first."""
    sign = written.operation.of.between
    wanted = [sign] if written.between or written.operation.signed else []
    wanted += ["+"] if written.operation.signed and sign != "+" else []
    wanted += ["="] if written.equals else []
    ends = [BOS] * written.first + [EOS] * written.last
    n_special = d_vocab - written.base
    if not n_special and written.operation.signed:  # the signs need tokens of their own
        return
    if not n_special:  # the tokens of zero, as where nobody looks at literals
        yield 0, tuple((text, 0) for text in (*wanted, *ends))
        return
    for zero in range(min(n_special, MOST_SPECIAL) + 1):
        others = [t for t in range(d_vocab) if not zero <= t < zero + written.base][:MOST_SPECIAL]
        for order in permutations(others, len(wanted + ends)):
            # digits that do not come first have their literals in the usual order
            if not zero or list(order) == sorted(order):
                yield zero, tuple(zip(wanted + ends, order, strict=True))
