"""The picture of :class:`interp.compare.result.Comparison`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.compare.result import Comparison
from interp.figures import theme
from interp.figures.drawing import drawing

_MOST_PAIRS = 6  # of heads, those closest first
_MOST_UNITS = 3
_MOST_NUMBERS = 120  # parameters; more are left to `parameters`
_WIDTH, _LEFT, _GAP = 1150, 210, 150  # pixels; the gap holds axis titles and the next row's heading
_PAIR_COLOURS = (theme.BLUE, theme.VERMILION, theme.GREEN)
_OF = ("a", "b")


@drawing(Comparison)
def comparison(result: Comparison) -> go.Figure:
    """Matched heads beside each other, matched units and digits over one another, all distances with their nulls, and
    the parameters where both models have the same."""
    pairs = _closest_pairs(result)
    numbers = result.parameters if result.parameters is not None else pd.DataFrame()
    with_numbers = 0 < len(numbers) <= _MOST_NUMBERS
    rows = result.table[result.table["nothing"] == ""]
    quantities = list(dict.fromkeys(rows["quantity"]))
    targets = result.roles[0].sizes["target"]
    heights = [max(220, 16 * targets)] * len(pairs) + [360, 22 * len(quantities) + 20]
    kinds: list[Any] = [[{}, {}] for _ in range(len(pairs) + 1)] + [[{"colspan": 2}, None]]
    titles = [f"{head} of {name}" for pair in pairs for head, name in zip(pair, result.names, strict=True)]
    titles += [_units_title(result), _digits_title(result), "distances: 0 the same, 1 nothing in common"]
    if with_numbers:
        heights.append(24 * (math.ceil(len(numbers) / 2) + 2))
        kinds.append([{"type": "table", "colspan": 2}, None])
        titles.append("parameters, number by number")
    total = sum(heights) + _GAP * (len(heights) - 1)
    figure = make_subplots(
        rows=len(heights),
        cols=2,
        specs=kinds,
        row_heights=heights,
        vertical_spacing=_GAP / total,
        horizontal_spacing=0.11,
        subplot_titles=titles,
    )
    for row, pair in enumerate(pairs, 1):
        _patterns(figure, result, pair, row)
    _units(figure, result, len(pairs) + 1)
    _digits(figure, result, len(pairs) + 1)
    _distances(figure, rows, quantities, len(pairs) + 2)
    if with_numbers:
        _numbers(figure, result, numbers, len(pairs) + 3)
    note = f"a is {result.names[0]}, b is {result.names[1]}"
    if len(pairs) < len(result.head_pairs):
        note += f"; the {len(pairs)} closest of {len(result.head_pairs)} pairs of heads"
    if result.control[1]:
        note += f"; untrained: {result.control[1]} copies of {result.control[0]} with fresh parameters"
    figure = theme.finish(
        figure, _title(result), result.provenance, _WIDTH - _LEFT, total, note
    )  # wrapped to the plots
    top, bottom = int(figure.layout.margin.t) + 30, 60
    margin = {"t": top, "b": bottom, "l": _LEFT, "r": 70}
    figure.update_layout(width=_WIDTH, height=total + top + bottom, margin=margin)
    _place_legends(figure, len(pairs), total)
    return figure


def _title(result: Comparison) -> str:
    units = result.table[result.table["part"] == "units"]
    unit = f", of matched MLP units {float(units['distance'].iloc[0]):.3f}" if len(units) else ""
    logits = result.table[result.table["quantity"].str.startswith("logits by")]
    logit = f", of the logits by digit sum and carry {float(logits['distance'].iloc[0]):.3f}" if len(logits) else ""
    return (
        f"{result.names[0]} beside {result.names[1]}: distance of where matched heads look "
        f"{result.distance('attention by role'):.3f}{unit}{logit}"
    )


def _closest_pairs(result: Comparison) -> list[tuple[str, str]]:
    pairs = sorted(result.head_pairs, key=lambda pair: float(result.heads.distance.sel(a=pair[0], b=pair[1])))
    kept = pairs[:_MOST_PAIRS]
    return [pair for pair in result.head_pairs if pair in kept]


def _patterns(figure: go.Figure, result: Comparison, pair: tuple[str, str], row: int) -> None:
    for column, (head, means) in enumerate(zip(pair, result.roles, strict=True), 1):
        weight = means.sel(head=head)
        figure.add_heatmap(
            x=weight.role.values.tolist(),
            y=weight.target.values.tolist(),
            z=weight.values,
            zmin=0,
            zmax=1,
            colorscale=theme.SEQUENTIAL,
            xgap=1,
            ygap=1,
            showscale=False,
            text=[["" if not w >= 0.005 else f"{w:.2f}" for w in line] for line in weight.values],
            texttemplate="%{text}",
            textfont={"size": 10},
            hovertemplate="predicting %{y}: %{z:.4f} on %{x}<extra></extra>",
            row=row,
            col=column,
        )  # fmt: skip
        figure.update_yaxes(autorange="reversed", showgrid=False, tickfont={"size": 11}, row=row, col=column)
        figure.update_xaxes(showgrid=False, tickangle=25, tickfont={"size": 11}, row=row, col=column)
    figure.update_yaxes(title="answer token predicted", row=row, col=1)


def _units_title(result: Comparison) -> str:
    shown = min(_MOST_UNITS, len(result.unit_pairs))
    if not shown:
        return "no MLP unit varies in both"
    return (
        f"{shown} of {len(result.unit_pairs)} matched MLP units"
        if shown < len(result.unit_pairs)
        else "matched MLP units"
    )


def _units(figure: go.Figure, result: Comparison, row: int) -> None:
    """Mean activation over the column's total: lines without a carry in, markers with one."""
    best = result.unit_pairs.sort_values("distance", kind="stable").head(_MOST_UNITS)
    if not len(best) or not result.unit_means[0].sizes["cell"]:
        return
    for colour, pair in zip(_PAIR_COLOURS, best.itertuples(), strict=False):
        names, flip = (str(pair.a), str(pair.b)), float(pair.correlation) < 0
        for which, (name, means) in enumerate(zip(names, result.unit_means, strict=True)):
            values = means.sel(unit=name)
            level = _to_unit_range(values.values)
            level = 1 - level if flip and which else level
            total = values.digit_sum.values + values.carry_in.values
            for carry in (0, 1):
                at = np.flatnonzero(values.carry_in.values == carry)
                figure.add_scatter(
                    x=total[at],
                    y=level[at],
                    mode="lines" if carry == 0 else "markers",
                    line={"color": colour, "dash": ("solid", "dot")[which], "width": 2},
                    marker={"color": colour, "symbol": ("circle", "circle-open")[which], "size": 8},
                    name=f"a's {pair.a}, dotted: b's {pair.b}, r = {float(pair.correlation):.3f}",
                    legend="legend",
                    legendgroup=str(pair.a),
                    showlegend=carry == which == 0,
                    hovertemplate=f"{name} of {_OF[which]}, {'with' if carry else 'without'} carry in, column total "
                    "%{x}: %{y:.3f}<extra></extra>",
                    row=row,
                    col=1,
                )
    figure.update_xaxes(title="digits and carry in of the column (points: with carry in)", row=row, col=1)
    figure.update_yaxes(title="mean activation, smallest 0, largest 1", range=[-0.06, 1.06], row=row, col=1)


