"""Moments over inputs of attention weights, chunk by chunk, and the control that shuffles keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.thresholds import BIMODAL, FEWEST_FOR_MODES, POSITION_ONLY, VARIES
from models.errors import UserError

ROW_ERROR = 0.05  # how far a row's sum may be from 1; rounding 33 weights to bfloat16 gives 0.004 at most


class PatternMoments:
    """Sums over inputs of the weights on keys ("key"), on roles ("role") and of the rows' entropy in nats ("entropy").

    They are taken about the first input, so that a constant has a spread of exactly 0.

    Args:
        member: which keys have which role.
        pair: the places of two roles, for the error of the log ratio of their weights; None for no such roles.
    """

    def __init__(self, member: Float[np.ndarray, "target role key"], pair: Sequence[int] | None = None):
        self.member, self.pair, self.n = member, None if pair is None else list(pair), 0
        self._shift: dict[str, np.ndarray] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._squares: dict[str, np.ndarray] = {}
        self._cubes: np.ndarray | float = 0.0  # of the weights on keys, and their fourth powers
        self._fourths: np.ndarray | float = 0.0
        self._products: np.ndarray | float = 0.0  # of the weights on the pair of roles, between targets

    def add(self, chunk: Float[np.ndarray, "chunk layer head target key"]) -> None:
        """Count some inputs. Raises UserError for weights that are NaN or do not sum to 1."""
        if not (np.abs(chunk.sum(-1) - 1) <= ROW_ERROR).all():  # NaN scores come out of a hook point as zeros
            raise UserError("The weights of a query do not sum to 1: it attends to nothing, or the model diverged.")
        log = np.log(np.where(chunk > 0, chunk, 1.0))
        weights = np.einsum("nlhtk,trk->nlhtr", chunk, self.member)
        for key, part in {"key": chunk, "role": weights, "entropy": -(chunk * log).sum(-1)}.items():
            self._shift.setdefault(key, part[0])
            self._sums[key] = self._sums.get(key, 0.0) + (part - self._shift[key]).sum(0)
            self._squares[key] = self._squares.get(key, 0.0) + ((part - self._shift[key]) ** 2).sum(0)
        third = (chunk - self._shift["key"]) ** 3
        self._cubes = self._cubes + third.sum(0)
        self._fourths = self._fourths + (third * (chunk - self._shift["key"])).sum(0)
        if self.pair is not None:
            moved = (weights - self._shift["role"])[..., self.pair]
            moved = moved.reshape(*moved.shape[:3], -1)
            self._products = self._products + np.einsum("nlhi,nlhj->lhij", moved, moved)
        self.n += len(chunk)

    @property
    def mean(self) -> dict[str, np.ndarray]:
        return {key: self._shift[key] + self._sums[key] / self.n for key in self._sums}

    @property
    def spread(self) -> dict[str, np.ndarray]:
        """Standard deviations over inputs."""
        return {
            key: np.sqrt(np.maximum(self._squares[key] / self.n - (self._sums[key] / self.n) ** 2, 0.0))
            for key in self._sums
        }

    def states(self) -> Float[np.ndarray, "2 layer head target key"]:
        """The lower and the higher value of each weight on a key that is bimodal over inputs, else NaN.

        Two values with mean m, standard deviation s and skewness g are ``m + s (g -+ sqrt(g^2 + 4)) / 2``.
        """
        first, second, third, fourth = (
            part / self.n for part in (self._sums["key"], self._squares["key"], self._cubes, self._fourths)
        )
        mean, variance = self._shift["key"] + first, np.maximum(second - first**2, 0.0)
        spread = np.sqrt(variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            skew = (third - 3 * first * second + 2 * first**3) / spread**3
            kurtosis = (fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4) / variance**2
            bimodal = (skew**2 + 1 >= BIMODAL * kurtosis) & (spread >= VARIES * mean) & (spread > POSITION_ONLY)
            ends = [mean + spread * (skew + sign * np.sqrt(skew**2 + 4)) / 2 for sign in (-1, 1)]
        return np.where(bimodal & (self.n >= FEWEST_FOR_MODES), np.stack(ends), np.nan)

    def gap_error(self) -> Float[np.ndarray, "layer head"]:
        """Standard error of the mean over targets of the log ratio of the pair's weights, linearised at their means;
        zero without a pair."""
        weight = self.mean["role"]
        if self.pair is None:
            return np.zeros(weight.shape[:2])
        weight = weight[..., self.pair]
        shifted = np.asarray(self._sums["role"] / self.n)[..., self.pair].reshape(*weight.shape[:2], -1)
        covariance = self._products / self.n - shifted[..., :, None] * shifted[..., None, :]
        covariance = covariance / max(self.n - 1, 1)
        has = np.asarray((weight > 0).all(-1))
        slope = np.where(has[..., None], np.array([1.0, -1.0]) / np.where(weight > 0, weight, 1.0), 0.0)
        slope = (slope / np.maximum(has.sum(-1), 1)[..., None, None]).reshape(*weight.shape[:2], -1)
        return np.sqrt(np.maximum(np.einsum("lhi,lhij,lhj->lh", slope, covariance, slope), 0.0))


def shuffled_keys(pattern: np.ndarray, member: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Permutation p-value [layer, head, role] of the summed rank of a role's keys within each query."""
    from scipy.stats import rankdata  # slow to import

    rng = np.random.default_rng(seed)
    observed = np.zeros((*pattern.shape[:2], member.shape[1]))
    null = np.zeros((resamples, *observed.shape))
    for target in range(pattern.shape[2]):
        visible = member[target].sum(0) > 0
        groups = member[target][:, visible]
        ranks = rankdata(pattern[:, :, target, visible], axis=-1)
        shuffle = np.argsort(rng.random((resamples, int(visible.sum()))), axis=1)
        observed += np.einsum("lhk,rk->lhr", ranks, groups)
        null += np.einsum("lhk,rpk->plhr", ranks, groups[:, shuffle])
    at_least = (null >= observed).sum(0)  # ranks are multiples of 1/2, so the sums are exact
    return (1 + at_least) / (resamples + 1)
