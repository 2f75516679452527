"""The reproduction table as a picture: verdicts by paper, and ours over the printed numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme

if TYPE_CHECKING:
    from interp.headlines.result import Headlines

_COLOURS = {
    "reproduced": theme.BLUE,
    "compatible": theme.SKY,
    "differs": theme.VERMILION,
    "not run": theme.LIGHT,
    "not measured": theme.GREY,
}
_SMALL = " at a smaller scale"


def figure_headlines(result: Headlines) -> go.Figure:
    """Left: rows by verdict, a bar a paper. Right: our number over the printed one, a point a row that has both."""
    papers = result.papers()
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03, column_widths=[0.56, 0.44])
    for label in result.labels():
        counts = [result.counts(paper)[label] for paper in papers]
        verdict, small = label.removesuffix(_SMALL), label.endswith(_SMALL)
        colour, dark = _COLOURS[verdict], verdict in ("reproduced", "differs", "not measured")
        pattern = {"shape": "/", "fgcolor": "white", "size": 5, "solidity": 0.25} if small else {}
        figure.add_bar(
            y=papers, x=counts, name=label, orientation="h", row=1, col=1, legendgroup=label,
            marker={"color": colour, "pattern": pattern}, text=[n or "" for n in counts], textposition="inside",
            insidetextanchor="middle", textangle=0, textfont={"color": "white" if dark else theme.BLACK},
            hovertemplate="%{y}: %{x} " + label + "<extra></extra>",
        )  # fmt: skip
        rows = [(row, row.ratio) for row in result.rows if row.label == label and row.ratio is not None]
        if rows:
            figure.add_scatter(
                y=[row.headline.paper for row, _ in rows], x=[ratio for _, ratio in rows], mode="markers", row=1,
                col=2, showlegend=False, legendgroup=label,
                marker={"color": colour, "size": 9, "symbol": "diamond-open" if small else "circle-open",
                        "line": {"width": 2}},
                customdata=[(row.headline.claim, row.headline.printed, row.shown) for row, _ in rows],
                hovertemplate="%{customdata[0]}<br>printed %{customdata[1]}, ours %{customdata[2]}<extra>%{x:.3g}"
                "</extra>",
            )  # fmt: skip
    ratios = [ratio for row in result.rows if (ratio := row.ratio) is not None]
    figure.add_vline(x=1, line_color=theme.BLACK, line_width=1, row=1, col=2)  # type: ignore[arg-type]
    figure.update_xaxes(title="headline numbers", row=1, col=1)
    figure.update_xaxes(title="ours / printed", type="log", row=1, col=2)
    figure.update_yaxes(autorange="reversed")
    counts = result.counts()
    same = sum(n for label, n in counts.items() if label.startswith("reproduced"))
    other = sum(n for label, n in counts.items() if label.startswith("differs"))
    title = f"{same} of {len(result.rows)} headline numbers reproduce, {other} differ"
    note = f"{len(ratios)} rows have a ratio; hatched bars and diamonds: measured at a smaller scale than the paper's"
    theme.finish(figure, title, result.provenance, 1100, 260 + 60 * len(papers), note)
    figure.update_layout(
        barmode="stack", legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        margin={"l": 130, "b": 110},
    )  # fmt: skip
    return figure
