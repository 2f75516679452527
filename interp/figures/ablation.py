"""Pictures of ablations: components by carry stratum, double dissociations, parameters and their pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.causal.ablation.dissociation import DoubleDissociation
from interp.causal.ablation.parameters import HARMLESS, ParameterAblation, check_scale
from interp.causal.ablation.sweep import VERB, ComponentAblation
from interp.core.signal_measures import signal_name
from interp.core.strata import ALL
from interp.figures import theme
from interp.figures.drawing import drawing

LOSS_RED = "RdBu_r"  # what is lost is red, what is gained blue
_MOST_LISTED = 3
_CONTROL = {"symbol": "diamond", "size": 7, "color": "white", "line": {"color": theme.VERMILION, "width": 1.5}}


@drawing(ComponentAblation)
def component_ablation(result: ComponentAblation, metric: str | None = None, most: int = 24) -> go.Figure:
    """Drop by component and stratum, a panel a replacement; the ``most`` components that count most."""
    metric = result.choose("metric", metric)
    table = result.table.sel(metric=metric)
    size = np.abs(table["drop"].sel(stratum=ALL).fillna(0).values).max(1)
    kept = np.sort(np.argsort(-size, kind="stable")[:most])
    table = table.isel(component=kept)
    strata = [name for name in table.stratum.values.tolist() if int(table.n.sel(stratum=name))]
    table = table.sel(stratum=strata)
    methods, components = table.replacement.values.tolist(), table.component.values.tolist()
    largest = float(np.nanmax(np.abs(table["drop"].values))) or 1.0
    figure = make_subplots(
        rows=len(methods), cols=1, shared_xaxes=True,
        vertical_spacing=36 / (len(methods) * (36 + 24 * len(components))),
        subplot_titles=[f"<b>{VERB[method]}</b>" for method in methods],
    )  # fmt: skip
    ticks = [f"{name}<br>n = {int(table.n.sel(stratum=name)):,}" for name in strata]
    for row, method in enumerate(methods, start=1):
        part = table.sel(replacement=method)
        shown = [[_signed(value) for value in line] for line in part["drop"].values]
        figure.add_heatmap(
            z=part["drop"].values,
            x=ticks,
            y=components,
            text=shown,
            texttemplate="%{text}",
            textfont={"size": 11},
            customdata=np.stack([part[key].values for key in ("value", "low", "high", "control")], -1),
            hovertemplate="%{y}, %{x}<br>drop %{z:.4f}; leaves %{customdata[0]:.4f} "
            "[%{customdata[1]:.4f}, %{customdata[2]:.4f}], a random change as long %{customdata[3]:.4f}<extra></extra>",
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            row=row,
            col=1,
        )
    figure.update_yaxes(autorange="reversed", tickfont={"size": 12})
    figure.update_xaxes(tickangle=-60, tickfont={"size": 11})
    figure.update_annotations(x=0, xanchor="left", font={"size": 13, "color": theme.BLACK})
    bar = _bar(
        f"drop in {metric}", lenmode="pixels", len=min(400, 24 * len(components) * len(methods)), y=1, yanchor="top"
    )
    figure.update_layout(coloraxis={"colorscale": LOSS_RED, "cmin": -largest, "cmax": largest, "colorbar": bar})
    left_out = result.table.sizes["component"] - len(components)
    note = f"Cells: {metric} of the whole model minus {metric} without the component, on the same examples"
    if left_out:
        note = f"The {len(components)} of {left_out + len(components)} components that count most. {note}"
    height = 320 + len(methods) * (36 + 24 * len(components))
    figure = theme.finish(figure, _component_title(result, metric), result.provenance, 960, height, note)
    left = 30 + 7 * max(map(len, components))
    return figure.update_layout(margin={"l": left, "b": 130}, width=990 + left)


def _component_title(result: ComponentAblation, metric: str) -> str:
    parts = []
    for method in result.table.replacement.values.tolist():
        row = result.worst(metric, method)
        parts.append(f"{row.component.item()} {VERB[method]} leaves {float(row.value):.3f}")
    clean = float(result.table.clean.sel(metric=metric, stratum=ALL))
    return f"{result.model}, {metric} {clean:.3f}: {'; '.join(parts)}"


def _signed(value: float) -> str:
    if np.isnan(value):
        return ""
    if value == 0:
        return "0"
    return f"{value:.2f}" if abs(value) < 9.95 else f"{value:.0f}"


def _bar(text: str, **style: Any) -> dict[str, Any]:
    title = {"text": f"<br>{text}", "side": "right", "font": {"size": 12}}  # the break keeps it off the ticks
    return {"title": title, "thickness": 14, "tickfont": {"size": 11}} | style


@drawing(DoubleDissociation)
def double_dissociation(result: DoubleDissociation, most: int = 24) -> go.Figure:
    """Effect by unit and signal; cells say which share stays right on columns without and with the signal."""
    table = result.table
    kept = np.sort(np.argsort(-np.nanmax(np.abs(table.effect.fillna(0).values), 1), kind="stable")[:most])
    table = table.isel(unit=kept)
    ablated, effect = table.ablated.values, table.effect.values
    beyond = np.abs(effect) > table.chance.values
    text = [[_cell(ablated[u, s], bool(beyond[u, s])) for s in range(effect.shape[1])] for u in range(effect.shape[0])]
    units, signals = table.unit.values.tolist(), table.signal.values.tolist()
    figure = go.Figure()
    figure.add_heatmap(
        z=effect,
        x=[
            f"{signal_name(s)}<br>n = {int(n[0]):,} / {int(n[1]):,}"
            for s, n in zip(signals, table.n.values, strict=True)
        ],
        y=units,
        text=text,
        texttemplate="%{text}",
        textfont={"size": 12},
        customdata=np.stack((table.effect_low, table.effect_high, table.effect_apart, table.p_value, table.chance), -1),
        hovertemplate="%{y}, %{x}<br>effect %{z:.4f} [%{customdata[0]:.4f}, %{customdata[1]:.4f}]<br>rivals held fixed "
        "%{customdata[2]:.4f}<br>permutation p %{customdata[3]:.3f}, by chance below %{customdata[4]:.4f}"
        "<extra></extra>",
        colorscale=LOSS_RED,
        zmin=-1,
        zmax=1,
        colorbar=_bar("drop with minus drop without"),
        xgap=2,
        ygap=2,
    )
    figure.update_yaxes(autorange="reversed", title=f"unit, {VERB[result.method]}")
    figure.update_xaxes(side="bottom", title="signal in the column (n: columns without / with it)")
    figure = theme.finish(
        figure,
        _dissociation_title(result),
        result.provenance,
        160 + 7 * max(map(len, units)) + 145 * len(signals),
        300 + 34 * len(units),
        "Cells: share of answer digits right without the unit, on columns without / with the signal. In brackets: no "
        f"larger an effect than 95% of {result.draws:,} permutations of the signals",
    )
    return figure.update_layout(margin={"l": 70 + 7 * max(map(len, units)), "b": 90})


def _cell(values: np.ndarray, beyond: bool) -> str:
    text = " / ".join("-" if np.isnan(value) else f"{value:.3f}" for value in values)
    return text if beyond else f"({text})"


def _dissociation_title(result: DoubleDissociation) -> str:
    found = result.dissociations()
    if found.empty:
        return f"{result.model}: no double dissociation among {result.table.sizes['unit']} units"
    row = found.iloc[0]
    return (
        f"{result.model}: columns with {signal_name(str(row.signal))} need {row.unit}, columns without it {row.other} "
        f"(contrast {row.contrast:.3f} [{row.low:.3f}, {row.high:.3f}])"
    )


@drawing(ParameterAblation)
def parameter_ablation(result: ParameterAblation, scale: str = "loss") -> go.Figure:
    """Pairs (drop below the diagonal, interaction above it) beside the drop of every single parameter."""
    check_scale(scale)
    names = result.single.parameter.values.tolist()
    paired = bool(result.pairs.data_vars)
    figure = make_subplots(
        rows=1, cols=2 if paired else 1, shared_yaxes=True, column_widths=[0.78, 0.22] if paired else [1.0],
        horizontal_spacing=0.015,
    )  # fmt: skip
    note = "Bars: 95% bootstrap intervals; diamonds: mean of steps of the same size in random directions"
    if paired:
        note = _add_pairs(figure, result, scale) + note
    column = 2 if paired else 1
    single = result.single
    figure.add_bar(
        x=single["drop"].values, y=names, orientation="h", marker={"color": theme.BLUE}, name="this parameter",
        error_x=theme.error_bars(single["drop"], single.drop_low, single.drop_high, width=0, color=theme.BLACK),
        customdata=np.stack((single.trained, single.replaced_by, single.accuracy, single.loss), -1),
        hovertemplate="%{y}: %{customdata[0]:.4g} to %{customdata[1]:.4g}<br>accuracy %{customdata[2]:.4f}, "
        "loss %{customdata[3]:.3f}<extra></extra>", row=1, col=column,
    )  # fmt: skip
    if not bool(single.control.isnull().all()):
        figure.add_scatter(
            x=single.control.values, y=names, mode="markers", name="a random step of its size",
            marker=_CONTROL,
            row=1, col=column,
            hovertemplate="%{y}, control: %{x:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(range=[len(names) - 0.5, -0.5], tickfont={"size": 10}, dtick=1)
    figure.update_xaxes(title="drop in accuracy", range=[0, 1.05], row=1, col=column)
    if paired:
        figure.update_xaxes(
            tickangle=-90, tickfont={"size": 10}, dtick=1, range=[-0.5, len(names) - 0.5], showgrid=False, row=1, col=1
        )
    figure.update_layout(legend={"orientation": "h", "y": -0.1, "x": 1, "xanchor": "right"})
    side = 300 + 15 * len(names)
    figure = theme.finish(
        figure, _parameter_title(result), result.provenance, max(900, round(side * 1.35)), max(420, side), note
    )
    return figure.update_layout(margin={"l": 100, "r": 150 if paired else 30, "b": 110})


def _add_pairs(figure: go.Figure, result: ParameterAblation, scale: str) -> str:
    """The two triangles of the heat map; returns what the picture's note has to say of them."""
    names, p = result.single.parameter.values.tolist(), result.single.sizes["parameter"]
    below = np.tri(p, k=-1, dtype=bool)
    drop = np.where(below, result.pairs["drop"].values, np.nan)
    values = result.pairs[f"interaction_{scale}"].values
    limit = float(np.nanquantile(np.abs(values), 0.95)) or 1.0
    unit = {"loss": "nats", "accuracy": "share", "logit": "logits"}[scale]
    hover = "%{y} and %{x}<br>"
    figure.add_heatmap(
        z=drop, x=names, y=names, colorscale=theme.SEQUENTIAL, zmin=0, zmax=1, row=1, col=1, hoverongaps=False,
        hovertemplate=hover + "drop %{z:.4f}<extra></extra>",
        colorbar=_bar("below: drop in accuracy", x=1.01, y=0.24, len=0.45),
    )  # fmt: skip
    figure.add_heatmap(
        z=np.where(below.T, values, np.nan), x=names, y=names, colorscale=LOSS_RED, zmin=-limit, zmax=limit,
        hovertemplate=hover + "interaction %{z:.4f}<extra></extra>", hoverongaps=False, row=1, col=1,
        colorbar=_bar(f"above: interaction, {unit}", x=1.01, y=0.76, len=0.45),
    )  # fmt: skip
    return (
        f"Above the diagonal: what a pair costs beyond its two singles, on the {scale} (colours end at the 95% "
        "quantile); below: what it costs. "
    )


def _parameter_title(result: ParameterAblation) -> str:
    table, harmless = result.ranked(), result.harmless()
    dearest = table.iloc[0]
    shown = ", ".join(harmless[:_MOST_LISTED]) + (", ..." if len(harmless) > _MOST_LISTED else "")
    return (
        f"{result.model}: {len(harmless)} of {len(table)} parameters can each be {result.replacement} for at most "
        f"{HARMLESS} of the answer tokens ({shown or 'none'}); {dearest.parameter} costs {dearest['drop']:.3f}"
    )
