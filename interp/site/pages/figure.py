"""Plotly figures as parts of a page: the title becomes a caption that wraps, and the figure fills its column."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
from markupsafe import Markup, escape
from plotly.utils import PlotlyJSONEncoder

from interp.figures.text_size import text_width
from interp.figures.theme import title_room
from interp.site.pages.words import as_read

#: These buttons are removed; save, zoom in, zoom out and reset are left. One of them would send data to a server, and
#: each is one more stop for the keyboard.
_BUTTONS = ("sendChartToCloud", "zoom2d", "pan2d", "select2d", "lasso2d", "autoScale2d")
CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": list(_BUTTONS),
    "toImageButtonOptions": {"format": "svg", "filename": "figure"},
}
#: In an escaped text, entities and the tags for fonts and line breaks that plotly knows.
_LETTERS = re.compile(r"&lt;/?(?:b|i|em|sub|sup|br)/?&gt;|&amp;(?=(?:lt|gt|amp|quot|nbsp|#\d+);)")
_SIMPLE = 340  # pixels: the column on a phone
_LEAST = 620  # pixels: the least width of a figure in the style sheet
_COLUMN = 990  # the column of a page of 1024 pixels
_TEMPLATE = "plotly_white"  # what interp.figures.theme gives every figure


def figure_html(figure: go.Figure) -> Markup:
    """A figure that fills its column and keeps its height, for a page that has already loaded plotly.js.

    A figure with ``layout.meta["least_width"]`` (pixels) scrolls if its column is narrower than that.
    """
    caption, drawn = captioned(figure)
    body = pio.to_html(drawn, include_plotlyjs=False, full_html=False, config=CONFIG)
    if (least := least_width(figure)) is not None:
        body = f"<div style='min-width:{least}px'>{body}</div>"
    return Markup("<figure>{}<div class='plot'>{}</div></figure>").format(caption, Markup(body))


def figure_data(figure: go.Figure, fixed: bool = False) -> Markup:
    """The same as data, in a ``<script type="application/json">``, for a page whose own script draws the figures.

    That script (:func:`figure_script`) adds the template, which all figures share and which is larger than a small
    figure. ``fixed`` keeps the figure's own width, for figures with square cells.
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
    """A figure at its own size, for figures with square cells, which must not be stretched."""
    body = pio.to_html(figure, include_plotlyjs=False, full_html=False, config=CONFIG | {"responsive": False})
    return Markup("<div class='plot'>{}</div>").format(Markup(body))


def figure_script() -> str:
    """The script that draws what :func:`figure_data` wrote; a page needs it once, after plotly.js."""
    script = (files("interp.site.pages") / "figures.js").read_text()
    template = json.dumps(_template().to_plotly_json(), cls=PlotlyJSONEncoder)
    return script.replace('"TEMPLATE"', template).replace('"CONFIG"', json.dumps(CONFIG))


def captioned(figure: go.Figure) -> tuple[Markup, go.Figure]:
    """The title and its subtitle as a caption, and the figure without them and without a width of its own."""
    figure = go.Figure(figure)
    title, subtitle = figure.layout.title.text or "", figure.layout.title.subtitle.text or ""
    removed = figure.layout.margin.t or 0
    own = removed - title_room(*(text.count("<br>") + bool(text) for text in (title, subtitle)))
    top = 64 + max(0, own)  # for the mode bar and the titles of subplots; more if the figure made more room
    figure.update_layout(title=None, width=None, autosize=True, height=(figure.layout.height or 500) - removed + top)
    figure.update_layout(margin={"t": top})
    words = title.replace("<br>", " ").replace("<b>", "").replace("</b>", "")
    caption = Markup("<figcaption><strong>{}</strong><small>{}</small></figcaption>").format(
        as_markup(words), as_markup(subtitle.replace("<br>", " "))
    )
    return caption, figure


def as_markup(text: str) -> Markup:
    """A figure's text as safe HTML: only the tags for fonts and line breaks that plotly knows are kept.

    The text contains names of models and files, which may be anything.
    """
    return Markup(_LETTERS.sub(lambda found: html.unescape(found[0]), str(escape(as_read(text)))))


def as_data(json_text: str) -> Markup:
    """JSON for a ``<script>`` element, without ``<``, so nothing in it can end the element."""
    return Markup(json_text.replace("<", "\\u003c"))


def least_width(figure: go.Figure) -> int | None:
    """Pixels below which the figure's texts would overlap; None leaves the width to the style sheet.

    It is the width that the figure states, or what its text needs if that is more than the style sheet gives. Simple
    figures may be narrower than the style sheet says, and the page's script draws a heat map narrower still, without
    the numbers in its cells."""
    stated = (figure.layout.meta or {}).get("least_width")
    if stated is not None:
        return int(stated)
    text = min(_COLUMN, text_width(figure))
    if _simple(figure):
        return max(_SIMPLE, text)
    return text if text > _LEAST else None


def _simple(figure: go.Figure) -> bool:
    """Whether a figure has no panels side by side, and heat maps or points and lines over numbers."""
    if any(axis.domain is not None and axis.domain[0] > 0 for axis in figure.select_xaxes()):
        return False
    if all(trace.type == "heatmap" for trace in figure.data):
        return bool(figure.data)
    return (
        len(list(figure.select_xaxes())) < 2
        and all(
            isinstance(trace, (go.Scatter, go.Scattergl))
            and not any(isinstance(y, str) for y in (() if trace.y is None else trace.y))
            for trace in figure.data
        )
        and not any(axis.ticktext is not None for axis in figure.select_yaxes())
    )


@cache
def _template() -> Any:
    return pio.templates[_TEMPLATE]
