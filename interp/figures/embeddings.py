"""Figures of circles and spectra of embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.core.replaced_embeddings import EmbeddingTest
from interp.figures import theme
from interp.figures.layers import bars, hover, points
from interp.figures.layers import circle as circle_around
from interp.figures.panels import Panel, compose, label
from interp.probes.embeddings import CircleFit
from interp.probes.fourier import FourierSpectrum
from models.numerals import in_percent

LABELLED = 12  # bars that can have their shares written above them
CROWDED = 0.12  # radians between neighbours below which their labels would overlap on a phone


@drawing(CircleFit)
def circle(result: CircleFit) -> go.Figure:
    """The labelled points on the fitted circle, in the plane of the table."""
    (cx, cy), radius = result.centre, result.radius
    points_ = result.points.values
    labels = [str(name) for name in result.points.label.values]
    said = hover("{text}: ({x:.3f}, {y:.3f}), {angle:.2f} degrees", angle=np.degrees(result.angle.values))
    layers = [
        circle_around(result.centre, radius, f"circle of radius {radius:.3f}"),
        points(
            [cx], [cy], f"centre ({round(cx, 3) + 0.0:.3f}, {round(cy, 3) + 0.0:.3f})", theme.GREY, "cross-thin", 11,
            hoverinfo="skip",
        ),
        points(points_[:, 0], points_[:, 1], "table rows", size=11, rim="white", text=labels, **said),
    ]  # fmt: skip
    crowded = float(np.abs(np.diff(np.sort(result.angle.values))).min()) < CROWDED
    rings = np.where(crowded & (np.arange(len(labels)) % 2 == 1), 0.2, 0.09)  # labels alternate between two distances
    marks = [
        label(at[0], at[1], f"<b>{name}</b>", 14)
        for name, at in zip(labels, _outside(points_, result.centre, radius * rings[:, None]), strict=True)
    ]
    x, y = _window(
        result.centre, (1.3 if crowded else 1.18) * max(radius, float(np.abs(points_ - result.centre).max()))
    )
    panel = Panel(layers, x=x | {"title": _axis_name(result, 0)}, y=y | {"title": _axis_name(result, 1)}, marks=marks)
    title = f"The {len(points_)} rows {result.shape}"
    if result.is_arc and result.even:
        title += f", {math.degrees(result.stride):.2f} degrees apart"
    note = f"Order around the circle: {result.order_text}" + _owed(result.causal, ". ")
    return compose([panel], title, result.provenance, note=note, width=700, height=720)


def _outside(points_: np.ndarray, centre: Any, by: Any) -> np.ndarray:
    """The places of the points' labels: a little farther from the centre."""
    outward = points_ - centre
    return points_ + by * outward / np.maximum(np.hypot(*outward.T)[:, None], 1e-300)


def _window(centre: Any, reach: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A square window around a centre."""
    x, y = ({"range": [c - reach, c + reach], "constrain": "domain", "zeroline": False} for c in centre)
    return x, y | {"square": True}


def _axis_name(result: CircleFit, axis: int) -> str:
    """The coordinate that an axis of the plane is, or the largest one if the axis is a mixture."""
    largest = int(np.argmax(np.abs(result.basis[axis])))
    if abs(result.basis[axis][largest]) > 1 - 1e-6:
        return f"dimension {largest} (table units)"
    return f"plane axis {axis} (table units; {result.basis[axis][largest]:.2f} along dimension {largest})"


@drawing(FourierSpectrum)
def fourier(result: FourierSpectrum) -> go.Figure:
    """Share of the variance by frequency; 95% of shuffled tables stay below the marks."""
    frequency, shares = result.share.frequency.values, result.share.values
    few = len(shares) <= LABELLED
    text = {"text": [f"{share:.3f}" for share in shares], "textposition": "outside"} if few else {}
    null = hover("frequency {x}: 95% of shuffled tables below {y:.3f}")
    marker = {"marker": {"line": {"width": 3, "color": theme.ORANGE}}}
    layers = [
        bars(frequency, shares, "table", **text, **hover("frequency {x}: {y:.4f}")),
        points(
            frequency, result.null.values, "95% of shuffled tables lie below", theme.ORANGE, "line-ew",
            46 if few else 10, **marker, **null,
        ),
    ]  # fmt: skip
    top = max(float(shares.max()), float(result.null.max()))
    panel = Panel(
        layers,
        x={"title": "frequency (turns over the table)", "dtick": max(1, len(frequency) // 12)},
        y={"title": "share of the variance", "range": [0, min(1.1, 1.2 * top)]},
    )
    share = float(result.share.sel(frequency=result.main))
    title = (
        f"Frequency {result.main} holds {in_percent(share)} of the variance; of shuffled tables {result.as_much()} at "
        "some frequency"
    )
    note = _owed(result.causal if result.kept else None)
    return compose([panel], title, result.provenance, note=note, width=800, height=520)


def _owed(causal: EmbeddingTest | None, before: str = "") -> str:
    """What a model's answers owe to the shape; empty for a table."""
    return "" if causal is None else f"{before}Of the model, {causal.clause()}"
