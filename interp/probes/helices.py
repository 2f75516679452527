"""Helices through position tables: a circle in one plane and a ramp along an axis, with a permutation control.

    p_i = centre + amp [cos(2 pi i / period + phase), sin(2 pi i / period + phase)]  and  slope i + offset

The conventions are those of :mod:`interp.probes.embeddings`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.core.stats import permutation_p
from interp.probes.embeddings import PERMUTATIONS, all_rows
from interp.probes.geometry import FLAT, aligned_plane, as_table
from models.errors import UserError
from models.numerals import p_value, small


@dataclass(frozen=True, eq=False)
class HelixFit(Result):
    """A helix through rows: a circle in one plane, a ramp along an axis.

    ``amp``, ``phase`` (rad), ``period`` (rows per turn, negative if it turns from the second coordinate to the first),
    ``centre`` [2]; ``slope`` (per row) and ``offset`` along ``axis`` [D]. ``residual``: root mean square distance of
    the rows from the helix; ``explained``: share of the variance; ``ellipticity``: 0 for a circle, 1 for a line;
    ``tilt``: angle between ramp and axis, rad. ``p_value``: chance that shuffled rows are fitted as well.
    """

    amp: float
    phase: float
    period: float
    slope: float
    offset: float
    centre: Float[np.ndarray, " 2"]
    residual: float
    explained: float
    ellipticity: float
    tilt: float
    p_value: float
    points: xr.DataArray  # [row, axis]: coordinates in the plane and along the axis
    fitted: xr.DataArray  # the same for the helix
    basis: Float[np.ndarray, "2 D"]
    axis: Float[np.ndarray, " D"]
    provenance: Provenance

    def sentence(self) -> str:
        n = self.points.sizes["row"]
        if self.p_value >= 0.05:
            return f"A helix fits the {n} rows no better than shuffled ones ({p_value(self.p_value)})."
        return (
            f"A helix explains {self.explained:.4f} of the variance of the {n} rows ({p_value(self.p_value)}): "
            f"amplitude {self.amp:.4f}, {abs(self.period):.3f} rows a turn, phase {math.degrees(self.phase):.2f} "
            f"degrees, rising {self.slope:.4f} a row from {self.offset:.4f}, root mean square distance "
            f"{small(self.residual)}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        rows = [
            ("amp", self.amp, "table units"),
            ("phase", self.phase, "rad"),
            ("period", self.period, "rows a turn"),
            ("slope", self.slope, "table units a row"),
            ("offset", self.offset, "table units"),
            ("centre x", self.centre[0], "table units"),
            ("centre y", self.centre[1], "table units"),
            ("residual", self.residual, "table units"),
            ("explained", self.explained, "share of variance"),
            ("ellipticity", self.ellipticity, "minor / major amplitude"),
            ("tilt", self.tilt, "rad"),
            ("p_value", self.p_value, "permutation p"),
        ]
        return pd.DataFrame(rows, columns=["quantity", "value", "unit"])


@probe("Do the positions' embeddings lie on a helix?")
def helix_fit(rows: Any, *, period: float | None = None, permutations: int = PERMUTATIONS, seed: int = 0) -> HelixFit:
    """The helix through consecutive rows of a table such as ``model.W_pos[:10]`` [n, D].

    For each period between 2 and 2 n rows, the rows are regressed on 1, i, cos(w i), sin(w i), w = 2 pi / period; the
    period with the least residual wins (a given ``period`` is kept). The cosine and sine coefficients span the plane,
    in which the circle is fitted by least squares. The ramp is the part of the slope that leaves the plane.

    Limits. Rows must be equally spaced. Less than half a turn cannot be told from a bend.

    Raises:
        UserError: fewer than 6 rows or 3 dimensions, NaN, rows on a straight line, or a period not above 2.
    """
    table = as_table(rows, 6, 3, "A helix fit")
    n = len(table)
    if period is not None and not 2 < abs(period) < math.inf:
        raise UserError(f"A period is a number of rows above 2, not {period}.")
    i = np.arange(n)
    total = float(((table - table.mean(0)) ** 2).sum())
    ramp, _ = np.linalg.qr(_design(i, 1.0)[:, :2])
    if ((table - ramp @ (ramp.T @ table)) ** 2).sum() <= FLAT**2 * max(total, np.finfo(float).tiny):
        raise UserError("The rows lie on one straight line (or coincide): there is no helix through them.")
    grid = (
        2 * np.pi / np.geomspace(2.0 + 1 / n, 2 * n, 40 * n) if period is None else np.array([2 * np.pi / abs(period)])
    )
    periods = _Periods(n, grid)
    own = periods.explained(table, i[None])[0]
    best = int(np.argmax(own))
    omega = float(grid[best])
    if period is None:
        from scipy.optimize import minimize_scalar

        around = grid[min(best + 1, len(grid) - 1)], grid[max(best - 1, 0)]

        def left(w: float) -> float:
            q, _ = np.linalg.qr(_design(i, w))
            return float(((table - q @ (q.T @ table)) ** 2).sum())

        omega = float(minimize_scalar(left, bounds=around, method="bounded", options={"xatol": 1e-12}).x)
    constant, gradient, cosine, sine = np.linalg.lstsq(_design(i, omega), table, rcond=None)[0]
    basis = aligned_plane(np.stack((cosine, sine)))
    rise = gradient - basis.T @ (basis @ gradient)
    if np.linalg.norm(rise) <= FLAT * np.abs(table).max():  # no ramp: the axis then points from the origin to the plane
        rise = constant - basis.T @ (basis @ constant)
    axis = rise / max(float(np.linalg.norm(rise)), np.finfo(float).tiny)
    axis = axis * (np.sign(axis[np.argmax(np.abs(axis))]) or 1.0)
    frame = np.vstack((basis, axis))
    coordinates = table @ frame.T
    in_plane, sense = _circular(coordinates[:, :2], omega)
    level, slope = np.linalg.lstsq(_design(i, omega)[:, :2], coordinates[:, 2], rcond=None)[0]
    turn = sense * omega * i + math.atan2(in_plane[3], in_plane[2])
    amp = math.hypot(in_plane[2], in_plane[3])
    fitted = np.stack((in_plane[0] + amp * np.cos(turn), in_plane[1] + amp * np.sin(turn), slope * i + level), 1)
    error = float(((table - fitted @ frame) ** 2).sum())
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(n) for _ in range(permutations)]) if permutations else np.empty((0, n), int)
    null = periods.explained(table, orders).max(-1)
    coords = {"row": i, "axis": ["x", "y", "ramp"]}
    norm = float(np.linalg.norm(gradient))
    return HelixFit(
        amp=amp,
        phase=math.atan2(in_plane[3], in_plane[2]),
        period=sense * 2 * math.pi / omega,
        slope=float(slope),
        offset=float(level),
        centre=in_plane[:2],
        residual=math.sqrt(error / n),
        explained=1 - error / total,
        ellipticity=_ellipticity(basis, cosine, sine),
        tilt=math.acos(min(1.0, abs(slope) / norm)) if norm > 0 else 0.0,
        p_value=permutation_p(float(own.max()), null),
        points=xr.DataArray(coordinates, dims=("row", "axis"), coords=coords),
        fitted=xr.DataArray(fitted, dims=("row", "axis"), coords=coords),
        basis=basis,
        axis=axis,
        provenance=all_rows(n, permutations, seed),
    )


def _circular(points: Float[np.ndarray, "n 2"], omega: float) -> tuple[Float[np.ndarray, " 4"], int]:
    """Least-squares (centre x, centre y, amp cos(phase), amp sin(phase)) of an even turn, and its direction, +-1."""
    turn = omega * np.arange(len(points))
    one, zero, cos, sin = np.ones(len(points)), np.zeros(len(points)), np.cos(turn), np.sin(turn)
    fits = []
    for sense in (1, -1):
        x = np.stack((one, zero, cos, -sense * sin), 1)
        y = np.stack((zero, one, sense * sin, cos), 1)
        design, target = np.concatenate((x, y)), points.T.ravel()
        solution = np.linalg.lstsq(design, target, rcond=None)[0]
        fits.append((float(((design @ solution - target) ** 2).sum()), sense, solution))
    _, sense, solution = min(fits, key=lambda fit: fit[0])
    return solution, sense


def _ellipticity(basis: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> float:
    """Ratio of the regression's two circular parts, which turn in opposite directions: 0 for a circle, 1 for a line."""
    c, s = (complex(*(basis @ part)) for part in (cosine, sine))
    small, large = sorted((abs(c - 1j * s), abs(c + 1j * s)))
    return small / large


