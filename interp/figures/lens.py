"""Figures of :class:`interp.probes.lens.LogitLens`, :class:`interp.probes.lens.LogitAttribution` and
:class:`interp.probes.lens.LinearProbes`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, curve, hover, points, short, written
from interp.figures.panels import Panel, compose
from interp.probes.lens.direct_attribution import LogitAttribution
from interp.probes.lens.linear_probing import LinearProbes
from interp.probes.lens.logits_by_layer import LogitLens
from interp.probes.lens.probe_labels import SIGNALS
from models.numerals import in_percent, in_percent_with
from models.transformer.part_names import neuron_name

_SHORT = {"carry_in": "carry in", "carry_out": "carry out", "nine": "sums of 9", "digit_sum": "the digit sum"}
_MOST_PARTS, _MOST_UNITS = 24, 24  # at most so many are drawn; the table has all
_CELLS_WITH_TEXT = 15  # most targets for which cells are wide enough for numbers


@drawing(LogitLens)
def logit_lens(result: LogitLens) -> go.Figure:
    """Accuracy, probability and divergence: streams from top to bottom, targets from left to right."""
    points_, targets = result.table.point.values.tolist(), result.table.target.values.tolist()
    panels = []
    for name, title, scale, top in (
        ("accuracy", "right token leads (share)", theme.SEQUENTIAL, 1.0),
        ("probability", "probability of the right token", theme.SEQUENTIAL, 1.0),
        ("kl", "KL to the final distribution (nats)", "Oranges", None),
    ):
        values, low, high = (result.table[name + end].values for end in ("", "_low", "_high"))
        said = hover(f"{{y}}, {{x}}: {name} {{z:.4f}} [{{low:.4f}}, {{high:.4f}}]", low=low, high=high)
        limits = (0, float(values.max()) if top is None else top)
        layer = cells(values, targets, points_, scale=scale, limits=limits, text=_texts(values), bar=" ", **said)
        panels.append(Panel([layer], title, x="target" if name == "kl" else "", y={"type": "category"}))
    control = float(result.table.overall_control.max())
    end, low, high = (float(result.table[f"overall{name}"][-1]) for name in ("", "_low", "_high"))
    note = f"Right at the end: {in_percent_with(end, low, high)}; answers of other problems lead in at most "
    note += in_percent(control)
    height = 300 + 3 * max(110, 26 * len(points_))
    return compose(
        panels, _lens_title(result), result.provenance, note=note, height=height, shared="x", gaps=(0, 44),
        margin={"r": 60},
    )  # fmt: skip


def _lens_title(result: LogitLens) -> str:
    before, after, low, high = result.largest_rise
    if high <= low:
        return f"{result.name}: no stream gives more right tokens than the one before"
    shares = in_percent(low), in_percent(high)
    return f"{result.name}: the right token leads in {shares[0]} of the answers at {before}, in {shares[1]} at {after}"


def _texts(values: np.ndarray) -> list[list[str]] | None:
    return written(values, short) if values.shape[1] <= _CELLS_WITH_TEXT else None


@drawing(LogitAttribution)
def logit_attribution(result: LogitAttribution) -> go.Figure:
    """Mean contribution of the largest parts to every target's lead, and the largest units next to it."""
    mean = result.parts["mean"].values
    size = np.nan_to_num(np.abs(mean)).max(1)
    largest = np.sort(np.argsort(-size, kind="stable")[: min(_MOST_PARTS, int((size > 0).sum()))])  # in model order
    table, z = result.parts.isel(part=largest), mean[largest]
    said = hover("{y}, {x}: {z:.3f} [{low:.3f}, {high:.3f}] logits", low=table.low.values, high=table.high.values)
    targets, parts = table.target.values.tolist(), table.part.values.tolist()
    layer = cells(z, targets, parts, signed=True, text=_texts(z), bar=" ", **said)
    title = f"parts: {len(parts)} of {len(size)}, mean over problems (logits)"
    panels = [Panel([layer], title, x={"title": "target", "type": "category"}), *_units(result)]
    return compose(
        panels, result.headline().removesuffix("."), result.provenance, columns=len(panels), width=1100,
        note=f"Direct effects on the lead over {result.rival}; the norm's scale is frozen; blank: no such position",
        height=260 + 26 * max(len(parts), 12), widths=[0.68, 0.32][: len(panels)], gaps=(170, 0), margin={"l": 190},
    )  # fmt: skip


