"""Numbers by row and column as a heat map."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import xarray as xr
from plotly.colors import sample_colorscale

from interp.core.views import Grid
from interp.figures import theme
from interp.figures.chart_parts import Looks, texts
from interp.figures.figure_panels import QUARTERS, Mark, Panel, frame
from interp.figures.traces import bound, cells, hover, points, short, words, written

_BEYOND = [[0, "#CCCCCC"], [1, "#CCCCCC"]]
#: From light, so that 0 differs from a blank, to dark blue; logarithmic ones can be written on everywhere.
SHARES = sample_colorscale("Blues", np.linspace(0.08, 1, 9).tolist())
_PALE = sample_colorscale("Blues", np.linspace(0.12, 0.7, 9).tolist())
_LETTER = 6.6  # pixels of a letter in a cell


def names(view: Grid, axis: str) -> Any:
    """The names of a grid's rows ("y") or columns ("x")."""
    given = view.rows if axis == "y" else view.columns
    if given is None and isinstance(view.values, xr.DataArray):
        given = view.values[view.values.dims[axis == "x"]].values
    if given is None:
        given = np.arange(np.asarray(view.values).shape[axis == "x"])
    return given.tolist() if hasattr(given, "tolist") else list(given)


def panel(view: Grid, looks: Looks, width: float) -> Panel:
    """A heat map whose cells have their numbers written in if ``width`` pixels are enough."""
    values = np.asarray(view.values, dtype=float)
    rows, columns = names(view, "y"), names(view, "x")
    columns, x = _unlike(columns, width)
    rows, y = _unlike(rows, width)
    text = cell_texts(view)
    if text is not None and max(len(part) for line in text for t in line for part in t.split("<br>")) * _LETTER + 8 > (
        width / max(1, len(columns))
    ):
        text = None
    z, style = _coloured(view, values)
    if view.unit:
        style["bar"] = {"title": view.unit} | style.pop("ticks", {})
    style.pop("ticks", None)
    few = max(values.shape) <= 40
    layers = [
        cells(z, columns, rows, text=text, letters=11, gap=1 if few else 0, hoverongaps=False, **style, **_said(view))
    ]
    if view.grey is not None:
        mask = np.where(np.asarray(view.grey, dtype=bool), 1.0, np.nan)
        layers.append(cells(mask, columns, rows, scale=_BEYOND, gap=0, hoverinfo="skip"))
    if view.colours == "log":
        layers += _wrong(values, rows, columns)
    for each in view.marks:
        look = looks[each.name]
        layers.append(points(each.x, each.y, each.name, look.colour, look.symbol, 8, rim="white", **_of_marks(each)))
    x, y = (_axis(title, of, few) | repeated for title, of, repeated in ((view.x, columns, x), (view.y, rows, y)))
    if view.upwards:
        y |= {"autorange": True}
    frames = [frame(column, row, theme.ORANGE) for row, column in view.frames]
    return Panel(layers, view.title, x, y, frames + _box(view))


def _unlike(of: list[Any], width: float) -> tuple[list[Any], dict[str, Any]]:
    """Names, or numbers in place of names that repeat, and the settings of their axis."""
    if len(set(of)) == len(of):
        return of, {}
    at = list(range(len(of)))
    lines = [re.sub("</?b>", "", line) for name in of for line in str(name).split("<br>")]
    room = width / (_LETTER * max(map(len, lines)) + 6)
    every = max(1, math.ceil(len(of) / room))
    return at, {"tickvals": at[::every], "ticktext": of[::every], "tickangle": 0, "tickfont": {"size": 11}}


def cell_texts(view: Grid) -> list[list[str]] | None:
    """What is written in the cells if there is room."""
    if view.text is not None:
        return np.asarray(view.text, dtype=object).tolist()
    values = np.asarray(view.values, dtype=float)
    if view.colours == "share":
        return written(values)
    if view.colours == "log":
        return written(np.where(values > 0, values, np.nan), lambda v: f"{v:.2f}" if v >= 0.1 else f"{v:.2g}")
    return written(values, short if bound(values) > 0.1 else ".2g")


