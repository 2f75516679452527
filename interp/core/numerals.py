"""How proved numbers are written: a lower bound never above what was proved, an upper bound never below."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction


def shown(bound: float | Fraction, digits: int = 2, up: bool = False) -> str:
    """A bound with a few significant digits: rounded down, or (``up``: for errors and upper bounds) up.

    Postcondition: the number that is written lies on the bound's safe side, or is equal to it. Numbers below 0.001 are
    written as 1.50e-4.
    """
    if isinstance(bound, float) and not math.isfinite(bound):
        return str(bound)
    exact = Fraction(bound)
    if not exact:
        return "0"
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    exponent = rounded.adjusted()
    if exponent < -3:
        return f"{rounded.scaleb(-exponent):.{digits - 1}f}e{exponent}"
    return f"{rounded:f}" if exponent >= digits else f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def percent(share: Fraction, digits: int = 3, up: bool = False) -> str:
    """A share of all pairs on its safe side: as "22.1%", or from 1% downwards as "1.50e-4"."""
    return shown(share, digits, up) if abs(share) < Fraction(1, 100) else f"{shown(100 * share, digits, up)}%"