def _to_unit_range(values: np.ndarray) -> np.ndarray:
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def _digits_title(result: Comparison) -> str:
    if all(points.circle is not None for points in result.digits):
        return "digits' embeddings, on their fitted circles"
    return "digits' embeddings, in the plane of most variance"


def _digits(figure: go.Figure, result: Comparison, row: int) -> None:
    both = np.concatenate([points.points for points in result.digits])
    middle, reach = (both.max(0) + both.min(0)) / 2, 0.68 * float(np.ptp(both, axis=0).max())
    styles = (("circle", 11, theme.BLUE), ("circle-open", 15, theme.VERMILION))
    if all(points.circle is not None for points in result.digits):
        turn = np.linspace(0, 2 * np.pi, 181)
        line = {"color": theme.GREY, "dash": "dot", "width": 1}
        figure.add_scatter(
            x=np.cos(turn), y=np.sin(turn), mode="lines", line=line, hoverinfo="skip", showlegend=False, row=row, col=2
        )
    for which, (points, (symbol, size, colour)) in enumerate(zip(result.digits, styles, strict=True)):
        x, y = points.points.T
        said = f"{result.names[which]}: {points.share:.0%} of the variance"
        if points.circle is not None:
            said = f"{result.names[which]}: radius {points.circle.radius:.2f}, {_degrees(points.circle.stride)} a digit"
        figure.add_scatter(
            x=x,
            y=y,
            mode="markers",
            marker={"symbol": symbol, "size": size, "color": colour, "line": {"width": 2 * which, "color": colour}},
            customdata=np.arange(len(x)),
            hovertemplate="digit %{customdata}: (%{x:.3f}, %{y:.3f})<extra></extra>",
            name=said,
            legend="legend2",
            row=row,
            col=2,
        )
        length = np.maximum(np.linalg.norm(points.points, axis=1, keepdims=True), 1e-300)
        x, y = (points.points * (1 + (0.14, -0.14)[which] * reach / length)).T  # a's names outside of its points
        figure.add_scatter(
            x=x, y=y, mode="text", text=[str(digit) for digit in range(len(x))], hoverinfo="skip",
            textfont={"size": 12, "color": colour}, showlegend=False, row=row, col=2,
        )  # fmt: skip
    window = [[float(m - reach), float(m + reach)] for m in middle]
    figure.update_xaxes(title="plane axis 0" + _unit(result), zeroline=False, range=window[0], row=row, col=2)
    axis = next(iter(figure.select_xaxes(row=row, col=2))).plotly_name.replace("axis", "")
    figure.update_yaxes(
        title="plane axis 1", zeroline=False, range=window[1], scaleanchor=axis, constrain="domain", row=row, col=2
    )
    figure.update_xaxes(constrain="domain", row=row, col=2)


