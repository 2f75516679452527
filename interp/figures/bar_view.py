"""A group of bars for each name."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.core.views import Bars
from interp.figures.chart_parts import Looks, axes, marks, names, said
from interp.figures.figure_panels import Panel
from interp.figures.traces import bars

_PATTERNS = ("", "/", "x", ".", "\\", "-", "+")  # a second way to tell bars apart
_WRITTEN = 12  # most bars that have their values written above them


def panel(view: Bars, looks: Looks) -> Panel:
    """Bars with their intervals; a ``floating`` series has bars from the lower to the upper end instead."""
    layers, ground = [], None
    many = sum(len(each.x) for each in view.series)
    for i, each in enumerate(view.series):
        look = looks[each.name]
        values = np.asarray(each.y, dtype=float)
        style: dict[str, Any] = said(
            view, each, pattern=_PATTERNS[i % 7] if len(view.series) > 1 and not view.stacked else ""
        )
        if each.low is not None and floating(view):
            style["base"] = np.asarray(each.low, dtype=float)
            values = np.asarray(each.high, dtype=float) - style["base"]
        elif each.low is not None:
            style |= {"ends": (each.low, each.high), "bar": {"thickness": 1.5}}
        if view.stacked:
            style |= {"base": ground, "offsetgroup": "stack"}
            ground = values if ground is None else ground + values
        if each.labels is not None or (many <= _WRITTEN and not view.stacked and not floating(view)):
            written = [_text(view, value) for value in values] if each.labels is None else list(each.labels)
            style |= {"text": written, "textposition": "outside", "cliponaxis": False, "textfont": {"size": 11}}
            style["textangle"] = 0
        ends = (values, each.x) if view.across else (each.x, values)
        layers.append(bars(*ends, each.name or None, look.colour, across=view.across, **style))
    x, y = axes(view)
    of_values = x if view.across else y
    if view.scale == "":
        of_values["rangemode"] = "tozero"
    elif of_values.get("range"):
        low, high = of_values["range"]
        of_values["range"] = [0.0 if low >= -0.04 else low, high + 0.06]  # bars of positive shares stand on the axis
    if not names(view) and view.across:
        y["autorange"] = "reversed"
    return Panel(layers, view.title, x, y, marks(view))


def floating(view: Bars) -> bool:
    """Whether bars go from the lower to the upper end, as their values are the ends themselves."""
    return all(each.low is not None and np.allclose(each.y, each.high, equal_nan=True) for each in view.series)


def _text(view: Bars, value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}" if view.scale == "share" or abs(value) < 9.995 else f"{value:,.0f}"
