"""Picture of :class:`interp.papers.toygpt.attention.AttentionMaps`: ToyGPT's Figure 3, to look around in."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.toygpt.attention import AttentionMaps


@drawing(AttentionMaps)
def attention_maps(result: AttentionMaps) -> go.Figure:
    """A grid of maps, layers down and heads across; a menu chooses the mean or the problem that is shown."""
    pattern = result.pattern
    layers, heads = pattern.sizes["layer"], pattern.sizes["head"]
    figure = make_subplots(
        rows=layers,
        cols=heads,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.02,
        vertical_spacing=0.05,
        subplot_titles=[
            f"L{i}H{j} · {float(result.keys.sel(layer=i, head=j)):.1f} keys"
            for i in range(layers)
            for j in range(heads)
        ],
    )
    for layer in range(layers):
        for head in range(heads):
            shown = _panel(result, 0, layer, head)
            figure.add_heatmap(
                x=pattern.key.values.tolist(),
                y=pattern["query"].values.tolist(),
                coloraxis="coloraxis",
                xgap=1,
                ygap=1,
                hovertemplate=f"L{layer}H{head}: from %{{y}} to %{{x}} %{{z:.3f}}, standard deviation over all sums "
                "%{customdata:.3f}<extra></extra>",
                row=layer + 1,
                col=head + 1,
                **shown,
            )
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_xaxes(showgrid=False, type="category")
    for head in range(heads):
        figure.update_xaxes(title="to", row=layers, col=head + 1)
    for layer in range(layers):
        figure.update_yaxes(title="from", row=layer + 1, col=1)
    figure.update_layout(
        plot_bgcolor=theme.LIGHT,
        coloraxis={
            "colorscale": theme.SEQUENTIAL,
            "cmin": 0,
            "cmax": 1,
            "colorbar": {"title": {"text": "weight", "side": "top"}, "thickness": 12, "len": 0.5, "y": 0.75},
        },
        updatemenus=[_menu(result, layers, heads)],
    )
    keys = ", ".join(f"{value:.2f}" for value in result.keys.mean("head").values)
    title = f"{result.name}: keys attended to by layer {keys}, of {result.visible:.0f} visible on average"
    note = "Rows: the token attended from; grey: the future. Title of a map: keys attended to, exp(entropy)"
    return theme.finish(figure, title, result.provenance, width=1000, height=1080, note=note)


def _panel(result: AttentionMaps, view: int, layer: int, head: int) -> dict[str, Any]:
    z = result.pattern.isel(view=view, layer=layer, head=head).values
    text = [["" if np.isnan(w) or w < 0.095 else f"{w:.1f}".lstrip("0") for w in row] for row in z]
    return {
        "z": z,
        "text": text,
        "texttemplate": "%{text}",
        "customdata": result.spread.isel(layer=layer, head=head).values,
    }


def _menu(result: AttentionMaps, layers: int, heads: int) -> dict[str, Any]:
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    buttons = []
    for view, name in enumerate(result.pattern.view.values.tolist()):
        panels = [_panel(result, view, layer, head) for layer, head in places]
        change = {key: [panel[key] for panel in panels] for key in ("z", "text")}
        buttons.append({"label": name, "method": "restyle", "args": [change]})
    return {
        "buttons": buttons,
        "direction": "down",
        "showactive": True,
        "x": 1.02,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "top",
    }
