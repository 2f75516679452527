"""The layers that figures consist of: cells, points, curves, bands, bars and words.

    cells(z, x, y, text=..., **hover("{y}, {x}: {z:.3f} [{low:.3f}, {high:.3f}]", low=low, high=high))    a heat map
    points(x, y, "aligned", BLUE, ends=(low, high))                    estimates with their intervals
    curve(x, y, "loss", VERMILION, ends=(low, high))                   a line; :func:`band` adds a band
    bars(x, y, "zeroed", GREY, ends=(low, high))                       the same as bars; horizontal with ``across``
    words(x, y, text)                                                  text where a point would be

Each is one Plotly trace with the common look of all figures; further arguments are Plotly's own.
:func:`interp.figures.figure_panels.compose` puts layers into panels and panels into a figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.figures import theme

Number = int | float
Ends = tuple[Any, Any]  # the lower and the upper ends of intervals
_OWN = ("x", "y", "z", "text", "hovertext")  # fields that Plotly itself knows
_FIELD = re.compile(r"{(\w+)([:|][^}]*)?}")
_GENERAL = re.compile(r"^(:.*\d)~?g$")  # d3's g writes 1e-7, and its r 0.0000001
_THIN = ("thin", "line-", "open")  # parts of the names of symbols that are only an outline


def hover(said: str, /, extra: Any = "", **fields: Any) -> dict[str, Any]:
    """The text shown on hovering over a point, with ``{x}``, ``{y}``, ``{z}``, ``{text}``, and ``fields`` by name.

    A field is an array of the layer's shape or one that broadcasts to it; formats are d3's: ``{low:.3f}``. Significant
    digits, ``{low:.3g}``, are written without an exponent.
    """
    names = list(fields)

    def place(found: re.Match[str]) -> str:
        name, form = found[1], _GENERAL.sub(r"\1~r", found[2] or "")
        return f"%{{{name if name in _OWN and name not in names else f'customdata[{names.index(name)}]'}{form}}}"

    shown = {"hovertemplate": f"{_FIELD.sub(place, said)}<extra>{extra}</extra>"}
    if not fields:
        return shown
    columns = np.broadcast_arrays(*(np.asarray(values) for values in fields.values()))
    same = len({column.dtype.kind for column in columns}) == 1
    return shown | {"customdata": np.stack([c if same else c.astype(object) for c in columns], -1)}


def written(values: Any, form: str | Callable[[float], str] = ".2f", least: Number = 0) -> list[list[str]]:
    """Numbers as texts for cells; empty for NaN and for values closer to zero than ``least``."""
    say = form if callable(form) else lambda value: format(value, form)
    return [["" if np.isnan(v) or abs(v) < least else say(v) for v in row] for row in np.asarray(values, dtype=float)]


def short(value: float) -> str:
    """A number in few characters: two decimals below 10, none above."""
    return "0" if abs(value) < 0.005 else f"{value:.2f}" if abs(value) < 9.995 else f"{value:.0f}"


def bound(values: Any) -> float:
    """The largest absolute value; 1 if all are zero."""
    return float(np.nanmax(np.abs(np.asarray(values, dtype=float)), initial=0.0)) or 1.0


def cells(
    z: Any,
    x: Any = None,
    y: Any = None,
    *,
    scale: Any = theme.SEQUENTIAL,
    limits: tuple[Number, Number] | None = (0, 1),
    signed: bool | Number = False,
    text: Any = None,
    letters: int = 12,
    bar: str | dict[str, Any] = "",
    gap: int = 1,
    **style: Any,
) -> go.Heatmap:
    """A heat map of ``z`` [y, x]; a labelled array brings its labels along.

    ``signed``: zero is white, blue positive and vermilion negative, up to the absolute value ``signed`` or, if it is
    True, the largest of ``z``. ``limits=None`` runs from the smallest to the largest value. ``bar`` names what the
    colours stand for. Layers with the same scale share a colour bar; without a name there is none.
    """
    if isinstance(z, xr.DataArray):
        down, across = z.dims
        x, y, z = (z[across].values if x is None else x), (z[down].values if y is None else y), z.values
    if signed:
        reach = bound(z) if signed is True else signed
        scale, limits = theme.DIVERGING, (-reach, reach)
    if limits is not None:
        style |= {"zmin": limits[0], "zmax": limits[1]}
    if text is not None:
        style |= {"text": text, "texttemplate": "%{text}", "textfont": {"size": letters} | style.get("textfont", {})}
    named = bar if isinstance(bar, dict) else {"title": {"text": bar}}
    if bar:
        style["colorbar"] = theme.colour_bar(**named)
    style = {"xgap": gap, "ygap": gap} | style
    return go.Heatmap(z=z, x=x, y=y, colorscale=scale, showscale=bool(bar), **style)


def points(
    x: Any,
    y: Any,
    name: str | None = None,
    colour: Any = theme.BLUE,
    symbol: Any = "circle",
    size: Any = 9,
    *,
    ends: Ends | None = None,
    ends_x: Ends | None = None,
    bar: dict[str, Any] | None = None,
    filled: Any = None,
    rim: str | None = None,
    **style: Any,
) -> go.Scatter:
    """Marks at (x, y), with intervals ``ends`` of y or ``ends_x`` of x. ``filled`` leaves some of them open; ``rim`` is
    the colour of a thin outline."""
    marker: dict[str, Any] = {"symbol": symbol, "size": size, "color": colour}
    if isinstance(symbol, str) and any(part in symbol for part in _THIN):
        marker["line"] = {"width": 2, "color": colour}
    elif rim is not None:
        marker["line"] = {"width": 1, "color": rim}
    if filled is not None:
        marker |= {"color": [colour if on else "white" for on in filled], "line": {"width": 2, "color": colour}}
    marker |= style.pop("marker", {})
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode=style.pop("mode", "markers"),
        marker=marker,
        **_intervals(x, y, ends, ends_x, colour, bar),
        **style,
    )


def curve(
    x: Any,
    y: Any,
    name: str | None = None,
    colour: Any = theme.BLUE,
    dash: str = "solid",
    width: Number = 2,
    *,
    symbol: Any = None,
    size: Any = 8,
    ends: Ends | None = None,
    bar: dict[str, Any] | None = None,
    **style: Any,
) -> go.Scatter:
    """A line through (x, y), with a mark at every point if it has a ``symbol``, and intervals ``ends`` of y."""
    if symbol is not None:
        thin = any(part in str(symbol) for part in _THIN)
        outline = {"line": {"width": 2, "color": colour}} if thin else {}
        style["marker"] = {"symbol": symbol, "size": size, "color": colour} | outline | style.get("marker", {})
    line = {"color": colour, "dash": dash, "width": width} | style.pop("line", {})
    mode = style.pop("mode", "lines" if symbol is None else "lines+markers")
    return go.Scatter(x=x, y=y, name=name, mode=mode, line=line, **_intervals(x, y, ends, None, colour, bar), **style)


def band(x: Any, low: Any, high: Any, colour: str = theme.GREY, name: str | None = None, **style: Any) -> go.Scatter:
    """The area between two curves, in a faint ``colour``."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=[*x, *x[::-1]], y=[*high, *low[::-1]], name=name, mode="lines", line={"width": 0}, hoverinfo="skip",
        fill="toself", fillcolor=f"rgba({red},{green},{blue},0.16)", **style,
    )  # fmt: skip