def _units(result: LogitAttribution) -> list[Panel]:
    """Bars of the units with the largest mean over targets, with the range of their means over targets."""
    if result.units is None:
        return []
    by_target = result.units["mean"].values.reshape(-1, result.units.sizes["target"])
    mean = by_target.mean(1)
    order = np.argsort(-np.abs(mean), kind="stable")[:_MOST_UNITS]
    layer, unit = np.unravel_index(order, result.units["mean"].shape[:2])
    low, high = by_target[order].min(1), by_target[order].max(1)
    said = hover("{y}: {x:.3f} logits; by target {low:.3f} to {high:.3f}", low=low, high=high)
    layers = bars(
        mean[order], [neuron_name(i, j) for i, j in zip(layer, unit, strict=True)], None,
        np.where(mean[order] >= 0, theme.POSITIVE, theme.NEGATIVE), across=True, ends=(low, high),
        bar={"color": theme.GREY}, **said,
    )  # fmt: skip
    x, y = "mean over targets (bar: range)", {"autorange": "reversed", "type": "category"}
    return [Panel([layers], f"units: {len(order)} of {len(mean):,}", x, y)]


@drawing(LinearProbes)
def linear_probes(result: LinearProbes) -> go.Figure:
    """Accuracy with its interval, its controls and the score by site; one panel per signal, all columns together."""
    signals = list(dict.fromkeys(result.table.signal))
    columns = min(2, len(signals))
    panels = []
    for signal in signals:
        table = result.overall(signal)
        score = "R²" if bool(table.counted.iloc[0]) else "AUROC"
        layers = []
        for column, name, colour, symbol, dash in (
            ("accuracy", "accuracy, pairs never seen", theme.VERMILION, "circle", "solid"),
            ("score", "AUROC, or R² for numbers", theme.BLUE, "diamond", "dash"),
            ("control", "control: labels shuffled", theme.GREY, "circle-open", ""),
            ("memorised", "control, fitted pairs: memorised", theme.PURPLE, "x-thin-open", ""),
            ("untrained", "control: untrained copy", theme.BLACK, "line-ew-open", ""),
        ):
            style = hover(
                f"{{x}}: {score if column == 'score' else column} {{y:.3f}} (accuracy by problem "
                f"[{{low:.3f}}, {{high:.3f}}]; {score} of the control {{control:.3f}})",
                low=table.low, high=table.high, control=table.control_score,
            )  # fmt: skip
            if column == "accuracy":
                style["ends"] = (table.pair_low, table.pair_high)
            at = table.site, table[column], name, colour
            layers.append(curve(*at, dash, symbol=symbol, size=9, **style) if dash else points(*at, symbol, **style))
        lowest = min(0.0, float(table[["score", "accuracy"]].min().min()))
        axis = {"range": [max(lowest, -1.0) - 0.05, 1.06]}
        panels.append(Panel(layers, str(SIGNALS.get(signal, signal)), {"type": "category"}, axis))
    rows = -(-len(signals) // columns)
    note = f"Read at {result.place}, on pairs of digits never seen. Intervals: pairs of digits are clusters"
    return compose(
        panels, _probes_title(result), result.provenance, note=note, columns=columns, height=330 + 250 * rows,
        shared="x", gaps=(60, 60),
    )  # fmt: skip


def _probes_title(result: LinearProbes) -> str:
    told = []
    for signal in dict.fromkeys(result.table.signal):
        table = result.overall(signal)
        best = table.loc[table.score.idxmax()]
        told.append(f"{_SHORT.get(signal, signal)} at {best.site} ({best.accuracy:.3f} right)")
    return f"{result.name}: read best are {', '.join(told)}"
