"""Pictures of circles, helices and spectra of embeddings."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.embeddings import CircleFit, FourierSpectrum
from interp.probes.helices import HelixFit


@drawing(CircleFit)
def circle(result: CircleFit) -> go.Figure:
    """The labelled points on the fitted circle, in the plane of the table."""
    turn = np.linspace(0, 2 * np.pi, 361)
    (cx, cy), radius = result.centre, result.radius
    figure = go.Figure()
    figure.add_scatter(
        x=cx + radius * np.cos(turn),
        y=cy + radius * np.sin(turn),
        mode="lines",
        line={"color": theme.GREY, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
        name=f"circle of radius {radius:.3f}",
    )
    figure.add_scatter(
        x=[cx], y=[cy], mode="markers",
        marker={"symbol": "cross-thin", "size": 11, "line": {"width": 2, "color": theme.GREY}},
        name=f"centre ({round(cx, 3) + 0.0:.3f}, {round(cy, 3) + 0.0:.3f})", hoverinfo="skip",
    )  # fmt: skip
    points = result.points.values
    outward = points - result.centre
    outward = outward / np.maximum(np.hypot(*outward.T)[:, None], 1e-300)
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="markers",
        marker={"size": 11, "color": theme.BLUE, "line": {"width": 1, "color": "white"}},
        customdata=np.degrees(result.angle.values),
        text=[str(label) for label in result.points.label.values],
        hovertemplate="%{text}: (%{x:.3f}, %{y:.3f}), %{customdata:.2f} degrees<extra></extra>",
        name="table rows",
    )
    for label, point, direction in zip(result.points.label.values, points, outward, strict=True):
        x, y = point + 0.09 * radius * direction
        figure.add_annotation(
            x=x, y=y, text=f"<b>{label}</b>", showarrow=False, font={"size": 14, "color": theme.BLACK}
        )
    reach = 1.18 * max(radius, float(np.abs(points - result.centre).max()))
    figure.update_xaxes(title=_axis_name(result, 0), range=[cx - reach, cx + reach], constrain="domain", zeroline=False)
    figure.update_yaxes(
        title=_axis_name(result, 1), range=[cy - reach, cy + reach], scaleanchor="x", constrain="domain", zeroline=False
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.13, "x": 0})
    title = f"The {len(points)} rows {result.shape}"
    if result.is_arc and result.even:
        title += f", {math.degrees(result.stride):.2f} degrees apart"
    note = f"Order around the circle: {result.order_text}"
    return theme.finish(figure, title, result.provenance, width=700, height=720, note=note)


def _axis_name(result: CircleFit, axis: int) -> str:
    """The coordinate that an axis of the plane is, or that it is a mixture."""
    largest = int(np.argmax(np.abs(result.basis[axis])))
    if abs(result.basis[axis][largest]) > 1 - 1e-6:
        return f"dimension {largest} (table units)"
    return f"plane axis {axis} (table units; {result.basis[axis][largest]:.2f} along dimension {largest})"


@drawing(HelixFit)
def helix(result: HelixFit) -> go.Figure:
    """The rows on their helix: the turn seen along the axis, and the ramp against the row."""
    points, fitted = result.points.values, result.fitted.values
    rows = result.points.row.values
    turn = np.linspace(0, 2 * np.pi, 361)
    figure = make_subplots(
        cols=2,
        subplot_titles=["seen along the axis", "along the axis"],
        column_widths=[0.52, 0.48],
        horizontal_spacing=0.1,
    )
    cx, cy = result.centre
    line = {"color": theme.GREY, "dash": "dot", "width": 1.5}
    figure.add_scatter(
        x=cx + result.amp * np.cos(turn), y=cy + result.amp * np.sin(turn), mode="lines", line=line, hoverinfo="skip",
        name="fitted helix", row=1, col=1,
    )  # fmt: skip
    marker = {"size": 11, "color": theme.BLUE, "line": {"width": 1, "color": "white"}}
    figure.add_scatter(
        x=points[:, 0], y=points[:, 1], mode="markers", marker=marker, text=[str(row) for row in rows],
        hovertemplate="row %{text}: (%{x:.3f}, %{y:.3f})<extra></extra>", name="table rows", row=1, col=1,
    )  # fmt: skip
    for row, point in zip(rows, points[:, :2], strict=True):
        direction = point - result.centre
        x, y = point + 0.12 * result.amp * direction / max(float(np.hypot(*direction)), 1e-300)
        figure.add_annotation(x=x, y=y, text=f"<b>{row}</b>", showarrow=False, xref="x", yref="y")
    figure.add_scatter(
        x=rows, y=fitted[:, 2], mode="lines", line=line, showlegend=False, hoverinfo="skip", row=1, col=2
    )
    figure.add_scatter(
        x=rows, y=points[:, 2], mode="markers", marker=marker, showlegend=False,
        hovertemplate="row %{x}: %{y:.3f}<extra></extra>", row=1, col=2,
    )  # fmt: skip
    reach = 1.25 * max(result.amp, float(np.abs(points[:, :2] - result.centre).max()))
    figure.update_xaxes(
        title="first plane axis (table units)", range=[cx - reach, cx + reach], constrain="domain", col=1
    )
    figure.update_yaxes(title="second plane axis (table units)", range=[cy - reach, cy + reach], scaleanchor="x", col=1)
    figure.update_xaxes(title="row", col=2)
    figure.update_yaxes(title="ramp (table units)", col=2)
    figure.update_layout(legend={"orientation": "h", "y": -0.15, "x": 0})
    title = (
        f"A helix of {abs(result.period):.2f} rows a turn, amplitude {result.amp:.2f} and rise {result.slope:.3f} a "
        f"row explains {result.explained:.4f} of the variance (as much in shuffled rows: p = {result.p_value:.2g})"
    )
    return theme.finish(figure, title, result.provenance, width=1000, height=600)


@drawing(FourierSpectrum)
def fourier(result: FourierSpectrum) -> go.Figure:
    """Share of the variance by frequency; the marks are what 95% of shuffled tables stay below."""
    frequency = result.share.frequency.values
    figure = go.Figure()
    figure.add_bar(
        x=frequency,
        y=result.share.values,
        marker={"color": theme.BLUE},
        name="table",
        text=[f"{share:.3f}" for share in result.share.values],
        textposition="outside",
        hovertemplate="frequency %{x}: %{y:.4f}<extra></extra>",
    )
    figure.add_scatter(
        x=frequency,
        y=result.null.values,
        mode="markers",
        marker={"symbol": "line-ew", "size": 46, "line": {"width": 3, "color": theme.ORANGE}},
        name="95% of shuffled tables lie below",
        hovertemplate="frequency %{x}: 95% of shuffled tables below %{y:.3f}<extra></extra>",
    )
    figure.update_xaxes(title="frequency (turns over the table)", dtick=max(1, len(frequency) // 12))
    top = max(float(result.share.max()), float(result.null.max()))
    figure.update_yaxes(title="share of the variance", range=[0, min(1.1, 1.2 * top)])
    figure.update_layout(legend={"orientation": "h", "y": -0.17, "x": 0})
    share = float(result.share.sel(frequency=result.main))
    title = (
        f"Frequency {result.main} holds {share:.3f} of the variance; {result.p_value:.1%} of shuffled tables reach "
        "that at some frequency"
    )
    return theme.finish(figure, title, result.provenance, width=800, height=520)
