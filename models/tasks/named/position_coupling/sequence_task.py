"""Tasks whose problems come in many lengths: numbers written one after another, each followed by a delimiter.

A sequence is ``$`` (BOS), then *segments*: a number, in a width and a direction, and the delimiter after it. The last
delimiter is ``$`` again (EOS), which also pads the rows of a batch to equal length; with a causal mask, what follows
EOS changes nothing. A task says which numbers to write in which widths (:meth:`SequenceTask.segments`); everything else
(tokens, roles, targets) follows from that.

A task object has a *shape* (how many operands of how many digits); :meth:`SequenceTask.at` gives the same task in
another shape. Problems are digits, [n, operand, column], least significant first, so that numbers may have thousands.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import Place
from models.calls.bound_arguments import checked_method
from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.given_problems import are_integers, problem_list
from models.tasks.held_out import HeldOut
from models.tasks.machines.machine import sequences
from models.tasks.named.position_coupling.notation import Notation
from models.tasks.named.position_coupling.written_numbers import (
    Counts,
    Digits,
    Lengths,
    Segments,
    TokenSequences,
    compose,
)
from models.tasks.number_digits import to_digits, to_number
from models.tasks.roles import Role
from models.tasks.task import Task

SPECIAL = "$"  # BOS, EOS and padding
TEST_SIZE, TEST_SEED = 1_000, 2025


class SequenceTask(Task):
    """A task with sequences of many lengths; see the module's docstring."""

    vocabulary: str  # one character per token, in the order of ids
    operator: str  # between the operands of a problem's text
    base: int = 10  # 10 or 2
    n_position_levels: int  # how many ids a token has
    n_operands: int
    n_digits: int  # columns of the problem tensors of this shape
    shape: tuple[int, ...]  # what :meth:`at` takes
    shape_text: str  # the distribution of :meth:`sample` in the paper's notation
    example: str  # a problem's text, for error messages
    response_pattern: str  # regular expression of every beginning of a response, without EOS
    has_other_sizes = True
    has_fixed_layout: bool = True  # whether all problems of one shape have the same roles at the same positions

    # ---- shape

    @abstractmethod
    def at(self, *shape: int) -> SequenceTask:
        """The same task in another shape. Raises UserError for a shape beyond the task's limits."""

    @abstractmethod
    def shape_of(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The smallest shape that a problem fits."""

    def for_problems(self, problems: Any) -> SequenceTask:
        """The task in the smallest shape that these problems (text, tuples or digits) fit."""
        if isinstance(problems, (Tensor, np.ndarray)) and problems.ndim == 3:
            return self
        shapes = [self.shape_of(numbers) for numbers in self._parse(problems)]
        return self.at(*(max(sizes) for sizes in zip(*shapes, strict=True)))

    # ---- problems

    def _parse(self, problems: Any) -> list[tuple[int, ...]]:
        if isinstance(problems, (Tensor, np.ndarray)):
            if problems.ndim != 2:
                raise UserError(f"Problems in a tensor are [n, operand] or digits, not {list(problems.shape)}.")
            problems = [tuple(row) for row in problems.tolist()]
        return [self._parse_one(problem) for problem in problem_list(problems, f"some such as '{self.example}'")]

    @property
    def notation(self) -> Notation:
        """The notation, made from the operator and the example."""
        return Notation(f"a problem of {self.name}", self.example, self.operator)

    def _parse_one(self, problem: Any) -> tuple[int, ...]:
        if isinstance(problem, str):
            return tuple(to_number([int(digit) for digit in reversed(part)]) for part in self.notation.read(problem))
        if isinstance(problem, bytes) or not isinstance(problem, Iterable):
            raise UserError(f"{problem!r} is not a problem; write it like '{self.example}'.")
        for number in (numbers := tuple(problem)):
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0:
                raise UserError(f"Operands must be integers from 0 on, and {number!r} is not one.")
        return tuple(int(number) for number in numbers)

    def as_problems(self, problems: Any) -> Int[Tensor, "n operand column"]:
        """Digits, least significant first, from text, tuples of integers or such a tensor.

        Raises:
            UserError: not a problem, or one that does not fit this shape (the message names the limit).
        """
        if isinstance(problems, (Tensor, np.ndarray)) and problems.ndim == 3:
            digits = torch.as_tensor(problems)
            if not are_integers(digits):
                raise UserError(f"Digits must be integers, not {digits.dtype}.")
            if tuple(digits.shape[1:]) != (self.n_operands, self.n_digits):
                raise UserError(
                    f"Digits of {self.name} in this shape are [n, {self.n_operands}, {self.n_digits}], "
                    f"not {list(digits.shape)}."
                )
            if digits.numel() and not (int(digits.min()) >= 0 and int(digits.max()) < self.base):
                raise UserError(f"Digits lie in 0..{self.base - 1}.")
            return digits.long()
        parsed = self._parse(problems)
        for numbers in parsed:
            if len(numbers) != self.n_operands:
                raise UserError(f"A problem of this shape has {self.n_operands} operands, not {len(numbers)}.")
            longest = max(len(to_digits(number, self.base)) for number in numbers)
            if longest > self.n_digits:
                raise UserError(f"Operands of this shape have at most {self.n_digits} digits, not {longest}.")
        pad = lambda digits: digits + [0] * (self.n_digits - len(digits))  # noqa: E731
        return torch.tensor([[pad(to_digits(number, self.base)) for number in numbers] for numbers in parsed])

    def problem_text(self, numbers: Sequence[Any]) -> str:
        return (f" {self.operator} " if self.operator else "").join(map(str, numbers))

    def numbers(self, problems: Any) -> list[tuple[int, ...]]:
        digits = self.as_problems(problems).tolist()
        return [tuple(to_number(number, self.base) for number in numbers) for numbers in digits]

    @property
    def kind_of_problems(self) -> str:
        """A word for the problems, with the distribution of :meth:`sample` in the paper's notation."""
        return f"problems {self.shape_text}"

    @cached_property
    def held_out(self) -> HeldOut:
        """1,000 problems of this shape, always the same ones; they say nothing about longer ones."""
        draw = lambda: self.sample(TEST_SIZE, torch.Generator().manual_seed(TEST_SEED))  # noqa: E731
        return HeldOut(self.name, f"{self.shape_text}, seed {TEST_SEED}", draw)

    @cached_property
    def domain(self) -> Domain:
        """Operands with exactly this shape's digits; the highest of several is not zero, except for bits."""
        return Domain.of(self.operand_lengths, self.base, leading_zeros=self.base == 2, n_columns=self.n_digits)

    # ---- sequences

    @abstractmethod
    def segments(self, digits: Digits, n_operands: Counts = None, n_digits: Lengths = None) -> Segments:
        """What to write for each row; the rows of a mixed batch say how many of their operands and digits count."""

    def sequences(self, problems: Any, n_operands: Counts = None, n_digits: Lengths = None) -> TokenSequences:
        """Whole sequences, from BOS to EOS.

        Args:
            problems: anything that :meth:`as_problems` takes; or, for rows of different shapes, digits in the largest
                shape together with ``n_operands`` and ``n_digits`` (how many digits each operand is written with: they
                set the padding, and leading zeros within them are digits like any other).
        """
        digits = self.as_problems(problems) if n_operands is None else problems
        return compose(self.segments(digits, n_operands, n_digits), self.special)

    @property
    def special(self) -> int:
        return self.vocabulary.index(SPECIAL)

    @property
    def d_vocab(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.vocabulary)

    @cached_property
    def _layout(self) -> TokenSequences:
        if not self.has_fixed_layout:
            raise UserError(
                f"Without zero padding the tokens of {self.name} have no fixed places; use sequences() for them."
            )
        return self.sequences(torch.zeros(1, self.n_operands, self.n_digits, dtype=torch.int64))

    @property
    def input_length(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._layout.tokens.shape[1] - 1

    @abstractmethod
    def segment_role(self, segment: int, column: int) -> Role:
        """The role of a digit (or, with column -1, of the delimiter) of a segment."""

    @cached_property
    def roles(self) -> Sequence[Role]:
        layout = self._layout
        places = zip(layout.segment[0].tolist(), layout.column[0].tolist(), strict=True)
        return tuple(Role("bos", SPECIAL) if s < 0 else self.segment_role(s, c) for s, c in places)

    @cached_property
    def query_positions(self) -> Sequence[int]:
        return tuple(self._layout.mask[0].nonzero().flatten().tolist())

    @cached_property
    def target_roles(self) -> Sequence[Role]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(self.roles[query + 1] for query in self.query_positions)

    @checked_method
    def position_of(self, segment: Place, column: Place) -> int:
        """The position of a digit (or, with column -1, of the delimiter) of a segment."""
        layout = self._layout
        found = ((layout.segment[0] == segment) & (layout.column[0] == column)).nonzero().flatten().tolist()
        if not found:
            raise UserError(f"There is no digit {column} in segment {segment} of {self.name}.")
        return found[0]

    def digit_slots(self, segment: int, column: int) -> tuple[int, ...]:
        """The slots of a machine where a digit of a segment stands: as a target, and as an input."""
        at = self.position_of(segment, column)
        queries = list(self.query_positions)
        target = (self.input_length + queries.index(at - 1),) if at - 1 in queries else ()
        return (*target, *([at] if at < self.input_length else []))

    def fixed_slots(self) -> dict[int, int]:
        """The slots of all that is no digit, and their tokens."""
        zeros = torch.zeros(1, self.n_operands, self.n_digits, dtype=torch.int64)
        row, n = sequences(self, zeros)[0].tolist(), self.input_length
        roles = [*self.roles[:n], *self.target_roles]
        return {slot: token for slot, token in enumerate(row) if roles[slot].kind in ("bos", "delimiter", "eos")}

    def _with_rest(self, groups: dict[str, list[int]], query: int) -> dict[str, list[int]]:
        """Groups of positions, completed by BOS, delimiters and all others up to the query."""
        taken = {position for group in groups.values() for position in group}
        groups["BOS"] = [0] if 0 not in taken else []
        kinds = [role.kind for role in self.roles]
        left = [position for position in range(1, query + 1) if position not in taken]
        groups["delimiters"] = [position for position in left if kinds[position] == "delimiter"]
        groups["rest"] = [position for position in left if kinds[position] != "delimiter"]
        return groups

    def encode(self, problems: Any) -> Int[Tensor, "n pos"]:
        return self.sequences(problems).inputs

    def encode_prompt(self, problems: Any) -> Int[Tensor, "n pos"]:
        """BOS and the query, up to and including the first ``=``. Needs a fixed layout for several problems."""
        sequences = self.sequences(problems)
        first = sequences.response.long().argmax(1)
        if (first != first[0]).any():
            raise UserError("These problems have prompts of different lengths; encode them one by one.")
        return sequences.tokens[:, : int(first[0])]

    def targets(self, problems: Any) -> Int[Tensor, "n target"]:
        self._layout  # noqa: B018 (refuses formats without fixed places)
        sequences = self.sequences(problems)
        return sequences.targets[:, list(self.query_positions)]

    # ---- position ids

    @abstractmethod
    def position_ids(self, tokens: Int[Tensor, "n pos"]) -> Int[Tensor, "n pos level"]:
        """Position ids from the tokens alone, with every level starting at 1; 0 for ``$`` and where a level has none.

        They are defined on any tokens, so that tools may pass anything, and on every prefix that decoding meets.
        """

    # ---- text

    def highest_ids(self) -> tuple[int, ...]:
        """The highest id of each level that a problem of this shape can need, found with all nines (or ones)."""
        longest = torch.full((1, self.n_operands, self.n_digits), self.base - 1)
        for operand, length in enumerate(self.operand_lengths):
            longest[:, operand, length:] = 0
        return tuple(self.position_ids(self.sequences(longest).tokens).amax((0, 1)).tolist())

    @property
    def operand_lengths(self) -> tuple[int, ...]:
        """How many digits each operand of this shape may have."""
        return (self.n_digits,) * self.n_operands

    @checked_method
    def tokenise(self, text: str) -> Int[Tensor, "1 pos"]:
        """Tokens of a sequence's text, such as ``"$57+48=000>750>501"``.

        Raises:
            UserError: an unknown character, no ``$`` at the start, or delimiters in places where the task has none.
        """
        for place, character in enumerate(text):
            if character not in self.vocabulary:
                raise UserError(
                    f"Character {place + 1} of {text!r}, {character!r}, is not a token; "
                    f"tokens are {' '.join(self.vocabulary)}."
                )
        if not text.startswith(SPECIAL):
            raise UserError(f"A sequence starts with {SPECIAL}, and {text!r} does not.")
        body = text[1:].rstrip(SPECIAL)
        if SPECIAL in body:
            raise UserError(f"Only filling may follow the {SPECIAL} that ends a sequence; {text!r} goes on.")
        query, equals, response = body.partition("=")
        if not equals:
            raise UserError(f"{text!r} has no '=', so there is nothing to predict yet.")
        operands = query.split(self.operator) if self.operator else [query]
        if not all(operands):
            raise UserError(f"An operand is missing in {text!r}.")
        if not all(operand.isdigit() for operand in operands):
            raise UserError(f"The query of {text!r} is not one of {self.name}; write it like '{self.example}'.")
        if not re.fullmatch(self.response_pattern, response):
            raise UserError(f"What follows '=' in {text!r} does not begin a response of {self.name}.")
        return torch.tensor([[self.vocabulary.index(character) for character in text]])
