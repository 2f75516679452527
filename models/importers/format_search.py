"""Ways in which problems may be written that a model was trained on: formats, orders of digits and tokens, operations.

Each is a :class:`FormatOption`, with its tokens made directly, as a search makes thousands of them; the task of one
that fits is made by :meth:`FormatOption.task`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product

import numpy as np
from jaxtyping import Int

from models.tasks.format_definition import EXACT
from models.tasks.formatted_task import FormattedTask, formatted

BOS, EOS, UNUSED = "<BOS>", "<EOS>", "<{}>"
MOST_DIGITS = 10  # of an operand
MOST_SPECIAL = 4  # tokens beside digits whose orders are all tried; of more, the first ones
_SEED = 0


@dataclass(frozen=True)
class Operation:
    """``answer`` as text, in which {m} is the modulus; ``digits`` of it for operands of n; the ``sign`` it is written
    with. With ``where``, the operands are swapped where it does not hold."""

    answer: str
    sign: str
    digits: tuple[int, int]  # factor * n + added
    family: str | None = None
    where: str | None = None
    signed: bool = False


DIGITWISE = (
    Operation("a + b", "+", (1, 1), "addition"),
    Operation("a - b", "-", (1, 0), "subtraction", "a >= b"),
    Operation("a - b", "-", (1, 0), "subtraction", signed=True),
    Operation("a - b", "-", (1, 1), "subtraction", signed=True),
    Operation("a * b", "*", (2, 0), "multiplication"),
    Operation("(a + b) % {m}", "+", (1, 0)),
    Operation("max(a, b)", ">", (1, 0), "max"),
    Operation("min(a, b)", "<", (1, 0)),
)
RESIDUES = (
    Operation("(a + b) % {m}", "+", (0, 1)),
    Operation("(a - b) % {m}", "-", (0, 1)),
    Operation("(a * b) % {m}", "*", (0, 1)),
    Operation("max(a, b)", ">", (0, 1)),
)


@dataclass(frozen=True)
class FormatOption:
    """A way to write problems.

    Attributes:
        n: how many digits an operand has; 0 for numbers of one token.
        first, last: whether a token begins and ends the sequence. between, equals: whether tokens stand there.
        up, answer_up: whether operands and answers are written units first.
        ids: token of each literal; the digit 0 has ``zero``, and the others follow.
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

    @property
    def width(self) -> int:
        """How many digits the answer has."""
        factor, added = self.operation.digits
        return factor * self.n + added

    @property
    def size(self) -> int:
        """How many problems there are."""
        return self.base ** (2 * max(1, self.n))

    @property
    def prompt_length(self) -> int:
        return self.first + 2 * max(1, self.n) + self.between + self.equals

    @property
    def input_length(self) -> int:
        return self.prompt_length + self.width + self.operation.signed + self.last - 1

    @property
    def format(self) -> str:
        """As :func:`models.tasks.formatted_task.formatted` takes it; the answer of residues follows it."""
        field = lambda name, n, up: f"{{{name}:{n}{'r' * (up and n > 1)}}}" if self.n else f"{{{name}}}"  # noqa: E731
        sign = self.operation.sign if self.between else ""
        a, b = field("a", self.n, self.up), field("b", self.n, self.up)
        answer = field("s", self.width, self.answer_up).replace(":", ":+" if self.operation.signed else ":")
        return f"{BOS * self.first}{a}{sign}{b}{'=' * self.equals}{answer}{EOS * self.last}"

    def task(self, d_vocab: int) -> FormattedTask:
        """The task, whose vocabulary is the model's. Raises UserError where there can be none."""
        vocabulary = {str(value): self.zero + value for value in range(self.base)} | dict(self.ids)
        usual = self._formatted(None)
        if usual.ids == vocabulary:
            return usual
        free = [token for token in range(d_vocab) if token not in vocabulary.values()]
        vocabulary |= {UNUSED.format(token): token for token in free}
        if len({*vocabulary.values()}) < len(vocabulary):
            return self._formatted(vocabulary)
        listed = sorted(vocabulary, key=lambda text: vocabulary[text])
        return self._formatted("".join(listed) if all(len(text) == 1 for text in listed) else listed)

    def _formatted(self, vocabulary: Sequence[str] | Mapping[str, int] | None) -> FormattedTask:
        answer = self.operation.answer.format(m=self.base ** max(1, self.n))
        return formatted(
            self.format, answer, base=self.base, vocabulary=vocabulary, where=self.operation.where,
            variables=self.operation.family if self.n else None,
        )  # fmt: skip

    def tokens(self, rows: int) -> Int[np.ndarray, "row whole"]:
        """Whole sequences, prompt and answer, of drawn problems."""
        a, b, s, negative = _numbers(self.operation, self.base, self.n, rows)
        ids = dict(self.ids)
        digits = lambda table, up: list(self.zero + (table if up else table[::-1]))  # noqa: E731
        literal = lambda text: [np.full(rows, ids[text])]  # noqa: E731
        columns = literal(BOS) if self.first else []
        columns += digits(a, self.up) + (literal(self.operation.sign) if self.between else []) + digits(b, self.up)
        columns += literal("=") if self.equals else []
        columns += [np.where(negative, ids["-"], ids["+"])] if self.operation.signed else []
        columns += digits(s, self.answer_up) + (literal(EOS) if self.last else [])
        return np.stack(columns, 1)


@cache
def _numbers(operation: Operation, base: int, n: int, rows: int) -> tuple[np.ndarray, ...]:
    """Drawn operands and their answers as digits, units first [column, row], and which answers are negative."""
    draws, width = np.random.default_rng(_SEED), max(1, n)
    a, b = draws.integers(0, base**width, (2, rows))
    if operation.where is not None:
        a, b = np.maximum(a, b), np.minimum(a, b)
    modulus, (factor, added) = base**width, operation.digits
    sign, wraps = operation.sign, "%" in operation.answer
    exact = {"+": a + b, "-": a - b, "*": a * b, ">": np.maximum(a, b), "<": np.minimum(a, b)}[sign]
    found = exact % modulus if wraps else exact
    digits = lambda numbers, k: np.stack([np.abs(numbers) // base**c % base for c in range(k)])  # noqa: E731
    return digits(a, width), digits(b, width), digits(found, factor * n + added), found < 0


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
        for operation, last, first, equals, between in product(
            kinds, (False, True), (False, True), (True, False), (True, False)
        ):
            for n in lengths:
                orders = ((False, True), (False, False), (True, True), (True, False)) if n > 1 else ((False, True),)
                orders = orders if n else ((False, False),)
                if n == 1 and operation.digits != (1, 0):
                    orders = ((False, True), (False, False))
                plain = FormatOption(operation, base, n, first, between, equals, last, False, False, 0, ())
                if base**plain.width > EXACT:
                    continue
                if n_ctx is not None and plain.input_length not in (n_ctx, n_ctx - 1):
                    continue
                for (up, answer_up), (zero, ids) in product(orders, _literals(plain, d_vocab)):
                    yield FormatOption(operation, base, n, first, between, equals, last, up, answer_up, zero, ids)


def _bases(d_vocab: int) -> list[int]:
    digits = [base for base in (10, 2) if base <= d_vocab <= max(4 * base, base + 12)]
    residues = [base for base in range(d_vocab, max(4, d_vocab - 5), -1) if base > 10]
    return digits + residues


def _literals(written: FormatOption, d_vocab: int) -> Iterator[tuple[int, tuple[tuple[str, int], ...]]]:
    """Yield where the digits begin, and the token of each literal, the usual order first."""
    sign = written.operation.sign
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
