"""How numbers are written in text for people: small ones, and proved bounds on their safe side.

small(4.2e-5)              "4.2 x 10^-5"
number(0.99631)            "0.9963"
p_value(1e-5)              "p < 0.001"
in_percent(0.9951)         "99.5%"
shown(bound, up=True)      a bound on its safe side: a lower bound never above what was proved, an upper never below
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import numpy as np

LEAST_P = 0.001  # smaller p-values are not written in digits
#: What float32 rounds in a share of two sums of a few hundred logits, on any processor; such a difference is none.
ROUNDED = 1e-5


def shown(bound: float | Fraction, digits: int = 2, up: bool = False) -> str:
    """A bound with a few significant digits, rounded down or (``up``, for errors and upper bounds) up.

    Postcondition: the written number lies on the bound's safe side, or is equal to it. Numbers below 0.001 are written
    as 1.50 x 10^-4.
    """
    return _written(bound, digits, ROUND_CEILING if up else ROUND_FLOOR)


def small(value: float, digits: int = 2) -> str:
    """The nearest number with a few significant digits; numbers below 0.001 are written as 1.5 x 10^-4."""
    return _written(value, digits, ROUND_HALF_EVEN)


def number(value: float | np.floating, digits: int = 4) -> str:
    """A number for a table, in at most this many significant digits: "0.9963", "1,234,568", "2.369 x 10^-7", "nan"."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    return small(float(value), digits) if abs(value) < 1 else f"{value:,.0f}"


def counted(n: int, what: str) -> str:
    """A count in words: "1 pair", "2 pairs"."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def p_value(p: float) -> str:
    """A p-value as it is quoted: "p = 0.031", or "p < 0.001"."""
    return f"p < {LEAST_P}" if p < LEAST_P else f"p = {p_cell(p)}"


def p_cell(p: float) -> str:
    """A p-value in a table: "0.031", or "< 0.001"."""
    return f"< {LEAST_P}" if p < LEAST_P else f"{p:.2g}"


def percent(share: Fraction, digits: int = 3, up: bool = False) -> str:
    """A share of all pairs, rounded to its safe side: as "22.1%" or, below 1%, as "1.50 x 10^-4"."""
    return shown(share, digits, up) if abs(share) < Fraction(1, 100) else f"{shown(100 * share, digits, up)}%"


def in_percent(share: float, digits: int = 1, *, counted: bool = False) -> str:
    """A share as it stands in a sentence: "99.5%". One between 0 and 1 that is not whole is never written as if it
    were: "over 99.9%", "under 0.1%". A measured share within ``ROUNDED`` of 0 or 1 is whole; a ``counted`` one only if
    nothing is missing."""
    share = float(share)  # a number of NumPy or xarray as well
    if any(abs(share - whole) <= (0 if counted else ROUNDED) for whole in (0, 1)):
        return f"{100 * abs(round(share)):.0f}%"
    least = 10.0 ** -(digits + 2)  # the smallest share that is written
    if 1 - least / 2 <= share < 1:
        return f"over {1 - least:.{digits}%}"
    return f"under {least:.{digits}%}" if 0 < share < least / 2 else f"{round(share, digits + 2) + 0.0:.{digits}%}"


def distinct_percent(share: float, digits: int = 2) -> str:
    """A share in as many digits, ``digits`` or more, as it takes until one below 1 does not read as 100% and one above
    0 not as 0%: "99.999%"."""
    for places in range(digits, 18):
        text = f"{100 * share:.{places}f}"
        if share in (0, 1) or float(text) not in (0, 100):
            return f"{text}%"
    return f"{100 * share}%"


def in_percent_with(share: float, low: float, high: float, *, counted: bool = False) -> str:
    """A share with its interval as both stand in a sentence: "99.5% [99.1%, 99.8%]"; without one that is not finite,
    and without one of no width, which a share of all problems has."""
    known = math.isfinite(low) and math.isfinite(high) and low < high
    ends = f" [{in_percent(low, counted=counted)}, {in_percent(high, counted=counted)}]" if known else ""
    return in_percent(share, counted=counted) + ends


def _written(value: float | Fraction, digits: int, rounding: str) -> str:
    if not isinstance(value, Fraction) and not math.isfinite(value):
        return str(float(value))
    exact = value if isinstance(value, Fraction) else Fraction(float(value))  # NumPy's numbers are not Rationals
    if not exact:
        return "0"
    context = Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    exponent = rounded.adjusted()
    if exponent < -3:
        return f"{rounded.scaleb(-exponent):.{digits - 1}f} x 10^{exponent}"
    return f"{rounded:f}" if exponent >= digits else f"{rounded:.{max(0, digits - 1 - exponent)}f}"
