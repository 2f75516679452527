"""What is assumed of float32, of float64 and of the functions of their libraries, and what n roundings add up to.

All proofs share these numbers. ``UNIT`` is the unit roundoff of float32, which models compute in, and ``DOUBLE`` that
of float64, which bounds are computed in. What is assumed (``tests/interp/proofs/numbers/test_rounding_errors.py`` and
``test_rounded_operations.py`` hold this environment's torch against it on dense samples):

* ``+ - *`` are correctly rounded; a square, a quotient and ``sqrt`` are off by at most one unit in the last place
  (IEEE 754 gives half of one);
* a sum of n products, in any order, with or without fused multiply-adds, is off by at most :func:`growth` of n times
  the sum of the products' magnitudes (Higham, 2002, section 3.1), which excludes TF32 and half-precision accumulation
  (torch's float32 matmul precision is "highest", its default);
* in float32, ``exp``, ``sin``, ``cos`` and ``pow`` are off by at most so many units in the last place as the constants
  here say, and activations by what :mod:`interp.proofs.numbers.activation_functions` says;
* in float64, ``exp`` and ``sigmoid`` are off by at most ``LIBRARY_ULPS``, and ``ndtr``, ``cos`` and ``sin`` by as many
  units in the last place of 1;
* LAPACK's orthonormal rows (:func:`interp.proofs.machine.margin_bounds.directions`) are so up to 1e-12;
* a result below the smallest normal number may be anything as small;
* nothing overflows: every number of the forward pass, partial sums, logits and their differences included, has a bound
  below ``LARGEST`` (without a bound every later comparison fails), and squares are summed only of vectors that are not
  longer.

The forward pass is the hooked one of :mod:`models.transformer.arithmetic_transformer`. Paths that compute the same
function by other steps (:mod:`models.run` with torch's fused attention and LayerNorm, ``torch.compile``) are not
enclosed. ``sin`` and ``cos`` also occur in weight maps: a certificate is about the effective weights that they
produced, bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

UNIT, DOUBLE = 2.0**-24, 2.0**-53
EXP_ULPS = TRIG_ULPS = 2
#: The error of exp and of the rescaling in fused kernels, in units of u: twice what exp alone may take.
FUSED_EXP = 4 * EXP_ULPS
#: torch computes rotary frequencies by ``pow``.
POW_ULPS = 2
LIBRARY_ULPS = 4
#: What underflow can add to one term: the smallest normal number 2^-126 times two weights, each below 2^16.
TINY = 2.0**-90
UNDERFLOW = 2.0**-80  # what it can add to a sum of a few of them
LARGEST = 2.0**60  # whose square is still a float32
LARGEST_WEIGHT = 2.0**16
#: A factor for radii that are sums and products of up to a thousand numbers that are not negative.
UP = 1 + 2.0**-40
#: Relative errors of what is computed in float64 from known numbers, where nobody counts its roundings. This one covers
#: a few thousand roundings one after the other: a product of vectors, a length, a quotient of sums.
OWN = 1e-12
#: Covers what is computed of a gated block at its midpoint: products of its matrices, whose terms cancel in part.
OWN_OF_BLOCK = 1e-10
#: Covers tables of two layers' attention: some 10^4 operations of 2^-53 each, and more.
OWN_OF_TABLES = 2.0**-36
#: Covers what is computed of radii, which are smaller than a proof's other slack by orders of magnitude: spectral
#: norms, variances, and bounds that are put together of several of these.
OWN_OF_RADII = 1e-9
#: More than underflow in float64 can take from a sum of radii or from a length, whose squares vanish below 2^-537.
LEAST = 2.0**-500
#: More than a few thousand terms of magnitude 1 lose where exponentials underflow in float64, below 2^-1022.
VANISHED = 2.0**-1000


def is_moderate(divisor: float) -> bool:
    """Whether a divisor and its reciprocal are float32 with all of their digits."""
    return 1 / LARGEST < abs(divisor) < LARGEST


def growth(unit: float, roundings: float | int) -> float:
    """n u / (1 - n u), rounded up: a relative bound for n roundings one after the other, or for a sum of n products.

    Lemma: it also holds for a power of n roundings, as ``(1 + u)^n - 1`` and ``(1 - u)^-n - 1`` are at most that for
    every real n >= 1.
    """
    return roundings * unit / (1 - roundings * unit) * (1 + OWN)


def roundings(n: int) -> float:
    """A relative bound for n roundings of float64, counted four times over: four times ``n u`` and more."""
    return 4 * (n + 4) * DOUBLE


def up(radius: Any, terms: int = 1) -> Any:
    """Enlarge a radius (an array or a tensor) that was computed with sums of ``terms`` terms, so that it covers its own
    rounding."""
    grown = radius * (1 + (terms + 40) * 2 * DOUBLE)
    grown += LEAST
    return grown


def angle_roundings(base: float) -> float:
    """The relative error of a rotary angle ``t base^(-2 i / d) / factor`` in float32, in units of u.

    The base and the exponent are rounded. The power multiplies their errors by at most 1 and by twice the base's
    logarithm. The power itself, the quotient and the product with the position round as well.
    """
    return 2 * POW_ULPS + 4 + 2 * abs(math.log(base))


def scale_roundings(n: int) -> float:
    """Roundings of a norm's scale, ``sqrt(mean(x^2) + eps)`` or ``sqrt(mean(x^2)) + eps`` over n numbers.

    Squares count two, their sum n - 1, the mean two (it may be a product with a rounded 1 / n); the root halves these
    and counts two. Next to that eps and its sum count one each, before the root (so half) or after it, where eps is
    rounded in place of the root. Nothing is subtracted, so that relative errors stay relative.
    """
    return n / 2 + 4.5


def lost_by_underflow(root: Any, scale: Any, eps_outside: bool, tiny: float) -> Any:
    """How far one over a norm's scale may be off, relative to it, because squares vanish or nearly do: from lower
    bounds of the root of the mean square and of the scale (arrays or tensors).

    The mean square and eps may each be off by ``tiny`` as well (t together), whatever their size: the scale's square by
    t, or with eps outside the root by at most ``min(sqrt t, t / root)`` and eps by t. With q for this relative to the
    square or to the scale, one over the scale is off by at most q / (1 - q).
    """
    t = 2 * tiny
    share = ((t / root).clip(max=math.sqrt(t)) + t) / scale if eps_outside else t / scale**2
    return share / (1 - share).clip(min=0.0)
