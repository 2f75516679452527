"""Helices through position tables: a circle in one plane and a ramp along an axis, next to curves that are none.

    p_i = centre + amp [cos(2 pi i / period + phase), sin(2 pi i / period + phase)]  and  slope i + offset

A helix with a free period fits any smooth curve of few rows. Rows are said to lie on one only where

* their order matters: rows in random order are fitted worse (``p_value``)
* no random walk explains them: walks that take the table's own steps in random order are fitted worse (``walk_p``)
* a line, a parabola, a wave along one axis and a circle (the helix without its ramp) fit worse, each in the rows'
  number i: the helix is ahead by ``STRONG`` units of the Bayesian information criterion, ``N ln(S / N) + k ln N`` with
  N the count of the table's numbers, S the sum of squared distances, and k = 2 D, 3 D, 3 D + 2, 3 D - 1 and (helix)
  4 D - 3 numbers in D dimensions

The conventions are those of :mod:`interp.probes.embeddings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.core.measured import Measured
from interp.core.probe import Scalar, probe
from interp.core.problems import resolve_task
from interp.core.results import Provenance, Result
from interp.core.stats import permutation_p
from interp.core.thresholds import SIGNIFICANT, STRONG
from interp.probes.embeddings import RESAMPLES, Table, all_rows
from interp.probes.geometry import FLAT, aligned_plane, as_table
from models.errors import UserError
from models.numerals import in_percent, p_value, small
from models.tasks.base import Task
from models.transformer.hooked import HookedModel

FEWEST = 6  # rows


@dataclass(frozen=True, eq=False)
class HelixFit(Result):
    """A helix through rows: a circle in one plane, a ramp along an axis.

    ``amp``, ``phase`` (rad), ``period`` (rows per turn, negative if it turns from the second coordinate to the first),
    ``centre`` [2]; ``slope`` (per row) and ``offset`` along ``axis`` [D]. ``residual``: root mean square distance of
    the rows from the helix; ``explained``: share of the variance; ``ellipticity``: 0 for a circle, 1 for a line;
    ``tilt``: angle between ramp and axis, rad. ``line``, ``parabola`` and ``wave``: root mean square distance of the
    rows from the best curve of that kind; ``circle``: from the helix's circle without its ramp. ``p_value`` and
    ``walk_p``: chance that rows in random order, and steps in random order, are fitted as well.
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
    line: float
    parabola: float
    wave: float
    circle: float
    p_value: float
    walk_p: float
    points: xr.DataArray  # [row, axis]: coordinates in the plane and along the axis
    fitted: xr.DataArray  # the same for the helix
    basis: Float[np.ndarray, "2 D"]
    axis: Float[np.ndarray, " D"]
    provenance: Provenance

    @property
    def advantage(self) -> dict[str, float]:
        """BIC of each rival curve minus the helix's: above 0 the helix is the better curve."""
        rows, dimensions = self.points.sizes["row"], self.basis.shape[1]
        n, least = rows * dimensions, float(np.abs(self.points.values).max()) * FLAT
        rivals = {"line": (2, 0), "parabola": (3, 0), "wave": (3, 2), "circle": (3, -1)}  # a D + b numbers
        found = {}
        for name, (each, more) in rivals.items():
            numbers = each * dimensions + more
            ratio = max(getattr(self, name), least) / max(self.residual, least)
            found[name] = 2 * n * math.log(ratio) + (numbers - (4 * dimensions - 3)) * math.log(n)
        return found

    @property
    def is_helix(self) -> bool:
        """Whether the rows lie on a helix, and on none of the rival curves; see the module."""
        return max(self.p_value, self.walk_p) < SIGNIFICANT and min(self.advantage.values()) >= STRONG

    def sentence(self) -> str:
        n = self.points.sizes["row"]
        if self.p_value >= SIGNIFICANT:
            return f"A helix fits the {n} rows no better than shuffled ones ({p_value(self.p_value)})."
        if self.walk_p >= SIGNIFICANT:
            return (
                f"The {n} rows cannot be said to lie on a helix: it fits random walks of the same steps as well "
                f"({p_value(self.walk_p)})."
            )
        if not self.is_helix:
            other = min(self.advantage, key=lambda name: self.advantage[name])
            named = {"wave": "wave along one axis"}.get(other, other)
            return f"The {n} rows cannot be said to lie on a helix: the best {named} fits them as well, or nearly."
        return (
            f"A helix explains {in_percent(self.explained)} of the variance of the {n} rows "
            f"({p_value(self.p_value)}, and next to random walks {p_value(self.walk_p)}): "
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
            ("line", self.line, "table units"),
            ("parabola", self.parabola, "table units"),
            ("wave", self.wave, "table units"),
            ("circle", self.circle, "table units"),
            ("p_value", self.p_value, "permutation p of the rows' order"),
            ("walk_p", self.walk_p, "permutation p of the steps' order"),
        ]
        return pd.DataFrame(rows, columns=["quantity", "value", "unit"])


def _places(task: Any) -> list[int]:
    """Where the digits of the first operand stand, by column."""
    found = [(role.column, at) for at, role in enumerate(task.roles) if role.kind == "operand" and role.index == 0]
    return [at for column, at in sorted((column, at) for column, at in found if column is not None)]


def _has_places(model: HookedModel, task: Any) -> str:
    """The model must have one table of positions, and the task operands of 6 digits or more."""
    table = getattr(model, "W_pos", None)
    if table is None or table.ndim != 2:
        return "it has no table with one row for each position; ask a model with learned positions"
    return (
        ""
        if len(_places(task)) >= FEWEST
        else f"its operands have fewer than {FEWEST} digits; ask a model of longer numbers"
    )


