"""Training distributions of ten-digit adders and subtractors, each with a curriculum of the digits of its operands.

:class:`AdditionProblems` is MicroAdder's, with a share of carry-rich problems that fades; :class:`SubtractionProblems`
takes its sums apart again; :class:`VariedLengthProblems`, of the 456-parameter adder, draws a digit count per problem.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.errors import UserError
from models.tasks.counter_rng import row_keys, uniform
from models.tasks.named.adder_test_sets import fingerprint, held_out_fingerprints, is_listed
from models.tasks.named.addition import MICROADDER, PADDED, PADDED_TOKENS, PairAddition, adds_pairs_below
from models.tasks.number_digits import LIMIT, digit_rows
from models.tasks.task import Task
from models.training.native.compiled_kernels import library, pointers
from models.training.training_batches import Batch, SeedNumbers

MOST_DIGITS = 10  # the most digits of an operand
_RANGES = 17  # the native sampler's table of held-out problems is divided into 2^17 ranges
Digits = Integer[Tensor, "seed _ row"]


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise UserError(f"{name} is a share and lies between 0 and 1, not {value}.")


@dataclass(frozen=True)
class CarryMix:
    """Share of training problems replaced by carry-rich ones, faded out linearly over steps (MicroAdder, 3.2)."""

    share: float = 0.8
    fade_start: int = 15_000
    fade_end: int = 45_000

    def __post_init__(self) -> None:
        _check_shares(share=self.share)

    def at(self, step: int) -> float:
        done = (step - self.fade_start) / max(1, self.fade_end - self.fade_start)
        return self.share * min(1.0, max(0.0, 1.0 - done))

    def shrunk(self, times: int) -> CarryMix:
        """The mix that fades this many times earlier."""
        return replace(self, fade_start=self.fade_start // times, fade_end=self.fade_end // times)


@dataclass(frozen=True)
class DigitCurriculum(ABC):
    """Problems that depend on a row's key and the step alone, and the most digits that operands have, by step, which is
    the same in both papers of ten-digit adders."""

    digit_curriculum: tuple[tuple[int, int], ...] = ((2_000, 3), (7_000, 6))  # (below step, at most digits), then 10

    def __post_init__(self) -> None:
        for below, digits in self.digit_curriculum:
            if not 1 <= digits <= MOST_DIGITS or below < 0:
                raise UserError(
                    "digit_curriculum is made of pairs (below step, at most digits) with steps from 0 on and 1 to "
                    f"{MOST_DIGITS} digits, not ({below}, {digits})."
                )

    def fits(self, task: Task) -> bool:
        return adds_pairs_below(task) == LIMIT

    def max_digits_at(self, step: int) -> int:
        for below, digits in self.digit_curriculum:
            if step < below:
                return digits
        return MOST_DIGITS

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row 2"]:
        """The problems of one seed at one step. This is the definition that the native sampler reproduces."""
        return self._of_keys(row_keys(seed, step, rows, device), step)

    def draw_all(self, seeds: SeedNumbers, step: int, rows: int) -> Int[Tensor, "seed_and_row 2"] | None:
        """The problems of all seeds in one draw, those of the first seed first."""
        return self._of_keys(row_keys(seeds, step, rows, seeds.device), step)

    @abstractmethod
    def _of_keys(self, keys: Int[Tensor, " n"], step: int) -> Int[Tensor, "n 2"]:
        """One problem for each key."""


@dataclass(frozen=True)
class AdditionProblems(DigitCurriculum):
    """Pairs of numbers, uniform below a power of ten that grows with the step, some replaced by carry-rich ones."""

    carry_mix: CarryMix | None = CarryMix()

    def share_at(self, step: int) -> float:
        return self.carry_mix.at(step) if self.carry_mix else 0.0

    def _of_keys(self, keys: Int[Tensor, " n"], step: int) -> Int[Tensor, "n 2"]:
        max_digits = self.max_digits_at(step)
        problems = torch.stack([(uniform(keys, k) * 10.0**max_digits).long() for k in (0, 1)], 1)
        where = (uniform(keys, 2) < self.share_at(step)).nonzero()[:, 0]
        problems[where] = carry_rich_problems(keys[where], max_digits)
        return problems

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """Encoded batches by the C sampler, or None if it does not apply or cannot be built."""
        share = ctypes.c_double(self.share_at(step))
        if not (isinstance(task, PairAddition) and task.format.startswith(MICROADDER)):
            return None
        batch = native_rows("batch", seeds, step, rows, self.max_digits_at(step), share)
        if batch is None:
            return None
        tokens, targets = batch
        _, plus, equals, ending = task.parsed.delimiters
        for table, place, own in ((tokens, 10, plus), (tokens, 21, equals), (targets, 11, ending)):
            if any(own):
                table[:, place] = own[0]
        return tokens[:, : task.input_length], targets[:, : len(task.query_positions)]


def native_rows(sampler: str, seeds: SeedNumbers, step: int, rows: int, max_digits: int, *more: Any) -> Batch | None:
    """33 tokens and 12 targets from a function of the C sampler, called with ``more``; None without a compiler."""
    kernel = None if seeds.is_cuda else library("addition_batches.c", "-ffp-contract=off")
    if kernel is None:
        return None
    seeds = seeds.contiguous()
    tokens, targets = (torch.empty(len(seeds), width, rows, dtype=torch.uint8) for width in (33, 12))
    refused = getattr(kernel, sampler)(
        *(ctypes.c_int64(len(seeds)), ctypes.c_void_p(seeds.data_ptr()), ctypes.c_int64(step), ctypes.c_int64(rows)),
        max_digits,
        *more,
        *pointers([tokens, targets]),
    )
    assert not refused
    return tokens, targets


def carry_rich_problems(base: Int[Tensor, " n"], max_digits: int) -> Int[Tensor, "n 2"]:
    """MicroAdder's four carry patterns in equal shares, with nd ~ U{1..max_digits} digits.

    * single: one column with both digits 5-9, every other digit 0-4;
    * chain: 10^nd - 1 plus U{1..10^min(nd, 3)};
    * place: a random nd-digit number plus U{1..9} times a power of ten below 10^nd;
    * boundary: 10^nd - U{1..10} plus U{1..20}.
    """
    power = 10.0 ** torch.arange(11, device=base.device, dtype=torch.float64)
    nd = 1 + (uniform(base, 3) * max_digits).long()
    column = (uniform(base, 4) * nd).long()
    kind = (uniform(base, 5) * 4).long()
    full = power[nd]

    # floor(u * limit) with each pattern's own limits; a is counted down from 10^nd except in "place".
    low = torch.where(nd == 1, 0.0, full / 10)
    a_limit = torch.where(kind == 2, full - low, torch.where(kind == 3, 10.0, 1.0))
    b_limit = torch.where(kind == 2, 9.0, torch.where(kind == 3, 20.0, power[nd.clamp(max=3)]))
    below = (uniform(base, 6) * a_limit).floor()
    a = torch.where(kind == 2, low + below, (full - 1 - below).clamp(min=0))
    b = (1 + (uniform(base, 7) * b_limit).floor()) * torch.where(kind == 2, power[column], 1.0)
    problems = torch.stack((a, b), 1).long()

    where = (kind == 0).nonzero()[:, 0]
    drawn = torch.cat([(uniform(base[where], k) * 5.0**10).floor() for k in (8, 9)])
    digits = digit_rows(drawn, 10, base=5).view(10, 2, -1)
    columns = torch.arange(10, device=base.device)[:, None]
    digits = digits + 5.0 * (columns == column[where])[:, None]
    single = (digits * power[:10, None, None]).sum(0) % full[where]  # the digits above nd are cut off
    problems[where] = single.T.long()
    return problems


@dataclass(frozen=True)
class SubtractionProblems(AdditionProblems):
    """Pairs a >= b of up to ten digits, made of the pairs of :class:`AdditionProblems`: x + y is taken apart again.

    Let x and y be uniform below 10^10. Where x + y stays below 10^10, (x + y) - x is uniform among the problems a - b
    with a >= b; a larger sum s gives x - (s - 10^10), which is uniform as well (never zero). Where x + y carries,
    (x + y) - x borrows: the share of carry-rich problems is one of borrow-rich ones, and the curriculum of digits stays
    what it is.
    """

    def fits(self, task: Task) -> bool:
        return getattr(task, "families", ()) == ("subtraction",)

    def _of_keys(self, keys: Int[Tensor, " n"], step: int) -> Int[Tensor, "n 2"]:
        """The problems of these keys. :meth:`native_batch` gives the same."""
        x, y = super()._of_keys(keys, step).T
        below = x + y - 10**MOST_DIGITS
        return torch.where((below < 0)[:, None], torch.stack((x + y, x), 1), torch.stack((x, below), 1))

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """Encoded batches by the C sampler, or None if it cannot be built or the task is not made of ten digits."""
        if any(role.column is not None and role.column >= MOST_DIGITS for role in task.roles):
            return None
        share = ctypes.c_double(self.share_at(step))
        batch = native_rows("batch", seeds, step, rows, self.max_digits_at(step), share)
        return None if batch is None else _encoded(task, *_taken_apart(*batch))


def _taken_apart(tokens: Digits, targets: Digits) -> tuple[Digits, Digits, Digits]:
    """Digits of a, b and a - b, units first, from an addition's tokens (x in 0-9, y in 11-20) and targets."""
    x, y, z = tokens[:, :10], tokens[:, 11:21], targets[:, :10]
    large = targets[:, 10:11] > 0
    # 10^10 - y, digit by digit: zeros stay until the first digit that is not zero, which is taken from ten.
    past = (y > 0).cumsum(1) - (y > 0).long() > 0
    rest = torch.where(past, 9 - y, (10 - y) % 10)
    return torch.where(large, x, z), torch.where(large, z, x), torch.where(large, rest, y)


