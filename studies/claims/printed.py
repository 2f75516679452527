"""Read numbers as papers print them: their value, and how exact it is.

"69.3°"       69.3, to 0.05
"0.82 M"      820,000, to 5,000
"99.80%"      0.998, to 0.00005
"2 out of 5"  two numbers, 2 and 5
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.errors import UserError

#: A sign counts if there is no digit, letter or point before it: "36-40" is two numbers, "-0.30" is one.
_NUMBER = re.compile(r"(?:(?<![\w.)])[-+−])?(\d[\d,]*(?:\.\d+)?)(?:\s?(%|[Mm]illion|M\b|K\b))?")
_SCALE = {"%": 0.01, "M": 1e6, "million": 1e6, "Million": 1e6, "K": 1e3}


@dataclass(frozen=True)
class Printed:
    """A printed number and half a unit of its last digit."""

    value: float
    half: float

    def agrees(self, value: float) -> bool:
        """Whether ``value`` would be printed like this."""
        return abs(value - self.value) <= self.half * (1 + 1e-9)


def read_numbers(text: str) -> tuple[Printed, ...]:
    """All numbers in a text, in order. Raises UserError if there is none."""
    found = []
    for match in _NUMBER.finditer(text):
        digits = match[1].rstrip(",")
        scale = _SCALE.get(match[2] or "", 1.0)
        sign = -1 if match[0][0] in "-−" else 1
        decimals = len(digits.partition(".")[2])
        found.append(Printed(sign * float(digits.replace(",", "")) * scale, 0.5 * 10.0**-decimals * scale))
    if not found:
        raise UserError(f"There is no number in {text!r}.")
    return tuple(found)
