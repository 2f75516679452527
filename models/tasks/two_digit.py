"""Addition of two numbers below 100, in the format of minGPT's adder project (ToyGPT).

A sequence is ``a1 a0 b1 b0 s0 s1 s2``: the operands most significant digit first, the sum reversed, no delimiters. Six
tokens go in; the queries at b0, s0 and s1 predict s0, s1 and s2. There are only 10,000 problems, so that a model can be
tried on all of them.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.addition import PairAddition

LIMIT = 100
TEST_SIZE, SPLIT_SEED = 500, 1337


def all_problems() -> Int[Tensor, "n 2"]:
    """All 10,000 pairs, in the order of 100 a + b."""
    index = torch.arange(LIMIT * LIMIT)
    return torch.stack((index // LIMIT, index % LIMIT), 1)


class TwoDigitAddition(PairAddition):
    """Two-digit addition: ``a1 a0 b1 b0``, then the sum's units, tens and hundreds.

    Held out are the first 500 pairs of torch's permutation with seed 1337, as in minGPT.
    """

    def __init__(self) -> None:
        super().__init__("{a:2}{b:2}{s:3r}", "two-digit-addition", held_out=TEST_SIZE, seed=SPLIT_SEED)

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        """The 500 pairs that are never trained on."""
        return "the 500 pairs held out", self.held_out.problems


@cache
def _task() -> TwoDigitAddition:
    return TwoDigitAddition()


def held_out_problems() -> Int[Tensor, "n 2"]:
    """The 500 pairs held out."""
    return _task().held_out.problems.clone()


def training_problems() -> Int[Tensor, "n 2"]:
    """The other 9,500."""
    return _task().held_out.others.clone()
