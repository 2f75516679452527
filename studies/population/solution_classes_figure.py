"""The figure of :class:`studies.population.solution_classes.SolutionClasses`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, cells, hover
from interp.figures.panels import Panel, compose, vline
from studies.population.solution_classes import SolutionClasses


@drawing(SolutionClasses)
def classes(result: SolutionClasses) -> go.Figure:
    """Distances of all pairs, ordered by class, and how often each distance occurs."""
    order = np.argsort(result.labels, kind="stable")
    names = [f"{result.names[i]} · class {result.labels[i]}" for i in order]
    values = result.matrix[np.ix_(order, order)]
    counts, edges = np.histogram(result.distances, bins=40, range=(0.0, max(1.0, float(result.distances.max()))))
    few = {} if len(names) <= 20 else {"showticklabels": False, "ticks": ""}
    panels = [
        Panel(
            [cells(values, names, names, limits=(0.0, 1.0), gap=0, **hover("{y}, {x}: {z:.3f}"))],
            "every pair",
            x=few,
            y=few,
        ),
        Panel(
            [bars((edges[:-1] + edges[1:]) / 2, counts, "pairs", theme.BLUE, **hover("{x:.2f}: {y} pairs"))],
            "how often each distance occurs",
            x={"title": "distance with symmetries taken out", "rangemode": "tozero"},
            y={"title": "pairs"},
            marks=[vline(result.limit, "one class")] if len(result.untrained) else [],
        ),
    ]
    groups = result.classes()
    many = f"{len(groups)} classes, the largest of {len(groups[0])}" if len(groups) > 1 else "one class"
    title = f"{len(names)} seeds of {result.architecture}: {many}"
    return compose(panels, title, result.provenance, note="Distance: 0 equal, 1 orthogonal", columns=2)
