"""First-order forms of many quantities at once: float64 arrays whose rounding is accounted for.

A form is ``c + sum_s a_s e_s + rest`` with noise symbols ``e_s`` in [-1, 1] that all quantities of a region share, and
``|rest| <= rad``, of which nothing else is known. Linear maps keep what quantities have in common. A nonlinear function
is replaced by a line, and its distance from the line is added to ``rad``; this error falls with the square of the
region's size. Regions stand along the last axis, so that every operation runs over contiguous memory.

What is assumed of float64 stands in :mod:`interp.proofs.numbers.rounding_errors`. Radii are sums of non-negative
numbers, whose own rounding the factor ``UP`` covers. The error of n roundings is counted four times over
(:func:`~interp.proofs.numbers.rounding_errors.roundings`), and every radius gets ``LEAST``, for underflow. Callers have
to look for overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.rounding_errors import LEAST, UP, roundings

CELLS = 4  # pieces of a range on which a smooth activation is compared with its chord


@dataclass(frozen=True, eq=False)
class EnclosedMatrix:
    """A real matrix that lies within ``error`` of ``value``, entry by entry."""

    value: Float[np.ndarray, "k m"]
    error: Float[np.ndarray, "k m"]

    @property
    def size(self) -> Float[np.ndarray, "k m"]:
        return np.abs(self.value) + self.error

    def __matmul__(self, other: EnclosedMatrix) -> EnclosedMatrix:
        size = np.abs(self.value) @ np.abs(other.value)
        error = self.size @ other.error + self.error @ other.size + roundings(self.value.shape[1]) * size
        return EnclosedMatrix(self.value @ other.value, error * UP + LEAST)


def exactly(value: Float[np.ndarray, "k m"]) -> EnclosedMatrix:
    return EnclosedMatrix(value, np.zeros_like(value))


def scaled(gain: Float[np.ndarray, " k"], value: Float[np.ndarray, "k m"]) -> EnclosedMatrix:
    """``diag(gain) value``."""
    product = gain[:, None] * value
    return EnclosedMatrix(product, roundings(1) * np.abs(product) + LEAST)


def centring(d: int) -> EnclosedMatrix:
    """The matrix that subtracts the mean from a residual stream."""
    value = np.eye(d) - 1 / d
    return EnclosedMatrix(value, np.full((d, d), roundings(2)))


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


def linear(x: Forms, matrix: EnclosedMatrix, size: Float[np.ndarray, "k n"] | None = None) -> Forms:
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


def activated(name: str, x: Forms, low: Float[np.ndarray, "k n"], high: Float[np.ndarray, "k n"]) -> Forms:
    """An activation of x on [low, high], which x is known to lie in, by its chord, or by its plain range.

    The chord's slope may be any number: it is only a choice.
    """
    on = ACTIVATIONS[name].on(low, high, CELLS)
    ((below, above),) = on.beside(slope := on.chord())
    return _clipped(_on_line(x, slope, below, above), *on.range())


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
