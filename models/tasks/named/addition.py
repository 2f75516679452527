"""Addition of two numbers of equal width as a format: MicroAdder's, the 456-parameter adder's and ToyGPT's.

A sequence of MicroAdder's is ``a + b = s0..s10 EOS`` in 34 tokens, ten per operand, the answer least significant digit
first. 33 tokens go in; the query at 21 + i predicts s_i and the query at 32 predicts EOS.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.columns.long_carries import sums_with_long_carries
from models.tasks.formats.format_text import ProblemText
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.named import adder_test_sets as adder_test_sets  # which adds to the test sets that have a name
from models.tasks.number_digits import DIGITS

ANSWER = 22  # the position of MicroAdder's s_0
MICROADDER = f"{{a:{DIGITS}r}}+{{b:{DIGITS}r}}={{s:{DIGITS + 1}r}}"
PADDED = f"{{a:{DIGITS}}}+{{b:{DIGITS}}}={{s:{DIGITS + 1}r}}<EOS>"
PADDED_TOKENS = (*"0123456789", "+", "=", "<PAD>", "<EOS>")


class PairAddition(FormattedTask):
    """Addition of two numbers of equal width, all pairs of them; problems are written with a plus, such as "57 + 48".

    It differs from the same format in :func:`models.tasks.formatted` in that text, and in the order of its random
    draws, on which stored results rest: pairs of numbers in one call, and long carries by NumPy
    (:func:`models.tasks.columns.long_carries.carry_rich_digits`).
    """

    has_long_carries = draws_by_seed = True  # pyright: ignore[reportAssignmentType]

    def __init__(self, format: str, name: str, **more: Any):
        super().__init__(format, "a + b", variables="addition", name=name, **more)
        self.held_out.name = self.held_out.name.replace("problems", "pairs")

    @cached_property
    def _reader(self) -> ProblemText:  # pyright: ignore[reportIncompatibleVariableOverride]
        a, b = self.parsed.operand_fields
        return ProblemText((a, " + ", b, "="), ())

    def sample(self, n: int, generator: torch.Generator, long_carries: bool = False) -> Int[Tensor, "n 2"]:
        """Pairs of independent uniform integers. Those with long carries depend on the seed that the generator was
        given, and not on what it has drawn since."""
        if long_carries:
            return sums_with_long_carries(self.domain, n, generator.initial_seed())
        limit = self.base ** self.parsed.operand_fields[0].width
        return torch.randint(limit, (n, 2), generator=generator, device=generator.device)


def adds_pairs_below(task: Any) -> int | None:
    """Of a task that adds all pairs of numbers below a power of ten, in the format of a model of the zoo, that power:
    10^10 or 100. None for any other task."""
    return task.base ** task.parsed.operand_fields[0].width if isinstance(task, PairAddition) else None


_ZEROS = {"+": 0, "=": 0, "<EOS>": 0}


def _microadder(name: str, ids: dict[str, int], ending: str = "<EOS>") -> PairAddition:
    vocabulary = {str(digit): digit for digit in range(10)} | ids
    return PairAddition(MICROADDER + ending, name, vocabulary=vocabulary, held_out="AdderBoard")


def TenDigitAddition() -> PairAddition:
    """MicroAdder's format: least significant digit first; plus, equals and EOS are token 0, known by place."""
    return _microadder("ten-digit-addition", _ZEROS)


def UnendedAddition() -> PairAddition:
    """MicroAdder's format without EOS: an answer is eleven digits, so that nothing reads the last of them."""
    return _microadder("ten-digit-addition-unended", _ZEROS, ending="")


def DelimitedAddition() -> PairAddition:
    """MicroAdder's format in 14 tokens: plus is token 10, equals 11, EOS 12, and 13 is a padding that never occurs."""
    return _microadder("ten-digit-addition-delimited", {"+": 10, "=": 11, "$": 12, "<EOS>": 12, "_": 13})


def PaddedAddition() -> PairAddition:
    """Ten-digit addition as the 456-parameter adder reads it (its paper, section 1.1).

    ``0000000057+0000000048=`` and the sum reversed: operands zero-padded, most significant digit first, the answer
    units first. 14 tokens: the digits, + (10), = (11), PAD (12, never used) and EOS (13, only ever a target).
    """
    return PairAddition(PADDED, "padded-addition", vocabulary=PADDED_TOKENS, held_out="the ten test sets")


def TwoDigitAddition() -> PairAddition:
    """Addition of two numbers below 100, in the format of minGPT's adder project (ToyGPT).

    ``a1 a0 b1 b0 s0 s1 s2``: the operands most significant digit first, the sum reversed, no delimiters. There are only
    10,000 problems. Held out are the first 500 pairs of torch's permutation with seed 1337, as in minGPT.
    """
    return PairAddition("{a:2}{b:2}{s:3r}", "two-digit-addition", held_out=500, seed=1337)
