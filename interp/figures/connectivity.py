"""Pictures of straight lines between models (:class:`interp.compare.connectivity.ModeConnectivity`) and of
distances between seeds (:class:`interp.compare.seeds.SeedDistances`)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.compare.connectivity import ALIGNED, BACK, MOVED, STORED, UNTRAINED, ModeConnectivity
from interp.compare.seeds import SeedDistances
from interp.figures import theme
from interp.figures.drawing import drawing

_LOWEST = 1e-6  # nats: a loss of 0 cannot stand on a logarithmic axis
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
    figure = make_subplots(1, 2, horizontal_spacing=0.1, subplot_titles=("loss, nats a token", "whole answers right"))
    present = set(result.table["path"])
    for path, (colour, dash, symbol) in _STYLES.items():
        if path not in present:
            continue
        rows = result.table[result.table["path"] == path]
        for column, quantity in ((1, "loss"), (2, "exact")):
            values, low, high = (rows[quantity + end].to_numpy() for end in ("", "_low", "_high"))
            if quantity == "loss":
                values, low, high = (np.maximum(x, _LOWEST) for x in (values, low, high))
            figure.add_scatter(
                x=rows["t"],
                y=values,
                mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 2},
                marker={"symbol": symbol, "size": 8, "line": {"width": 1.5, "color": colour}},
                error_y=theme.error_bars(values, low, high, color=colour) if path in (STORED, ALIGNED) else None,
                name=path,
                legendgroup=path,
                showlegend=column == 1,
                hovertemplate=f"{path}, t = %{{x:.2f}}: {quantity} %{{y:.4g}}<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_xaxes(title="t: 0 is a, 1 is b", range=[-0.03, 1.03])
    figure.update_yaxes(type="log", exponentformat="power", dtick=1, row=1, col=1)
    figure.update_yaxes(range=[-0.03, 1.03], row=1, col=2)
    barriers = result.barriers.set_index("path")["barrier"]
    title = (
        f"{result.names[0]} to {result.names[1]}: a barrier of {barriers[ALIGNED]:.3g} nats a token once aligned, "
        f"{barriers[STORED]:.3g} as stored"
    )
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": -0.17, "yanchor": "top"})
    note = "Bars: 95% intervals over problems. Controls in grey"
    return theme.finish(figure, title, result.provenance, note=note).update_layout(margin_b=110)


@drawing(SeedDistances)
def seed_distances(result: SeedDistances) -> go.Figure:
    """By component: every pair before and after alignment, untrained pairs beside; then matrices of all pairs."""
    matrices = len(result.names) > 2
    figure = make_subplots(
        2 if matrices else 1,
        3 if matrices else 1,
        specs=[[{"colspan": 3}, None, None], [{}, {}, {}]] if matrices else None,
        row_heights=[0.55, 0.45] if matrices else None,
        vertical_spacing=0.2,
        horizontal_spacing=0.12,
        subplot_titles=("", "parameters as stored", "parameters aligned", "answers, bits (JS divergence)")
        if matrices
        else None,
    )
    _by_component(figure, result)
    if matrices:
        _matrices(figure, result)
    rows = result.table[result.table["component"] == "all"]
    title = (
        f"{len(result.names)} models of one architecture: parameters {rows['before'].mean():.2f} apart as stored, "
        f"{rows['after'].mean():.2f} once aligned"
    )
    if rows["untrained_after"].notna().any():
        title += f", untrained copies {rows['untrained_after'].mean():.2f}"
    note = "Distance: 0 equal, 1 orthogonal, 1.41 opposite. Grey bars: from the nearest to the farthest untrained pair"
    figure = theme.finish(figure, title, result.provenance, height=900 if matrices else 560, note=note)
    return figure.update_layout(margin_b=90)


def _by_component(figure: go.Figure, result: SeedDistances) -> None:
    components = list(dict.fromkeys(result.table["component"]))
    null = result.table.drop_duplicates("component").set_index("component").loc[components]
    values = null["untrained_after"].to_numpy(dtype=float)
    figure.add_scatter(
        x=components,
        y=values,
        mode="markers",
        marker={"symbol": "line-ew", "size": 34, "line": {"width": 2, "color": theme.GREY}},
        error_y=theme.error_bars(values, null["untrained_low"], null["untrained_high"], width=8, color=theme.GREY),
        name="untrained copies, aligned (mean)",
        hovertemplate="%{x}: untrained %{y:.3f}<extra></extra>",
        row=1,
        col=1,
    )
    place = {component: i for i, component in enumerate(components)}
    pairs = list(dict.fromkeys(zip(result.table["a"], result.table["b"], strict=True)))
    for column, colour, symbol, shift in (
        ("before", theme.ORANGE, "diamond", -0.16),
        ("after", theme.BLUE, "circle", 0.16),
    ):
        xs, ys, texts = [], [], []
        for component in components:
            rows = result.table[result.table["component"] == component]
            for a, b, value in zip(rows["a"], rows["b"], rows[column], strict=True):
                offset = shift + 0.03 * (pairs.index((a, b)) - (len(pairs) - 1) / 2)
                xs.append(place[component] + offset)
                ys.append(value)
                texts.append(f"{component}, {a} and {b}")
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="markers",
            marker={"symbol": symbol, "size": 9, "color": colour},
            name={"before": "as stored", "after": "aligned"}[column],
            customdata=texts,
            hovertemplate="%{customdata}: %{y:.3f}<extra></extra>",
            row=1,
            col=1,
        )
    figure.data[0].x = [place[component] + 0.16 for component in components]
    figure.update_xaxes(
        tickmode="array", tickvals=list(place.values()), ticktext=components, zeroline=False, row=1, col=1
    )
    figure.update_yaxes(title="distance of parameters", rangemode="tozero", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"})


def _matrices(figure: go.Figure, result: SeedDistances) -> None:
    labels = list(result.names)
    for column, quantity in ((1, "before"), (2, "after"), (3, "divergence")):
        values = result.matrix(quantity)
        highest = 1.0 if quantity == "divergence" else max(1.0, float(values.max()))
        figure.add_heatmap(
            z=values,
            x=labels,
            y=labels,
            zmin=0,
            zmax=highest,
            colorscale=theme.SEQUENTIAL,
            showscale=False,
            text=pd.DataFrame(values).map(lambda x: f"{x:.3g}").to_numpy(),
            texttemplate="%{text}",
            hovertemplate="%{y}, %{x}: %{z:.4f}<extra></extra>",
            row=2,
            col=column,
        )
        figure.update_yaxes(autorange="reversed", row=2, col=column)
