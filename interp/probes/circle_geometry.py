"""Planes and circles through points: the numerics of :mod:`interp.probes.circle_fit`, all in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from models.calls import dense
from models.errors import UserError

FLAT = 1e-9  # relative size below which a direction counts as absent


def as_table(points: Any, rows: int, columns: int, purpose: str) -> Float[np.ndarray, "n D"]:
    """A table of numbers as float64 [n, D], checked.

    Raises:
        UserError: not two axes, too few rows or columns, or NaN or infinite entries.
    """
    if isinstance(points, torch.Tensor):
        points = dense(f"What {purpose} is given", points).detach().to("cpu", torch.float64).numpy()
    try:
        table = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{purpose} needs a table of numbers, not {type(points).__name__}.") from None
    if table.ndim != 2:
        raise UserError(f"{purpose} needs a table [rows, dimensions], not shape {list(table.shape)}.")
    if table.shape[0] < rows or table.shape[1] < columns:
        raise UserError(
            f"{purpose} needs at least {rows} rows of {columns} numbers, not {table.shape[0]} of {table.shape[1]}."
        )
    if not np.isfinite(table).all():
        raise UserError(f"{purpose} needs finite numbers, and row {np.where(~np.isfinite(table))[0][0]} holds others.")
    return table


def aligned_plane(directions: Float[np.ndarray, "2 D"]) -> Float[np.ndarray, "2 D"]:
    """The orthonormal basis of a plane that lies closest to two coordinate axes, in their order.

    Angles in a plane need an origin and an orientation. Of all bases this is the one nearest to the coordinate axes
    i < j with the longest projections on the plane. For the plane of axes i and j it is exactly e_i, e_j, and an angle
    there is ``atan2(x_j, x_i)``.
    """
    q, _ = np.linalg.qr(directions.T)
    shadow = q @ q.T  # projector [D, D]
    first = int(np.argmax(np.diag(shadow).round(9)))
    rest = np.diag(shadow) - shadow[first] ** 2 / shadow[first, first]  # what each axis adds to the first
    rest[first] = -1.0
    i, j = sorted((first, int(np.argmax(rest.round(9)))))
    u, _, vt = np.linalg.svd(shadow[[i, j]] @ q)  # nearest orthonormal pair (polar decomposition)
    return (u @ vt) @ q.T


def principal_plane(
    points: Float[np.ndarray, "n D"],
) -> tuple[Float[np.ndarray, "2 D"], Float[np.ndarray, " D"], float]:
    """The principal plane of points: aligned basis, its point nearest the origin, share of the variance in it.

    Raises:
        UserError: points that coincide or lie on one line, through which there is no circle.
    """
    mean = points.mean(0)
    _, sizes, axes = np.linalg.svd(points - mean, full_matrices=False)
    scale = np.abs(points).max()
    if sizes[0] <= FLAT * max(scale, np.finfo(float).tiny):
        raise UserError("All points coincide: there is no circle through them.")
    if len(sizes) < 2 or sizes[1] <= FLAT * sizes[0]:
        raise UserError("The points lie on one straight line: there is no circle through them.")
    basis = aligned_plane(axes[:2])
    return basis, mean - basis.T @ (basis @ mean), float((sizes[:2] ** 2).sum() / (sizes**2).sum())


def taubin_circle(points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, " 2"], float]:
    """Centre and radius by Taubin's algebraic fit (1991, IEEE PAMI 13, 1115-1138), through an SVD.

    Nearly unbiased even on short arcs, where fits that minimise ``(|p - c|^2 - r^2)^2`` shrink the radius.
    """
    mean = points.mean(0)
    x, y = (points - mean).T
    z = x * x + y * y
    z_mean = z.mean()
    columns = np.stack(((z - z_mean) / (2 * np.sqrt(z_mean)), x, y), 1)
    a = np.linalg.svd(columns, full_matrices=False)[2][2]
    a0 = a[0] / (2 * np.sqrt(z_mean))
    centre = -a[1:] / (2 * a0)
    radius = np.sqrt(a[1] ** 2 + a[2] ** 2 + 4 * a0**2 * z_mean) / (2 * abs(a0))
    return mean + centre, float(radius)


def geometric_circle(points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, " 2"], float]:
    """Centre and radius that minimise ``sum (|p - c| - r)^2``, from Taubin's fit by Levenberg-Marquardt.

    This is the maximum-likelihood circle for equal isotropic noise. Points are scaled first, so the result does not
    depend on units.
    """
    from scipy.optimize import least_squares

    centre, radius = taubin_circle(points)
    scale = np.ptp(points, axis=0).max()

    def residual(p: np.ndarray) -> np.ndarray:
        return np.hypot(*(points / scale - p[:2]).T) - p[2]

    def jacobian(p: np.ndarray) -> np.ndarray:
        offset = p[:2] - points / scale
        distance = np.maximum(np.hypot(*offset.T), 1e-300)
        return np.column_stack((offset / distance[:, None], -np.ones(len(points))))

    start = np.array([*centre, radius]) / scale
    fit = least_squares(residual, start, jacobian, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    best = fit.x if fit.cost <= (residual(start) ** 2).sum() / 2 else start
    return best[:2] * scale, float(abs(best[2]) * scale)


def line_distances(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    """Distances from the line that minimises the sum of their squares."""
    centred = points - points.mean(0)
    return np.abs(centred @ np.linalg.svd(centred, full_matrices=False)[2][1])


def parabola_distances(points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
    """Distances from the best parabola with an axis in any direction.

    For each direction the parabola is regressed along its axis. The distance from the curve is the regression's
    residual over ``sqrt(1 + slope^2)`` (Sampson 1982, to first order in the residual). The direction with the least sum
    of squares is refined from the best of 180.
    """
    from scipy.optimize import minimize_scalar

    scale = float(np.ptp(points, axis=0).max())
    centred = (points - points.mean(0)) / scale

    def distances(turn: float) -> np.ndarray:
        x, y = centred @ np.array([np.cos(turn), np.sin(turn)]), centred @ np.array([-np.sin(turn), np.cos(turn)])
        curve = np.polynomial.Polynomial.fit(x, y, 2)
        return (y - curve(x)) / np.sqrt(1 + curve.deriv()(x) ** 2)

    def cost(turn: float) -> float:
        return float((distances(turn) ** 2).sum())

    step = np.pi / 180
    turns = np.arange(0, np.pi, step)
    best = turns[_parabola_costs(centred, turns).argmin()]
    refined = minimize_scalar(cost, bounds=(best - step, best + step), method="bounded", options={"xatol": 1e-10})
    return np.abs(distances(float(refined.x))) * scale


def _parabola_costs(points: Float[np.ndarray, "n 2"], turns: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """The sum of squares of :func:`parabola_distances` for each direction of the axis, all directions at once."""
    x, y = (points @ np.array([a, b]) for a, b in ((np.cos(turns), np.sin(turns)), (-np.sin(turns), np.cos(turns))))
    low, high = x.min(0), x.max(0)
    half = np.where(high > low, high - low, 2) / 2
    u = ((x - (low + high) / 2) / half).T
    powers = np.stack((np.ones_like(u), u, u**2), -1)
    coefficients = np.linalg.pinv(powers) @ y.T[..., None]
    residual = y.T - (powers @ coefficients)[..., 0]
    slope = (coefficients[:, 1] + 2 * coefficients[:, 2] * u) / half[:, None]
    return (residual**2 / (1 + slope**2)).sum(1)


def wrap(angle: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Angles in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def cut_angles(angle: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], float]:
    """Angles counted from the far end of their largest gap, in [0, 2 pi), and the size of that gap."""
    ordered = np.sort(angle % (2 * np.pi))
    gaps = np.diff(np.append(ordered, ordered[0] + 2 * np.pi))
    widest = int(np.argmax(gaps))
    return (angle % (2 * np.pi) - ordered[(widest + 1) % len(ordered)]) % (2 * np.pi), float(gaps[widest])


def _spectrum(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """``|mean_d values(d) exp(-i w d)|`` on a fine grid of w in [0, 2 pi); values [..., n] at integer labels."""
    place = label - label.min()
    size = 1 << int(np.ceil(np.log2(max(256, 8 * (int(place.max()) + 1)))))
    padded = np.zeros((*values.shape[:-1], size), dtype=complex)
    padded[..., place] = values
    return np.abs(np.fft.fft(padded)) / values.shape[-1]


def even_angles(angle: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """(start, stride) of the evenly spaced angles nearest to the given ones, in [-pi, pi]."""
    spectrum = _spectrum(np.exp(1j * angle), label)
    stride = 2 * np.pi * int(np.argmax(spectrum)) / len(spectrum)
    start = float(np.angle(np.exp(1j * (angle - stride * label)).mean()))
    design = np.stack((np.ones(len(label)), label), 1)
    for _ in range(3):  # least squares once the branch is known
        shift = np.linalg.lstsq(design, wrap(angle - start - stride * label), rcond=None)[0]
        start, stride = start + shift[0], stride + shift[1]
    return math.remainder(start, math.tau), math.remainder(stride, math.tau)


def largest_evenness(angle: np.ndarray, label: np.ndarray, shuffles: np.ndarray) -> Float[np.ndarray, " draw"]:
    """Largest resultant length over strides, for each shuffle of the angles."""
    return _spectrum(np.exp(1j * angle)[shuffles], label).max(-1)


def circular_rank_correlation(
    label: Float[np.ndarray, " n"] | Int[np.ndarray, " n"], angle: Float[np.ndarray, "*draw n"]
) -> Float[np.ndarray, "*draw"]:
    """How well angles follow labels around the circle, from -1 to 1: Mardia's circular rank correlation.

    With ranks turned into angles, ``u = 2 pi rank(label) / n`` and ``v = 2 pi rank(angle) / n``, it is the larger of
    ``|mean exp(i (v - u))|`` and ``|mean exp(i (v + u))|``, the second with a minus sign. Each is the largest mean
    cosine over all rotations, one for each direction: 1 or -1 exactly if the labels follow one another, wherever the
    circle is opened. Its square is Mardia's statistic (Mardia 1975, J. R. Stat. Soc. B 37, 349, section 5).
    """
    from scipy.stats import rankdata

    u, v = (2 * np.pi * rankdata(x, axis=-1) / len(label) for x in (label, angle % (2 * np.pi)))
    forward, backward = (np.minimum(np.abs(np.exp(1j * (v + sign * u)).mean(-1)), 1.0) for sign in (-1, 1))
    return np.where(forward >= backward, forward, -backward)
