"""The training distribution of the 456-parameter adder: one digit count per problem, a curriculum of its maximum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.addition import PADDED, PADDED_TOKENS, PairAddition
from models.tasks.base import Task
from models.tasks.counter_rng import uniform
from models.tasks.ten_test_sets import fingerprint, held_out_fingerprints, is_listed
from models.training.addition_problems import DigitCurriculum, native_rows
from models.training.data import Batch, SeedNumbers
from models.training.native import pointers

_RANGES = 17  # the native sampler's table of held-out problems is divided into 2^17 ranges


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