def _unit(result: Comparison) -> str:
    return " (radii)" if all(points.circle is not None for points in result.digits) else " (root mean square 1)"


def _degrees(angle: float) -> str:
    return f"{abs(math.degrees(angle)):.2f} degrees"


def _distances(figure: go.Figure, rows: pd.DataFrame, quantities: list[str], row: int) -> None:
    """A line a quantity, a mark a matched pair (or one for the whole model)."""
    for column, name, symbol, colour in (
        ("shuffled", "labels shuffled (mean)", "x-thin", theme.GREY),
        ("untrained", "untrained copies (mean)", "diamond-open", theme.ORANGE),
        ("distance", "distance", "circle", theme.BLUE),
    ):
        which = [f"{a} - {b}" if a else "whole model" for a, b in zip(rows["a"], rows["b"], strict=True)]
        p = [f", p = {p:.3f}" if not np.isnan(p) else "" for p in rows.get(f"p_{column}", [np.nan] * len(rows))]
        figure.add_scatter(
            x=rows[column],
            y=rows["quantity"],
            mode="markers",
            marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
            name=name,
            legend="legend3",
            customdata=np.stack((which, p), -1),
            hovertemplate="%{y}, %{customdata[0]}: " + name + " %{x:.4f}%{customdata[1]}<extra></extra>",
            row=row,
            col=1,
        )
    figure.update_xaxes(range=[-0.02, 1.02], row=row, col=1)
    figure.update_yaxes(
        autorange="reversed", tickfont={"size": 12}, tickmode="array", tickvals=quantities, row=row, col=1
    )


def _place_legends(figure: go.Figure, n_pairs: int, total: int) -> None:
    """Under the units, the digits and the distances each its own."""
    for name, row, column in (("legend", n_pairs + 1, 1), ("legend2", n_pairs + 1, 2), ("legend3", n_pairs + 2, 1)):
        x = next(iter(figure.select_xaxes(row=row, col=column))).domain[0]
        y = next(iter(figure.select_yaxes(row=row, col=column))).domain[0]
        place = {"x": x, "y": y - (50 if row == n_pairs + 1 else 30) / total, "xanchor": "left", "yanchor": "top"}
        orientation = "h" if name == "legend3" else "v"
        style = {"orientation": orientation, "font": {"size": 12}, "tracegroupgap": 0}
        figure.update_layout({name: style | place})


def _numbers(figure: go.Figure, result: Comparison, numbers: pd.DataFrame, row: int) -> None:
    """Two blocks of parameter, index, a, b and difference beside each other."""
    half = math.ceil(len(numbers) / 2)
    cells: list[list[str]] = []
    for block in (numbers.iloc[:half], numbers.iloc[half:]):
        names = block["parameter"] + [f"[{index}]" if index else "" for index in block["index"]]
        cells.append(names.tolist())
        cells += [[f"{value:.4g}" for value in block[column]] for column in ("a", "b", "difference")]
    header = ["number", "a", "b", "a - b"] * 2
    style = {"align": ["left", "right", "right", "right"] * 2, "font": {"family": theme.FONT, "size": 12}}
    figure.add_trace(
        go.Table(
            header={"values": header, "fill": {"color": theme.LIGHT}, "height": 24, **style},
            cells={"values": cells, "fill": {"color": "white"}, "height": 22, **style},
            columnwidth=[1.5, 1, 1, 1] * 2,
        ),
        row=row,
        col=1,
    )
