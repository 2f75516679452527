"""Pictures (:mod:`interp.core.views`) as Plotly figures: sizes from the data, the finding above, what it rests on under
it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from interp.core.drawings import renders
from interp.core.results import Provenance, Result
from interp.core.views import Bars, Chart, Curves, Graph, Grid, Picture, Points, Series, Table, View, picture
from interp.figures import bar_view, chart_parts, curve_view, graph_view, grid_view, point_view, table_view
from interp.figures.figure_panels import Panel, compose
from models.errors import UserError

_WIDTH, _NARROW, _WIDE = 1000, 860, 1100
_TITLE_LETTERS = 230
_LETTER = 7.2  # pixels of a letter of a tick label
_BESIDE = 40  # pixels from the longest tick label to the edge: the axis' title
_BAR = 80  # pixels of a colour bar between panels
_TITLE, _TICKS = 28, 34  # pixels of a panel's title, and of an axis' tick labels
_TEXT = 110  # least height of a panel


def draw_result(result: Result, shown: Any) -> go.Figure:
    """The figure of what a result's drawing returned: a Plotly figure as it is, anything else as views."""
    if isinstance(shown, go.Figure):
        return shown
    made = picture(shown)
    title = made.title.removesuffix(".") or headline(result.sentence())
    return draw_picture(made, title, made.provenance or result.provenance)


renders(draw_result)


def draw_picture(made: Picture, title: str = "", provenance: Provenance | None = None) -> go.Figure:
    """Draw views in a grid of panels; a picture may bring its own title and provenance along."""
    title, provenance = title or made.title, provenance or made.provenance
    if provenance is None:
        raise UserError("A picture says what its numbers rest on: give it a provenance.")
    views = made.views
    columns = made.columns or len(views)
    rows = [views[i : i + columns] for i in range(0, len(views), columns)]
    heights = [max(_height(view) for view in row) for row in rows]
    width = _width(views[0]) if len(views) == 1 else _WIDTH
    if columns > 1 and any(isinstance(view, Grid) for view in views):
        width = _WIDE
    left = round(_BESIDE + _LETTER * max([_longest(row[0]) for row in rows]))
    right = max(_right(view) for row in rows for view in row[-1:])
    inside = width - left - right
    gaps = _gaps(made, rows, (inside - 90 * (columns - 1)) / columns)
    parts = [2 if isinstance(view, Grid) else 1 for view in rows[0]]  # a grid has more to show than a chart beside it
    each = [(inside - gaps[0] * (columns - 1)) * part / sum(parts) for part in parts]
    of = chart_parts.looks(_series(views))
    panels = [_panel(view, of, each[i % columns]) for i, view in enumerate(views)]
    below = 34 + max((_below(view, room) for view, room in zip(rows[-1], each, strict=False)), default=0)
    layout: dict[str, Any] = {}
    if any(isinstance(view, (Graph, Table)) for view in views):
        layout["meta"] = {"least_width": width} | ({"graph": True} if isinstance(views[0], Graph) else {})
    stacked = any(isinstance(view, Bars) and view.stacked for view in views)
    return compose(
        panels, title, provenance, note=made.note, columns=columns, width=width,
        plots=sum(heights) + gaps[1] * (len(rows) - 1), heights=heights, widths=parts, gaps=gaps, shared=made.shared,
        margin={"l": left, "r": right, "t": 10 * any(view.title for view in rows[0]), "b": round(below)},
        **layout, barmode="overlay" if stacked and len(views) == 1 else "group",
    )  # fmt: skip


def _panel(view: View, of: chart_parts.Looks, width: float) -> Panel:
    if isinstance(view, Grid):
        return grid_view.panel(view, of, width)
    if isinstance(view, (Graph, Table)):
        return (graph_view if isinstance(view, Graph) else table_view).panel(view)  # type: ignore[arg-type]
    draws: Any = {Bars: bar_view.panel, Points: point_view.panel, Curves: curve_view.panel}[type(view)]
    return draws(view, of)


