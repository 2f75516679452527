"""Pictures of :class:`interp.probes.lens.LogitLens`, :class:`interp.probes.lens.LogitAttribution` and
:class:`interp.probes.lens.LinearProbes`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.lens.attribution import LogitAttribution
from interp.probes.lens.logit_lens import LogitLens
from interp.probes.lens.probe_labels import SIGNALS
from interp.probes.lens.probes import LinearProbes

_SHORT = {"carry_in": "carry in", "carry_out": "carry out", "nine": "sums of 9", "digit_sum": "the digit sum"}
_MOST_PARTS, _MOST_UNITS = 24, 24  # drawn; the table has all
_CELLS_WITH_TEXT = 15  # targets up to which cells are wide enough for their numbers


@drawing(LogitLens)
def logit_lens(result: LogitLens) -> go.Figure:
    """Accuracy, probability and divergence: streams from top to bottom, targets from left to right."""
    panels = (
        ("accuracy", "right token leads (share)", theme.SEQUENTIAL, 1.0, "accuracy_low", "accuracy_high"),
        ("probability", "probability of the right token", theme.SEQUENTIAL, 1.0, "probability_low", "probability_high"),
        ("kl", "KL to the final distribution (nats)", "Oranges", None, "kl_low", "kl_high"),
    )
    points, targets = result.table.point.values.tolist(), result.table.target.values.tolist()
    figure = make_subplots(
        rows=3, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=[panel[1] for panel in panels]
    )
    height = max(110, 26 * len(points))
    for row, (name, _, colours, top, low, high) in enumerate(panels, 1):
        values = result.table[name].values
        ends = np.stack((result.table[low].values, result.table[high].values), -1)
        figure.add_heatmap(
            x=targets, y=points, z=values, zmin=0, zmax=float(values.max()) if top is None else top, colorscale=colours,
            text=_texts(values), texttemplate="%{text}" if len(targets) <= _CELLS_WITH_TEXT else None, xgap=1, ygap=1,
            customdata=ends, hovertemplate=f"%{{y}}, %{{x}}: {name} %{{z:.4f}} "
            "[%{customdata[0]:.4f}, %{customdata[1]:.4f}]<extra></extra>",
            colorbar={"len": 0.26, "y": 0.87 - 0.37 * (row - 1), "thickness": 12}, row=row, col=1,
        )  # fmt: skip
        figure.update_yaxes(autorange="reversed", type="category", row=row)
    figure.update_xaxes(type="category")
    figure.update_xaxes(title="target", row=3)
    control = float(result.table.overall_control.max())
    end, low, high = (float(result.table[f"overall{name}"][-1]) for name in ("", "_low", "_high"))
    note = f"Right at the end: {end:.3f} [{low:.3f}, {high:.3f}]; of other problems' answers at most {control:.2f}"
    return theme.finish(figure, _lens_title(result), result.provenance, width=1000, height=300 + 3 * height, note=note)


def _lens_title(result: LogitLens) -> str:
    before, after, low, high = result.largest_rise
    if high <= low:
        return f"{result.name}: no stream gives more right tokens than the one before"
    return f"{result.name}: the right token leads in {low:.3f} of the answers at {before}, in {high:.3f} at {after}"


def _texts(values: np.ndarray) -> list[list[str]]:
    """Numbers short enough for a cell: two decimals below 10, none above, nothing where there is none."""

    def short(x: float) -> str:
        if np.isnan(x) or abs(x) < 0.005:
            return "" if np.isnan(x) else "0"
        return f"{x:.2f}" if abs(x) < 10 else f"{x:.0f}"

    return [[short(x) for x in row] for row in values.tolist()]


@drawing(LogitAttribution)
def logit_attribution(result: LogitAttribution) -> go.Figure:
    """Mean contribution of the largest parts to every target's lead, and the largest units beside it."""
    mean = result.parts["mean"].values
    size = np.nan_to_num(np.abs(mean)).max(1)
    largest = np.sort(np.argsort(-size, kind="stable")[: min(_MOST_PARTS, int((size > 0).sum()))])  # in model order
    parts, targets = result.parts.part.values[largest].tolist(), result.parts.target.values.tolist()
    z = mean[largest]
    ends = np.stack((result.parts.low.values[largest], result.parts.high.values[largest]), -1)
    limit = float(np.nanmax(np.abs(z)))
    columns = 1 if result.units is None else 2
    titles = [f"parts: {len(parts)} of {len(size)}, mean over problems (logits)"]
    if result.units is not None:
        titles.append(
            f"units: {min(_MOST_UNITS, result.units['mean'][..., 0].size)} of {result.units['mean'][..., 0].size:,}"
        )
    figure = make_subplots(
        cols=columns,
        column_widths=[1.0] if columns == 1 else [0.68, 0.32],
        horizontal_spacing=0.2,
        subplot_titles=titles,
    )
    figure.add_heatmap(
        x=targets, y=parts, z=z, zmin=-limit, zmax=limit, colorscale=theme.DIVERGING, reversescale=True,
        customdata=ends, xgap=1, ygap=1,
        text=_texts(z), texttemplate="%{text}" if len(targets) <= _CELLS_WITH_TEXT else None,
        hovertemplate="%{y}, %{x}: %{z:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}] logits<extra></extra>",
        colorbar={"thickness": 12, "x": 1.0 if columns == 1 else 0.55}, row=1, col=1,
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category", row=1, col=1)
    figure.update_xaxes(type="category", title="target", row=1, col=1)
    if result.units is not None:
        _units(figure, result)
    height = 260 + 26 * max(len(parts), 12)
    note = f"Direct effects on the lead over {result.rival}; the norm's scale is frozen; blank: no such position"
    theme.finish(figure, result.headline().removesuffix("."), result.provenance, width=900, height=height, note=note)
    return figure.update_layout(width=1100, margin={"l": 190})  # the title stands over the panels, beside their labels


def _units(figure: go.Figure, result: LogitAttribution) -> None:
    """Bars of the units with the largest mean over targets, with the range of their means over targets."""
    assert result.units is not None
    by_target = result.units["mean"].values.reshape(-1, result.units.sizes["target"])
    mean = by_target.mean(1)
    order = np.argsort(-np.abs(mean), kind="stable")[:_MOST_UNITS]
    layer, unit = np.unravel_index(order, result.units["mean"].shape[:2])
    names = [f"L{i} unit {j}" for i, j in zip(layer, unit, strict=True)]
    low, high = by_target[order].min(1), by_target[order].max(1)
    figure.add_bar(
        x=mean[order], y=names, orientation="h", showlegend=False,
        marker={"color": np.where(mean[order] >= 0, theme.BLUE, theme.VERMILION)},
        error_x=theme.error_bars(mean[order], low, high, color=theme.GREY), customdata=np.stack((low, high), -1),
        hovertemplate="%{y}: %{x:.3f} logits; by target %{customdata[0]:.3f} to %{customdata[1]:.3f}<extra></extra>",
        row=1, col=2,
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category", row=1, col=2)
    figure.update_xaxes(title="mean over targets (bar: range)", row=1, col=2)


@drawing(LinearProbes)
def linear_probes(result: LinearProbes) -> go.Figure:
    """Accuracy with its interval, its controls and the score by site; a panel a signal, all columns together."""
    signals = list(dict.fromkeys(result.table.signal))
    columns = min(2, len(signals))
    rows = -(-len(signals) // columns)
    figure = make_subplots(
        rows=rows, cols=columns, shared_xaxes=True, subplot_titles=[SIGNALS.get(signal, signal) for signal in signals],
        horizontal_spacing=0.07, vertical_spacing=0.12,
    )  # fmt: skip
    for i, signal in enumerate(signals):
        table, where = result.overall(signal), {"row": i // columns + 1, "col": i % columns + 1}
        score = "R²" if bool(table.counted.iloc[0]) else "AUROC"
        lines = (
            ("accuracy", "accuracy, pairs never seen", theme.VERMILION, "circle", "solid"),
            ("score", "AUROC, or R² for numbers", theme.BLUE, "diamond", "dash"),
            ("control", "control: labels dealt anew", theme.GREY, "circle-open", None),
            ("memorised", "control, pairs seen: by heart", theme.PURPLE, "x-thin-open", None),
            ("untrained", "control: untrained copy", theme.BLACK, "line-ew-open", None),
        )
        for name, label, colour, symbol, dash in lines:
            bars = theme.error_bars(table.accuracy, table.pair_low, table.pair_high) if name == "accuracy" else None
            figure.add_scatter(
                x=table.site, y=table[name], name=label, legendgroup=name, showlegend=i == 0, error_y=bars,
                mode="lines+markers" if dash else "markers",
                line={"color": colour, "dash": dash or "solid", "width": 2},
                marker={"symbol": symbol, "size": 9, "color": colour},
                customdata=table[["low", "high", "control_score"]],
                hovertemplate=f"%{{x}}: {score if name == 'score' else name} %{{y:.3f}} (accuracy by problem "
                "[%{customdata[0]:.3f}, %{customdata[1]:.3f}]; "
                f"{score} of the control %{{customdata[2]:.3f}})<extra></extra>", **where,
            )  # fmt: skip
        lowest = min(0.0, float(table[["score", "accuracy"]].min().min()))
        figure.update_yaxes(range=[max(lowest, -1.0) - 0.05, 1.06], **where)
    figure.update_xaxes(type="category")
    figure.update_layout(legend={"orientation": "h", "y": -0.1 if rows > 1 else -0.2, "x": 0})
    note = f"Read at {result.place}, on pairs of digits never seen. Intervals: pairs of digits are clusters"
    return theme.finish(
        figure, _probes_title(result), result.provenance, width=1000, height=330 + 250 * rows, note=note
    )


def _probes_title(result: LinearProbes) -> str:
    told = []
    for signal in dict.fromkeys(result.table.signal):
        table = result.overall(signal)
        best = table.loc[table.score.idxmax()]
        told.append(f"{_SHORT.get(signal, signal)} at {best.site} ({best.accuracy:.3f} right)")
    return f"{result.name}: read best are {', '.join(told)}"
