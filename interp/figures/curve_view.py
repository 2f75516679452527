"""Lines along an axis of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.core.views import Curves, Series
from interp.figures.chart_parts import Look, Looks, axes, marks, names, said, whole_ticks
from interp.figures.figure_panels import Panel
from interp.figures.traces import band, curve, words

_MARKED = 40  # most points of a line that have a mark each
_MANY = 6  # lines of one name from which they are faint


def panel(view: Curves, looks: Looks) -> Panel:
    """Lines with marks where there are few points, and their intervals as bars or bands."""
    layers: list[Any] = []
    for each in view.series:
        layers += _line(view, each, looks[each.name])
    x, y = axes(view)
    if view.log_x:
        x |= _logarithmic(view)
    elif not names(view) and (ticks := whole_ticks(view)):
        x |= {"dtick": ticks}
    return Panel(layers, view.title, x, y, marks(view))


def _line(view: Curves, each: Series, look: Look) -> list[Any]:
    alike = sum(other.name == each.name for other in view.series)
    few = len(each.x) <= _MARKED
    x = _placed(view, each.x) if view.log_x else each.x
    style: dict[str, Any] = said(view, each)
    if view.log_x:
        style |= {"text": [f"{at:,.0f}" for at in np.nan_to_num(np.asarray(each.x, dtype=float))]}
        style["hovertemplate"] = style["hovertemplate"].replace("%{x}:", "%{text}:")
    if few and alike == 1:
        style |= {"symbol": look.symbol, "size": 7}
    if each.low is not None and not view.bands:
        style["ends"] = (each.low, each.high)
    style |= {"line": {"shape": "hv"}} if view.steps else {}
    faint = each.control and alike > _MANY
    style |= {"opacity": 0.4} if faint else {}
    dash = "solid" if alike > 1 else look.dash
    layers = [curve(x, each.y, each.name or None, look.colour, dash, 1 if faint else 2, **style)]
    if each.low is not None and view.bands:
        x, low, high = (np.asarray(a, dtype=float) for a in (x, each.low, each.high))
        known = np.isfinite(low) & np.isfinite(high)
        layers.insert(0, band(x[known], low[known], high[known], look.colour, legendgroup=each.name))
    if each.labels is not None:
        layers.append(words(x, each.y, list(each.labels), size=13, textposition="top center"))
    return layers


def _start(view: Curves) -> float:
    steps = np.concatenate([np.asarray(each.x, dtype=float) for each in view.series])
    return float(steps[steps > 0].min()) / 2


def _placed(view: Curves, x: Any) -> np.ndarray:
    """Steps of training on a logarithmic axis, where step 0 stands before the first of the others."""
    x = np.asarray(x, dtype=float)
    return np.where(x == 0, _start(view), x)


def _logarithmic(view: Curves) -> dict[str, Any]:
    steps = np.concatenate([np.asarray(each.x, dtype=float) for each in view.series])
    start, end = _start(view), float(np.nanmax(steps))
    powers = 10.0 ** np.arange(np.ceil(np.log10(start * 2)), np.floor(np.log10(end)) + 1)
    ticks = np.concatenate(([start], powers)) if (steps == 0).any() else powers
    return {
        "type": "log", "tickvals": ticks, "ticktext": [f"{0 if tick == start else tick:,.0f}" for tick in ticks],
        "range": [np.log10(start) - 0.05, np.log10(end) + 0.05],
    }  # fmt: skip
