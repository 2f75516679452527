"""The figure of :class:`interp.papers.toygpt.attention.AttentionMaps`: ToyGPT's Figure 3, interactive."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover, written
from interp.figures.panels import Panel, compose
from interp.papers.toygpt.attention import AttentionMaps


@drawing(AttentionMaps)
def attention_maps(result: AttentionMaps) -> go.Figure:
    """A grid of maps, layers down and heads across; a menu chooses which mean or problem is shown."""
    pattern, views = result.pattern, result.pattern.view.values.tolist()
    heads = [(i, h) for i in range(pattern.sizes["layer"]) for h in range(pattern.sizes["head"])]
    columns, last = pattern.sizes["head"], pattern.sizes["layer"] - 1
    shown = {view: [_map(result, i, *place) for place in heads] for i, view in enumerate(views)}
    panels = []
    for (layer, head), (z, text) in zip(heads, shown[views[0]], strict=True):
        said = hover(
            f"L{layer}H{head}: from {{y}} to {{x}} {{z:.3f}}, standard deviation over all sums {{spread:.3f}}",
            spread=result.spread.isel(layer=layer, head=head).values,
        )  # fmt: skip
        keys, queries = pattern.key.values.tolist(), pattern["query"].values.tolist()
        title = f"L{layer}H{head} · {float(result.keys.sel(layer=layer, head=head)):.1f} keys"
        drawn = cells(z, keys, queries, text=text, bar="weight", **said)
        x = {"type": "category", "title": "to" if layer == last else ""}
        panels.append(Panel([drawn], title, x, {"type": "category", "title": "" if head else "from"}))
    buttons = [
        {
            "label": view, "method": "restyle",
            "args": [{"z": [z for z, _ in maps], "text": [text for _, text in maps]}],
        }
        for view, maps in shown.items()
    ]  # fmt: skip
    menu = {"buttons": buttons, "direction": "down", "x": 1.02, "xanchor": "left", "y": 1.0, "yanchor": "top"}
    keys = ", ".join(f"{value:.2f}" for value in result.keys.mean("head").values)
    title = f"{result.name}: keys attended to by layer {keys}, of {result.visible:.0f} visible on average"
    note = "Rows: the token attended from; grey: the future. Title of a map: keys attended to, exp(entropy)"
    figure = compose(
        panels, title, result.provenance, note=note, columns=columns, height=1080, shared="xy", gaps=(18, 44),
        plot_bgcolor=theme.LIGHT, updatemenus=[menu | {"showactive": True}],
    )  # fmt: skip
    return figure


def _map(result: AttentionMaps, view: int, layer: int, head: int) -> tuple[np.ndarray, list[list[str]]]:
    z = result.pattern.isel(view=view, layer=layer, head=head).values
    return z, written(z, lambda weight: f"{weight:.1f}".lstrip("0"), least=0.095)
