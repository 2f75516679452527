"""What is known of the activations of neurons: values, slopes, ranges on intervals, and how far they leave a line.

All of it is in float64, with what float64 rounds in the bounds. ``ACTIVATIONS`` has the numbers that proofs use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.numbers.rounding_errors import LEAST, LIBRARY_ULPS, UP, roundings

#: |computed - exact| <= OFF |x| for every activation here in float64.
OFF = 16 * LIBRARY_ULPS * 2.0**-53


@dataclass(frozen=True)
class Activation:
    """An activation. But for ReLU, which has no ``turn``, it is smooth, falls to one place and rises after it.

    Attributes:
        value, slope: in float64, by formulas without cancellation: off by a few units in the last place.
        rounds: how far it may be off in float32 at x, in u |x|.
        steepest: above its steepest slope. curved: above the magnitude of its second derivative.
        turn: two numbers around the place where it turns. least: a number below its least value.
        second: its second derivative in numpy, if bounds use it. Lemma: that is even, largest at 0, falls from there
            to its least value, ``-dips``, at a place within ``dip``, and rises after it. gelu'' = phi(x) (2 - x^2) is
            least at 2. With s the logistic function of x, silu'' = s (1 - s) (2 + x (1 - 2 s)) is least at 3.43584...
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    rounds: int
    steepest: float
    curved: float
    turn: tuple[float, float] | None = None
    least: float = 0.0
    second: Callable[[np.ndarray], np.ndarray] | None = None
    dips: float = 0.0
    dip: tuple[float, float] = (0.0, 0.0)

    def rounding(self, unit: float) -> float:
        """How far it may be off at x, over |x|, with unit roundoff ``unit`` (0: float64 alone)."""
        return self.rounds * unit * (1 + 1e-5) + OFF if self.rounds else 0.0

    def of(self, x: np.ndarray) -> np.ndarray:
        """The values at points in numpy."""
        return _in_numpy(self.value, x)

    def on(self, low: Float[np.ndarray, "*n"], high: Float[np.ndarray, "*n"], cells: int = 1) -> OnIntervals:
        """What it does on intervals, looked at in ``cells`` pieces of each."""
        if self.turn is None:
            z = np.stack((low, np.clip(0.0, low, high), high))
        else:
            shares = np.arange(cells + 1).reshape(-1, *[1] * low.ndim) / cells
            with np.errstate(invalid="ignore"):  # an interval without ends is NaN, of which nothing is proved
                z = low + (high - low) * shares
            z[-1] = high
        return OnIntervals(self, low, high, z, self.of(z))


