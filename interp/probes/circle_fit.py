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
from interp.core.modular.embedding_replacement import EmbeddingTest, all_rows, embedding_test, owed_to
from interp.core.probe import Scalar, digits, probe
from interp.core.results import Provenance, Result
from interp.core.significance import permutation_p
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
from models.number_format import in_percent, p_value, small
from models.tasks import Task, TaskLike
from models.transformer import HookedModel

Table = torch.Tensor | np.ndarray | list
RELABELLINGS = 2000
TWINS, TWIN_RELABELLINGS = 5, 199  # untrained copies, and the relabellings of each
LOOKS = 2  # order and evenness are two tests of one question: each p is compared with 0.05 / 2


@dataclass(frozen=True)
class UntrainedCircles:
    """Of ``n`` untrained copies of a model, how many have their digits on an arc, in order around it, and at even
    distances, by the tests that the model itself is put to (with :data:`TWIN_RELABELLINGS` relabellings each)."""

    n: int
    arc: int
    ordered: int
    even: int

    def sentence(self) -> str:
        """What a fresh model of the parametrisation has without training."""
        return (
            f"Of {self.n} untrained copies, {self.arc} have the digits on an arc, {self.ordered} in order around their "
            f"circle and {self.even} at even distances."
        )


@dataclass(frozen=True, eq=False)
class CircleFit(Result):
    """A circle through labelled points, and how the labels run along it.

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
    the answers with each digit moved to its place on the circle, and with the places shuffled.

    ``points`` [label, axis] are coordinates in the plane and ``angle`` [label] their angles about the centre. ``basis``
    [2, D] and ``origin`` [D] place the plane: point = origin + basis.T @ coordinates.
    """

    radius: float
    centre: Float[np.ndarray, " 2"]
    start: float
    stride: float
    arc: float
    residual: float
    line: float
    parabola: float
    off_plane: float
    planarity: float
    order: float
    order_p: float
    evenness: float
    evenness_p: float
    stride_rms: float
    points: xr.DataArray
    angle: xr.DataArray
    basis: Float[np.ndarray, "2 D"]
    origin: Float[np.ndarray, " D"]
    provenance: Provenance
    causal: EmbeddingTest | None = None
    untrained: UntrainedCircles | None = None

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
    def shape(self) -> str:
        """What the points lie on, as a predicate without its subject."""
        relative = self.residual / self.radius
        if relative > POOR:
            return f"miss the nearest circle by {relative:.2f} of its radius, root mean square"
        if not self.is_arc:
            other = min(self._advantage, key=lambda name: self._advantage[name])
            return f"cannot be said to lie on an arc: the best {other} fits them as well as the best circle, or nearly"
        return (
            f"lie on an arc of {math.degrees(self.arc):.2f} degrees of a circle of radius {self.radius:.4f} (root mean "
            f"square distance {small(relative)} of the radius)"
        )

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
    def _order_text(self) -> str:
        return f"circular rank correlation {self.order:.2f}, {p_value(self.order_p)}"

    def sentence(self) -> str:
        """The geometry, and for a model what its answers owe to it."""
        if self.causal is None:
            return self._geometry()
        control = "There is no untrained control." if self.untrained is None else self.untrained.sentence()
        return (
            f"{self._geometry()} {control} The model answers {self.causal.clean} of {self.causal.clean.n:,} problems "
            f"right; {self.causal.with_each()}. The circle is this one, with even steps and nothing else of the "
            "embeddings; fourier_spectrum keeps whole frequencies."
        )

    def _geometry(self) -> str:
        text = f"The {self.points.sizes['label']} points {self.shape}"
        if self.planarity < 0.999:
            text += f", in a plane that holds {in_percent(self.planarity)} of their variance"
        evenness = f"evenness {self.evenness:.2f}, {p_value(self.evenness_p)}"
        if not self.ordered and not self.near_even:
            order = f"their order around it is no better than that of random labels ({self._order_text}; {evenness})"
            return f"{text}; {order}."
        order = "run" if self.ordered else "do not run"
        text += f"; the labels {order} around it in order ({self._order_text})"
        if not self.near_even:
            return f"{text}, at uneven distances ({evenness})."
        uneven, apart = math.degrees(self.stride_rms), abs(math.degrees(self.stride))
        if not self.even:
            return (
                f"{text}, at uneven distances: from steps of {apart:.2f} degrees they are off by {small(uneven)} (root "
                f"mean square), less than those of random labels ({evenness})."
            )
        about = "" if uneven < 0.01 else f", up to {small(uneven)} degrees (root mean square)"
        return f"{text}, {apart:.2f} degrees apart and evenly{about} ({evenness})."

    def to_dataframe(self) -> pd.DataFrame:
        rows = [
            ("radius", self.radius, "table units"),
            ("centre x", self.centre[0], "table units"),
            ("centre y", self.centre[1], "table units"),
            ("start", self.start, "rad"),
            ("stride", self.stride, "rad"),
            ("arc", self.arc, "rad"),
            ("residual", self.residual, "table units"),
            ("line", self.line, "table units"),
            ("parabola", self.parabola, "table units"),
            ("off_plane", self.off_plane, "table units"),
            ("planarity", self.planarity, "share of variance"),
            ("order", self.order, "circular rank correlation"),
            ("order_p", self.order_p, "permutation p of order"),
            ("evenness", self.evenness, "resultant length"),
            ("evenness_p", self.evenness_p, "permutation p of evenness"),
            ("stride_rms", self.stride_rms, "rad"),
        ]
        return pd.DataFrame(rows, columns=["quantity", "value", "unit"])


