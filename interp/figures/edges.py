"""Figures of edge effects: sender by receiver, and estimates over exact effects."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.causal.edges.gradient_attribution import EdgeAttribution
from interp.causal.edges.paths import PathPatching
from interp.core.drawings import drawing
from interp.core.metrics import spoken
from interp.figures import theme
from interp.figures.layers import bound, cells, curve, hover, points, written
from interp.figures.panels import Mark, Panel, compose, label
from models.numerals import p_value

_CELL = 17  # pixels
_SIDE = 420  # pixels of the panel of estimates against exact effects
_LABELLED = 40  # most names on an axis; of more, some are left out
_FEW = 8  # up to this many names fit without turning, and numbers fit into the cells


@drawing(PathPatching)
def path_patching(result: PathPatching, metric: str | None = None) -> go.Figure:
    """Mean effect of every path on one metric; senders down, receivers across, both in the order of the model."""
    metric = result.metric(metric)
    matrix = result.matrix(metric, split=True)
    direct, effects = result.paths == "direct", result.effects.sel(metric=metric).mean("example")
    top = int(np.abs(effects.values).argmax())
    title = (
        f"{result.model}: of {effects.size} {result.paths} paths {effects.edge.values[top]} changes the "
        f"{spoken(metric)} most ({result.what})"
    )
    one = "one edge alone is patched" if direct else "one receiver alone hears of a patched sender"
    base, other = (float(x.sel(metric=metric).mean()) for x in (result.base, result.other))
    note = (
        f"Path patching, {result.direction}, {result.replacement}: change of the {spoken(metric)} from {base:.3g} when "
        f"{one}; every edge patched leaves {other:.3g}. Grey: no edge"
    )
    width, height = _size(matrix)
    panel = _matrix(matrix, bound(matrix), metric)
    return compose([panel], title, result.provenance, note=note, width=width, height=height, margin={"r": 90})


@drawing(EdgeAttribution)
def edge_attribution(result: EdgeAttribution, metric: str | None = None) -> go.Figure:
    """Estimated effects as a matrix, and next to it each edge's estimate over its exact effect (if computed)."""
    metric = result.metric(metric)
    matrix = result.matrix(metric, split=True)
    width, height = _size(matrix)
    name = (
        result.method if result.method == "eap" else f"{result.method} in {result.steps} step{'s' * (result.steps > 1)}"
    )
    what = f"the {spoken(metric)}"
    scores = result.called == "score"
    of = f"scores of edges for {what}" if scores else f"estimated change of {what}"
    note = f"{result.direction.capitalize()}, {result.replacement}: {of}. Grey: no edge"
    if result.exact is None:
        panel = _matrix(matrix, bound(matrix), metric)
        title = f"{result.model}: effects of edges on {what} estimated by {name}, not compared ({result.what})"
        if scores:
            title = f"{result.model}: scores of edges for {what} by {name}, not compared ({result.what})"
        return compose([panel], title, result.provenance, note=note, width=width, height=height, margin={"r": 90})
    estimate, exact = (
        x.sel(metric=metric).mean("example").values.astype(float) for x in (result.estimate, result.exact)
    )
    reach = bound(np.concatenate((estimate, exact)))
    names = result.estimate.edge.values.tolist()
    said = hover(f"{{text}}<br>exact {{x:.4g}}<br>{result.called} {{y:.4g}}")
    equal = [-reach, reach]
    layers = [points(exact, estimate, None, size=7, opacity=0.65, text=names, **said)]
    if not scores:
        layers.append(curve(equal, equal, None, theme.GREY, "dot", hoverinfo="skip"))
    zero = {"zeroline": True, "zerolinecolor": "#CCC"}
    panels = [
        _matrix(matrix, reach, metric),
        Panel(
            layers, x=zero | {"title": f"exact effect on {what}"}, y=zero | {"title": result.called},
            marks=_strongest(exact, estimate, names, reach),
        ),
    ]  # fmt: skip
    found = result.agreements[metric, "edges"]
    note += f". Right, every edge; shuffled edges reach this rank correlation with {p_value(found.p)}"
    ranked = f"rank correlation {found.spearman:.2f} with the exact ones"
    if not np.isfinite(found.spearman):
        ranked = "no order to compare with the exact ones"
    title = f"{result.model}: {result.called}s of edge effects on {what} by {name} have {ranked}"
    title += f" ({result.what})" if scores else f" and err by up to {found.worst_error:.3g} ({result.what})"
    return compose(
        panels, title, result.provenance, note=note, columns=2, width=width + _SIDE + 90, height=height,
        widths=[width - 150, _SIDE], gaps=(190, 0), meta={"least_width": 900},
    )  # fmt: skip


def _strongest(exact: np.ndarray, estimate: np.ndarray, names: list[str], reach: float) -> list[Mark]:
    """Names next to the points of the largest effects and estimates, unless they would overlap."""
    order = np.argsort(-np.maximum(np.abs(exact), np.abs(estimate)), kind="stable")
    placed: list[tuple[float, float, float]] = []  # left end, right end, height
    marks = []
    for i in order[:8]:
        x, y = float(exact[i]), float(estimate[i])
        length = 0.045 * reach * len(names[i])
        left, right = (x, x + length) if x < 0.3 * reach else (x - length, x)
        taken = any(abs(y - height) < 0.15 * reach and left < b and a < right for a, b, height in placed)
        if taken or max(abs(x), abs(y)) < 0.1 * reach:
            continue
        placed.append((left, right, y))
        side, shift = ("left", 7) if left == x else ("right", -7)
        marks.append(label(x, y, names[i], 11, xanchor=side, xshift=shift))
    return marks


def _matrix(matrix: xr.DataArray, reach: float, metric: str) -> Panel:
    """A heat map of senders by receivers, with numbers in the cells of small graphs; a grey cell has no edge."""
    receivers, senders = (matrix[end].values.tolist() for end in ("receiver", "sender"))
    text = written(matrix, ".3g", least=0.005 * reach) if max(matrix.shape) <= _FEW else None
    said = hover("{y} → {x}<br>{z:.4g}")
    ground = np.where(np.isnan(matrix.values), 1.0, np.nan)
    layers = [
        cells(matrix.values, receivers, senders, signed=reach, text=text, bar=spoken(metric), **said),
        cells(ground, receivers, senders, scale=[[0, theme.LIGHT], [1, theme.LIGHT]], gap=0, hoverinfo="skip"),
    ]
    x, y = (
        {"title": title, "tickvals": names[:: math.ceil(len(names) / _LABELLED)], "type": "category"}
        for title, names in (("receiver", receivers), ("sender", senders))
    )
    return Panel(layers, x=x | {"tickangle": 0 if len(receivers) <= _FEW else -90}, y=y)


def _size(matrix: xr.DataArray) -> tuple[int, int]:
    """Width and height in pixels that show every cell and leave room for the title."""
    longest = max(len(name) for name in matrix.receiver.values.tolist())
    height = 190 + 7 * longest + max(250, _CELL * matrix.sizes["sender"])
    return max(760, 240 + _CELL * matrix.sizes["receiver"]), height
