"""How much room a figure's text needs, estimated from the number of characters."""

from __future__ import annotations

import itertools
import re
from typing import Any

import plotly.graph_objects as go

from interp.figures.traces import Number

TICK, _AXIS = 13, 16  # font sizes of tick labels and axis titles
LETTER = 0.5  # mean width of a character, relative to its font size
_BETWEEN = 66  # pixels for the tick labels and the title of an axis between two panels


def text_width(figure: go.Figure) -> int:
    """Width of the figure, in pixels, below which titles of panels or axes, or names below bars, would overlap."""
    beside = [80 if side is None else side for side in (figure.layout.margin.l, figure.layout.margin.r)]
    titles: dict[float, float] = {}
    for title in figure.layout.annotations:
        if title.xref == "paper" and title.yanchor == "bottom" and title.showarrow is False:
            middle = round(title.x, 4)
            titles[middle] = max(titles.get(middle, 0), _width(title.text, title.font.size or _AXIS))
    domains = sorted({tuple(axis.domain) for axis in figure.select_xaxes() if axis.domain})
    gap = min((b[0] - a[1] for a, b in itertools.pairwise(domains) if b[0] > a[1]), default=0)
    least = 0.0
    for axis in figure.select_xaxes():
        left, right = axis.domain or (0, 1)
        over = 2 * min(beside) if not gap else -10  # room over the margins, or to keep titles apart
        text = max(_width(axis.title.text, _AXIS), titles.get(round((left + right) / 2, 4), 0)) - over
        least = max(least, text / (right - left + gap))
        labels = categories(figure, axis) if axis.ticktext is None else list(axis.ticktext)
        widest = max((_width(label, axis.tickfont.size or TICK) for label in _texts(labels)), default=0)
        if axis.tickangle is None or axis.tickangle == 0:
            least = max(least, len(labels) * (widest + 4) / (right - left))
        least = max(least, _cells_width(figure, axis) / (right - left))
    first = {axis.plotly_name.replace("axis", "") for axis in figure.select_xaxes() if not (axis.domain or (0,))[0]}
    if gap and any(axis.title.text and axis.anchor not in first for axis in figure.select_yaxes()):
        least = max(least, _BETWEEN / gap)
    return round(least + sum(beside))


def _cells_width(figure: go.Figure, axis: Any) -> float:
    """Pixels that the columns of a heat map need for the text in them."""
    own, most = axis.plotly_name.replace("axis", ""), 0.0
    for grid in figure.select_traces("heatmap"):
        if (grid.xaxis or "x") == own and grid.text is not None and grid.texttemplate:
            size = grid.textfont.size or TICK
            widest = max(_width(str(text), size) for row in grid.text for text in row)
            most = max(most, max(map(len, grid.text)) * (1.2 * widest + 4))  # digits are wider than letters
    return most


def _width(text: str | None, size: Number) -> float:
    """Width of the longest line in pixels."""
    lines = re.sub(r"</?(?:b|i|sub|sup)>", "", text or "").split("<br>")
    return max(map(len, lines)) * LETTER * size


def categories(figure: go.Figure, axis: Any) -> list[str]:
    """The names below bars, if they are texts of one line."""
    own = axis.plotly_name.replace("axis", "")
    names = [x for bar in figure.select_traces("bar") if (bar.xaxis or "x") == own for x in _texts(bar.x)]
    return list(dict.fromkeys(names)) if not any("<" in name for name in names) else []


def _texts(values: Any) -> list[str]:
    return [value for value in (() if values is None else values) if isinstance(value, str)]
