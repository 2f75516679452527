"""Numbers written one after another, and read back: segments, digits, distances to delimiters.

A sequence is ``$`` (BOS), then segments: a number, in a width and a direction, and the delimiter after it. Nothing here
depends on the operation; :mod:`models.tasks.named.position_coupling.sequence_task` has what else its tasks share.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from models.tasks.columns.schoolbook import Column

#: What a task writes: rows of operands with their digits and, for rows of different shapes, the counts of each row.
Digits = Int[Tensor, "row operand column"]
Counts = Int[Tensor, " row"] | None
Lengths = Int[Tensor, "row operand"] | None


@dataclass(frozen=True)
class Segments:
    """What is written, row by row: ``numbers[row, number[row, i]]`` in ``width[row, i]`` digits, then a delimiter.

    ``used`` marks the segments that a row has (they come first). ``downwards`` numbers are written from their most
    significant digit. Segments from ``first_response`` on are to be predicted.
    """

    numbers: Int[Tensor, "row number column"]  # digits, least significant first
    number: Int[Tensor, "row segment"]
    width: Int[Tensor, "row segment"]
    downwards: Bool[Tensor, "row segment"]
    delimiter: Int[Tensor, "row segment"]  # token
    used: Bool[Tensor, "row segment"]
    first_response: Int[Tensor, " row"]


@dataclass(frozen=True)
class TokenSequences:
    """Whole sequences from BOS to EOS, padded with ``$``; ``response`` marks the tokens to be predicted.

    ``segment`` and ``column`` say which segment a token belongs to (-1: BOS and padding) and which digit of its
    number it is (-1: the delimiter after it).
    """

    tokens: Int[Tensor, "n length"]
    response: Bool[Tensor, "n length"]
    segment: Int[Tensor, "n length"]
    column: Int[Tensor, "n length"]

    @property
    def inputs(self) -> Int[Tensor, "n pos"]:
        """What a teacher-forced pass reads: everything but the last column."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Int[Tensor, "n pos"]:
        """The right next token at every input position."""
        return self.tokens[:, 1:]

    @property
    def mask(self) -> Bool[Tensor, "n pos"]:
        """The input positions whose predictions count: from the one before the response to the one before EOS."""
        return self.response[:, 1:]


def compose(segments: Segments, special: int) -> TokenSequences:
    """Write the segments out. Cost: a few gathers of [row, length]."""
    device = segments.numbers.device
    lengths = (segments.width + 1) * segments.used
    ends = 1 + lengths.cumsum(1)  # position after each segment's delimiter
    position = torch.arange(int(ends[:, -1].max()), device=device).expand(len(ends), -1).contiguous()
    segment = torch.searchsorted(ends, position, right=True)
    inside = (position > 0) & (segment < segments.used.sum(1, keepdim=True))
    segment = segment.clamp(max=ends.shape[1] - 1)
    at = lambda table: table.gather(1, segment)  # noqa: E731
    width = at(segments.width)
    offset = position - (at(ends) - width - 1)
    is_digit = inside & (offset < width)
    column = torch.where(at(segments.downwards), width - 1 - offset, offset)
    column = torch.where(is_digit, column, 0)
    columns = segments.numbers.shape[2]
    beyond = column >= columns  # zero padding past the stored digits
    flat = at(segments.number) * columns + column.clamp(max=columns - 1)
    digits = segments.numbers.flatten(1).gather(1, flat).masked_fill(beyond, 0)
    tokens = torch.where(is_digit, digits, torch.where(inside, at(segments.delimiter), special))
    return TokenSequences(
        tokens=tokens,
        response=inside & (segment >= segments.first_response[:, None]),
        segment=torch.where(inside, segment, -1),
        column=torch.where(is_digit, column, -1),
    )


def propagate_carries(sums: Int[Tensor, "*n column"], columns: int) -> Int[Tensor, "*n columns"]:
    """Decimal digits, least significant first, of numbers given as column sums of any size."""
    return with_carries(sums, columns)[0]


def with_carries(sums: Int[Tensor, "*n column"], columns: int) -> tuple[Tensor, Tensor]:
    """(:func:`propagate_carries`, the carry into each column)."""
    digits, carries = Column().along(pad(sums, (0, columns - sums.shape[-1])))
    return digits, carries[..., :-1]


def places(tokens: Int[Tensor, "n pos"], is_mark: Bool[Tensor, "n pos"]) -> tuple[Tensor, Tensor]:
    """(distance back to the last mark, distance forward to the next), each [n, pos]; a mark's own distances are 0.

    Without a mark before, the distance is to the place before the first token; without one after, to the place after
    the last. Cost: two cumulative extrema.
    """
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    last = torch.where(is_mark, position, -1).cummax(1).values
    following = torch.where(is_mark, position, tokens.shape[1]).flip(1).cummin(1).values.flip(1)
    return position - last, following - position
