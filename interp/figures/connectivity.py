"""Figures of straight lines between models (:class:`interp.compare.connectivity.ModeConnectivity`) and of distances
between seeds (:class:`interp.compare.seeds.SeedDistances`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.compare.connectivity import ALIGNED, BACK, MOVED, STORED, UNTRAINED, ModeConnectivity
from interp.compare.seeds import SeedDistances
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bound, cells, curve, hover, points, written
from interp.figures.panels import Panel, compose
from models.numerals import in_percent

_LOWEST = 1e-6  # nats: a logarithmic axis cannot show a loss of 0
_STYLES = {
    UNTRAINED: (theme.GREY, "dot", "x-thin"),
    MOVED: (theme.GREY, "dash", "square-open"),
    BACK: (theme.GREY, "solid", "circle-open"),
    STORED: (theme.ORANGE, "solid", "diamond"),
    ALIGNED: (theme.BLUE, "solid", "circle"),
}


@drawing(ModeConnectivity)
def connectivity(result: ModeConnectivity) -> go.Figure:
    """Loss (logarithmic) and share of right answers along every path."""
    panels = []
    for quantity, title, y in (
        ("loss", "loss, nats a token", {"type": "log", "exponentformat": "power", "dtick": 1}),
        ("exact", "whole answers right", {"range": [-0.03, 1.03]}),
    ):
        lines = []
        for path, (colour, dash, symbol) in _STYLES.items():
            rows = result.table[result.table["path"] == path]
            least = _LOWEST if quantity == "loss" else 0.0
            values, low, high = (np.maximum(rows[quantity + end], least) for end in ("", "_low", "_high"))
            ends = (low, high) if path in (STORED, ALIGNED) else None
            said = hover(f"{path}, t = {{x:.2f}}: {quantity} {{y:.4g}}")
            if len(rows):
                lines.append(curve(rows["t"], values, path, colour, dash, symbol=symbol, ends=ends, **said))
        panels.append(Panel(lines, title, x={"title": "t: 0 is a, 1 is b", "range": [-0.03, 1.03]}, y=y))
    barriers = result.barriers.set_index("path")["barrier"]
    title = (
        f"{result.names[0]} to {result.names[1]}: a barrier of {barriers[ALIGNED]:.3g} nats a token once aligned, "
        f"{barriers[STORED]:.3g} as stored"
    )
    if not result.able:
        title += f"; no two solutions, since the worse end answers only {in_percent(result.worse_end)} right"
    note = "Bars: 95% intervals over problems. Controls in grey"
    return compose(panels, title, result.provenance, note=note, columns=2, gaps=(90, 0), margin={"b": 110})


FEW = 6  # up to this many models, distances are written into the cells


@drawing(SeedDistances)
def seed_distances(result: SeedDistances) -> go.Figure:
    """Every pair's distances by component, before and after alignment, with untrained pairs, and matrices of pairs."""
    matrices = len(result.names) > 2
    panels = [_by_component(result), *(_matrices(result) if matrices else [])]
    rows = result.table[result.table["component"] == "all"]
    title = (
        f"{len(result.names)} models of one architecture: parameters {rows['before'].mean():.2f} apart as stored, "
        f"{rows['after'].mean():.2f} once aligned"
    )
    if rows["untrained_after"].notna().any():
        title += f", untrained copies {rows['untrained_after'].mean():.2f}"
    note = "Distance: 0 equal, 1 orthogonal, 1.41 opposite. Grey bars: from the nearest to the farthest untrained pair"
    return compose(
        panels, title, result.provenance, note=note, columns=3 if matrices else 1, height=900 if matrices else 560,
        heights=[0.55, 0.45] if matrices else None, gaps=(108, 142), margin={"b": 90, "t": 24},
        legend={"y": 1.0, "yanchor": "bottom"},
    )  # fmt: skip


def _by_component(result: SeedDistances) -> Panel:
    components = list(dict.fromkeys(result.table["component"]))
    null = result.table.drop_duplicates("component").set_index("component").loc[components]
    values = null["untrained_after"].to_numpy(dtype=float)
    layers = [
        points(
            [at + 0.16 for at in range(len(components))], values, "untrained copies, aligned (mean)", theme.GREY,
            "line-ew", 34, ends=(null["untrained_low"], null["untrained_high"]), bar={"width": 8},
            **hover("{component}: untrained {y:.3f}", component=components),
        )
    ]  # fmt: skip
    pairs = list(dict.fromkeys(zip(result.table["a"], result.table["b"], strict=True)))
    rows = result.table.sort_values("component", key=lambda names: names.map(components.index), kind="stable")
    for column, name, colour, symbol, shift in (
        ("before", "as stored", theme.ORANGE, "diamond", -0.16),
        ("after", "aligned", theme.BLUE, "circle", 0.16),
    ):
        aside = [pairs.index(pair) - (len(pairs) - 1) / 2 for pair in zip(rows["a"], rows["b"], strict=True)]
        apart = min(0.03, 0.3 / len(pairs))  # keeps the pairs of one component together
        x = [components.index(c) + (shift + apart * off) for c, off in zip(rows["component"], aside, strict=True)]
        said = hover("{component}, {a} and {b}: {y:.3f}", component=rows["component"], a=rows["a"], b=rows["b"])
        size = {"size": 5, "opacity": 0.6} if len(result.names) > FEW else {}
        layers.append(points(x, rows[column], name, colour, symbol, **size, **said))
    ticks = {"tickvals": list(range(len(components))), "ticktext": components, "zeroline": False}
    return Panel(
        layers,
        x=ticks,
        y={"title": "distance of parameters", "rangemode": "tozero"},
        span=3 if len(result.names) > 2 else 1,
    )


def _matrices(result: SeedDistances) -> list[Panel]:
    names, panels = list(result.names), []
    for quantity, title in (
        ("before", "parameters as stored"),
        ("after", "parameters aligned"),
        ("divergence", "answers, bits (JS divergence)"),
    ):
        values = result.matrix(quantity)
        limits = (0, 1.0 if quantity == "divergence" else max(1.0, bound(values)))
        said: dict[str, Any] = hover("{y}, {x}: {z:.4f}")
        if len(names) <= FEW:  # otherwise there is no room for numbers
            said |= {"text": written(values, ".3g")}
        panels.append(Panel([cells(values, names, names, limits=limits, gap=0, **said)], title))
    return panels