def digit_table(model: Any, task: Any) -> Any:
    """The rows of a model's ``W_E`` that are digits, by value; a table as it is."""
    if not hasattr(model, "run_with_hooks"):
        return model
    return model.W_E[list(resolve_task(model, task).digit_tokens)]


def _off_circle(found: CircleFit) -> Estimate:
    off = math.hypot(found.residual, found.off_plane) / found.radius
    return Estimate(off, note=f"order of the digits: {found._order_text}")


@probe(
    "Do the digits' embeddings lie on a circle?",
    needs=[digits],
    scalar=Scalar("digits off a circle", "radii", _off_circle, 1e-3),
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
    return replace(fit, causal=causal, untrained=_of_untrained(model, task, seed))


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
    return CircleFit(
        radius=radius,
        centre=centre,
        start=start,
        stride=stride,
        arc=2 * math.pi - cut_angles(angle)[1],
        residual=residual,
        line=float(np.sqrt((line_distances(flat) ** 2).mean())),
        parabola=float(np.sqrt((parabola_distances(flat) ** 2).mean())),
        off_plane=off_plane,
        planarity=planarity,
        order=float(order[0]),
        order_p=permutation_p(float(abs(order[0])), np.abs(order[1:])),
        evenness=float(np.abs(np.exp(1j * deviation).mean())),
        evenness_p=permutation_p(float(evenness[0]), evenness[1:]),
        stride_rms=float(np.sqrt((deviation**2).mean())),
        points=xr.DataArray(flat, dims=("label", "axis"), coords=coords),
        angle=xr.DataArray(angle, dims=("label",), coords={"label": label}),
        basis=basis,
        origin=origin,
        provenance=all_rows(len(table), relabellings, seed),
    )


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
    title = f"The {len(at)} rows {result.shape}"
    if result.is_arc and result.even:
        title += f", {math.degrees(result.stride):.2f} degrees apart"
    note = f"Order around the circle: {result._order_text}"
    return Picture([points], title=title, note=note + (f". {owed_to(result.causal)}" if result.causal else ""))


def _axis_name(result: CircleFit, axis: int) -> str:
    """The coordinate that an axis of the plane is, or the largest one if the axis is a mixture."""
    largest = int(np.argmax(np.abs(result.basis[axis])))
    if abs(result.basis[axis][largest]) > 1 - 1e-6:
        return f"dimension {largest} (table units)"
    return f"plane axis {axis} (table units; {result.basis[axis][largest]:.2f} along dimension {largest})"