def _encoded(task: Task, a: Digits, b: Digits, s: Digits) -> Batch:
    """The digits where the task writes them, between what stands between them in each of its problems."""
    written = torch.cat([table[:, 0] for table in task.encode_rows(torch.zeros(1, 2, dtype=torch.int64))])
    n_input, of = task.input_length, {"operand": (a, b), "answer": (s,)}
    rows = []
    for role, token in zip((*task.roles[:n_input], *task.target_roles), written.tolist(), strict=True):
        digits = of.get(role.kind)
        rows.append(torch.full_like(a[:, 0], token) if digits is None else digits[role.index or 0][:, role.column])
    return torch.stack(rows[:n_input], 1), torch.stack(rows[n_input:], 1)


@dataclass(frozen=True)
class VariedLengthProblems(DigitCurriculum):
    """Pairs of numbers with k ~ U{1..hi} digits: both uniform in [0, 10^k), hi growing with the step.

    Pairs of the test sets and of the validation problems are drawn again (with the same k).
    """

    def _of_keys(self, keys: Int[Tensor, " n"], step: int) -> Int[Tensor, "n 2"]:
        powers = 10.0 ** torch.arange(11, device=keys.device, dtype=torch.float64)
        limit = powers[1 + (uniform(keys, 0) * self.max_digits_at(step)).long()]
        problems, draw = self._pairs(keys, limit, 1), 1
        held_out = held_out_fingerprints().to(keys.device)
        while len(again := is_listed(fingerprint(problems), held_out).nonzero()[:, 0]):
            draw += 2
            problems[again] = self._pairs(keys[again], limit[again], draw)
        return problems

    @staticmethod
    def _pairs(keys: Int[Tensor, " n"], limit: Tensor, draw: int) -> Int[Tensor, "n 2"]:
        return torch.stack([(uniform(keys, k) * limit).long() for k in (draw, draw + 1)], 1)

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """Encoded batches by the C sampler, or None if it does not apply or cannot be built."""
        if not isinstance(task, PairAddition) or (task.format, *task.vocabulary) != (PADDED, *PADDED_TOKENS):
            return None
        return native_rows("varied_lengths", seeds, step, rows, self.max_digits_at(step), *pointers(_held_out_table()))


@cache
def _held_out_table() -> tuple[Int[Tensor, " n"], Int[Tensor, " range"]]:
    """Sorted fingerprints, and the first of each of 2^17 equal ranges of 64-bit numbers, with the end."""
    fingerprints = held_out_fingerprints()
    ranges = (fingerprints >> (64 - _RANGES)) + (1 << (_RANGES - 1))
    starts = torch.searchsorted(ranges, torch.arange((1 << _RANGES) + 1)).int()
    return fingerprints, starts
