"""The common look of all figures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.core.results import Provenance

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"  # Okabe and Ito
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#222222"
GREY, LIGHT = "#767676", "#E3E3E3"
SEQUENTIAL = "Blues"  # 0 to 1
NEGATIVE, POSITIVE = VERMILION, BLUE
DIVERGING = [[0, NEGATIVE], [0.5, "#FFFFFF"], [1, POSITIVE]]  # signed data, centred at zero; the explorer's, too
SEVEN = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)  # colours, dashes and symbols of series, in turn
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
MARGIN = {"l": 70, "r": 30, "t": 0, "b": 60}  # pixels; the title's room is added at the top
#: The last two are what a Linux machine without the others mostly has; the plain DejaVu Sans is a tenth wider.
FONT = "Inter, Helvetica, Arial, Liberation Sans, DejaVu Sans Condensed, sans-serif"


def error_bars(
    values: Any, low: Any, high: Any, width: int = 3, thickness: float = 1.0, **style: Any
) -> dict[str, Any]:
    """Plotly's error bars from the ends of intervals [low, high] around ``values``, one per point."""
    values, low, high = (np.asarray(x, dtype=float) for x in (values, low, high))
    ends = {"array": high - values, "arrayminus": values - low}
    return {"type": "data", "symmetric": False, "width": width, "thickness": thickness} | ends | style


def colour_bar(title: Any, **style: Any) -> dict[str, Any]:
    """A colour scale's bar with its name next to it."""
    named = {"side": "right", "font": {"size": 12}} | (title if isinstance(title, dict) else {"text": title})
    return {"title": named, "thickness": 12} | style


def title_room(lines: int, small: int) -> int:
    """Pixels above the plot for a title of ``lines`` lines and a subtitle of ``small`` small ones."""
    return 90 + 21 * lines + 17 * small


def finish(
    figure: go.Figure,
    title: str,
    provenance: Provenance,
    width: int = 1000,
    height: int = 560,
    note: str = "",
    margin: Mapping[str, int] | None = None,
) -> go.Figure:
    """Add the title (wrapped to the width of the plots), the provenance as subtitle, and the common look.

    Args:
        margin: pixels around the plots; above them, "t" is added to the title's room.
    """
    around = MARGIN | dict(margin or {})
    plots = width - around["l"] - around["r"]  # the title is above them
    room = min((plots + 100) / 9.4, (plots - 20) / 8.4)  # letters; the margins count for more in a narrow figure
    lines = textwrap.wrap(title, width=max(30, round(room)), break_on_hyphens=False)
    below = ". ".join(part for part in (note, str(provenance)) if part)
    small = textwrap.wrap(below, width=max(40, round((plots + 100) / 6.6)), break_on_hyphens=False)
    subtitle = "<br>".join(small)
    figure.update_layout(
        template="plotly_white",
        title={
            "text": "<b>" + "<br>".join(lines) + "</b>",
            "subtitle": {"text": subtitle, "font": {"size": 12, "color": GREY}},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 46},  # the mode bar is above
            "font": {"size": 16, "color": BLACK},
        },
        font={"family": FONT, "size": 13, "color": BLACK},
        margin=around | {"t": title_room(len(lines), len(small)) + around["t"]},
        width=width,
        height=height,
        hoverlabel={"font": {"family": FONT}},
    )
    return figure
