"""The shape of an embedding: circles and arcs, with a permutation control.

    circle_fit(model)         digits on  centre + radius [cos(start + d stride), sin(start + d stride)]
    fourier_spectrum(model)   frequencies, in :mod:`interp.probes.modular.fourier_spectrum`

All take a table of rows in place of a model.

Angles are in radians (degrees in sentences and figures). The plane and axis are fitted, not assumed. Angles are
measured in the basis of the plane that lies closest to coordinate axes, in their order
(:func:`interp.probes.circle_geometry.aligned_plane`), so for a table with two nonzero coordinates start and stride are
those of ``atan2(x_j, x_i)``.

The fits use all rows of the table and nothing else, so there is no sampling error and no interval. The control
relabels the rows at random: it gives the chance that an unordered table of the same points looks as ordered. Every p
belongs to one statistic, and is named with it. Of a model there is a second control, untrained copies: if its
parameters are those of an arc, it has one before it is trained, with however small a p.

A circle can be fitted to any bend. Points are said to lie on an arc only where the circle beats the best line and the
best parabola by ``STRONG`` units of the Bayesian information criterion, ``n ln(S / n) + k ln n`` with S the sum of
squared distances and k = 2, 3, 4 numbers for line, circle and parabola.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float

from interp.core.controls import untrained_copy
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.modular.embedding_replacement import EmbeddingTest, all_rows, embedding_test
from interp.core.probe import Summary, digits, probe
from interp.core.significance import permutation_p
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.thresholds import EVEN, POOR, STRONG
from interp.core.views import Picture, Points, Series
from interp.probes.circle_geometry import (
    FLAT,
    as_table,
    circular_rank_correlation,
    cut_angles,
    even_angles,
    geometric_circle,
    largest_evenness,
    line_distances,
    parabola_distances,
    principal_plane,
    wrap,
)
from models.calls import Seed
from models.errors import UserError
from models.number_format import in_percent, p_value
from models.tasks import Task, TaskLike
from models.transformer import HookedModel

Table = torch.Tensor | np.ndarray | list
RELABELLINGS = 2000
TWINS, TWIN_RELABELLINGS = 5, 199  # untrained copies, and the relabellings of each
LOOKS = 2  # order and evenness are two tests of one question: each p is compared with 0.05 / 2


KEYS = ("quantity",)
MEASURES = (Measure("value"),)


@dataclass(frozen=True)
class UntrainedCircles:
    """Of ``n`` untrained copies of a model, how many have their digits on an arc, in order around it, and at even
    distances, by the tests that the model itself is put to (with :data:`TWIN_RELABELLINGS` relabellings each)."""

    n: int
    arc: int
    ordered: int
    even: int


def _quantity(name: str) -> Any:
    return property(lambda self: self.cell("value", quantity=name).value)


@dataclass(frozen=True, eq=False, kw_only=True)
class CircleFit(TableResult):
    """A circle through labelled points, and how the labels run along it. ``table``: ``value`` and ``unit`` by
    ``quantity``, which are attributes as well.

    ``radius``, ``centre`` [2] in the plane; ``start`` and ``stride`` in radians (angle = start + label * stride, in
    [-pi, pi]); ``arc``: the angle that the points span, 2 pi minus their largest gap. ``residual``: root mean square
    distance from the circle in the plane; ``off_plane``: from the plane, both in the points' units. ``planarity``:
    share of the variance in the plane.

    ``line`` and ``parabola``: root mean square distance from the best line and the best parabola, in the plane.

    ``order``: circular rank correlation of label and angle (:func:`circular_rank_correlation`), 1 or -1 where the
    labels follow one another around the circle in one direction or the other, wherever they begin; ``order_p``: the
    permutation p-value of its size. ``evenness``: mean resultant length of the angles about the even spacing, 1 if the
    stride is uniform, with its p-value ``evenness_p``; ``stride_rms``: root mean square deviation from it, radians.

    ``untrained``: of a model, how many untrained copies have such a circle: a parametrisation may put digits on an arc,
    which is then no finding. None for a table, and where nothing is drawn at random. ``causal``: of a model's digits,
    the answers with each digit moved to its place on the circle, and with the places shuffled. The circle is the fitted
    one, with even steps and nothing else of the embeddings.

    ``points`` [label, axis] are coordinates in the plane and ``angle`` [label] their angles about the centre. ``basis``
    [2, D] and ``origin`` [D] place the plane: point = origin + basis.T @ coordinates.
    """

    points: xr.DataArray
    angle: xr.DataArray
    basis: Float[np.ndarray, "2 D"]
    origin: Float[np.ndarray, " D"]
    causal: EmbeddingTest | None = None
    untrained: UntrainedCircles | None = None

    radius, start, stride, arc = map(_quantity, ("radius", "start", "stride", "arc"))
    residual, line, parabola, off_plane = map(_quantity, ("residual", "line", "parabola", "off_plane"))
    planarity, stride_rms = map(_quantity, ("planarity", "stride_rms"))
    order, order_p, evenness, evenness_p = map(_quantity, ("order", "order_p", "evenness", "evenness_p"))

    @property
    def centre(self) -> Float[np.ndarray, " 2"]:
        return np.array([self.cell("value", quantity=f"centre {axis}").value for axis in "xy"])

    @property
    def _advantage(self) -> dict[str, float]:
        """BIC of the best line and of the best parabola, minus the circle's: above 0 the circle is the better curve."""
        n, least = self.points.sizes["label"], float(np.abs(self.points.values).max()) * FLAT
        fits = {"line": (self.line, -1), "parabola": (self.parabola, 1)}  # and how many more numbers than the circle's
        return {
            name: 2 * n * math.log(max(rms, least) / max(self.residual, least)) + more * math.log(n)
            for name, (rms, more) in fits.items()
        }

    @property
    def is_arc(self) -> bool:
        """Whether the points lie near a circle and on no line or parabola instead."""
        return self.residual <= POOR * self.radius and min(self._advantage.values()) >= STRONG

    @property
    def ordered(self) -> bool:
        return self.order_p * LOOKS < 0.05

    @property
    def near_even(self) -> bool:
        """Whether the distances are nearer to even ones than those of random labels, however far off."""
        return self.evenness_p * LOOKS < 0.05

    @property
    def even(self) -> bool:
        """Whether they are also within a quarter of a step of even ones (root mean square)."""
        return self.near_even and self.stride_rms <= EVEN * abs(self.stride)

    @property
    def order_text(self) -> str:
        return f"circular rank correlation {self.order:.2f}, {p_value(self.order_p)}"

    def finding(self) -> str:
        """The geometry, and for a model what its answers owe to it."""
        lie = f"lie on an arc of {math.degrees(self.arc):.4g} degrees of a circle"
        if self.residual > POOR * self.radius:
            lie = f"miss the nearest circle by {self.residual / self.radius:.2f} of its radius"
        elif not self.is_arc:
            other = min(self._advantage, key=lambda name: self._advantage[name])
            lie = f"cannot be said to lie on an arc: the best {other} fits them as well as the best circle, or nearly"
        order = "in order around it" if self.ordered else "in no order around it"
        if self.even:
            order += f" and evenly, {abs(math.degrees(self.stride)):.2f} degrees apart"
        elif self.ordered:
            order += " and at uneven distances"
        said = f"The {self.points.sizes['label']} points {lie}, {order} ({self.order_text})."
        if self.causal is None:
            return said
        copies = self.untrained
        control = (
            "no untrained control" if copies is None else f"{copies.arc} of {copies.n} untrained copies have an arc"
        )
        moved, shuffled = self.causal.replaced.values()
        return (
            f"{said[:-2]}; {control}). Moved onto the circle, they leave {moved} of {moved.n:,} answers right, with "
            f"shuffled places {shuffled} (as they are, {in_percent(self.causal.clean.value, counted=True)})."
        )


