"""Ball arithmetic for a forward pass: exact real numbers, or float32 with every operation's rounding enclosed.

A ball (Arb, through python-flint) holds every value that a quantity can take. With ``REAL`` the quantity is what the
weights define over the real numbers. With ``FLOAT32`` it is what a computer stores: each operation of the forward pass
widens its result by the largest rounding error of that operation, u = 2^-24 being the unit roundoff.

What is assumed of the hardware and the mathematical library (``tests/interp/proofs/test_rounding.py`` holds this
environment's torch against it on dense samples):

* ``+ - *`` are correctly rounded; a square, a quotient and ``sqrt`` are off by at most one unit in the last place
  (IEEE 754 gives half of one);
* a sum of n products, in any order, with or without fused multiply-adds, is off by at most
  ``n u / (1 - n u)`` times the sum of the products' magnitudes (Higham, 2002, section 3.1), which excludes TF32 and
  half-precision accumulation (torch's float32 matmul precision is "highest", its default);
* ``exp`` is off by at most ``EXP_ULPS`` units in the last place, and gelu of x by ``GELU_ROUNDINGS`` u |x|;
* a result below the smallest normal number may be anything as small, and nothing overflows: a magnitude above
  ``LARGEST`` makes every later comparison fail.

The forward pass is the hooked one of :mod:`models.transformer.arithmetic_transformer`. Paths that compute the same
function by other steps (:mod:`models.fast` with torch's fused attention and LayerNorm, ``torch.compile``) are not
enclosed.

``sin`` and ``cos`` occur in weight maps only. A certificate is about the effective weights that they produced, bit for
bit. The tests check that they are off by at most ``TRIG_ULPS``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flint import arb, arb_mat

EXP_ULPS = 2
#: The formula with an erf off by 2 units in the last place gives 6.5. torch on x86 calls oneDNN, whose erf is its own,
#: less exact polynomial; over all floats with 2^-14 <= |x| < 64 the error of its gelu reached 6.4.
GELU_ROUNDINGS = 16
TRIG_ULPS = 2
UNIT = 2.0**-24
#: What underflow can add to one term: the smallest normal number 2^-126 times two weights, each below 2^16.
TINY = 2.0**-90
UNDERFLOW = 2.0**-80  # what it can add to a sum of a few of them
LARGEST = 2.0**60  # whose square is still a float32
LARGEST_WEIGHT = 2.0**16
#: How far silu and both kinds of gelu in float32 may be off at x, in u |x|.
ACTIVATION_ROUNDINGS = {"gelu": GELU_ROUNDINGS, "gelu_new": 16, "silu": 16}
#: For each: two numbers around the one place where it turns from falling to rising, a number below its least value, and
#: one above its steepest slope.
SHAPES = {
    "gelu": (-0.7518, -0.7517, -0.17, 1.13),
    "gelu_new": (-0.7525, -0.7524, -0.1701, 1.13),
    "silu": (-1.2785, -1.2784, -0.2785, 1.1),
}
#: Upper bounds of |second derivative|: it is 2 / sqrt(2 pi) = 0.798 at 0 for both gelus, 1/2 for silu.
CURVED = {"gelu": 0.8, "gelu_new": 0.8, "silu": 0.51}
GELU_TURN, GELU_LEAST = SHAPES["gelu"][:2], SHAPES["gelu"][2]
#: torch computes rotary frequencies by ``pow``, which is off by at most this many units in the last place.
POW_ULPS = 2

Ball = Any  # flint.arb; python-flint has no type stubs
BallMatrix = Any  # flint.arb_mat

_LARGEST, _TINY, _ROOT2 = arb(LARGEST), arb(TINY), arb(2).sqrt()  # as balls, as every use would convert a float


def angle_roundings(base: float) -> float:
    """The relative error of a rotary angle ``t base^(-2 i / d) / factor`` in float32, in units of u.

    The base and the exponent are rounded. The power multiplies their errors by at most 1 and by twice the base's
    logarithm. The power itself, the quotient and the product with the position round as well.
    """
    return 2 * POW_ULPS + 4 + 2 * abs(math.log(base))


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


@dataclass(frozen=True, eq=False)
class Weights:
    """A matrix [output, input] of balls, and upper bounds of their magnitudes."""

    values: BallMatrix
    sizes: BallMatrix

    @classmethod
    def of(cls, rows: Sequence[Sequence[Ball]]) -> Weights:
        return cls(arb_mat(rows), arb_mat([[upper(w) for w in row] for row in rows]))


@dataclass(frozen=True)
class Arithmetic:
    """Operations whose results enclose what is computed with unit roundoff ``unit`` (0: real numbers)."""

    unit: float

    def growth(self, roundings: int | float) -> Ball:
        """n u / (1 - n u): a relative bound for n roundings one after the other."""
        return _growth(self.unit, roundings)

    def rounded(self, x: Ball, roundings: int | float = 1) -> Ball:
        """The values that ``x`` can be stored as, after some roundings."""
        if not self.unit:
            return x
        size = x.abs_upper()
        if not size < _LARGEST:
            return arb("nan")
        return x + around_zero(self.growth(roundings) * size + _TINY)

    def dot(self, terms: Sequence[Ball], extra: int = 0, magnitude: Ball | None = None) -> Ball:
        """The computed sum of exact products, in any order; each term was rounded ``extra`` times before."""
        total = sum(terms[1:], terms[0])
        if not self.unit:
            return total
        size = sum((upper(x) for x in terms), arb(0)) if magnitude is None else magnitude
        return self._summed(total, size, len(terms), extra)

    def dot_error(self, size: Ball, terms: int, extra: int = 0) -> Ball:
        """How far the computed sum of ``terms`` products lies from the exact one, ``extra`` roundings included.

        ``size`` bounds the sum of the products' magnitudes.
        """
        return self.growth(terms + extra) * size + _TINY * terms if size < _LARGEST else arb("nan")

    def products(self, w: Weights, x: Sequence[Ball], extra: int = 0) -> list[Ball]:
        """The computed ``w x``: :meth:`dot` of each row, by two products of matrices (several times faster).

        The magnitudes of a row's products add up to at most ``sum_i |w_i| max |x_i|``.
        """
        totals = (w.values * arb_mat(len(x), 1, x)).entries()
        if not self.unit:
            return totals
        sizes = (w.sizes * arb_mat(len(x), 1, [v.abs_upper() for v in x])).entries()
        return [self._summed(total, size, len(x), extra) for total, size in zip(totals, sizes, strict=True)]

    def _summed(self, total: Ball, size: Ball, terms: int, extra: int) -> Ball:
        return total + around_zero(self.dot_error(size, terms, extra))

    def rms(self, x: Sequence[Ball], eps: float, eps_outside: bool) -> Ball:
        """``sqrt(mean(x^2) + eps)`` (or with eps outside), as :class:`models.transformer.parts.norms.Norm` computes it.

        Squares are within one unit in the last place (2 u), their sum sees n - 1 roundings, the division two (a product
        with a rounded 1 / n), eps one and its sum one; nothing is subtracted, so that relative errors stay relative.
        """
        squares = sum((value * value for value in x), arb(0)).nonnegative_part()
        mean = self.rounded(squares / len(x), len(x) + 3)
        added = self.rounded(arb(eps))
        if eps_outside:
            return self.rounded(self.rounded(mean.nonnegative_part().sqrt(), 2) + added)
        return self.rounded(self.rounded(mean.nonnegative_part() + added).sqrt(), 2)

    def centred(self, x: Sequence[Ball]) -> list[Ball]:
        """``x - mean(x)``: n - 1 roundings of the sum, two of the division, one of the difference."""
        mean = self.rounded(sum(x[1:], x[0]) / len(x), 0)
        if self.unit:
            size = sum((upper(value) for value in x), arb(0)) / len(x)
            mean = mean + around_zero(self.growth(len(x) + 1) * size)
        return [self.rounded(value - mean) for value in x]

    def gelu(self, x: Ball) -> Ball:
        """``x / 2 (1 + erf(x / sqrt 2))`` over a ball, from its ends.

        Lemma: gelu' = Phi + x phi has one zero, between the numbers of ``GELU_TURN``: gelu'' = phi (2 - x^2), so that
        gelu' falls from 0 on (-inf, -sqrt 2), rises to sqrt 2 and falls to 1 after. gelu falls before the zero and
        rises after it, and its least value is above ``GELU_LEAST``.

        Rounding adds ``GELU_ROUNDINGS`` u |x|, which is an assumption about the library.
        """
        low, high = x.lower(), x.upper()
        if low >= GELU_TURN[1]:
            value = _gelu(low).union(_gelu(high))
        elif high <= GELU_TURN[0]:
            value = _gelu(high).union(_gelu(low))
        else:
            value = arb(GELU_LEAST).union(_gelu(low)).union(_gelu(high))
        if not self.unit:
            return value
        size = x.abs_upper()
        if not size < _LARGEST:
            return arb("nan")
        return value + around_zero(self.growth(GELU_ROUNDINGS) * size + _TINY)

    def activation(self, name: str, x: Ball) -> Ball:
        return self.gelu(x) if name == "gelu" else x.nonnegative_part()


def _gelu(x: Ball) -> Ball:
    return x / 2 * (1 + (x / _ROOT2).erf())


@cache  # a few dozen arguments; an upper bound found at one precision is one at any
def _growth(unit: float, roundings: int | float) -> Ball:
    if not unit:
        return arb(0)
    n = arb(roundings) * unit
    return (n / (1 - n)).upper()


REAL, FLOAT32 = Arithmetic(0.0), Arithmetic(UNIT)