def _coloured(view: Grid, values: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """What is drawn as colours, and the settings of the scale."""
    if view.colours == "share":
        return values, {
            "scale": SHARES,
            "limits": (0, view.limit or 1),
            "ticks": {"tickvals": QUARTERS, "tickformat": ".0%"},
        }
    if view.colours == "signed":
        return values, {"signed": view.limit or bound(values)}
    if view.colours == "range":
        known = values[np.isfinite(values)]
        ends = (min(0.0, float(known.min())), view.limit or float(known.max())) if len(known) else (0.0, 1.0)
        return values, {"scale": SHARES, "limits": ends}
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if len(positive) else (-1.0, 1.0)
    inside = lambda ticks: [float(tick) for tick in ticks if low <= tick <= high]  # noqa: E731
    ticks = inside(np.arange(-14, 9) / 2)
    if len(ticks) < 3:  # less than about a decade: 1, 2, 3 and 5 of each
        ticks = inside(np.add.outer(np.arange(-7, 5), np.log10([1, 2, 3, 5])).ravel())
    ticks = ticks if len(ticks) > 1 else [low, high]
    bar = {"tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]}
    logs = np.where(values > 0, np.log10(np.where(values > 0, values, 1.0)), np.nan)
    return logs, {"scale": _PALE, "limits": (low, high), "ticks": bar}


def _said(view: Grid) -> dict[str, Any]:
    number = {"share": ":.4f}", "log": ":,.4g}"}.get(view.colours, ":,.4g}")
    fields: dict[str, Any] = {"value": np.asarray(view.values, dtype=float)}
    text = f"{{y}}, {{x}}: {{value{number}"
    if view.low is not None:
        fields |= {"low": np.asarray(view.low), "high": np.asarray(view.high)}
        text += f" [{{low{number}, {{high{number}]"
    for i, (name, values) in enumerate(view.said.items()):
        values = np.asarray(values)
        fields[f"more{i}"] = np.broadcast_to(values, fields["value"].shape)
        text += (
            f"<br>{name} " * bool(name)
            + ("<br>" if not name else "")
            + f"{{more{i}{':,.4g' * (values.dtype.kind == 'f')}}}"
        )
    return hover(text, **fields)


def _of_marks(each: Any) -> dict[str, Any]:
    fields = {f"more{i}": np.asarray(values) for i, values in enumerate(each.said.values())}
    more = "".join(f"<br>{name} {{more{i}}}" for i, name in enumerate(each.said))
    return hover(f"{each.name}<br>{{x:.3g}}{more}", **fields)


def _wrong(values: np.ndarray, rows: list[Any], columns: list[Any]) -> list[Any]:
    """Numbers of zero or less, which a logarithm does not have, in red."""
    at = np.argwhere(np.isfinite(values) & (values <= 0))
    if not len(at):
        return []
    text = [f"<b>{values[row, column]:.2f}</b>" for row, column in at]
    x, y = [columns[column] for _, column in at], [rows[row] for row, _ in at]
    return [words(x, y, text, theme.VERMILION, name="wrong", showlegend=False)]


def _axis(title: str, of: list[Any], few: bool) -> dict[str, Any]:
    style: dict[str, Any] = {"title": title}
    if texts(of):
        style |= {"type": "category", "ticksuffix": " "}
        style |= {"tickfont": {"size": 11}} if len(of) > 12 else {}
    elif few and len(of) <= 12:
        style |= {"tickvals": of}
    return style


def _box(view: Grid) -> list[Mark]:
    """The frame of a range, whose white rim sets it off from dark cells."""
    if view.box is None:
        return []
    rows, columns = names(view, "y"), names(view, "x")
    x0, x1, y0, y1 = view.box
    ends = {"x0": max(x0, columns[0]) - 0.5, "x1": x1 + 0.5, "y0": max(y0, rows[0]) - 0.5, "y1": y1 + 0.5}
    lines = ({"color": "white", "width": 6}, {"color": "#C00000", "width": 3})
    return [Mark("add_shape", {"type": "rect", "line": line} | ends) for line in lines]


def height(view: Grid) -> float:
    """Pixels of a panel: enough for each row's name and the lines of text in its cells."""
    rows = names(view, "y")
    text = cell_texts(view) if len(rows) <= 40 else None
    lines = max((t.count("<br>") + 1 for line in text for t in line), default=1) if text else 1
    each = 26 if len(rows) <= 16 else 20 if len(rows) <= 30 else 13 if len(rows) <= 80 else 6
    least = 130 if view.unit else 50  # a scale of colours beside it needs room
    return max(least, 20 + max(each, 17 * lines + 9 if lines > 1 else 0) * len(rows))
