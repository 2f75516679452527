"""Pictures of patching sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from plotly.subplots import make_subplots

from interp.causal.patching.sweep import PatchingSweep
from interp.figures import theme
from interp.figures.drawing import drawing

if TYPE_CHECKING:
    from interp.causal.patching.sweep import PatchingSweep

MOST_PANELS, LEAST_SHOWN = 6, 0.01  # heads of a pattern that are drawn: those that recover most, and at least 1%
_WORDS = {"denoise": "clean into corrupted", "noise": "corrupted into clean"}


@drawing(PatchingSweep)
def patching_sweep(result: PatchingSweep, metric: str | None = None) -> go.Figure:
    """Share recovered: rows are layers (with heads or neurons), columns positions or roles; a panel a direction.

    A pattern swept by destination and source has a panel a head instead, with those that recover most.
    """
    metric = metric or str(result.values.metric.values[0])
    result.strongest(metric=metric)  # refuses a metric that the sweep does not have
    share = result.table.recovered.sel(metric=metric)
    panels = _by_source(share) if "src" in share.dims else _by_layer(share)
    limit = max(1.0, *(float(np.nanmax(np.abs(np.nan_to_num(p.values)))) for p in panels.values()))
    rows = sum(panel.shape[0] for panel in panels.values())
    height = 260 + 90 * len(panels) + 26 * min(rows, 60)
    gap = min(80 / (height - 190), 0.9 / max(1, len(panels) - 1))  # tick labels and the next panel's title
    figure = make_subplots(rows=len(panels), cols=1, subplot_titles=list(panels), vertical_spacing=gap)
    for row, panel in enumerate(panels.values(), 1):
        y, x = panel.dims
        named = "" if y == "row" else f"{_AXES.get(str(y), y)} "
        figure.add_heatmap(
            x=[str(v) for v in panel[x].values],
            y=[str(v) for v in panel[y].values],
            z=panel.values,
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            hovertemplate=f"{named}%{{y}}, {_AXES.get(str(x), x)} %{{x}}<br>recovered %{{z:.1%}}<extra></extra>",
            row=row,
            col=1,
        )
        down = next((part for part in ("head", "neuron") if y == "row" and part in share.dims), str(y))
        figure.update_yaxes(title=_AXES.get(down, down), autorange="reversed", type="category", row=row, col=1)
        figure.update_xaxes(type="category", tickangle=0, row=row, col=1)
    figure.update_xaxes(title=_AXES.get(str(x), str(x)), row=len(panels), col=1)
    figure.update_layout(
        coloraxis={
            "colorscale": theme.DIVERGING,
            "reversescale": True,
            "cmin": -limit,
            "cmax": limit,
            "colorbar": {"title": {"text": "recovered", "side": "right"}, "tickformat": ".0%", "thickness": 14},
        }
    )
    note = f"Recovered: (patched - unpatched) / (other run - unpatched), of the means of {metric}"
    title = f"{result.model}, {result.what}: patching {result.site} {result.found(metric)}"
    return theme.finish(figure, title, result.provenance, width=1100, height=height, note=note)


_AXES = {
    "layer": "layer",
    "pos": "position patched",
    "role": "role patched",
    "dest": "destination",
    "src": "source attended to",
    "all": "",
}


def _by_layer(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """A panel a direction; layers and their heads or neurons as rows."""
    panels = {}
    for direction in share.direction.values.tolist():
        panel = share.sel(direction=direction, drop=True)
        part = next((d for d in ("head", "neuron") if d in panel.dims), None)
        if part is not None:
            labels = [f"L{i}{part[0].upper()}{j}" for i in panel.layer.values for j in panel[part].values]
            panel = panel.stack(row=("layer", part)).drop_vars(("row", "layer", part)).assign_coords(row=labels)
        rest = [d for d in panel.dims if d not in ("row", "layer")]
        if not rest:
            panel, rest = panel.expand_dims({"all": ["all positions"]}), ["all"]
        first = "row" if part is not None else "layer"
        panels[f"{direction}: {_WORDS[direction]}"] = panel.transpose(first, *rest)
    return panels


def _by_source(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """A panel a head and direction, destination by source, those that recover most; untouched rows are left out."""
    panels = {}
    for direction in share.direction.values.tolist():
        of_direction = share.sel(direction=direction, drop=True)
        for layer in of_direction["layer"].values.tolist():
            for head in of_direction["head"].values.tolist():
                panel = of_direction.sel(layer=layer, head=head, drop=True).transpose("dest", "src")
                panels[f"L{layer}H{head}, {direction}"] = panel
    largest = {name: np.abs(np.nan_to_num(panel.values)).max(1) for name, panel in panels.items()}
    ordered = sorted(panels, key=lambda name: -float(largest[name].max()))
    chosen = [name for name in ordered[:MOST_PANELS] if largest[name].max() >= LEAST_SHOWN] or ordered[:1]
    keep = lambda rows: rows >= min(1e-3, rows.max())  # noqa: E731
    return {name: panels[name][keep(largest[name])] for name in chosen}