def _place_table(model: Any, task: Any) -> Any:
    """The rows of a model's ``W_pos`` at the digits of its first operand; a table as it is."""
    if not hasattr(model, "run_with_hooks"):
        return model
    task = resolve_task(model, task)
    if why := _has_places(model, task):
        raise UserError(f"There is no helix to fit: {why}.")
    return model.W_pos[_places(task)]


@probe(
    "Do the positions' embeddings lie on a helix?",
    needs=[_has_places],
    scalar=Scalar(
        "variance of the places on a helix",
        "share",
        lambda found: Measured(found.explained, note=f"p = {found.p_value:.2g}"),
        0.01,
        asked_by=(),
    ),
)
def helix_fit(
    model: HookedModel | Table,
    *,
    task: Task | None = None,
    period: float | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> HelixFit:
    """The helix through the positions of a model's first operand, by column, or through the rows of a table [n, D].

    Args:
        model: a model, of which rows of ``W_pos`` are taken, or a table of consecutive rows.
        task: where the model's operands stand; default its own.
        period: rows a turn, if it is known.
        seed, resamples: draws of the two controls.

    For each period between 2 and 2 n rows, the rows are regressed on 1, i, cos(w i), sin(w i), w = 2 pi / period; the
    period with the least residual wins (a given ``period`` is kept). The cosine and sine coefficients span the plane,
    in which the circle is fitted by least squares. The ramp is the part of the slope that leaves the plane.

    Limits. Rows must be equally spaced. Less than half a turn cannot be told from a bend.

    Raises:
        UserError: a model without such positions, fewer than 6 rows or 3 dimensions, NaN, rows on a straight line, or a
            period not above 2.
    """
    table = as_table(_place_table(model, task), FEWEST, 3, "A helix fit")
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
    own = periods.explained([table])[0]
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
    least = FLAT * np.abs(table).max()
    if np.linalg.norm(rise) <= least:  # no ramp: the axis then points from the origin to the plane
        rise = constant - basis.T @ (basis @ constant)
    if np.linalg.norm(rise) <= least:  # the origin lies in the plane: any direction out of it
        rise = np.linalg.svd(basis)[2][2]
    axis = rise / float(np.linalg.norm(rise))
    axis = axis * (np.sign(axis[np.argmax(np.abs(axis))]) or 1.0)
    frame = np.vstack((basis, axis))
    coordinates = table @ frame.T
    in_plane, sense = _circular(coordinates[:, :2], omega)
    level, slope = np.linalg.lstsq(_design(i, omega)[:, :2], coordinates[:, 2], rcond=None)[0]
    turn = sense * omega * i + math.atan2(in_plane[3], in_plane[2])
    amp = math.hypot(in_plane[2], in_plane[3])
    fitted = np.stack((in_plane[0] + amp * np.cos(turn), in_plane[1] + amp * np.sin(turn), slope * i + level), 1)
    outside = table - coordinates @ frame
    error = float(((coordinates - fitted) ** 2).sum() + ((outside - outside.mean(0)) ** 2).sum())
    rng = np.random.default_rng(seed)
    null = periods.explained([table[rng.permutation(n)] for _ in range(resamples)]).max(-1)
    steps = np.diff(table, axis=0)
    walks = [np.vstack((0 * steps[:1], steps[rng.permutation(n - 1)])).cumsum(0) for _ in range(resamples)]
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
        line=_distance(table, _design(i, 1.0)[:, :2]),
        parabola=_distance(table, np.stack((np.ones(n), i, i**2), 1)),
        wave=_wave_distance(table, grid),
        circle=math.hypot(math.sqrt(error / n), float(slope) * float(np.std(i))),
        p_value=permutation_p(float(own.max()), null),
        walk_p=permutation_p(float(own.max()), periods.explained(walks).max(-1)),
        points=xr.DataArray(coordinates, dims=("row", "axis"), coords=coords),
        fitted=xr.DataArray(fitted, dims=("row", "axis"), coords=coords),
        basis=basis,
        axis=axis,
        provenance=all_rows(n, resamples, seed),
    )


def _distance(table: Float[np.ndarray, "n D"], design: Float[np.ndarray, "n k"]) -> float:
    """Root mean square distance of the rows from their regression on a design."""
    q, _ = np.linalg.qr(design)
    return float(np.sqrt(((table - q @ (q.T @ table)) ** 2).sum() / len(table)))


def _wave_distance(table: Float[np.ndarray, "n D"], grid: Float[np.ndarray, " w"]) -> float:
    """The same from the best ramp with a wave along one axis: of the regression's two waves, the larger direction."""
    designs = np.stack([_design(np.arange(len(table)), w) for w in grid])
    waves = np.linalg.qr(designs)[0][..., 2:].transpose(0, 2, 1) @ table  # [w, 2, D]
    largest = np.linalg.svd(waves, compute_uv=False)[:, 0].max()
    ramp = _distance(table, _design(np.arange(len(table)), 1.0)[:, :2]) ** 2 * len(table)
    return math.sqrt(max(ramp - float(largest) ** 2, 0.0) / len(table))


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

    def explained(self, tables: Sequence[Float[np.ndarray, "n D"]]) -> Float[np.ndarray, "table w"]:
        """Explained share of each table's variance about its mean."""
        q, n = self.ramp, len(self.ramp)
        by_ramp, diagonals, across, total = (
            np.empty(len(tables)),
            np.empty((len(tables), n)),
            np.empty((len(tables), 2 * n - 1)),
            np.empty(len(tables)),
        )
        for row, table in enumerate(tables):
            centred = table - table.mean(0)
            g = centred @ centred.T
            total[row] = np.trace(g)
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
        return (by_ramp[:, None] + waves) / total[:, None]
