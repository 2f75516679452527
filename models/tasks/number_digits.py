"""Numbers as rows of digits, least significant first, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

DIGITS = 10


LIMIT = 10**DIGITS


def digit_rows(numbers: Num[Tensor, " n"], width: int, base: int = 10) -> Float[Tensor, "width n"]:
    """Digits of (the integer part of) numbers in [0, 2^53) as float64, least significant first, one row per digit.

    Quotients are taken in float64, which is exact after flooring (a correctly rounded quotient of integers below
    2^53 never crosses an integer) and several times faster than int64 division, the bulk of the sampling cost.
    """
    powers = float(base) ** torch.arange(width + 1, device=numbers.device, dtype=torch.float64)
    quotient = (numbers.double() / powers[:, None]).floor_()
    return quotient[:-1] - base * quotient[1:]


def spelt_numbers(digits: Int[Tensor, "n column"]) -> list[int | None]:
    """Return the number that each row of tokens spells, least significant digit first. A row with a token that is not a
    digit has None."""
    return [to_number(row) if all(0 <= token < 10 for token in row) else None for row in digits.tolist()]


def significant_digits(digits: Int[Tensor, "*n column"]) -> Int[Tensor, "*n"]:
    """How many digits a number has without leading zeros; 0 has one."""
    columns = torch.arange(1, digits.shape[-1] + 1, device=digits.device)
    return (columns * (digits != 0)).amax(-1).clamp(min=1)


_CHUNK = 4000  # Python refuses to turn integers of more than 4,300 digits into text and back in one go


def to_number(digits: Sequence[int], base: int = 10) -> int:
    """The Python integer with these digits, least significant first."""
    text = "".join(map(str, digits))
    chunks = [text[i : i + _CHUNK][::-1] for i in range(0, len(text), _CHUNK)]
    return sum(int(chunk, base) * base ** (_CHUNK * i) for i, chunk in enumerate(chunks))


def to_digits(number: int, base: int = 10) -> list[int]:
    """Digits of a non-negative integer, least significant first; 0 has one."""
    digits: list[int] = []
    while True:
        number, chunk = divmod(number, base**_CHUNK)
        text = str(chunk) if base == 10 else format(chunk, "b")
        digits.extend(int(digit) for digit in reversed(text.zfill(_CHUNK) if number else text))
        if not number:
            return digits
