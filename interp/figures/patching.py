"""Figures of patching sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.causal.patching.patching_result import PatchingSweep
from interp.core.drawings import drawing
from interp.core.metrics import spoken
from interp.figures.layers import cells, hover
from interp.figures.panels import Panel, compose
from models.transformer.part_names import head_name, neuron_name

MOST_PANELS, LEAST_SHOWN = 6, 0.01  # heads whose patterns are drawn: those that recover most, and at least 1%
_WORDS = {"denoise": "clean into corrupted", "noise": "corrupted into clean"}


@drawing(PatchingSweep)
def patching_sweep(result: PatchingSweep, metric: str | None = None) -> go.Figure:
    """Share recovered: rows are layers (with heads or neurons), columns positions or roles; one panel per direction.

    A pattern swept by destination and source has one panel per head instead, for the heads that recover most.
    """
    metric = metric or str(result.values.metric.values[0])
    result.strongest(metric=metric)  # refuses a metric that the sweep does not have
    share = result.table.recovered.sel(metric=metric)
    panels = _by_source(share) if "src" in share.dims else _by_layer(share)
    answers = {} if "src" in share.dims else _by_layer(result.table.answers)
    limit = max(1.0, *(float(np.nanmax(np.abs(np.nan_to_num(p.values)))) for p in panels.values()))
    rows = sum(panel.shape[0] for panel in panels.values())
    height = 260 + 90 * len(panels) + 26 * min(rows, 60)
    drawn = [
        _panel(name, panel, limit, share.dims, last=i == len(panels), answers=answers.get(name))
        for i, (name, panel) in enumerate(panels.items(), 1)
    ]
    note = f"Recovered: (patched - unpatched) / (other run - unpatched), of the mean {spoken(metric)}"
    title = f"{result.model}, {result.what}: patching {result.site} {result.found(metric)}"
    return compose(
        drawn, title, result.provenance, note=note, width=1100, height=height, gaps=(0, 80), margin={"r": 90}
    )


def _panel(
    name: str, panel: xr.DataArray, limit: float, swept: Sequence[Any], last: bool, answers: xr.DataArray | None
) -> Panel:
    down, across = (str(dim) for dim in panel.dims)
    part = "" if down == "row" else f"{_AXES.get(down, down)} "
    text = f"{part}{{y}}, {_AXES.get(across, across)} {{x}}<br>recovered {{z:.1%}}"
    said = hover(text) if answers is None else hover(f"{text}, clean answers {{answers:.1%}}", answers=answers.values)
    x, y = ([str(v) for v in panel[dim].values] for dim in (across, down))
    layer = cells(panel.values, x, y, signed=limit, bar={"title": "recovered", "tickformat": ".0%"}, **said)
    down = next((part for part in ("head", "neuron") if down == "row" and part in swept), down)
    title = _AXES.get(across, across) if last else ""
    return Panel([layer], name, {"title": title, "tickangle": 0}, _AXES.get(down, down))


_AXES = {
    "layer": "layer",
    "pos": "position patched",
    "role": "role patched",
    "dest": "destination",
    "src": "source attended to",
    "all": "",
}


def _by_layer(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """One panel per direction, with layers and their heads or neurons as rows."""
    panels = {}
    for direction in share.direction.values.tolist():
        panel = share.sel(direction=direction, drop=True)
        part = next((d for d in ("head", "neuron") if d in panel.dims), None)
        if part is not None:
            name = head_name if part == "head" else neuron_name
            labels = [name(i, j) for i in panel.layer.values for j in panel[part].values]
            panel = panel.stack(row=("layer", part)).drop_vars(("row", "layer", part)).assign_coords(row=labels)
        rest = [d for d in panel.dims if d not in ("row", "layer")]
        if not rest:
            panel, rest = panel.expand_dims({"all": ["all positions"]}), ["all"]
        first = "row" if part is not None else "layer"
        panels[f"{direction}: {_WORDS[direction]}"] = panel.transpose(first, *rest)
    return panels


def _by_source(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """One panel per head and direction, destination by source, for those that recover most. Rows without effect are
    left out."""
    panels = {}
    for direction in share.direction.values.tolist():
        of_direction = share.sel(direction=direction, drop=True)
        for layer in of_direction["layer"].values.tolist():
            for head in of_direction["head"].values.tolist():
                panel = of_direction.sel(layer=layer, head=head, drop=True).transpose("dest", "src")
                panels[f"{head_name(layer, head)}, {direction}"] = panel
    largest = {name: np.abs(np.nan_to_num(panel.values)).max(1) for name, panel in panels.items()}
    ordered = sorted(panels, key=lambda name: -float(largest[name].max()))
    chosen = [name for name in ordered[:MOST_PANELS] if largest[name].max() >= LEAST_SHOWN] or ordered[:1]
    keep = lambda rows: rows >= min(1e-3, rows.max())  # noqa: E731
    return {name: panels[name][keep(largest[name])] for name in chosen}