@dataclass(frozen=True, eq=False)
class OnIntervals:
    """An activation on the intervals [low, high], in numpy (quicker than torch where they are few): its values ``f`` at
    points ``z`` from the low end to the high one."""

    kind: Activation
    low: Float[np.ndarray, "*n"]
    high: Float[np.ndarray, "*n"]
    z: Float[np.ndarray, "point *n"]
    f: Float[np.ndarray, "point *n"]

    @cached_property
    def width(self) -> Float[np.ndarray, "*n"]:
        return self.high - self.low

    @cached_property
    def size(self) -> Float[np.ndarray, "*n"]:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def chord(self) -> Float[np.ndarray, "*n"]:
        """About the slope from one end to the other."""
        # Where points are so close together that the quotient is noise, take the slope at one of them.
        near = self.width <= 2.0**-18 * (1 + self.size)
        found = (self.f[-1] - self.f[0]) / np.where(near, 1.0, self.width)
        if near.any():
            found[near] = _in_numpy(self.kind.slope, self.low[near])
        return found

    def range(self) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
        """Bounds of the values, from the ends and the turn."""
        if self.kind.turn is None:
            return self.f[0], self.f[-1]
        slack = OFF * self.size + LEAST
        least, most = np.minimum(self.f[0], self.f[-1]) - slack, np.maximum(self.f[0], self.f[-1]) + slack
        over = (self.low < self.kind.turn[1]) & (self.high > self.kind.turn[0])
        return np.where(over, np.minimum(least, self.kind.least), least), most

    def bends(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Upper bounds of the second derivative and of its negative, both at least 0."""
        kind, low, high = self.kind, self.low, self.high
        if kind.second is None:
            return kind.curved, kind.curved
        # its differences lose digits near its zeros, which an absolute slack far above that covers
        at_low, at_high = kind.second(low), kind.second(high)
        up, down = np.maximum(np.maximum(at_low, at_high), 0), np.maximum(-np.minimum(at_low, at_high), 0)
        left, right = kind.dip
        over_dip = ((low < right) & (high > left)) | ((low < -left) & (high > -right))
        up, down = np.where((low < 0) & (high > 0), kind.curved, up), np.where(over_dip, kind.dips, down)
        return up * UP + 2.0**-48, down * UP + 2.0**-48

    def beside(self, *slopes: Float[np.ndarray, "*n"]) -> list[tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]]:
        """For each slope k, bounds of ``f(z) - k z``.

        Lemma: between two points at a distance w, a function f leaves its chord by at most w^2 / 8 max |f''|, downwards
        where f'' > 0 and upwards where f'' < 0. ReLU's points are its ends and its kink.
        """
        below = above = 0.0
        if self.kind.turn is not None:
            bent, arched = self.bends()
            sagitta = (self.width / (len(self.z) - 1) + 2.0**-50 * self.size) ** 2 / 8 * UP
            below, above = sagitta * bent, sagitta * arched
        found = []
        for k in slopes:
            rest, lost = self.f - k * self.z, (OFF + roundings(4) * np.abs(k)) * self.size + LEAST
            found.append((rest.min(0) - below - lost, rest.max(0) + above + lost))
        return found


def _in_numpy(function: Callable[[Tensor], Tensor], x: np.ndarray) -> np.ndarray:
    return function(torch.from_numpy(x)).numpy()


def _phi(x: Tensor) -> Tensor:
    return (x * x / -2).exp() / math.sqrt(2 * math.pi)


def _logistic(scale: float, cubic: float) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """``x s(x)`` and its derivative, s being the logistic function of ``scale (x + cubic x^3)``."""
    share = lambda x: torch.sigmoid(scale * (x + cubic * x**3))  # noqa: E731

    def slope(x: Tensor) -> Tensor:
        s = share(x)
        return s + x * s * (1 - s) * scale * (1 + 3 * cubic * x**2)

    return lambda x: x * share(x), slope


def _gelu_second(x: np.ndarray) -> np.ndarray:
    square = x * x
    return np.exp(square / -2) * (2 - square) / math.sqrt(2 * math.pi)


def _silu_second(x: np.ndarray) -> np.ndarray:
    # The derivative is even; at |x| the logistic function of -|x| has no cancellation.
    power = np.exp(-np.abs(x))
    s = power / (1 + power)
    return s * (1 - s) * (2 - np.abs(x) * (1 - 2 * s))


ACTIVATIONS = {
    "relu": Activation(lambda x: x.clamp_min(0.0), lambda x: (x > 0).double(), 0, 1.0, 0.0),
    # In float32 the formula with an erf off by 2 units in the last place gives 6.5. torch on x86 calls oneDNN, whose
    # erf is its own, less exact polynomial; over all floats with 2^-14 <= |x| < 64 the error of its gelu reached 6.4.
    "gelu": Activation(
        lambda x: x * torch.special.ndtr(x),
        lambda x: torch.special.ndtr(x) + x * _phi(x),
        rounds=16,
        steepest=1.13,
        curved=0.7979,  # 2 / sqrt(2 pi)
        turn=(-0.7518, -0.7517),
        least=-0.17,
        second=_gelu_second,
        dips=2 * math.exp(-2) / math.sqrt(2 * math.pi) * UP,
        dip=(2.0, 2.0),
    ),
    # (1 + tanh z) / 2 = 1 / (1 + exp(-2 z))
    "gelu_new": Activation(
        *_logistic(2 * math.sqrt(2 / math.pi), 0.044715), 16, 1.13, 0.8, turn=(-0.7525, -0.7524), least=-0.1701
    ),
    "silu": Activation(
        *_logistic(1.0, 0.0),
        rounds=16,
        steepest=1.1,
        curved=0.5001,
        turn=(-1.2785, -1.2784),
        least=-0.2785,
        second=_silu_second,
        dips=0.036915,
        dip=(3.4358, 3.4359),
    ),
}
#: Those that torch rounds as functions, by name.
SMOOTH = tuple(name for name, one in ACTIVATIONS.items() if one.turn is not None)
