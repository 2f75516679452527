"""A mark for each point, with its interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.core.views import Points, Series
from interp.figures import theme
from interp.figures.chart_parts import Look, Looks, axes, marks, names, said, whole_ticks
from interp.figures.figure_panels import Panel
from interp.figures.traces import circle, curve, points, words

MANY = 150  # points of one series from which marks are small and faint


def panel(view: Points, looks: Looks) -> Panel:
    """Marks with intervals; of several series at one name each has a place of its own."""
    listed = names(view)
    beside = bool(listed) and len(listed) < sum(len(each.x) for each in view.series)
    apart = min(0.14, 0.7 / max(1, len(view.series) - 1))
    layers = [circle(view.circle[:2], view.circle[2], f"circle of radius {view.circle[2]:.3f}")] if view.circle else []
    layers += [_diagonal(view)] if view.diagonal else []
    for i, each in enumerate(view.series):
        look = looks[each.name]
        aside = apart * (i - (len(view.series) - 1) / 2)
        x = [listed.index(name) + aside for name in each.x] if beside else each.x
        layers += _marks(view, each, look, x, each.x)
    of_names: dict[str, Any] = {}
    if beside:
        end = [-0.6, len(listed) - 0.4]
        of_names = {"tickvals": list(range(len(listed))), "ticktext": listed, "zeroline": False, "type": "linear"}
        of_names["range"] = end[::-1] if view.across else end
    x, y = axes(view)
    own = y if view.across else x
    if beside:
        own.clear()
        own |= {"title": view.x} | of_names
    elif not listed and not view.square and (ticks := whole_ticks(view)):
        own["dtick"] = ticks
    if view.square:
        x, y = _square(view, x, y)
    return Panel(layers, view.title, x, y, marks(view))


def _marks(view: Points, each: Series, look: Look, x: Any, place: Any) -> list[Any]:
    text = said(view, each)
    if texts_of_place := [str(name) for name in place]:
        axis = "{y}" if view.across else "{x}"
        text["hovertemplate"] = text["hovertemplate"].replace(f"%{axis}:", "%{text}:")
        text["text"] = texts_of_place
    many = len(each.x) > MANY
    ends = {} if each.low is None else {"ends_x" if view.across else "ends": (each.low, each.high)}
    style: dict[str, Any] = {"opacity": 0.5 if many else 1.0, "filled": each.filled} | ends | text
    values = each.y
    at = (values, x) if view.across else (x, values)
    layers: list[Any] = [points(*at, each.name or None, look.colour, look.symbol, 5 if many else 9, **style)]
    if each.labels is not None:
        layers.append(_labels(view, each))
    return layers


def _labels(view: Points, each: Series) -> Any:
    """Names beside the points: away from the circle's centre, or above."""
    x, y = np.asarray(each.x, dtype=float), np.asarray(each.y, dtype=float)
    if view.circle is None:
        names_of = [f"{name}" for name in each.labels]
        return words(x, y, names_of, theme.BLACK, 11, textposition="top center", cliponaxis=False)
    centre, radius = np.array(view.circle[:2]), view.circle[2]
    angle = np.arctan2(y - centre[1], x - centre[0])
    gaps = np.diff(np.sort(angle))
    crowded = len(gaps) > 0 and float(gaps.min()) < 0.12  # radians below which neighbours' names would overlap
    rings = np.where(crowded & (np.arange(len(x)) % 2 == 1), 0.2, 0.09)
    out = np.stack((x, y), 1) + (radius * rings)[:, None] * np.stack((np.cos(angle), np.sin(angle)), 1)
    return words(out[:, 0], out[:, 1], [f"<b>{name}</b>" for name in each.labels], size=14)


def _diagonal(view: Points) -> Any:
    at = np.concatenate([np.asarray(values, dtype=float) for each in view.series for values in (each.x, each.y)])
    ends = [float(np.nanmin(at)), float(np.nanmax(at))]
    return curve(ends, ends, None, theme.GREY, "dot", hoverinfo="skip")


def _square(view: Points, x: dict[str, Any], y: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A window with one unit on both axes, wide enough for the names."""
    at = np.concatenate([np.stack((np.asarray(s.x, float), np.asarray(s.y, float)), 1) for s in view.series])
    middle = np.array(view.circle[:2]) if view.circle else (at.max(0) + at.min(0)) / 2
    reach = max(float(np.abs(at - middle).max()), view.circle[2] if view.circle else 0.0) * 1.3
    x |= {"range": [middle[0] - reach, middle[0] + reach], "constrain": "domain", "zeroline": False}
    y |= {"range": [middle[1] - reach, middle[1] + reach], "square": True, "constrain": "domain", "zeroline": False}
    return x, y
