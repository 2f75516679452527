"""The figure of :class:`interp.compare.comparison_result.Comparison`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from interp.compare.comparison_result import Comparison
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, circle, curve, hover, points, words, written
from interp.figures.panels import Panel, compose
from models.numerals import in_percent, number

_MOST_PAIRS = 6  # most pairs of heads shown; the closest are kept
_MOST_UNITS = 3
_MOST_NUMBERS = 120  # with more parameters than this, the table is left out
_WIDTH, _LEFT, _GAP = 1150, 210, 150  # pixels; the gap holds axis titles and the next row's heading
_PAIR_COLOURS = (theme.BLUE, theme.VERMILION, theme.GREEN)
_OF = ("a", "b")


@drawing(Comparison)
def comparison(result: Comparison) -> go.Figure:
    """Matched heads side by side, matched neurons and digits superimposed, all distances with their nulls, and the
    parameters if both models have the same."""
    pairs = _closest_pairs(result)
    numbers = result.parameters if result.parameters is not None else pd.DataFrame()
    with_numbers = 0 < len(numbers) <= _MOST_NUMBERS
    rows = result.table[result.table["nothing"] == ""]
    quantities = list(dict.fromkeys(rows["quantity"]))
    targets = result.roles[0].sizes["target"]
    heights = [max(220, 16 * targets)] * len(pairs) + [360, 22 * len(quantities) + 20]
    panels = [panel for pair in pairs for panel in _patterns(result, pair)]
    panels += [_units(result), _digits(result), _distances(rows, quantities)]
    if with_numbers:
        heights.append(24 * (math.ceil(len(numbers) / 2) + 2))
        panels.append(Panel([_numbers(numbers)], "parameters, number by number", span=2))
    total = sum(heights) + _GAP * (len(heights) - 1)
    note = f"a is {result.names[0]}, b is {result.names[1]}"
    if len(pairs) < len(result.head_pairs):
        note += f"; the {len(pairs)} closest of {len(result.head_pairs)} pairs of heads"
    if result.control[1]:
        note += f"; untrained: {result.control[1]} copies of {result.control[0]} with fresh parameters"
    figure = compose(
        panels, _title(result), result.provenance, note=note, columns=2, width=_WIDTH, plots=total, heights=heights,
        gaps=(96, _GAP), margin={"t": 30, "l": _LEFT, "r": 70}, title_size=16, meta={"least_width": 900},
    )  # fmt: skip
    _place_legends(figure, len(pairs), total)
    return figure


def _title(result: Comparison) -> str:
    units = result.table[result.table["part"] == "units"]
    unit = f", of matched MLP neurons {float(units['distance'].iloc[0]):.3f}" if len(units) else ""
    logits = result.table[result.table["quantity"].str.startswith("logits by")]
    logit = f", of the logits by digit sum and carry {float(logits['distance'].iloc[0]):.3f}" if len(logits) else ""
    return (
        f"{result.names[0]} next to {result.names[1]}: distance of where matched heads look "
        f"{result.distance('attention by role'):.3f}{unit}{logit}"
    )


def _closest_pairs(result: Comparison) -> list[tuple[str, str]]:
    pairs = sorted(result.head_pairs, key=lambda pair: float(result.heads.distance.sel(a=pair[0], b=pair[1])))
    kept = pairs[:_MOST_PAIRS]
    return [pair for pair in result.head_pairs if pair in kept]


def _patterns(result: Comparison, pair: tuple[str, str]) -> list[Panel]:
    """Where two matched heads look, side by side."""
    small, panels = {"size": 11}, []
    for head, name, means in zip(pair, result.names, result.roles, strict=True):
        weight = means.sel(head=head).transpose("target", "role")
        text = written(weight.values, least=0.005)
        layer = cells(weight, text=text, letters=10, **hover("predicting {y}: {z:.4f} on {x}"))
        y = {"tickfont": small, "title": "" if panels else "answer token predicted"}
        panels.append(Panel([layer], f"{head} of {name}", {"tickangle": 25, "tickfont": small}, y))
    return panels


def _units_title(result: Comparison) -> str:
    shown = min(_MOST_UNITS, len(result.unit_pairs))
    if not shown:
        return "no MLP neuron varies in both"
    return (
        f"{shown} of {len(result.unit_pairs)} matched MLP neurons"
        if shown < len(result.unit_pairs)
        else "matched MLP neurons"
    )


def _units(result: Comparison) -> Panel:
    """Mean activation by the column's total: lines without a carry in, markers with one."""
    best = result.unit_pairs.sort_values("distance", kind="stable").head(_MOST_UNITS)
    if not len(best) or not result.unit_means[0].sizes["cell"]:
        return Panel([], _units_title(result))
    layers = []
    for colour, pair in zip(_PAIR_COLOURS, best.itertuples(), strict=False):
        names, flip = (str(pair.a), str(pair.b)), float(pair.correlation) < 0
        series = f"a's {pair.a}, dotted: b's {pair.b}, r = {float(pair.correlation):.3f}"
        for which, (name, means) in enumerate(zip(names, result.unit_means, strict=True)):
            values = means.sel(unit=name)
            level = _to_unit_range(values.values)
            level = 1 - level if flip and which else level
            total = values.digit_sum.values + values.carry_in.values
            for carry, with_ in ((0, "without"), (1, "with")):
                at = np.flatnonzero(values.carry_in.values == carry)
                style: dict[str, Any] = {
                    "symbol": ("circle", "circle-open")[which],
                    "legendgroup": str(pair.a),
                    "legend": "legend",
                }
                style |= hover(f"{name} of {_OF[which]}, {with_} carry in, column total {{x}}: {{y:.3f}}")
                style |= {"mode": "markers" if carry else "lines", "showlegend": carry == which == 0}
                layers.append(curve(total[at], level[at], series, colour, ("solid", "dot")[which], **style))
    y = {"title": "mean activation, smallest 0, largest 1", "range": [-0.06, 1.06]}
    return Panel(layers, _units_title(result), "digits and carry in of the column (points: with carry in)", y)


