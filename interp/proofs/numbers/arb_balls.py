"""Balls of Arb (python-flint), for shares of attention that are functions of exact rationals, in hand-built models.

A ball holds every value that a quantity can take, over the reals or as float32 rounds it. Arb encloses what it rounds
itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from flint import arb

from interp.proofs.numbers import rounding_errors
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import DOUBLE, up

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


def enclosure_of(rows: list[list[Ball]]) -> Enclosure:
    """Balls as midpoints and radii in float64, [row, entry]."""
    mid = torch.tensor([[float(x.mid()) for x in row] for row in rows], dtype=torch.float64)
    rad = torch.tensor([[float(x.rad()) if x.is_finite() else math.inf for x in row] for row in rows]).double()
    return Enclosure.of(mid, torch.where((mid == 0) & (rad == 0), 0.0, up(rad + 4 * DOUBLE * (mid.abs() + rad))))