def digit_table(model: Any, task: Any) -> Any:
    """The rows of a model's ``W_E`` that are digits, by value; a table as it is."""
    if not hasattr(model, "run_with_hooks"):
        return model
    return model.W_E[list(resolve_task(model, task).digit_tokens)]


def _off_circle(found: CircleFit) -> Estimate:
    off = math.hypot(found.residual, found.off_plane) / found.radius
    return Estimate(off, note=f"order of the digits: {found.order_text}")


@probe(
    "Do the digits' embeddings lie on a circle?",
    needs=[digits],
    summary=Summary("digits off a circle", "radii", _off_circle, 1e-3),
)
def circle_fit(
    model: HookedModel | Table,
    *,
    task: TaskLike | None = None,
    seed: Seed = 0,
) -> CircleFit:
    """The circle through a model's digits, or through the rows of a table [n, D], by geometric least squares.

    With D > 2 the plane is found first (principal axes of the centred rows). The fit minimises ``sum (|p - c| - r)^2``
    from Taubin's fit. Start and stride first maximise the resultant length of ``angle - stride * label`` and are then
    refined by least squares. Unlike a distance-to-centroid score, this recognises a perfect short arc as round.

    Args:
        model: a model, of which the digits' rows of ``W_E`` are taken (``task.digit_tokens``), or a table.
        task: what the model's tokens mean; default its own.
        seed: of the 2,000 random relabellings of the control. p-values are never below 1 / 2,001.

    Limits. (radius, start) and (-radius, start + pi) are one circle: the radius is given positive. A stride is known
    modulo 2 pi. Short noisy arcs do not determine a radius.

    Raises:
        UserError: a task without digits, fewer than 3 points or 2 dimensions, NaN, or points on a line or all alike.
    """
    rng = np.random.default_rng(seed)
    fit = _circle_through(digit_table(model, task), RELABELLINGS, seed, rng)
    if not hasattr(model, "run_with_hooks"):
        return fit
    angle = fit.start + fit.stride * fit.points.label.values
    places = fit.centre + fit.radius * np.stack((np.cos(angle), np.sin(angle)), 1)
    rows = torch.from_numpy(fit.origin + places @ fit.basis)
    shuffled = rows[rng.permutation(len(rows))]
    tested = {"with its digits moved onto the circle": rows, "with their places on it shuffled": shuffled}
    subject: Any = model
    resolved = resolve_task(subject, task)
    causal = embedding_test(subject, resolved, resolved.digit_tokens, tested, seed)
    fit = replace(fit, causal=causal, untrained=_of_untrained(model, task, seed))
    return fit.saying(fit.finding())


