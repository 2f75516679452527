"""The reproduction table as a picture: verdicts by paper, and ours over the printed numbers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.headlines.result import Headlines

if TYPE_CHECKING:
    from interp.papers.headlines.headline import Row
    from interp.papers.headlines.result import Headlines

_COLOURS = {
    "reproduced": theme.BLUE,
    "compatible": theme.SKY,
    "differs": theme.VERMILION,
    "not run": theme.LIGHT,
    "not measured": theme.GREY,
}
_SMALL = " at a smaller scale"


_BIN, _STEP = 0.09, 0.075  # decades that one symbol covers, and how far symbols of one paper stand apart


@drawing(Headlines)
def figure_headlines(result: Headlines) -> go.Figure:
    """Left: rows by verdict, a bar per paper. Right: our number over the printed one, a point per row that has both.

    Counts that hold by construction are left out, unless there is nothing else.
    """
    measured = tuple(row for row in result.rows if row.headline.kind != "count") or result.rows
    n_counts, result = len(result.rows) - len(measured), replace(result, rows=measured)
    papers = result.papers()
    ratios = {row: ratio for row in result.rows if (ratio := row.ratio) is not None}
    heights = _apart(ratios, papers)
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03, column_widths=[0.56, 0.44])
    for label in result.labels():
        counts = [result.counts(paper)[label] for paper in papers]
        verdict, small = label.removesuffix(_SMALL), label.endswith(_SMALL)
        colour, dark = _COLOURS[verdict], verdict in ("reproduced", "differs", "not measured")
        pattern = {"shape": "/", "fgcolor": "white", "size": 6, "solidity": 0.2} if small else {}
        figure.add_bar(
            y=[*range(len(papers))], x=counts, name=label, orientation="h", row=1, col=1, legendgroup=label, width=0.75,
            marker={"color": colour, "pattern": pattern}, text=[n if n > 2 else "" for n in counts],
            textposition="inside", insidetextanchor="middle", textangle=0, customdata=papers,
            textfont={"color": "white" if dark else theme.BLACK},
            hovertemplate="%{customdata}: %{x} " + label + "<extra></extra>",
        )  # fmt: skip
        rows = [row for row in ratios if row.label == label]
        if rows:
            figure.add_scatter(
                y=[heights[row] for row in rows], x=[ratios[row] for row in rows], mode="markers", row=1, col=2,
                showlegend=False, legendgroup=label,
                marker={"color": colour, "size": 8, "symbol": "diamond-open" if small else "circle",
                        "line": {"width": 1.5}},
                customdata=[(row.headline.claim, row.headline.printed, row.shown) for row in rows],
                hovertemplate="%{customdata[0]}<br>printed %{customdata[1]}, ours %{customdata[2]}<extra>%{x:.3g}"
                "</extra>",
            )  # fmt: skip
    figure.add_vline(x=1, line_color=theme.BLACK, line_width=1, row=1, col=2)  # type: ignore[arg-type]
    figure.update_xaxes(title="headline numbers", row=1, col=1)
    decades = range(-3, 4)
    figure.update_xaxes(
        title="ours / printed", type="log", tickvals=[10.0**k for k in decades], row=1, col=2,
        ticktext=[f"1/{10**-k:,}" if k < 0 else f"{10**k:,}" for k in decades],
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", tickvals=[*range(len(papers))], zeroline=False)
    figure.update_yaxes(ticktext=papers, row=1, col=1)
    counts = result.counts()
    same = sum(n for label, n in counts.items() if label.startswith("reproduced"))
    other = sum(n for label, n in counts.items() if label.startswith("differs"))
    title = f"{same} of {len(result.rows)} headline numbers on behaviour and training reproduce, {other} differ"
    note = (
        f"right: the {len(ratios)} rows that hold one number against another; hatched bars and diamonds: measured at a "
        f"smaller scale than the paper's; {n_counts} counts that hold by construction are left out"
    )
    theme.finish(figure, title, result.provenance, 1100, 300 + 75 * len(papers), note)
    figure.update_layout(
        barmode="stack", legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        margin={"l": 130, "b": 110},
    )  # fmt: skip
    return figure


def _apart(ratios: dict[Row, float], papers: list[str]) -> dict[Row, float]:
    """Heights at which points of one paper and about one ratio stand apart: on its line, above, below, and so on."""
    taken: Counter[tuple[str, int]] = Counter()
    heights = {}
    for row, ratio in ratios.items():
        place = (row.headline.paper, round(math.log10(ratio) / _BIN))
        n = taken[place]
        taken[place] += 1
        offset = _STEP * ((n + 1) // 2) * (1 if n % 2 else -1)
        heights[row] = papers.index(row.headline.paper) + max(-0.42, min(0.42, offset))
    return heights