def bars(
    x: Any,
    y: Any,
    name: str | None = None,
    colour: Any = theme.BLUE,
    *,
    across: bool = False,
    ends: Ends | None = None,
    bar: dict[str, Any] | None = None,
    pattern: str = "",
    **style: Any,
) -> go.Bar:
    """Bars up to y, or ``across`` to x, with intervals ``ends`` of their lengths and a ``pattern`` on them."""
    error = _intervals(x, y, None if across else ends, ends if across else None, theme.BLACK, bar)
    marker: dict[str, Any] = {"color": colour}
    if pattern:
        marker["pattern"] = {"shape": pattern, "fgcolor": "white", "size": 6}
    marker |= style.pop("marker", {})
    return go.Bar(x=x, y=y, name=name, orientation="h" if across else "v", marker=marker, **error, **style)


def words(x: Any, y: Any, text: Any, colour: str = theme.BLACK, size: int = 12, **style: Any) -> go.Scatter:
    """Text at (x, y)."""
    style = {"hoverinfo": "skip"} | style if "hovertemplate" not in style else style
    return go.Scatter(x=x, y=y, text=text, mode="text", textfont={"size": size, "color": colour}, **style)


def circle(centre: Any, radius: Number, name: str | None = None, **style: Any) -> go.Scatter:
    """A dotted circle, to show that points lie on it."""
    turn = np.linspace(0, 2 * np.pi, 361)
    x, y = centre[0] + radius * np.cos(turn), centre[1] + radius * np.sin(turn)
    return curve(x, y, name, theme.GREY, "dot", 1.5, hoverinfo="skip", **style)


def _intervals(
    x: Any, y: Any, ends: Ends | None, ends_x: Ends | None, colour: Any, bar: dict[str, Any] | None
) -> dict[str, Any]:
    style: dict[str, Any] = {"color": colour if isinstance(colour, str) else theme.BLACK} | (bar or {})
    error = {}
    if ends is not None:
        error["error_y"] = theme.error_bars(y, *ends, **style)
    if ends_x is not None:
        error["error_x"] = theme.error_bars(x, *ends_x, **style)
    return error
