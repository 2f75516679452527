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

from models.notation import Notation, pairs_below
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.named.ten_digits import DIGITS, as_problems
from models.tasks.task import Task

ANSWER = 22  # the position of MicroAdder's s_0
MICROADDER = f"{{a:{DIGITS}r}}+{{b:{DIGITS}r}}={{s:{DIGITS + 1}r}}"
PADDED = f"{{a:{DIGITS}}}+{{b:{DIGITS}}}={{s:{DIGITS + 1}r}}<EOS>"
PADDED_TOKENS = (*"0123456789", "+", "=", "<PAD>", "<EOS>")


class PairAddition(FormattedTask):
    """Addition of two numbers of equal width, all pairs of them; problems may be texts such as "57+48".

    It differs from the same format in :func:`models.tasks.formatted` in that text, and in the order of its random
    draws, on which stored results rest.
    """

    #: Problems rich in carries are drawn as for every addition of two numbers of equal width.
    sample_carry_rich = None  # pyright: ignore[reportAssignmentType]
    problem_text = Task.problem_text  # with a plus, which not every format writes

    def __init__(self, format: str, name: str, **more: Any):
        super().__init__(format, "a + b", variables="addition", name=name, **more)

    @cached_property
    def pairs_below(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base ** self.numbers_fields[0].width

    @cached_property
    def notation(self) -> Notation:  # pyright: ignore[reportIncompatibleVariableOverride]
        return pairs_below(self.pairs_below)

    def as_problems(self, problems: Any) -> Int[Tensor, "n 2"]:
        return as_problems(problems, self.pairs_below)

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n 2"]:
        """Pairs of independent uniform integers in [0, pairs_below)."""
        return torch.randint(self.pairs_below, (n, 2), generator=generator, device=generator.device)

    def test_set(self) -> tuple[str, Int[Tensor, "n 2"]]:
        return self.held_out.name.replace("problems", "pairs"), self.held_out.problems


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
