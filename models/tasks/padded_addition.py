"""Ten-digit addition as the 456-parameter adder reads it (its paper, section 1.1).

``0000000057+0000000048=`` and the sum reversed: operands zero-padded, most significant digit first, the answer units
first. 14 tokens: the digits, + (10), = (11), PAD (12, never used) and EOS (13, only ever a target). No BOS.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.addition import FixedWidthAddition
from models.tasks.ten_test_sets import ten_test_sets, validation_problems

TOKENS = (*"0123456789", "+", "=", "<PAD>", "<EOS>")


class PaddedAddition(FixedWidthAddition):
    """Ten-digit addition in the 456-parameter adder's format."""

    def __init__(self) -> None:
        super().__init__("{a:10}+{b:10}={s:11r}<EOS>", "padded-addition", vocabulary=TOKENS)

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        """The paper's ten test sets, 100,000 problems."""
        return "the ten test sets", torch.cat(list(ten_test_sets().values()))

    def validation_problems(self, n: int, seed: int) -> Int[Tensor, "n 2"]:
        """Half uniform, half with a carry of any length, none in a test set in either order."""
        return validation_problems(n, seed)
