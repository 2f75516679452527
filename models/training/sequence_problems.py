"""Training distributions of the Position Coupling paper: S_A(n, m), S_M(n, m) and bit strings, drawn on the device.

Each is a finite set of problems that are computed from their numbers and not stored: problem i of a set is a function
of (set, i), and a batch draws its i's. So a set of ten million costs nothing, and Figure 13 is a flag.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError
from models.tasks.counter_rng import mix, row_keys, uniform, uniform_table
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from models.tasks.named.position_coupling.multiplication import Multiplication
from models.tasks.named.position_coupling.parity import Parity
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.task import Task

LONGEST = 10_000  # the most digits, operands or bits that a recipe may ask for


@dataclass(frozen=True)
class MixedProblems:
    """Rows of different shapes: digits in the largest shape, and how many operands and digits of each row count."""

    digits: Int[Tensor, "row operand column"]
    n_operands: Int[Tensor, " row"]
    n_digits: Int[Tensor, "row operand"]


@dataclass(frozen=True)
class SequenceSource(ABC):
    """A finite set of problems for a :class:`SequenceTask`, and how batches are drawn from it."""

    size: int = 500_000  # problems in the set; each step draws from them with replacement
    set_seed: int = 0
    position_limits: tuple[int, ...] = ()  # highest id of every level; in training, ids start at a random one
    random_offsets: bool = True
    buckets: int = 4  # a batch is cut into this many parts of similar length, which saves half of the padding
    #: The fields that say how long problems may be, with their least values.
    smallest: ClassVar[dict[str, int]] = {}
    #: The kind of task whose problems these are.
    for_task: ClassVar[type[Task]] = SequenceTask

    def __post_init__(self) -> None:
        if not 2 <= self.size < 2**40 or self.buckets < 1:
            raise UserError("A training set has 2 to 2^40 problems and a batch at least 1 bucket.")
        if not 0 <= self.set_seed < 2**63:
            raise UserError(f"set_seed lies between 0 and 2^63 - 1, not {self.set_seed}.")
        for name, least in self.smallest.items():
            if not least <= getattr(self, name) <= LONGEST:
                raise UserError(f"{name} lies between {least} and {LONGEST:,}, not {getattr(self, name)}.")

    def fits(self, task: Task) -> bool:
        return isinstance(task, self.for_task)

    @abstractmethod
    def problems(self, keys: Int[Tensor, " row"], odd: Bool[Tensor, " row"]) -> MixedProblems:
        """The problems with these keys; ``odd`` tells the two halves of the set apart."""

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> MixedProblems:
        """The problems of one seed at one step."""
        return self.numbered((uniform(row_keys(seed, step, rows, device), 0) * self.size).long())

    def held_out(self, n: int, device: torch.device) -> MixedProblems:
        """Problems of the same distribution with numbers outside the set (short ones may still occur in both)."""
        return self.numbered(self.size + self.size % 2 + torch.arange(n, device=device))

    def numbered(self, index: Int[Tensor, " row"]) -> MixedProblems:
        base = row_keys(self.set_seed, -1, 1, index.device)
        return self.problems(mix(base + index * 2 + 1), index % 2 == 1)

    def offsets(
        self, ids: Int[Tensor, "row pos level"], seed: int, step: int, rows: int
    ) -> Int[Tensor, "row pos level"]:
        """``ids`` with every level of every row moved up by a uniform random amount for which the tables have room."""
        if not self.random_offsets or not self.position_limits:
            return ids
        keys = row_keys(seed, step, rows, ids.device)
        limits = torch.tensor(self.position_limits, device=ids.device)
        room = (limits + 1 - ids.amax(1)).clamp(min=1)  # [row, level]
        moved = (uniform_table(keys, 1, ids.shape[2]) * room).long()
        return torch.where(ids > 0, ids + moved[:, None], 0)


def _digits(
    keys: Int[Tensor, " row"], first_draw: int, lengths: Int[Tensor, "row operand"], columns: int
) -> Int[Tensor, "row operand column"]:
    """Uniform numbers of exactly these lengths: the leading digit is not zero unless it is the only one."""
    rows, operands = lengths.shape
    drawn = uniform_table(keys, first_draw, operands * columns).view(rows, operands, columns)
    column = torch.arange(columns, device=keys.device)
    leading = (column == lengths[..., None] - 1) & (lengths[..., None] > 1)
    digits = torch.where(leading, 1 + (drawn * 9).long(), (drawn * 10).long())
    return digits * (column < lengths[..., None])


@dataclass(frozen=True)
class AdditionSet(SequenceSource):
    """S_A(n, m): 2 to m operands. Half of the problems draw each operand's length from [1:n], half one for all."""

    max_digits: int = 10
    max_operands: int = 10
    smallest: ClassVar[dict[str, int]] = {"max_digits": 1, "max_operands": 2}
    for_task: ClassVar[type[Task]] = MultiOperandAddition

    def problems(self, keys: Int[Tensor, " row"], odd: Bool[Tensor, " row"]) -> MixedProblems:
        m = 2 + (uniform(keys, 0) * (self.max_operands - 1)).long()
        own = 1 + (uniform_table(keys, 2, self.max_operands) * self.max_digits).long()
        common = 1 + (uniform(keys, 1) * self.max_digits).long()
        present = torch.arange(self.max_operands, device=keys.device) < m[:, None]
        lengths = torch.where(odd[:, None], common[:, None], own) * present
        return MixedProblems(_digits(keys, 2 + self.max_operands, lengths, self.max_digits), m, lengths)


