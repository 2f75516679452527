"""The finite part of :mod:`interp.proofs.hand_built.addition_proof`: what the MLP can read, and what it makes of it.

The hidden units read three numbers: ``g`` (from PRE_SUM, PRE_CARRY and NUM), PRE_ARROW and PRE_EOS. The exact values of
the first are those of schoolbook addition, those of the others 1 / (1 + matching keys); leakage, the tie's error and
rounding widen each to an interval. Logits are sums of piecewise linear functions of the three, whose ranges over an
interval are attained at its ends and at the knots in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.proofs.numbers.rounding_errors import FUSED_EXP
from models.tasks.named.position_coupling.multi_addition import ARROW, DOLLAR
from models.transformer import HookedModel

LARGEST_VALUE = 27.0  # 3 NUM
LARGEST_SUM = 18


class NotSeparated(Exception):
    """Raised when a weight couples what the proof needs to be separate; the message says which."""


@dataclass(frozen=True)
class Perturbation:
    """How far a head's output may be from its hard-max value, and how far the MLP's sums may be from exact ones.

    ``leakage`` and ``tie`` are E and D of each head; ``relative`` is the rounding of a head's output, ``gamma_in`` and
    ``gamma_out`` are ``n u / (1 - n u)`` for the sums of the MLP, all 0 in real arithmetic; ``slack`` covers float64's
    own error.
    """

    leakage: tuple[float, ...]
    tie: tuple[float, ...]
    relative: float
    gamma_in: float
    gamma_out: float
    slack: float

    @classmethod
    def of(
        cls,
        model: HookedModel,
        n_keys: int,
        leakage: np.ndarray,
        tie: np.ndarray,
        rounded: bool,
        slack: float,
        largest: float,
    ) -> Perturbation:
        """The perturbation for a sequence of ``n_keys``. Rounding affects the sums of scores, the softmax, the sum of
        values and the MLP. ``largest`` bounds the magnitudes that a score is summed from.

        Embeddings, queries, keys and values have one non-zero term per component and are exact, as is the unembedding.
        """
        if not rounded:
            return cls(tuple(leakage), tuple(tie), 0.0, 0.0, 0.0, slack)
        cfg = model.config
        u = torch.finfo(model.dtype).eps / 2
        gamma = lambda n: n * u / (1 - n * u) if n * u < 0.5 else float("inf")  # noqa: E731
        largest *= 1.01  # covers float64's own rounding
        score = gamma(cfg.d_head + 1) * largest + 2 * u * largest  # the sum, and the subtraction of the maximum
        relative = np.expm1(2 * FUSED_EXP * u + 4 * u + 2 * gamma(n_keys + 2))
        return cls(
            tuple(leakage * np.exp(2 * score)),
            tuple(tie + 2 * score),
            float(relative),
            gamma(cfg.d_model + 2),
            gamma(cfg.d_mlp + 4),
            slack,
        )

    def values(self, head: int, total: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray]:
        """The range of ``sum of w 3 NUM / sum of w`` over ``keys`` matching keys whose 3 NUM add up to ``total``."""
        E, near = self.leakage[head], np.exp(self.tie[head])
        low = total / near / (1 + keys * near + E)
        high = (total * near + LARGEST_VALUE * E) / (1 + keys / near)
        return self._widen(low, high)

    def bos_share(self, head: int, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range of BOS's share of the attention next to ``keys`` matching keys."""
        E, near = self.leakage[head], np.exp(self.tie[head])
        return self._widen(1 / (1 + keys * near + E), 1 / (1 + keys / near))

    def _widen(self, low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(low * (1 - self.relative) - self.slack), np.asarray(high * (1 + self.relative) + self.slack)


@dataclass(frozen=True)
class Units:
    """The hidden units that read one number; they add ``relu(reading + bias) @ writes`` to the logits."""

    bias: Float[np.ndarray, " unit"]
    writes: Float[np.ndarray, "unit d_vocab"]

    def ranges(self, low: np.ndarray, high: np.ndarray, gamma_in: float, gamma_out: float, size: float) -> Any:
        """The (lowest, highest) contribution to the logits [value, d_vocab] when the reading is in [low, high].

        ``size`` bounds the sum of the reading's terms in absolute value, for the rounding of the sum.
        """
        inside = np.clip(-self.bias[None], low[:, None], high[:, None])
        points = np.concatenate((low[:, None], high[:, None], inside), 1)
        values = np.maximum(points[..., None] + self.bias, 0) @ self.writes
        weight = np.abs(self.writes)
        top = np.maximum(high.max() + self.bias, 0)
        radius = gamma_in * (size + np.abs(self.bias)) @ weight + gamma_out * (top + gamma_in * size) @ weight
        return values.min(1) - radius, values.max(1) + radius


def read_units(
    weights: dict[str, np.ndarray], dims: dict[str, slice]
) -> tuple[dict[str, Units], np.ndarray, np.ndarray]:
    """(units by reading, constant logits [d_vocab], coefficients of PRE_SUM, PRE_CARRY and NUM in g).

    Raises:
        NotSeparated: a unit reads something else, or the unembedding reads something that is not a unit's output.
    """
    W_in, b_in = weights["blocks.0.mlp.W_in"], weights["blocks.0.mlp.b_in"]
    W_out, W_U = weights["blocks.0.mlp.W_out"], weights["unembed.W_U"]
    outputs = [dims[name] for name in ("SUM", "ARROW", "EOS")]
    other = np.ones(len(W_U), dtype=bool)
    for where in outputs:
        other[where] = False
    if (W_U[other] != 0).any():
        raise NotSeparated("the unembedding reads more than SUM, ARROW and EOS")
    writes = W_out @ W_U
    constant = weights["blocks.0.mlp.b_out"] @ W_U
    left = np.ones(W_in.shape[1], dtype=bool)
    units = {}
    for name in ("PRE_ARROW", "PRE_EOS"):
        alone = np.zeros(len(W_in))
        alone[dims[name]] = 1.0
        chosen = (W_in == alone[:, None]).all(0)
        units[name], left = Units(b_in[chosen], writes[chosen]), left & ~chosen
    columns = W_in[:, left]
    read = [dims[name].start for name in ("PRE_SUM", "PRE_CARRY", "NUM")]
    if columns.shape[1] == 0 or (columns != columns[:, :1]).any() or set(columns[:, 0].nonzero()[0]) - set(read):
        raise NotSeparated("a hidden unit reads something else than g, PRE_ARROW or PRE_EOS")
    units["g"] = Units(b_in[left], writes[left])
    return units, constant, columns[read, 0]


def digit_values(size: Perturbation, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(low, high, right digit) of g, for every query that a digit follows."""
    sums = np.arange(LARGEST_SUM + 1)
    none = (np.zeros(1), sums[:1])
    carries = [*_carry_values(size, coefficients), (*_times(coefficients[1], size.values(1, np.zeros(1), 0)), 0)]
    low, high, digit = [], [], []
    for total, keys in ((none[0], 0), (3.0 * sums, 2)):  # the digits of b_0, then those of b_1 ... b_m
        sum_low, sum_high = _times(coefficients[0], size.values(0, total, keys))
        for carry_low, carry_high, carried in carries if keys else carries[-1:]:
            low.append(sum_low + carry_low)
            high.append(sum_high + carry_high)
            digit.append((np.arange(len(total)) + carried) % 10)
    return np.concatenate(low), np.concatenate(high), np.concatenate(digit)


def last_values(size: Perturbation, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of g after the last digit of a number, where head 1 finds nothing."""
    sum_low, sum_high = _times(coefficients[0], size.values(0, np.zeros(1), 0))
    carries = [*_carry_values(size, coefficients), (*_times(coefficients[1], size.values(1, np.zeros(1), 0)), 0)]
    return tuple(
        np.concatenate([base + carry[side] for carry in carries]) for side, base in ((0, sum_low), (1, sum_high))
    )  # type: ignore[return-value]


def _carry_values(size: Perturbation, coefficients: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(low, high, carry) of the carry part of g, for each difference of PRE_CARRY and NUM (0, -1, 10 and 9)."""
    before = np.arange(LARGEST_SUM + 1)
    low, high = _times(coefficients[1], size.values(1, 3.0 * before, 2))
    found = []
    for carry_in in (0, 1):
        digit = (before + carry_in) % 10
        for carry_out in (0, 1):
            chosen = (before + carry_in) // 10 == carry_out
            ends = low + coefficients[2] * digit, high + coefficients[2] * digit
            found.append((ends[0][chosen].min(keepdims=True), ends[1][chosen].max(keepdims=True), carry_out))
    return found


def _times(factor: float, interval: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    ends = factor * interval[0], factor * interval[1]
    return np.minimum(*ends), np.maximum(*ends)


def smallest_margin(weights: dict[str, np.ndarray], dims: dict[str, slice], m: int, size: Perturbation) -> float:
    """A lower bound of the right token's lead, over every value that can occur with m operands.

    Raises:
        NotSeparated: see :func:`read_units`.
    """
    units, constant, coefficients = read_units(weights, dims)
    if not (size.relative < 1 and size.gamma_out < 1 and max(size.tie) < 100):
        return float("-inf")  # the error is too large for any bound
    terms = float(np.abs(coefficients) @ (LARGEST_VALUE, LARGEST_VALUE, 9.0))
    ranges = lambda name, low, high, bound: units[name].ranges(  # noqa: E731
        low, high, size.gamma_in, size.gamma_out, bound
    )
    rest = size.slack + size.gamma_out * np.abs(constant)

    def flags(arrow_keys: np.ndarray, eos_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrow = ranges("PRE_ARROW", *size.bos_share(2, arrow_keys), 1.0)
        eos = ranges("PRE_EOS", *size.bos_share(3, eos_keys), 1.0)
        return arrow[0] + eos[0] + constant - rest, arrow[1] + eos[1] + constant + rest

    steps = np.arange(m + 1)
    arrow_keys = np.concatenate((m + steps, m + steps))
    eos_keys = 1 + np.concatenate((steps < m - 1, steps < m))  # after a delimiter, after a digit
    low, high, digit = digit_values(size, coefficients)
    least = _lead(ranges("g", low, high, terms), flags(arrow_keys, eos_keys), digit)
    behind_last = ranges("g", *last_values(size, coefficients), terms)
    nothing = np.zeros(1)
    arrow_lead = _lead(behind_last, flags(nothing, np.full(1, 2)), np.full(len(behind_last[0]), ARROW))
    eos_lead = _lead(behind_last, flags(nothing, np.full(1, 1)), np.full(len(behind_last[0]), DOLLAR))
    return min(least, arrow_lead, eos_lead)


def _lead(digits: Any, flags: Any, target: np.ndarray) -> float:
    """The lowest logit of the target minus the highest other one, over all pairs of rows of the two contributions."""
    low = digits[0][:, None] + flags[0][None]
    high = digits[1][:, None] + flags[1][None]
    at = np.broadcast_to(target[:, None, None], (*low.shape[:2], 1))
    right = np.take_along_axis(low, at, -1)[..., 0]
    others = high.copy()
    np.put_along_axis(others, at, -np.inf, -1)
    return float((right - others.max(-1)).min())
