"""Balls of Arb (python-flint) around numbers that are exact rationals but for a few: what hand-built models compute.

A ball holds every value that a quantity can take, over the reals or as float32 rounds it, which ``rounding`` says
(:mod:`interp.proofs.rounding_errors` has what is assumed). Over the reals nothing is added: Arb encloses its own
rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flint import arb

from interp.proofs import rounding_errors
from interp.proofs.enclosures import Rounding
from interp.proofs.rounding_errors import LARGEST, TINY

Ball = Any  # flint.arb; python-flint has no type stubs


def upper(x: Ball) -> Ball:
    """An upper bound of |x|, as an exact ball."""
    return x.abs_upper()


def around_zero(radius: Any) -> Ball:
    """The ball [-radius, radius]."""
    return arb(0, radius)


def hull(balls: Iterable[Ball]) -> Ball:
    """The smallest ball (up to Arb's own rounding) around some balls."""
    first, *rest = balls
    for ball in rest:
        first = first.union(ball)
    return first


def growth(rounding: Rounding, roundings: int) -> Ball:
    """A relative bound for n roundings one after the other, 0 over the reals."""
    return arb(rounding_errors.growth(rounding.unit32, roundings))


def rounded(rounding: Rounding, x: Ball, roundings: int = 1) -> Ball:
    """The values that ``x`` can be stored as, after some roundings."""
    return _widened(rounding, x, x.abs_upper(), roundings, 1)


def dot(rounding: Rounding, terms: Sequence[Ball]) -> Ball:
    """The computed sum of exact products, in any order."""
    return _widened(rounding, sum(terms, arb(0)), sum((upper(x) for x in terms), arb(0)), len(terms), len(terms))


def _widened(rounding: Rounding, x: Ball, size: Ball, roundings: int, terms: int) -> Ball:
    if not rounding.unit32:
        return x
    return x + around_zero(growth(rounding, roundings) * size + TINY * terms) if size < LARGEST else arb("nan")