def fit_circle(rows: Table, relabellings: int = RELABELLINGS, seed: int = 0) -> CircleFit:
    """:func:`circle_fit` of a table [n, D], with so many relabellings for its p-values."""
    return _circle_through(rows, relabellings, seed, np.random.default_rng(seed))


def _circle_through(points: Any, relabellings: int, seed: int, rng: np.random.Generator) -> CircleFit:
    """The circle and its control; ``rng`` draws the relabellings, and may go on to be used."""
    table = as_table(points, 3, 2, "A circle fit")
    label = np.arange(len(table))
    basis, origin, planarity = principal_plane(table)
    flat = table @ basis.T
    off_plane = float(np.sqrt(((table - origin - flat @ basis) ** 2).sum(1).mean()))
    centre, radius = geometric_circle(flat)
    offset = flat - centre
    residual = float(np.sqrt(((np.hypot(*offset.T) - radius) ** 2).mean()))
    angle = np.arctan2(offset[:, 1], offset[:, 0])
    start, stride = even_angles(angle, label)
    deviation = wrap(angle - start - stride * label)
    shuffles = np.stack([label, *(rng.permutation(len(table)) for _ in range(relabellings))])
    order, evenness = circular_rank_correlation(label, angle[shuffles]), largest_evenness(angle, label, shuffles)
    coords = {"label": label, "axis": ["x", "y"]}
    rows = [
        ("radius", radius, "table units"),
        ("centre x", centre[0], "table units"),
        ("centre y", centre[1], "table units"),
        ("start", start, "rad"),
        ("stride", stride, "rad"),
        ("arc", 2 * math.pi - cut_angles(angle)[1], "rad"),
        ("residual", residual, "table units"),
        ("line", float(np.sqrt((line_distances(flat) ** 2).mean())), "table units"),
        ("parabola", float(np.sqrt((parabola_distances(flat) ** 2).mean())), "table units"),
        ("off_plane", off_plane, "table units"),
        ("planarity", planarity, "share of variance"),
        ("order", float(order[0]), "circular rank correlation"),
        ("order_p", permutation_p(float(abs(order[0])), np.abs(order[1:])), "permutation p of order"),
        ("evenness", float(np.abs(np.exp(1j * deviation).mean())), "resultant length"),
        ("evenness_p", permutation_p(float(evenness[0]), evenness[1:]), "permutation p of evenness"),
        ("stride_rms", float(np.sqrt((deviation**2).mean())), "rad"),
    ]
    found = CircleFit(
        "",
        pd.DataFrame(rows, columns=["quantity", "value", "unit"]),
        all_rows(len(table), relabellings, seed),
        KEYS,
        MEASURES,
        points=xr.DataArray(flat, dims=("label", "axis"), coords=coords),
        angle=xr.DataArray(angle, dims=("label",), coords={"label": label}),
        basis=basis,
        origin=origin,
    )
    return found.saying(found.finding())


def _of_untrained(model: Any, task: Task | None, seed: int) -> UntrainedCircles | None:
    """The circles of fresh copies, of which those whose digits have none are without; None where nothing is drawn."""
    found, n = [], 0
    for copied in (untrained_copy(model, 1_000 + seed + i) for i in range(TWINS)):
        if copied is None:
            return None
        n += 1
        with suppress(UserError):  # on a line, or all alike
            found.append(fit_circle(digit_table(copied, resolve_task(model, task)), TWIN_RELABELLINGS, seed))
    return UntrainedCircles(n, *(sum(getattr(one, name) for one in found) for name in ("is_arc", "ordered", "even")))


@drawing(CircleFit)
def circle_view(result: CircleFit) -> Picture:
    """The labelled points on the fitted circle, in the plane of the table."""
    at, labels = result.points.values, result.points.label.values.astype(str)
    said = {"of": labels, "degrees": np.degrees(result.angle.values)}
    series = Series("table rows", at[:, 0], at[:, 1], labels=labels, said=said)
    x, y = (_axis_name(result, axis) for axis in (0, 1))
    points = Points(x, y, series=[series], square=True, circle=(*result.centre, result.radius))
    return Picture([points])


def _axis_name(result: CircleFit, axis: int) -> str:
    """The coordinate that an axis of the plane is, or the largest one if the axis is a mixture."""
    largest = int(np.argmax(np.abs(result.basis[axis])))
    if abs(result.basis[axis][largest]) > 1 - 1e-6:
        return f"dimension {largest} (table units)"
    return f"plane axis {axis} (table units; {result.basis[axis][largest]:.2f} along dimension {largest})"
