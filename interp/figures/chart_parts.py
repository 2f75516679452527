"""What the views of series have in common: their looks, their axes, and what is said on hovering."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from interp.core.views import Chart, Line, Series
from interp.figures import theme
from interp.figures.figure_panels import QUARTERS, Mark, hline, vline
from interp.figures.traces import hover

ROW, LOW_ROW = 34, 15  # pixels of a row of names down the side, and of one of many
_MANY_ROWS = 24  # names from which rows are low
HEIGHT = 330  # pixels of a panel whose height is not given by rows
_CONTROLS = (("square-open", "dash"), ("x-thin", "dot"), ("diamond-open", "dashdot"), ("triangle-down-open", "dot"))

#: Places in the row of colours of what is in several figures.
_MEANINGS = {"carry 0": 0, "carry in 0": 0, "carry 1": 1, "carry in 1": 1}


class Look(NamedTuple):
    """Colour, symbol and dash of a series; of several, each has its own."""

    colour: str
    symbol: str
    dash: str


Looks = Mapping[str, Look]


def looks(series: Iterable[Series]) -> Looks:
    """The look of every name in a picture: colours in turn for what is measured and grey for controls, and for each a
    symbol and a dash of its own."""
    series = list({each.name: each for each in series}.values())
    kept = {_MEANINGS[each.name] for each in series if each.name in _MEANINGS}
    free = itertools.cycle([i for i in range(len(theme.SEVEN)) if i not in kept])
    controls = itertools.cycle(_CONTROLS)
    found = {}
    for each in series:
        if each.control:
            found[each.name] = Look(theme.GREY, *next(controls))
        else:
            at = _MEANINGS[each.name] if each.name in _MEANINGS else next(free)
            found[each.name] = Look(theme.SEVEN[at], theme.SYMBOLS[at], theme.DASHES[at])
    return found


def texts(values: Any) -> bool:
    """Whether these are names and not numbers."""
    return any(isinstance(value, str) for value in values)


def names(view: Chart) -> list[str]:
    """The names on the axis of x, in the order of the series; none if x are numbers."""
    found = dict.fromkeys(name for each in view.series for name in each.x)
    return list(found) if texts(found) else []


def said(view: Chart, each: Series, **style: Any) -> dict[str, Any]:
    """The text on hovering: the series and place, the value with its interval, and the further numbers by name."""
    place, value = ("{y}", "{x") if view.across else ("{x}", "{y")
    form = ":.1%}" if view.scale == "share" else ":,.4g}"
    fields: dict[str, Any] = {}
    text = (f"{each.name}<br>" if each.name else "") + f"{place}: {value}{form}"
    if each.low is not None:
        fields |= {"low": np.asarray(each.low), "high": np.asarray(each.high)}
        text += f" [{{low{form}, {{high{form}]"
    for i, (name, values) in enumerate(each.said.items()):
        fields[f"more{i}"] = values = np.asarray(values)
        text += f"<br>{name} {{more{i}{':,.4g' * (values.dtype.kind == 'f')}}}"
    return hover(text, **fields) | style


def axes(view: Chart, **of_x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the axes of x and of the values, in this order."""
    x: dict[str, Any] = {"title": view.x} | of_x
    if listed := names(view):
        x |= {"type": "category", "categoryorder": "array", "categoryarray": listed}
        x |= {"autorange": "reversed", "tickvals": listed} if view.across else {}
        x |= {"tickfont": {"size": 10}} if view.across and len(listed) > _MANY_ROWS else {}
    y: dict[str, Any] = {"title": view.y}
    if view.scale == "share":
        y |= {"range": share_range(view), "tickformat": ".0%"}
        y |= {"tickvals": QUARTERS} if y["range"][0] > -0.2 and y["range"][1] < 1.2 else {}
    elif view.scale == "log":
        values = _values(view)
        values = np.log10(values[values > 0])
        few = len(values) > 0 and np.ptp(values) < 2  # decades, of which 2 and 5 are ticks, too
        y |= {"type": "log", "exponentformat": "power", "dtick": "D2" if few else 1}
    return (y, x) if view.across else (x, y)


def share_range(view: Chart) -> list[float]:
    """From 0 to 1, or as far as the values lie, within [-1, 2]."""
    known = _values(view)
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return [max(min(low, 0.0), -1.0) - 0.04, min(max(high, 1.0), 2.0) + 0.06]


def _values(view: Chart) -> np.ndarray:
    """All values, with the ends of their intervals."""
    ends = [
        np.asarray(end, dtype=float) for each in view.series for end in (each.y, each.low, each.high) if end is not None
    ]
    return np.concatenate([end[np.isfinite(end)] for end in ends]) if ends else np.zeros(0)


def marks(view: Chart) -> list[Mark]:
    """The lines to compare with, and the shaded range."""
    found = [_line(line, view.across) for line in view.lines]
    if view.shaded is not None:
        x0, x1 = view.shaded
        style = {"x0": x0, "x1": x1, "layer": "below", "fillcolor": theme.LIGHT, "opacity": 0.7, "line_width": 0}
        found.append(Mark("add_vrect", style))
    return found


def _line(line: Line, across: bool) -> Mark:
    upright = (line.axis == "x") != across
    draws, place = (vline, "top") if upright else (hline, "bottom right")
    return draws(line.at, line.name, "dash" if line.name else "solid", place=place)


def height(view: Chart) -> float:
    """Pixels of a panel: by the number of rows if names stand down the side."""
    return (
        max(150, 30 + (ROW if len(names(view)) <= _MANY_ROWS else LOW_ROW) * len(names(view)))
        if view.across
        else HEIGHT
    )


def whole_ticks(view: Chart) -> int:
    """The distance of ticks on an axis of few whole numbers; 0 leaves it to Plotly."""
    x = np.unique(np.concatenate([np.asarray(each.x, dtype=float) for each in view.series] or [np.zeros(0)]))
    x = x[np.isfinite(x)]
    return 1 if len(x) and bool((x == np.round(x)).all()) and np.ptp(x) <= 12 else 0
