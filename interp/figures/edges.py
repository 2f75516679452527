"""Effects of edges: sender by receiver, and estimates against what they estimate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from interp.causal.edges.attribution import EdgeAttribution
from interp.causal.edges.paths import PathPatching
from interp.figures.drawing import drawing
from interp.figures.theme import BLUE, DIVERGING, GREY, LIGHT, finish

if TYPE_CHECKING:
    from interp.causal.edges.attribution import EdgeAttribution
    from interp.causal.edges.paths import PathPatching

_CELL = 17  # pixels
_LABELLED = 40  # names an axis shows before it leaves some out
_FEW = 8  # names on an axis that fit without turning them, and numbers into their cells


@drawing(PathPatching)
def path_patching(result: PathPatching, metric: str | None = None) -> go.Figure:
    """Mean effect of every path on one metric; senders down, receivers across, both in the order of the model."""
    metric = result.metric(metric)
    matrix = result.matrix(metric, split=True)
    bound = _bound(matrix.values)
    figure = go.Figure(_heatmap(matrix, bound, metric, {"x": 1.02, "len": 0.9}))
    _axes(figure, matrix)
    direct, effects = result.paths == "direct", result.effects.sel(metric=metric).mean("example")
    top = int(np.abs(effects.values).argmax())
    title = (
        f"{result.model}: of {effects.size} {result.paths} paths {effects.edge.values[top]} changes {metric} most "
        f"({result.what})"
    )
    one = "one edge alone is patched" if direct else "one receiver alone hears of a patched sender"
    width, height = _size(matrix)
    base, other = (float(x.sel(metric=metric).mean()) for x in (result.base, result.other))
    note = (
        f"Path patching, {result.direction}, {result.alternative}: change of {metric} from {base:.3g} when {one}; "
        f"every edge patched leaves {other:.3g}. Grey: no edge"
    )
    return finish(figure, title, result.provenance, width, height, note)


@drawing(EdgeAttribution)
def edge_attribution(result: EdgeAttribution, metric: str | None = None) -> go.Figure:
    """Estimated effects as a matrix, and beside it each edge's estimate against its exact effect (if computed)."""
    metric = result.metric(metric)
    matrix = result.matrix(metric, split=True)
    width, height = _size(matrix)
    name = (
        result.method if result.method == "eap" else f"{result.method} in {result.steps} step{'s' * (result.steps > 1)}"
    )
    note = f"{result.direction.capitalize()}, {result.alternative}: estimated change of {metric}. Grey: no edge"
    if result.exact is None:
        figure = go.Figure(_heatmap(matrix, _bound(matrix.values), metric, {"x": 1.02, "len": 0.9}))
        _axes(figure, matrix)
        title = f"{result.model}: effects of edges on {metric} estimated by {name}, not compared ({result.what})"
        return finish(figure, title, result.provenance, width, height, note)
    estimate, exact = (
        x.sel(metric=metric).mean("example").values.astype(float) for x in (result.estimate, result.exact)
    )
    bound = _bound(np.concatenate((estimate, exact)))
    side = 420
    total = width + side + 90
    shares = [(width - 150) / (total - 240), side / (total - 240)]
    figure = make_subplots(1, 2, column_widths=shares, horizontal_spacing=190 / total)
    bar_at = shares[0] * (1 - 190 / total) + 8 / total
    figure.add_trace(_heatmap(matrix, bound, metric, {"x": bar_at, "len": 0.9}), 1, 1)
    _axes(figure, matrix)
    figure.add_trace(
        go.Scatter(
            x=exact,
            y=estimate,
            mode="markers",
            marker={"color": BLUE, "size": 7, "opacity": 0.65},
            text=result.estimate.edge.values,
            hovertemplate="%{text}<br>exact %{x:.4g}<br>estimate %{y:.4g}<extra></extra>",
            showlegend=False,
        ),
        1,
        2,
    )
    line = [-bound, bound]
    figure.add_trace(
        go.Scatter(
            x=line, y=line, mode="lines", line={"color": GREY, "dash": "dot"}, hoverinfo="skip", showlegend=False
        ),
        1,
        2,
    )
    _name_strongest(figure, exact, estimate, result.estimate.edge.values.tolist(), bound)
    figure.update_xaxes(title_text=f"exact effect on {metric}", row=1, col=2, zeroline=True, zerolinecolor="#CCC")
    figure.update_yaxes(title_text="estimate", row=1, col=2, zeroline=True, zerolinecolor="#CCC")
    found = result.agreements[metric, "edges"]
    note += f". Right, every edge; shuffled edges reach this rank correlation with p = {found.p:.2g}"
    title = (
        f"{result.model}: estimates of edge effects on {metric} by {name} have rank correlation {found.spearman:.2f} "
        f"with the exact ones and err by up to {found.worst_error:.3g} ({result.what})"
    )
    return finish(
        figure,
        title,
        result.provenance,
        total,
        height,
        note,
    )


