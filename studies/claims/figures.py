"""The reproduction table as a picture: verdicts by paper, and ours over the printed numbers."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.figure_panels import Panel, compose, vline
from interp.figures.traces import bars, hover, points
from studies.claims.headlines import Headlines

if TYPE_CHECKING:
    from studies.claims.headline import Row

_COLOURS = {
    "reproduced": theme.BLUE,
    "compatible": theme.SKY,
    "differs": theme.VERMILION,
    "undecided": theme.PURPLE,
    "not testable": theme.YELLOW,
    "not run": theme.LIGHT,
    "not measured": theme.GREY,
}
_SMALL = " at a smaller scale"


_BIN, _STEP = 0.09, 0.075  # decades that one symbol covers, and how far symbols of one paper stand apart


@drawing(Headlines)
def figure_headlines(result: Headlines) -> go.Figure:
    """Left: rows by verdict, one bar per paper. Right: our number over the printed one, one point per row with both."""
    papers = result.papers()
    ratios = {row: ratio for row in result.rows if (ratio := row.ratio) is not None}
    heights = _apart(ratios, papers)
    counted, compared = [], []
    for name in result.labels():
        counts = [result.counts(paper)[name] for paper in papers]
        verdict, small = name.removesuffix(_SMALL), name.endswith(_SMALL)
        colour, dark = _COLOURS[verdict], verdict in ("reproduced", "differs", "not measured")
        style = hover(f"{{paper}}: {{x}} {name}", paper=papers)
        style |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "legendgroup": name}
        style |= {"text": [n if n > 2 else "" for n in counts], "textfont": {"color": "white" if dark else theme.BLACK}}
        rows_of = [*range(len(papers))]
        counted.append(bars(counts, rows_of, name, colour, across=True, pattern="/" * small, width=0.75, **style))
        rows = [row for row in ratios if row.label == name]
        said = hover(
            "{claim}<br>printed {printed}, ours {ours}", "%{x:.3g}", claim=[row.headline.claim for row in rows],
            printed=[row.headline.printed for row in rows], ours=[row.shown for row in rows],
        )  # fmt: skip
        style: dict[str, Any] = {"legendgroup": name, "marker": {"line": {"width": 1.5}}} | said
        x, y = [ratios[row] for row in rows], [heights[row] for row in rows]
        compared += [points(x, y, None, colour, "diamond-open" if small else "circle", 8, **style)] if rows else []
    decades = range(-3, 4)
    x_axis = {
        "title": "ours / printed", "type": "log", "tickvals": [10.0**k for k in decades],
        "ticktext": [f"1/{10**-k:,}" if k < 0 else f"{10**k:,}" for k in decades],
    }  # fmt: skip
    down = {"autorange": "reversed", "tickvals": [*range(len(papers))], "zeroline": False}
    equal = vline(1, dash="solid", colour=theme.BLACK)
    panels = [
        Panel(counted, x="facts", y=down | {"ticktext": papers}),
        Panel(compared, x=x_axis, y=down, marks=[equal]),
    ]
    counts = result.counts()
    same = sum(n for label, n in counts.items() if label.startswith("reproduced"))
    other = sum(n for label, n in counts.items() if label.startswith("differs"))
    title = f"Of {len(result.rows)} facts of the papers, {same} are reproduced and {other} differ"
    note = (
        f"Right: the {len(ratios)} rows that hold one number against another; hatched bars and diamonds: measured at a "
        "smaller scale than the paper's"
    )
    return compose(
        panels, title, result.provenance, note=note, columns=2, width=1100, height=300 + 75 * len(papers),
        widths=[0.56, 0.44], gaps=(30, 0), shared="y", margin={"l": 130, "b": 110}, barmode="stack",
        uniformtext={"minsize": 9, "mode": "hide"}, legend={"yref": "container", "y": 0, "yanchor": "bottom"},
    )  # fmt: skip


def _apart(ratios: dict[Row, float], papers: list[str]) -> dict[Row, float]:
    """Heights that separate points of one paper with nearly equal ratios: on its line, above, below, and so on."""
    taken: Counter[tuple[str, int]] = Counter()
    heights = {}
    for row, ratio in ratios.items():
        place = (row.headline.paper, round(math.log10(ratio) / _BIN))
        n = taken[place]
        taken[place] += 1
        offset = _STEP * ((n + 1) // 2) * (1 if n % 2 else -1)
        heights[row] = papers.index(row.headline.paper) + max(-0.42, min(0.42, offset))
    return heights
