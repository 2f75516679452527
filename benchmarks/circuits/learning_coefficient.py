"""The local learning coefficient of a loss, by devinterp's samplers (the extra ``llc``), next to what the Hessian says.

    density       exp(-n_beta (L(w) + ratio/2 |w - w0|^2))     w0: the point asked about; n_beta ratio: localisation
    coefficient   n_beta (E[L(w)] - L(w1))                     w1: the mode of the density
    Gaussian      sum_i l_i / (2 (l_i + ratio))                l_i: eigenvalues of the Hessian of L at w1
    half the rank half the number of l_i above ``ratio``

The Gaussian is what the coefficient tends to as n_beta grows, with one ratio. "whitened" runs SGLD in coordinates in
which the density's Hessian at the mode is the identity. The step of a sampler is given as a share of the longest that
is stable where the loss is quadratic. Source: Lau et al. (2024), arXiv 2308.12108.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, hessian

from interp.core.stats import mean_interval
from models.errors import UserError

#: Losses of several points at once, each point a row.
Losses = Callable[[Float[Tensor, "chain d"]], Float[Tensor, " chain"]]
SAMPLERS = ("sgld", "rmsprop", "whitened")
_NEWTON_STEPS, _SHORTEST, _LEAST_GAIN = 100, 1e-10, 1e-16


@dataclass(frozen=True, eq=False)
class Mode:
    """``point``: where the localised loss is least; ``values``, ``vectors``: of the loss's Hessian there."""

    point: Float[Tensor, " d"]
    start: Float[Tensor, " d"]
    ratio: float
    loss: float
    values: Float[Tensor, " d"]
    vectors: Float[Tensor, "d d"]

    @property
    def gaussian(self) -> float:
        return float((self.values / (2 * (self.values + self.ratio))).sum())

    @property
    def half_rank(self) -> float:
        return float((self.values > self.ratio).sum()) / 2


@dataclass(frozen=True)
class Coefficient:
    """``value`` with a Student-t interval over chains; ``failed``: chains whose loss stopped being a finite number, and
    if there are any, the value is not a number."""

    value: float
    low: float
    high: float
    failed: int


def mode_of(losses: Losses, start: Float[Tensor, " d"], ratio: float) -> Mode:
    """By Newton's method with steps that are halved until the localised loss falls, in float64.

    Raises:
        UserError: the point is not finite, the ratio is not positive, or Newton's method does not end at a mode.
    """
    start = start.detach().double()
    if not ratio > 0 or not torch.isfinite(start).all():
        raise UserError("A mode needs a finite point and a positive ratio.")
    loss = lambda w: losses(w[None])[0]  # noqa: E731
    localised = lambda w: loss(w) + ratio / 2 * (w - start).square().sum()  # noqa: E731
    point = start
    for _ in range(_NEWTON_STEPS):
        slope = grad(localised)(point)
        values, vectors = torch.linalg.eigh(hessian(localised)(point))
        step = vectors @ ((vectors.T @ slope) / values.abs().clamp_min(ratio))
        size, gain = 1.0, float(slope @ step)
        if gain < _LEAST_GAIN:
            break
        while not localised(point - size * step) <= localised(point) - 1e-4 * size * gain and size > _SHORTEST:
            size /= 2
        if size <= _SHORTEST:
            break
        point = point - size * step
    values, vectors = torch.linalg.eigh(hessian(loss)(point))
    if not (values > -ratio).all():
        raise UserError(f"No mode was found: the Hessian has the eigenvalue {float(values.min()):.3g} there.")
    return Mode(point, start, ratio, float(loss(point)), values, vectors)


def learning_coefficient(
    losses: Losses,
    mode: Mode,
    n_beta: float,
    sampler: str = "whitened",
    step: float = 0.1,
    chains: int = 8,
    steps: int = 1000,
    seed: int = 0,
) -> Coefficient:
    """The coefficient from chains that start at the mode; the first half of each is left out.

    Cost: ``steps`` losses with gradients of all chains.

    Raises:
        UserError: devinterp is not installed.
    """
    try:
        from devinterp.optim import SGMCMC
    except ImportError:
        raise UserError(
            "Learning coefficients need devinterp, which the extra `llc` brings: pip install 'carrylens[llc]'."
        ) from None
    sharp = mode.values + mode.ratio
    axes = mode.vectors / (n_beta * sharp).sqrt() if sampler == "whitened" else torch.eye(len(sharp)).double()
    at = torch.zeros(chains, len(sharp), dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that n_beta is 1: it is in the loss
        if sampler == "rmsprop":
            slowest = (n_beta * mode.ratio) ** 0.5
            scale = float((n_beta * sharp / (slowest + (n_beta * sharp).sqrt())).max())
            chain = SGMCMC.rmsprop_sgld([at], lr=4 * step / scale, nbeta=1.0, eps=slowest)
        else:
            stiffest = 1.0 if sampler == "whitened" else float(n_beta * sharp.max())
            chain = SGMCMC.sgld([at], lr=4 * step / stiffest, nbeta=1.0)
    # The mean slope of a density's logarithm is zero: so what the loss's own slope at the mode adds can be taken out.
    own_slope = mode.ratio * (mode.start - mode.point)
    tilt = mode.vectors @ ((mode.vectors.T @ own_slope) / sharp)
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for k in range(steps):
        points = mode.point + at @ axes.T
        above = n_beta * (losses(points) - mode.loss)
        pulled = n_beta * mode.ratio / 2 * (points - mode.start).square().sum(1)
        (slope,) = torch.autograd.grad((above + pulled).sum(), [points])
        at.grad = slope.detach() @ axes
        chain.step(noise_generator=generator)
        if k >= steps // 2:
            kept.append((above - slope @ tilt).detach())
    means = torch.stack(kept).mean(0).numpy()
    failed = int((~np.isfinite(means)).sum())
    value, low, high = (np.nan,) * 3 if failed else mean_interval(means)
    return Coefficient(value, low, high, failed)