def _name_strongest(figure: go.Figure, exact: np.ndarray, estimate: np.ndarray, names: list[str], bound: float) -> None:
    """Names beside the points of the largest effects and estimates, where they do not run into each other."""
    order = np.argsort(-np.maximum(np.abs(exact), np.abs(estimate)), kind="stable")
    placed: list[tuple[float, float, float]] = []  # left end, right end, height
    for i in order[:8]:
        x, y = float(exact[i]), float(estimate[i])
        length = 0.045 * bound * len(names[i])
        left, right = (x, x + length) if x < 0.3 * bound else (x - length, x)
        taken = any(abs(y - height) < 0.15 * bound and left < b and a < right for a, b, height in placed)
        if taken or max(abs(x), abs(y)) < 0.1 * bound:
            continue
        placed.append((left, right, y))
        side = "left" if left == x else "right"
        shift = 7 if left == x else -7
        style: dict[str, Any] = {"xanchor": side, "xshift": shift, "showarrow": False, "font": {"size": 11}}
        figure.add_annotation(x=x, y=y, text=names[i], row=1, col=2, **style)


def _heatmap(matrix: xr.DataArray, bound: float, metric: str, bar: dict[str, Any]) -> go.Heatmap:
    """The matrix in colours, and in numbers if it is small; cells without a number are see-through."""
    small = max(matrix.shape) <= _FEW
    return go.Heatmap(
        z=matrix.values,
        x=matrix.receiver.values.tolist(),
        y=matrix.sender.values.tolist(),
        zmin=-bound,
        zmax=bound,
        colorscale=DIVERGING,
        reversescale=True,
        text=[["" if not abs(v) > 0.005 * bound else f"{v:.3g}" for v in row] for row in matrix.values],
        texttemplate="%{text}" if small else None,
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": metric, "side": "top"}, "thickness": 14} | bar,
        hovertemplate="%{y} → %{x}<br>%{z:.4g}<extra></extra>",
    )


def _axes(figure: go.Figure, matrix: xr.DataArray) -> None:
    receivers, senders = (matrix[end].values.tolist() for end in ("receiver", "sender"))
    where: dict[str, Any] = {"row": 1, "col": 1} if len(figure.data) and figure._grid_ref else {}
    for update, names, title in (
        (figure.update_xaxes, receivers, "receiver"),
        (figure.update_yaxes, senders, "sender"),
    ):
        step = math.ceil(len(names) / _LABELLED)
        update(title_text=title, tickvals=names[::step], showgrid=False, zeroline=False, type="category", **where)
    figure.update_xaxes(tickangle=0 if len(receivers) <= _FEW else -90, **where)
    figure.update_yaxes(autorange="reversed", **where)
    ground = go.Heatmap(
        z=np.where(np.isnan(matrix.values), 1.0, np.nan),
        x=receivers,
        y=senders,
        colorscale=[[0, LIGHT], [1, LIGHT]],
        showscale=False,
        hoverinfo="skip",
    )
    figure.add_trace(ground, **where)


def _size(matrix: xr.DataArray) -> tuple[int, int]:
    """Pixels that show every cell, and leave room for the title."""
    longest = max(len(name) for name in matrix.receiver.values.tolist())
    height = 190 + 7 * longest + max(250, _CELL * matrix.sizes["sender"])
    return max(760, 240 + _CELL * matrix.sizes["receiver"]), height


def _bound(values: np.ndarray) -> float:
    return float(np.nanmax(np.abs(values))) or 1.0