@dataclass(frozen=True)
class MultiplicationSet(SequenceSource):
    """S_M(n, m): the first operand has 1 to n digits and the second 1 to m, each length uniform."""

    max_first: int = 10
    max_second: int = 10
    smallest: ClassVar[dict[str, int]] = {"max_first": 1, "max_second": 1}
    for_task: ClassVar[type[Task]] = Multiplication

    def problems(self, keys: Int[Tensor, " row"], odd: Bool[Tensor, " row"]) -> MixedProblems:
        most = torch.tensor([self.max_first, self.max_second], device=keys.device)
        lengths = 1 + (uniform_table(keys, 0, 2) * most).long()
        return MixedProblems(_digits(keys, 2, lengths, int(most.max())), torch.full_like(keys, 2), lengths)


@dataclass(frozen=True)
class ParitySet(SequenceSource):
    """Uniform bit strings of 1 to ``max_bits`` bits, all lengths equally likely."""

    max_bits: int = 20
    smallest: ClassVar[dict[str, int]] = {"max_bits": 1}
    for_task: ClassVar[type[Task]] = Parity

    def problems(self, keys: Int[Tensor, " row"], odd: Bool[Tensor, " row"]) -> MixedProblems:
        length = 1 + (uniform(keys, 0) * self.max_bits).long()
        bits = (uniform_table(keys, 1, self.max_bits) * 2).long()
        bits = bits * (torch.arange(self.max_bits, device=keys.device) < length[:, None])
        return MixedProblems(bits[:, None], torch.ones_like(length), length[:, None])


@dataclass(frozen=True)
class Bucket:
    """Rows of similar length: teacher-forced input, ids (None: the task's), and the targets of positions from ``first``
    on, -100 where nothing is to be predicted."""

    tokens: Int[Tensor, "row pos"]
    position_ids: Int[Tensor, "row pos level"] | None
    targets: Int[Tensor, "row query"]
    first: int

    def share(self, rank: int, size: int) -> Bucket:
        """Every ``size``-th row, from ``rank`` on."""
        ids = None if self.position_ids is None else self.position_ids[rank::size]
        return Bucket(self.tokens[rank::size], ids, self.targets[rank::size], self.first)


def make_buckets(
    task: SequenceTask, problems: MixedProblems, n_buckets: int, ids_of: Callable[[Tensor], Tensor] | None = None
) -> list[Bucket]:
    """Cut a batch into parts of similar length; ``ids_of`` makes ids from tokens, None leaves them to the model."""
    sequences = task.sequences(problems.digits, problems.n_operands, problems.n_digits)
    position_ids = None if ids_of is None else ids_of(sequences.inputs)
    length = 1 + (sequences.segment >= 0).sum(1)
    order = length.argsort(stable=True)
    parts = order.tensor_split(min(n_buckets, len(order)))
    # One transfer for all bounds, so that a GPU waits once and not once per bucket.
    starts = sequences.mask.long().argmax(1)
    bounds = torch.stack([torch.stack((length[part].amax(), starts[part].amin())) for part in parts]).tolist()
    buckets = []
    for part, (longest, first) in zip(parts, bounds, strict=True):
        mask = sequences.mask[part, first : longest - 1]
        buckets.append(
            Bucket(
                tokens=sequences.inputs[part, : longest - 1],
                position_ids=None if position_ids is None else position_ids[part, : longest - 1],
                targets=sequences.targets[part, first : longest - 1].masked_fill(~mask, -100),
                first=first,
            )
        )
    return buckets
