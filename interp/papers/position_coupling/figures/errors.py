"""Picture of :class:`interp.papers.position_coupling.errors.FirstErrors`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures.drawing import drawing
from interp.figures.layers import cells, hover, written
from interp.figures.panels import Panel, compose
from interp.papers.position_coupling.errors import BOUNDARY, FirstErrors


@drawing(FirstErrors)
def first_errors(result: FirstErrors) -> go.Figure:
    """First errors by running sum and place (hazard as colour, count as text), confusions beside it."""
    table = result.table
    steps, places = table.step.values.tolist(), table.place.values.tolist()
    text = written(table["first"].values, lambda count: f"{int(count):,}", least=1)
    x = [*range(len(places) - 1), len(places) - 0.5]  # the boundary stands apart
    top = max(float(np.nanmax(table.hazard.values)), 0.01)
    layers = []
    for part in (slice(0, len(places) - 1), slice(len(places) - 1, len(places))):
        said = hover(
            "{y}, {x}: {first} of {reached} that get there, {z:.3f} [{low:.3f}, {high:.3f}]; wrong in {wrong} in all",
            **{name: table[name].values[:, part] for name in ("reached", "low", "high", "first", "wrong")},
        )
        layers.append(
            cells(
                table.hazard.values[:, part], x[part], [f"b{step}" for step in steps], limits=(0, top),
                text=[row[part] for row in text], bar="share of those that get there", gap=2, dx=1, **said,
            )
        )  # fmt: skip
    names = ["> or EOS" if place == BOUNDARY else place for place in places]
    ticks = {"tickvals": x, "ticktext": names, "range": [-0.55, x[-1] + 0.55]}
    confusions = result.confusions
    others = int(confusions.sel(predicted="other").sum())
    kept = [kind for kind in confusions.predicted.values.tolist() if kind != "other" or others]
    counts = confusions.sel(predicted=kept).values
    given, expected = (
        ["EOS" if kind == "$" else kind for kind in kinds] for kinds in (kept, confusions.expected.values.tolist())
    )
    confused = cells(
        counts, given, expected, limits=(0, max(1, int(counts.max()))), gap=2,
        text=written(counts, lambda count: f"{int(count):,}", least=1), **hover("expected {y}, given {x}: {z}"),
    )  # fmt: skip
    panels = [
        Panel(
            layers, "first wrong token: problems",
            ticks | {"title": "digit of the running sum (0: units), and the boundary behind it"}, "running sum",
        ),
        Panel(
            [confused], "given for expected", {"title": "given", "type": "category"},
            {"title": "expected", "type": "category"},
        ),
    ]  # fmt: skip
    operands, digits = result.shape
    if result.wrong_problems:
        title = (
            f"{result.boundary_errors:,} of {result.wrong_problems:,} first errors in {result.n:,} sums of {operands} "
            f"numbers of {digits} digits sit at the boundaries, where {result.boundary_targets:.1%} of the tokens are"
        )
    else:
        title = f"No error in {result.n:,} sums of {operands} numbers of {digits} digits"
    height = 230 + 34 * max(6, len(steps))
    return compose(
        panels, title, result.provenance, note="Numbers: problems", columns=2, width=1100, height=height,
        widths=[0.7, 0.3], gaps=(220, 0),
    )  # fmt: skip
