"""Figures of ablations: components by carry stratum, parameters and their pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.causal.ablation.component_ablations import VERB, ComponentAblation, counts, largest_change, value_text
from interp.causal.ablation.parameter_ablations import ParameterAblation, check_scale, parameters_text
from interp.core.drawings import drawing
from interp.core.metrics import spoken
from interp.core.strata import ALL
from interp.figures import theme
from interp.figures.layers import bars, bound, cells, hover, points, written
from interp.figures.panels import Panel, compose
from models.numerals import in_percent

_MOST_LISTED = 3
_UNITS = {"loss": "nats", "accuracy": "share", "logit": "logits"}


@drawing(ComponentAblation)
def component_ablation(result: ComponentAblation, metric: str | None = None, most: int = 24) -> go.Figure:
    """Drop by component and stratum, one panel per replacement, for the ``most`` components with the largest drops."""
    metric = result.choose("metric", metric)
    table = result.table.sel(metric=metric)
    table = table.isel(component=_largest(table["drop"].sel(stratum=ALL).values, most))
    strata = [name for name in table.stratum.values.tolist() if int(table.n.sel(stratum=name))]
    table = table.sel(stratum=strata)
    methods, components = table.replacement.values.tolist(), table.component.values.tolist()
    ticks = [f"{name}<br>n = {int(table.n.sel(stratum=name)):,}" for name in strata]
    panels = []
    for method in methods:
        part = table.sel(replacement=method)
        said = hover(
            "{y}, {x}<br>drop {z:.4f}; leaves {value:.4f} [{low:.4f}, {high:.4f}], a random change as long "
            "{control:.4f}",
            **{name: part[name].values for name in ("value", "low", "high", "control")},
        )
        layer = cells(
            part["drop"].values, ticks, components, signed=bound(table["drop"]),
            text=written(part["drop"], _signed), letters=11, bar=f"drop in {spoken(metric)}", **said,
        )  # fmt: skip
        below = {"tickangle": -60, "tickfont": {"size": 11}}
        panels.append(Panel([layer], f"<b>{VERB[method]}</b>", below, {"tickfont": {"size": 12}}))
    left_out = result.table.sizes["component"] - len(components)
    note = (
        f"Cells: {spoken(metric)} of the whole model minus {spoken(metric)} without the component, on the same examples"
    )
    if left_out:
        note = f"The {len(components)} of {left_out + len(components)} components that count most. {note}"
    left, rows = 30 + 7 * max(map(len, components)), 24 * len(components)
    figure = compose(
        panels, _component_title(result, metric), result.provenance, note=note, width=990 + left,
        plots=len(methods) * rows + (len(methods) - 1) * 36, gaps=(0, 36), shared="x", margin={"l": left, "b": 130},
    )  # fmt: skip
    return figure.update_annotations(x=0, xanchor="left")


def _largest(values: np.ndarray, most: int) -> np.ndarray:
    """Indices of the rows with the largest absolute values, in their order."""
    size = np.nan_to_num(np.abs(values)).max(1)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def _component_title(result: ComponentAblation, metric: str) -> str:
    parts, components = [], result.table.sizes["component"]
    for method in result.table.replacement.values.tolist():
        row = result.worst(metric, method)
        named = f"{row.component.item()} {VERB[method]} leaves {value_text(metric, row.value)}"
        parts.append(named if counts(row) else f"{VERB[method]}, {largest_change(row, metric, components)}")
    clean = float(result.table.clean.sel(metric=metric, stratum=ALL))
    return f"{result.model}, {spoken(metric)} {value_text(metric, clean)}: {'; '.join(parts)}"


def _signed(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.2f}" if abs(value) < 9.95 else f"{value:.0f}"


@drawing(ParameterAblation)
def parameter_ablation(result: ParameterAblation, scale: str = "loss") -> go.Figure:
    """Pairs of parameters (drop below the diagonal, interaction above it) next to the drop of each parameter."""
    check_scale(scale)
    single, names = result.single, result.single.parameter.values.tolist()
    down = {"range": [len(names) - 0.5, -0.5], "tickfont": {"size": 10}, "dtick": 1}
    said = hover(
        "{y}: {trained:.4g} to {replaced:.4g}<br>accuracy {accuracy:.4f}, loss {loss:.3f}",
        trained=single.trained, replaced=single.replaced_by, accuracy=single.accuracy, loss=single.loss,
    )  # fmt: skip
    ends = (single.drop_low, single.drop_high)
    drops = [bars(single["drop"], names, "this parameter", across=True, ends=ends, bar={"width": 0}, **said)]
    if not bool(single.control.isnull().all()):
        style: dict[str, Any] = {"size": 7, "filled": [False] * len(names)} | hover("{y}, control: {x:.4f}")
        drops.append(points(single.control, names, "a random step of its size", theme.VERMILION, "diamond", **style))
    panels = [Panel(drops, x={"title": "drop in accuracy", "range": [0, 1.05]}, y=down)]
    note = "Bars: 95% bootstrap intervals; diamonds: mean of steps of the same size in random directions"
    paired = bool(result.pairs.data_vars)
    if paired:
        across = {"tickangle": -90, "tickfont": {"size": 10}, "dtick": 1, "range": [-0.5, len(names) - 0.5]}
        panels.insert(0, Panel(_pairs(result, scale), x=across, y=down))
        note = (
            f"Above the diagonal: what a pair costs beyond its two singles, on the {scale} (colours end at the 95% "
            f"quantile); below: what it costs. {note}"
        )
    side = 300 + 15 * len(names)
    return compose(
        panels, _parameter_title(result), result.provenance, note=note, columns=len(panels), shared="y",
        width=max(900, round(side * 1.35)), height=max(420, side), widths=[0.78, 0.22] if paired else None,
        gaps=(12, 0), margin={"l": 100, "r": 150 if paired else 30, "b": 110},
        legend={"x": 1, "xanchor": "right", "y": -0.1},
    )  # fmt: skip


def _pairs(result: ParameterAblation, scale: str) -> list[go.Heatmap]:
    """The two triangles of the heat map."""
    names = result.single.parameter.values.tolist()
    below = np.tri(len(names), k=-1, dtype=bool)
    interaction = result.pairs[f"interaction_{scale}"].values
    limit = float(np.nanquantile(np.abs(interaction), 0.95)) or 1.0
    bar = {"x": 1.01, "len": 0.45}
    return [
        cells(
            np.where(below, result.pairs["drop"].values, np.nan), names, names, gap=0, hoverongaps=False,
            bar=bar | {"title": "below: drop in accuracy", "y": 0.24}, **hover("{y} and {x}<br>drop {z:.4f}"),
        ),
        cells(
            np.where(below.T, interaction, np.nan), names, names, signed=limit, gap=0,
            hoverongaps=False, bar=bar | {"title": f"above: interaction, {_UNITS[scale]}", "y": 0.76},
            **hover("{y} and {x}<br>interaction {z:.4f}"),
        ),
    ]  # fmt: skip


def _parameter_title(result: ParameterAblation) -> str:
    dearest = result.ranked().iloc[0]
    return (
        f"{result.model}, {parameters_text(result.single.sizes['parameter'])} {result.replacement}: "
        f"{result.harmless_text(_MOST_LISTED)}; {dearest.parameter} costs {in_percent(dearest['drop'])}"
    )
