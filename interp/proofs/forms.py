"""First-order forms of many quantities at once: float64 arrays whose rounding is accounted for.

A form is ``c + sum_s a_s e_s + rest`` with noise symbols ``e_s`` in [-1, 1] that all quantities of a region share, and
``|rest| <= rad``, of which nothing else is known. Linear maps keep what quantities have in common. A nonlinear function
is replaced by a line, and its distance from the line is added to ``rad``; this error falls with the square of the
region's size. Regions stand along the last axis, so that every operation runs over contiguous memory.

What is assumed of numpy and scipy in float64 (``tests/interp/proofs/test_downstream.py`` checks this environment):
``+ - * / sqrt`` round correctly; sums of products in any order, with or without fused multiply-adds, obey
``n u / (1 - n u)`` with u = 2^-53; ``exp``, ``erf`` and ``expit`` are off by at most ``ULPS`` units in the last place.
Radii are sums of non-negative numbers, whose own rounding the factor ``UP`` covers. The error of n roundings is counted
four times over (:func:`roundings`), and every radius gets ``LEAST``, for underflow. Callers have to look for overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.special import erf, expit

from interp.proofs.balls import SHAPES

ULPS = 4
UP = 1 + 2.0**-40
LEAST = 2.0**-960
CELLS = 4  # pieces of a range on which gelu is compared with its chord
#: |computed - exact| <= CURVE_ERROR |x|: erf 2 * 2 ULPS u, its argument 0.97 u, a sum, halved, and two products; less
#: for silu.
CURVE_ERROR = 2.0**-48


def roundings(n: int) -> float:
    """A relative bound for n roundings one after the other, or for a sum of n products: four times ``n u`` and more."""
    return 4 * (n + 4) * 2.0**-53


@dataclass(frozen=True, eq=False)
class Matrix:
    """A real matrix that lies within ``error`` of ``value``, entry by entry."""

    value: Float[np.ndarray, "k m"]
    error: Float[np.ndarray, "k m"]

    @property
    def size(self) -> Float[np.ndarray, "k m"]:
        return np.abs(self.value) + self.error

    def __matmul__(self, other: Matrix) -> Matrix:
        size = np.abs(self.value) @ np.abs(other.value)
        error = self.size @ other.error + self.error @ other.size + roundings(self.value.shape[1]) * size
        return Matrix(self.value @ other.value, error * UP + LEAST)


def exactly(value: Float[np.ndarray, "k m"]) -> Matrix:
    return Matrix(value, np.zeros_like(value))


def scaled(gain: Float[np.ndarray, " k"], value: Float[np.ndarray, "k m"]) -> Matrix:
    """``diag(gain) value``."""
    product = gain[:, None] * value
    return Matrix(product, roundings(1) * np.abs(product) + LEAST)


def centring(d: int) -> Matrix:
    """The matrix that subtracts the mean from a residual stream."""
    value = np.eye(d) - 1 / d
    return Matrix(value, np.full((d, d), roundings(2)))


@dataclass(frozen=True, eq=False)
class Forms:
    """k quantities of n regions. The rows of ``values`` are the centre, then the coefficients of each symbol."""

    values: Float[np.ndarray, "k row n"]
    rad: Float[np.ndarray, "k n"]

    def spread(self) -> Float[np.ndarray, "k n"]:
        """How far the symbols take a quantity from its centre, without ``rad``."""
        return np.abs(self.values[:, 1:]).sum(1)

    def size(self) -> Float[np.ndarray, "k n"]:
        """Upper bounds of magnitudes."""
        return (np.abs(self.values).sum(1) + self.rad) * UP

    def ends(self) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k n"]]:
        centre, reach = self.values[:, 0], self.spread() + self.rad
        reach = reach * UP + roundings(1) * np.abs(centre)
        return centre - reach, centre + reach

    def plus(self, constant: Float[np.ndarray, " k"], error: Float[np.ndarray, " k"]) -> Forms:
        """Add constants that are known up to an error."""
        values = self.values.copy()
        values[:, 0] += constant[:, None]
        lost = error + roundings(1) * np.abs(constant)
        return Forms(values, (self.rad + lost[:, None] + roundings(1) * np.abs(self.values[:, 0])) * UP)

    def rows(self, chosen: slice) -> Forms:
        return Forms(self.values[chosen], self.rad[chosen])

    def widened(self, by: Float[np.ndarray, "*broadcasts"] | float) -> Forms:
        return Forms(self.values, (self.rad + by) * UP)


def linear(x: Forms, matrix: Matrix, size: Float[np.ndarray, "k n"] | None = None) -> Forms:
    """``matrix^T x``; ``size`` is ``x.size()`` where that is known. Cost: k m (3 + s) n multiplications."""
    k, symbols, n = x.values.shape
    values = (matrix.value.T @ x.values.reshape(k, -1)).reshape(-1, symbols, n)
    lost = roundings(k) * matrix.size + matrix.error
    rad = np.abs(matrix.value).T @ x.rad + lost.T @ (x.size() if size is None else size)
    return Forms(values, rad * UP + LEAST)


def multiply(x: Forms, y: Forms) -> Forms:
    """k forms times one, or times k others: the coefficients of the linear part, with the quadratic part enclosed.

    ``e_s^2`` lies in [0, 1], so that half of it is a shift of the centre; ``e_s e_t`` lies in [-1, 1].
    """
    centre, other = x.values[:, :1], y.values[:, :1]
    values = x.values * other
    values[:, 1:] += centre * y.values[:, 1:]
    quadratic = np.zeros_like(x.rad)
    for s in range(1, x.values.shape[1]):
        half = x.values[:, s] * y.values[:, s] / 2
        values[:, 0] += half
        quadratic += np.abs(half)
    for s, t in _pairs(x):
        quadratic += np.abs(x.values[:, s] * y.values[:, t] + x.values[:, t] * y.values[:, s])
    known, other_known = np.abs(x.values).sum(1), np.abs(y.values).sum(1)
    lost = roundings(x.values.shape[1] + 4) * known * other_known
    rad = quadratic + known * y.rad + x.rad * (other_known + y.rad) + lost
    return Forms(values, rad * UP + LEAST)


def _pairs(x: Forms) -> Iterator[tuple[int, int]]:
    return combinations(range(1, x.values.shape[1]), 2)


def mean_square(x: Forms, size: Float[np.ndarray, "k n"]) -> tuple[Forms, Float[np.ndarray, "1 n"]]:
    """``mean_i x_i^2`` as one form, and a lower bound of it from every x_i on its own; ``size`` is ``x.size()``."""
    k, symbols, n = x.values.shape
    centre, spread = x.values[:, 0], x.spread()
    values = np.empty((1, symbols, n))
    values[0, 0] = (centre**2).sum(0)
    quadratic = np.zeros(n)
    for s in range(1, symbols):
        values[0, s] = 2 * (centre * x.values[:, s]).sum(0)
        half = (x.values[:, s] ** 2).sum(0) / 2
        values[0, 0] += half
        quadratic += half
    for s, t in _pairs(x):
        quadratic += 2 * np.abs((x.values[:, s] * x.values[:, t]).sum(0))
    largest = (size**2).sum(0)
    unknown = (x.rad * (2 * (np.abs(centre) + spread) + x.rad)).sum(0)
    rad = quadratic + unknown + roundings(k + symbols + 4) * largest
    nearest = np.maximum(np.abs(centre) - (spread + x.rad) * UP - roundings(1) * np.abs(centre), 0)
    alone = (nearest**2).sum(0) / k * (1 - roundings(k + 2))
    return Forms(values / k, (rad / k * UP + LEAST)[None]), alone[None]


def inverse_root(t: Forms, low: Float[np.ndarray, "1 n"], high: Float[np.ndarray, "1 n"], outside: float) -> Forms:
    """``g(t) = 1 / (sqrt(t) + outside)`` on [low, high], which t is known to lie in, by its chord.

    Lemma: g is convex (the reciprocal of a positive concave function), so that ``g - slope t`` is largest at an end,
    and above its tangent at any point. Where low or the whole range is 0 the result may be infinite or NaN.
    """
    root_low, root_high = np.sqrt(low), np.sqrt(high)
    at_low, at_high = 1 / (root_low + outside), 1 / (root_high + outside)
    slope = -at_low * at_high / (root_low + root_high)
    root = (root_low + root_high) / 2
    touch, at_touch = root**2, 1 / (root + outside)
    tangent = -(at_touch**2) / (2 * root)
    lost = roundings(16) * (at_low + np.abs(slope) * high + np.abs(tangent) * high)
    above = np.maximum(at_low - slope * low, at_high - slope * high) + lost
    below = at_touch - slope * touch - np.abs(tangent - slope) * np.maximum(high - touch, touch - low) - lost
    return _on_line(t, slope, below, above)


@dataclass(frozen=True)
class Curve:
    """A smooth activation: its value and slope, its second derivative, and where that is least.

    Lemma: the second derivative is even, is largest at 0 (``most``), falls from there to its least value (``-least``)
    at a place within ``dip``, and rises after it. gelu'' = phi(x) (2 - x^2) is least at 2. With s the logistic function
    of x, silu'' = s (1 - s) (2 + x (1 - 2 s)) is least at 3.43584...
    """

    name: str
    value: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    second: Callable[[np.ndarray], np.ndarray]
    most: float
    least: float
    dip: tuple[float, float]

    def bends(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds of the second derivative and of its negative on a range, both at least 0."""
        # its differences lose digits near its zeros, which an absolute slack far above that covers
        ends = self.second(low), self.second(high)
        up, down = np.maximum(np.maximum(*ends), 0), np.maximum(-np.minimum(*ends), 0)
        left, right = self.dip
        over_dip = ((low < right) & (high > left)) | ((low < -left) & (high > -right))
        up, down = np.where((low < 0) & (high > 0), self.most, up), np.where(over_dip, self.least, down)
        return up * UP + 2.0**-48, down * UP + 2.0**-48

    def __call__(self, x: Forms, low: Float[np.ndarray, "k n"], high: Float[np.ndarray, "k n"]) -> Forms:
        """The activation on [low, high], which x is known to lie in, by its chord, or by its plain range.

        Lemma: between two points at a distance w, a function f leaves its chord by at most w^2 / 8 max |f''|, downwards
        where f'' > 0 and upwards where f'' < 0. The chord's slope may be any number: it is only a choice.
        """
        shares = np.linspace(0.0, 1.0, CELLS + 1)[:, None, None]
        points = low + (high - low) * shares
        points[-1] = high
        found = self.value(points)
        magnitude = np.maximum(np.abs(low), np.abs(high))
        width = high - low
        # Where points are so close together that the quotient is noise, take the slope in the middle.
        near = width <= 2.0**-18 * (1 + magnitude)
        slope = (found[-1] - found[0]) / np.where(near, 1.0, width)
        if near.any():
            slope[near] = self.slope(points[CELLS // 2][near])
        residual = found - slope * points
        lost = (CURVE_ERROR + roundings(4) * np.abs(slope)) * magnitude + LEAST
        curved, arched = self.bends(low, high)
        sagitta = (width / CELLS + 2.0**-50 * magnitude) ** 2 / 8 * UP
        line = _on_line(x, slope, residual.min(0) - sagitta * curved - lost, residual.max(0) + sagitta * arched + lost)
        error = CURVE_ERROR * magnitude + LEAST
        left, right, lowest, _ = SHAPES[self.name]
        turns = (low < right) & (high > left)
        least = np.where(turns, lowest, np.minimum(found[0], found[-1]) - error)
        return _clipped(line, least, np.maximum(found[0], found[-1]) + error)


_phi = lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731


def _silu_second(x: np.ndarray) -> np.ndarray:
    # The derivative is even; at |x| the logistic function of -|x| has no cancellation.
    s = expit(-np.abs(x))
    return s * (1 - s) * (2 - np.abs(x) * (1 - 2 * s))


gelu = Curve(
    "gelu",
    lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    lambda x: (1 + erf(x / np.sqrt(2))) / 2 + x * _phi(x),
    lambda x: _phi(x) * (2 - x**2),
    most=2 / np.sqrt(2 * np.pi),
    least=2 * np.exp(-2) / np.sqrt(2 * np.pi),
    dip=(2.0, 2.0),
)
silu = Curve(
    "silu",
    lambda x: x * expit(x),
    lambda x: expit(x) * (1 + x * expit(-x)),
    _silu_second,
    most=0.5,
    least=0.036915,
    dip=(3.4358, 3.4359),
)


def relu(x: Forms, low: Float[np.ndarray, "k n"], high: Float[np.ndarray, "k n"]) -> Forms:
    """``max(x, 0)`` on [low, high], which x is known to lie in: 0, x, or between its chord and the kink."""
    slope = np.where(high <= 0, 0.0, np.where(low >= 0, 1.0, high / np.where(high > low, high - low, 1.0)))
    slope = np.clip(slope, 0.0, 1.0)
    # max(x, 0) - slope x is convex: largest at an end, 0 at the kink
    ends = np.maximum(low, 0) - slope * low, np.maximum(high, 0) - slope * high
    kink = (low < 0) & (high > 0)
    least = np.where(kink, 0.0, np.minimum(*ends))
    lost = roundings(2) * np.where(kink, np.maximum(-low, high), 0.0)
    line = _on_line(x, slope, least - lost, np.maximum(*ends) + lost)
    return _clipped(line, np.maximum(low, 0), np.maximum(high, 0))


def _on_line(x: Forms, slope: np.ndarray, below: np.ndarray, above: np.ndarray) -> Forms:
    """``slope x + [below, above]``."""
    values = x.values * slope[:, None]
    middle = (below + above) / 2
    lost = roundings(2) * (np.abs(values).sum(1) + np.abs(below) + np.abs(above))
    values[:, 0] += middle
    return Forms(values, (np.abs(slope) * x.rad + (above - below) / 2 + lost) * UP + LEAST)


def _clipped(x: Forms, low: np.ndarray, high: np.ndarray) -> Forms:
    """Replace a form by the constant [low, high] where that is narrower than the form's ``rad``."""
    half = (high - low) / 2
    plain = half < x.rad
    if not plain.any():
        return x
    values = np.where(plain[:, None], 0.0, x.values)
    values[:, 0] = np.where(plain, (low + high) / 2, values[:, 0])
    return Forms(values, np.where(plain, (half + roundings(2) * (np.abs(low) + np.abs(high))) * UP + LEAST, x.rad))


ACTIVATIONS = {"gelu": gelu, "relu": relu, "silu": silu}
