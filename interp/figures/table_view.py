"""Texts by row and column, under slanted headings."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.core.views import Table
from interp.figures import theme
from interp.figures.figure_panels import Panel, label
from interp.figures.traces import cells, hover, words

_ROW, _LETTER = 24, 7.0  # pixels of a row, and of a letter of a heading
_GREY = [[0, theme.LIGHT], [1, theme.LIGHT]]
_LIMITS = (0, 1.15)  # colour range of shares: text stays readable on 1


def panel(view: Table) -> Panel:
    """Cells with their texts. Blank cells of a heat map have neither text nor hover, so points carry both for all."""
    columns, rows = list(range(len(view.columns))), list(range(len(view.rows)))
    texts = np.asarray(view.texts, dtype=object)
    shares = np.full(texts.shape, np.nan) if view.shares is None else np.asarray(view.shares, dtype=float)
    style: dict[str, Any] = {"limits": _LIMITS, "gap": 2, "hoverinfo": "skip", "hoverongaps": False}
    layers: list[Any] = []
    if view.grey is not None:
        layers.append(cells(np.where(view.grey, 1.0, np.nan), columns, rows, scale=_GREY, **style))
    inside = np.where(np.isnan(shares), "", texts)
    layers.append(cells(shares, columns, rows, text=inside.tolist(), letters=11, **style))
    flat = [(x, y) for y in rows for x in columns]
    said = texts if view.said is None else np.asarray(view.said, dtype=object)
    beside = np.where(np.isnan(shares), texts, "").ravel().tolist()
    x, y = [x for x, _ in flat], [y for _, y in flat]
    layers.append(words(x, y, beside, size=11, hovertext=said.ravel().tolist(), **hover("{hovertext}")))
    lean = {"textangle": -55, "xanchor": "left", "yanchor": "bottom", "xshift": -4}
    headings = [label(x, -0.5, heading, **lean) for x, heading in enumerate(view.columns)]
    x_axis = {"showticklabels": False, "range": [-0.5, len(columns) - 0.5], "showgrid": False, "zeroline": False}
    y_axis = {
        "tickvals": rows, "ticktext": list(view.rows), "range": [len(rows) - 0.5, -0.5 - _above(view) / _ROW],
        "showgrid": False, "zeroline": False, "tickfont": {"size": 12},
    }  # fmt: skip
    return Panel(layers, view.title, x_axis, y_axis, headings)


def _above(view: Table) -> float:
    """Pixels of the headings, which lean above the table."""
    return 20 + 0.82 * _LETTER * max(map(len, view.columns))


def height(view: Table) -> float:
    return _ROW * len(view.rows) + _above(view)


def right(view: Table) -> int:
    """Pixels of the last headings beyond the table."""
    return 30 + round(0.6 * _LETTER * max(map(len, view.columns)))