def _series(views: Sequence[View]) -> Iterator[Series]:
    for view in views:
        yield from view.series if isinstance(view, Chart) else ()
    for view in views:
        yield from view.marks if isinstance(view, Grid) else ()


def headline(sentence: str) -> str:
    """As many of the first clauses of a sentence as fit into a title of two lines, and at least one."""
    sentence = sentence.strip().removesuffix(".")
    ends = _ends(sentence, r"[.;]\s+(?=\S)|$")
    fitting = [end for end in ends if end <= _TITLE_LETTERS] or [end for end in ends[:1] if end <= 1.4 * _TITLE_LETTERS]
    if not fitting or fitting[-1] < _TITLE_LETTERS / 2:
        fitting += [end for end in _ends(sentence, r",\s") if end <= _TITLE_LETTERS]
    return sentence[: max(fitting)] if fitting else sentence[: ends[0]]


def _ends(sentence: str, pattern: str) -> list[int]:
    """Where a clause may end: at the pattern, outside of brackets."""
    starts = [found.start() for found in re.finditer(pattern, sentence)]
    return [at for at in starts if all(sentence[:at].count(a) == sentence[:at].count(b) for a, b in ("()", "[]"))]


def _height(view: View) -> float:
    if isinstance(view, Points) and view.square:
        return 500
    of = {Grid: grid_view.height, Graph: graph_view.height, Table: table_view.height}
    sizes: Any = of.get(type(view), chart_parts.height)
    return sizes(view) if isinstance(view, Grid) else max(_TEXT, sizes(view))


def _width(view: View) -> int:
    """Pixels of a figure of one view."""
    if isinstance(view, Graph):
        return graph_view.width(view)
    if isinstance(view, Points) and view.square:
        return _NARROW
    if isinstance(view, Grid):
        text = grid_view.cell_texts(view)
        longest = max((len(t) for line in text or [] for cell in line for t in cell.split("<br>")), default=0)
        return min(max(_NARROW, 240 + round(max(7 * longest + 8, 18) * len(grid_view.names(view, "x")))), 1150)
    return 1100 if isinstance(view, Table) else _WIDTH


def _longest(view: View) -> int:
    """Letters of the longest tick label at the left; the axis of numbers has about five."""
    if isinstance(view, Grid):
        return max((_letters(name) for name in grid_view.names(view, "y")), default=0) + 1
    if isinstance(view, Table):
        return max(map(len, view.rows)) - 3
    return max(map(len, chart_parts.names(view)), default=4) if isinstance(view, Chart) and view.across else 4


def _letters(name: Any) -> int:
    return max(map(len, str(name).split("<br>")))


def _right(view: View) -> int:
    if isinstance(view, Table):
        return table_view.right(view)
    return _BAR + 10 if isinstance(view, Grid) and view.unit else 30


def _below(view: View, width: float) -> float:
    """Pixels under a panel: tick labels, upright if they have no room, and the axis' title."""
    if isinstance(view, (Table, Graph)):
        return 0
    names = [str(name) for name in grid_view.names(view, "x")] if isinstance(view, Grid) else []
    if isinstance(view, Chart) and not view.across:
        names = [name for name in chart_parts.names(view)]
    longest = max(map(_letters, names), default=0)
    turned = longest * _LETTER * len(names) > width and len(names) > 1
    title = view.y if isinstance(view, Chart) and view.across else view.x
    return _TICKS * bool(title) + 0.8 * _LETTER * longest * turned


def _gaps(made: Picture, rows: list[Any], each: float) -> tuple[float, float]:
    """Pixels between columns and rows of panels, by what stands there."""
    across = 36.0
    for row in rows:
        for before, after in itertools.pairwise(row):
            beside = _BAR if isinstance(before, Grid) and before.unit else 20
            ticks = 0 if "y" in made.shared else _BESIDE - 10 * (not after.y) + _LETTER * _longest(after)
            across = max(across, beside + ticks)
    titled = _TITLE * any(view.title for row in rows[1:] for view in row)
    below = max([_below(view, each) for row in rows[:-1] for view in row], default=0)
    return math.ceil(across), 16.0 + titled + (0 if "x" in made.shared else below + 30)
