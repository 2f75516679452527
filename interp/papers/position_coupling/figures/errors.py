"""Picture of :class:`interp.papers.position_coupling.errors.FirstErrors`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.errors import BOUNDARY, FirstErrors


@drawing(FirstErrors)
def first_errors(result: FirstErrors) -> go.Figure:
    """First errors by running sum and place (hazard as colour, count as text), confusions beside it."""
    table = result.table
    steps, places = table.step.values.tolist(), table.place.values.tolist()
    hazard, first = table.hazard.values, table["first"].values
    text = [["" if np.isnan(f) or f == 0 else f"{int(f):,}" for f in row] for row in first]
    x = [*range(len(places) - 1), len(places) - 0.5]  # the boundary stands apart
    figure = make_subplots(
        cols=2,
        column_widths=[0.7, 0.3],
        horizontal_spacing=0.22,
        subplot_titles=("first wrong token: problems", "given for expected"),
    )
    top = max(float(np.nanmax(hazard)), 0.01)
    for part in (slice(0, len(places) - 1), slice(len(places) - 1, len(places))):
        figure.add_heatmap(
            x=x[part],
            y=[f"b{step}" for step in steps],
            z=hazard[:, part],
            text=[row[part] for row in text],
            texttemplate="%{text}",
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
            dx=1,
            customdata=np.stack([table[k].values[:, part] for k in ("reached", "low", "high", "first", "wrong")], -1),
            hovertemplate="%{y}, %{x}: %{customdata[3]} of %{customdata[0]} that get there, %{z:.3f} "
            "[%{customdata[1]:.3f}, %{customdata[2]:.3f}]; wrong in %{customdata[4]} in all<extra></extra>",
            row=1,
            col=1,
        )
    names = ["> or EOS" if place == BOUNDARY else place for place in places]
    figure.update_xaxes(
        title="digit of the running sum (0: units), and the boundary behind it",
        tickvals=x, ticktext=names, range=[-0.55, x[-1] + 0.55], showgrid=False, zeroline=False, row=1, col=1,
    )  # fmt: skip
    figure.update_yaxes(title="running sum", autorange="reversed", showgrid=False, row=1, col=1)
    confusions = result.confusions
    others = int(confusions.sel(predicted="other").sum())
    kept = [kind for kind in confusions.predicted.values.tolist() if kind != "other" or others]
    counts = confusions.sel(predicted=kept).values
    word = {"$": "EOS"}
    figure.add_heatmap(
        x=[word.get(kind, kind) for kind in kept],
        y=[word.get(kind, kind) for kind in confusions.expected.values.tolist()],
        z=counts,
        text=[[f"{c:,}" if c else "" for c in row] for row in counts.tolist()],
        texttemplate="%{text}",
        colorscale=theme.SEQUENTIAL,
        zmin=0,
        zmax=max(1, int(counts.max())),
        xgap=2,
        ygap=2,
        showscale=False,
        hovertemplate="expected %{y}, given %{x}: %{z}<extra></extra>",
        row=1,
        col=2,
    )
    figure.update_xaxes(title="given", type="category", showgrid=False, row=1, col=2)
    figure.update_yaxes(title="expected", type="category", autorange="reversed", showgrid=False, row=1, col=2)
    figure.update_layout(
        coloraxis={
            "colorscale": theme.SEQUENTIAL,
            "cmin": 0,
            "cmax": top,
            "colorbar": {
                "title": {"text": "share of those that get there", "side": "right"},
                "thickness": 12,
                "x": 0.57,
            },
        }
    )
    figure.update_annotations(font={"size": 13})
    operands, digits = result.shape
    if result.wrong_problems:
        title = (
            f"{result.boundary_errors:,} of {result.wrong_problems:,} first errors in {result.n:,} sums of {operands} "
            f"numbers of {digits} digits sit at the boundaries, where {result.boundary_targets:.1%} of the tokens are"
        )
    else:
        title = f"No error in {result.n:,} sums of {operands} numbers of {digits} digits"
    height = 230 + 34 * max(6, len(steps))
    return theme.finish(figure, title, result.provenance, width=1100, height=height, note="Numbers: problems")