def _to_unit_range(values: np.ndarray) -> np.ndarray:
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _digits_title(result: Comparison) -> str:
    if all(points.circle is not None for points in result.digits):
        return "digits' embeddings, on their fitted circles"
    return "digits' embeddings, in the plane of most variance"


def _digits(result: Comparison) -> Panel:
    both = np.concatenate([points.points for points in result.digits])
    middle, reach = (both.max(0) + both.min(0)) / 2, 0.68 * float(np.ptp(both, axis=0).max())
    layers = [circle((0.0, 0.0), 1.0)] if all(points.circle is not None for points in result.digits) else []
    styles = (("circle", 11, theme.BLUE, 0.14), ("circle-open", 15, theme.VERMILION, -0.14))  # a's labels are outside
    for name, digits, (symbol, size, colour, aside) in zip(result.names, result.digits, styles, strict=True):
        said = f"{name}: {in_percent(digits.share, 0)} of the variance"
        if digits.circle is not None:
            said = f"{name}: radius {digits.circle.radius:.2f}, {_degrees(digits.circle.stride)} a digit"
        numbers = np.arange(len(digits.points))
        style: dict[str, Any] = {"legend": "legend2"} | hover("digit {digit}: ({x:.3f}, {y:.3f})", digit=numbers)
        length = np.maximum(np.linalg.norm(digits.points, axis=1, keepdims=True), 1e-300)
        names = digits.points * (1 + aside * reach / length)
        layers += [
            points(digits.points[:, 0], digits.points[:, 1], said, colour, symbol, size, **style),
            words(names[:, 0], names[:, 1], [str(digit) for digit in numbers], colour),
        ]
    x, y = (
        {"title": f"plane axis {i}", "zeroline": False, "range": [float(m - reach), float(m + reach)]}
        for i, m in enumerate(middle)
    )
    x["title"] += _unit(result)
    return Panel(layers, _digits_title(result), x | {"constrain": "domain"}, y | {"square": True})


def _unit(result: Comparison) -> str:
    return " (radii)" if all(points.circle is not None for points in result.digits) else " (root mean square 1)"


def _degrees(angle: float) -> str:
    return f"{abs(math.degrees(angle)):.2f} degrees"


def _distances(rows: pd.DataFrame, quantities: list[str]) -> Panel:
    """One row per quantity, one mark per matched pair (or one for the whole model)."""
    which = [f"{a} - {b}" if a else "whole model" for a, b in zip(rows["a"], rows["b"], strict=True)]
    layers = []
    for column, name, symbol, colour in (
        ("shuffled", "labels shuffled (mean)", "x-thin", theme.GREY),
        ("untrained", "untrained copies (mean)", "diamond-open", theme.ORANGE),
        ("distance", "distance", "circle", theme.BLUE),
    ):
        p = [f", p = {p:.3f}" if not np.isnan(p) else "" for p in rows.get(f"p_{column}", [np.nan] * len(rows))]
        style: dict[str, Any] = {"legend": "legend3"} | hover(
            f"{{y}}, {{which}}: {name} {{x:.4f}}{{p}}", which=which, p=p
        )
        layers.append(points(rows[column], rows["quantity"], name, colour, symbol, 10, **style))
    y = {"autorange": "reversed", "tickfont": {"size": 12}, "tickmode": "array", "tickvals": quantities}
    title = "distances: 0 the same, 1 nothing in common"
    return Panel(layers, title, {"range": [-0.02, 1.02]}, y, span=2)


def _place_legends(figure: go.Figure, n_pairs: int, total: int) -> None:
    """Put separate legends below the units, the digits and the distances."""
    for name, row, column in (("legend", n_pairs + 1, 1), ("legend2", n_pairs + 1, 2), ("legend3", n_pairs + 2, 1)):
        x = next(iter(figure.select_xaxes(row=row, col=column))).domain[0]
        y = next(iter(figure.select_yaxes(row=row, col=column))).domain[0]
        place = {"x": x, "y": y - (50 if row == n_pairs + 1 else 30) / total, "xanchor": "left", "yanchor": "top"}
        orientation = "h" if name == "legend3" else "v"
        style: dict[str, Any] = {"orientation": orientation, "font": {"size": 12}, "tracegroupgap": 0}
        figure.update_layout({name: style | place})


def _numbers(numbers: pd.DataFrame) -> go.Table:
    """A table of parameter, a, b and difference, in two blocks side by side."""
    half = math.ceil(len(numbers) / 2)
    columns: list[list[str]] = []
    for block in (numbers.iloc[:half], numbers.iloc[half:]):
        names = block["parameter"] + [f"[{index}]" if index else "" for index in block["index"]]
        columns.append(names.tolist())
        columns += [[number(value) for value in block[column]] for column in ("a", "b", "difference")]
    header = ["number", "a", "b", "a - b"] * 2
    style: dict[str, Any] = {
        "align": ["left", "right", "right", "right"] * 2,
        "font": {"family": theme.FONT, "size": 12},
    }
    return go.Table(
        header={"values": header, "fill": {"color": theme.LIGHT}, "height": 24, **style},
        cells={"values": columns, "fill": {"color": "white"}, "height": 22, **style},
        columnwidth=[1.5, 1, 1, 1] * 2,
    )