def _design(i: np.ndarray, omega: float) -> np.ndarray:
    return np.stack((np.ones(len(i)), i, np.cos(omega * i), np.sin(omega * i)), 1)


class _Periods:
    """The share that the regression on 1, i, cos(w i), sin(w i) explains, for each w of a grid.

    It depends only on the table's inner products G: ``cos^T G cos`` is a sum over the diagonals and antidiagonals of G,
    times cosines of their numbers. A table costs n^2 and the grid a product of [3 n] by [w], not n^2 for each w.
    """

    def __init__(self, n: int, grid: Float[np.ndarray, " w"]):
        i = np.arange(n)
        self.ramp = np.linalg.qr(_design(i, 1.0)[:, :2])[0]
        inverse = np.stack([np.linalg.inv(np.linalg.qr(_design(i, w))[1]) for w in grid])
        self.unit = inverse[:, 2:, 2:]  # makes cosine and sine, less their share of the ramp, orthonormal
        self.apart, self.together = np.abs(i[:, None] - i), i[:, None] + i
        turns = np.outer(np.arange(2 * n - 1), grid)
        self.cos, self.sin = np.cos(turns), np.sin(turns)

    def explained(
        self, table: Float[np.ndarray, "n D"], orders: Int[np.ndarray, "order n"]
    ) -> Float[np.ndarray, "order w"]:
        """Explained share of the variance about the mean, with the rows in each order."""
        n = len(table)
        centred = table - table.mean(0)
        products, q = centred @ centred.T, self.ramp
        by_ramp, diagonals, across = (
            np.empty(len(orders)),
            np.empty((len(orders), n)),
            np.empty((len(orders), 2 * n - 1)),
        )
        for row, order in enumerate(orders):
            g = products[np.ix_(order, order)]
            shared = q.T @ g
            inner = shared @ q
            by_ramp[row] = np.trace(inner)
            g = g - q @ shared - shared.T @ q.T + q @ inner @ q.T
            diagonals[row] = np.bincount(self.apart.ravel(), g.ravel())
            across[row] = np.bincount(self.together.ravel(), g.ravel())
        even, odd, mixed = diagonals @ self.cos[:n], across @ self.cos, across @ self.sin
        (a, b), (_, c) = self.unit.transpose(1, 2, 0)  # upper triangular
        cosine, sine = (even + odd) / 2, (even - odd) / 2
        waves = a**2 * cosine + b**2 * cosine + b * c * mixed + c**2 * sine
        return (by_ramp[:, None] + waves) / (centred**2).sum()
