"""Two models' digit embeddings, superimposed in a plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.probes.circle_fit import POOR, CircleFit, fit_circle
from interp.probes.circle_geometry import as_table
from models.errors import UserError


@dataclass(frozen=True, eq=False)
class DigitPoints:
    """Digits in a plane, ``points`` [digit, 2].

    If they lie on a ``circle``, its centre is at 0 and its radius is 1. Otherwise they are in the plane of most
    variance, with mean square distance 1 from their mean. ``share`` of the variance lies in the plane.
    """

    points: Float[np.ndarray, "digit 2"]
    circle: CircleFit | None
    share: float


def digit_points(a: Any, b: Any) -> tuple[DigitPoints, DigitPoints]:
    """Both models' digits, from their rows of ``W_E`` [digit, d_model]; b's are rotated (or mirrored) towards a's.

    Circles are used only if both models have one, so that both are drawn in the same way.
    """
    tables = [as_table(table, 2, 1, "A plane of digits") for table in (a, b)]
    circles = [_circle(table) for table in tables]
    on_circles = all(circle is not None for circle in circles)
    found = []
    for table, circle in zip(tables, circles, strict=True):
        if on_circles and circle is not None:
            found.append(DigitPoints((circle.points.values - circle.centre) / circle.radius, circle, circle.planarity))
        else:
            found.append(DigitPoints(*_principal(table)))
    u, _, vt = np.linalg.svd(found[1].points.T @ found[0].points)  # orthogonal Procrustes
    return found[0], DigitPoints(found[1].points @ (u @ vt), found[1].circle, found[1].share)


def _circle(table: Float[np.ndarray, "digit d_model"]) -> CircleFit | None:
    if table.shape[1] < 2:
        return None
    try:
        fit = fit_circle(table, 1)
    except UserError:  # the digits are on a line, or all in one place
        return None
    return fit if fit.residual <= POOR * fit.radius and fit.planarity > 0.99 else None


def _principal(table: Float[np.ndarray, "digit d_model"]) -> tuple[Float[np.ndarray, "digit 2"], None, float]:
    centred = table - table.mean(0)
    u, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    flat = np.zeros((len(table), 2))
    flat[:, : min(2, len(sizes))] = (u * sizes)[:, :2]
    total = float((sizes**2).sum())
    scale = np.sqrt((flat**2).sum(1).mean())
    return flat / max(scale, 1e-300), None, float((sizes[:2] ** 2).sum() / total) if total else 1.0
