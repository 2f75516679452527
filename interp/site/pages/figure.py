"""Plotly figures as parts of a page: the title becomes a caption that wraps, the width is the column's."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
from markupsafe import Markup, escape
from plotly.utils import PlotlyJSONEncoder

from interp.figures.room import text_width
from interp.figures.theme import title_room
from interp.site.pages.words import as_read

#: Of the buttons over a figure, four are left: save, in, out, reset. One of the others would send data to a server, and
#: each is one more stop for the keyboard.
_BUTTONS = ("sendChartToCloud", "zoom2d", "pan2d", "select2d", "lasso2d", "autoScale2d")
CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": list(_BUTTONS),
    "toImageButtonOptions": {"format": "svg", "filename": "figure"},
}
#: Of an escaped text, the tags of letters and lines that plotly knows, and entities.
_LETTERS = re.compile(r"&lt;/?(?:b|i|em|sub|sup|br)/?&gt;|&amp;(?=(?:lt|gt|amp|quot|nbsp|#\d+);)")
_SIMPLE = 340  # pixels: the column of a telephone
_LEAST = 620  # pixels that the style sheet leaves to a figure
_COLUMN = 990  # the column of a page of 1024 pixels
_TEMPLATE = "plotly_white"  # what interp.figures.theme gives every figure


def figure_html(figure: go.Figure) -> Markup:
    """A figure that fills its column and keeps its height, for a page that has plotly.js before it.

    A figure with ``layout.meta["least_width"]`` (pixels) is scrolled where its column is narrower than that.
    """
    caption, drawn = captioned(figure)
    body = pio.to_html(drawn, include_plotlyjs=False, full_html=False, config=CONFIG)
    if (least := least_width(figure)) is not None:
        body = f"<div style='min-width:{least}px'>{body}</div>"
    return Markup("<figure>{}<div class='plot'>{}</div></figure>").format(caption, Markup(body))


def figure_data(figure: go.Figure, fixed: bool = False) -> Markup:
    """The same as data, for a page whose script draws what it finds: ``<script type="application/json">`` in a box.

    The template, which all figures share and which would be most of a small one, is left to that script
    (:func:`template_json`). ``fixed`` keeps the figure's own width, for those whose cells are to be squares.
    """
    width = figure.layout.width
    caption, drawn = captioned(figure)
    size = f"height:{drawn.layout.height}px"
    if fixed and width:
        drawn.update_layout(width=width, autosize=False)
        size += f";width:{width}px"
    elif (least := least_width(figure)) is not None:
        size += f";min-width:{least}px"
    shared = drawn.layout.template.to_plotly_json() == _template().to_plotly_json()
    if shared:
        drawn.layout.template = None
    data = as_data(drawn.to_json())
    return Markup(
        "<figure>{}<div class='plot'><div class='drawing' style='{}'{}>"
        "<script type='application/json'>{}</script></div></div></figure>"
    ).format(caption, size, Markup(" data-template='shared'") if shared else "", data)


def fixed_figure_html(figure: go.Figure) -> Markup:
    """A figure at its own size, for those whose cells would be no squares if they were stretched."""
    body = pio.to_html(figure, include_plotlyjs=False, full_html=False, config=CONFIG | {"responsive": False})
    return Markup("<div class='plot'>{}</div>").format(Markup(body))


def template_json() -> str:
    """What :func:`figure_data` leaves out, for the script of the page."""
    return json.dumps(_template().to_plotly_json(), cls=PlotlyJSONEncoder)


def captioned(figure: go.Figure) -> tuple[Markup, go.Figure]:
    """The title and its subtitle as a caption, and the figure without them, of no width of its own."""
    figure = go.Figure(figure)
    title, subtitle = figure.layout.title.text or "", figure.layout.title.subtitle.text or ""
    removed = figure.layout.margin.t or 0
    own = removed - title_room(*(text.count("<br>") + bool(text) for text in (title, subtitle)))
    top = 64 + max(0, own)  # for the mode bar and the titles of subplots; more, where the figure made more room
    figure.update_layout(title=None, width=None, autosize=True, height=(figure.layout.height or 500) - removed + top)
    figure.update_layout(margin={"t": top})
    words = title.replace("<br>", " ").replace("<b>", "").replace("</b>", "")
    caption = Markup("<figcaption><strong>{}</strong><small>{}</small></figcaption>").format(
        as_markup(words), as_markup(subtitle.replace("<br>", " "))
    )
    return caption, figure


def as_markup(text: str) -> Markup:
    """A figure's text as a page may have it: what plotly takes for letters and lines, and nothing else of HTML.

    Names of models and files stand in it, which may be anything.
    """
    return Markup(_LETTERS.sub(lambda found: html.unescape(found[0]), str(escape(as_read(text)))))


def as_data(json_text: str) -> Markup:
    """JSON for a ``<script>`` element: no ``<``, so that nothing in it can end the element."""
    return Markup(json_text.replace("<", "\\u003c"))


def least_width(figure: go.Figure) -> int | None:
    """Pixels below which the figure's text would run into each other: as it says itself, or what its panels' text needs
    where that is more than the style sheet gives to all, or where it is of the simplest kind: one panel of points and
    lines over numbers. None leaves it to the style sheet."""
    stated = (figure.layout.meta or {}).get("least_width")
    if stated is not None:
        return int(stated)
    text = min(_COLUMN, text_width(figure))
    simple = len(list(figure.select_xaxes())) < 2 and all(
        isinstance(trace, (go.Scatter, go.Scattergl))
        and not any(isinstance(y, str) for y in (() if trace.y is None else trace.y))
        for trace in figure.data
    )
    if simple and not any(axis.ticktext is not None for axis in figure.select_yaxes()):
        return max(_SIMPLE, text)
    return text if text > _LEAST else None


@cache
def _template() -> Any:
    return pio.templates[_TEMPLATE]
