"""One page with a figure, its table and its data."""

from __future__ import annotations

import pandas as pd

from interp.core.sections import Page, Section
from interp.probes.scored import GridPanels

HEAD = ("panel", "model", "seeds", "problems", "in the training range", "outside")
NOTE = "Exact match of whole responses, mean over sizes. The data have the counts of every size."


def figure_page(panels: GridPanels, size: str) -> Page:
    """The figure over a table of means."""
    rows = [
        (panel.label, panel.grids[0].model, panel.seeds_text, sum(grid.provenance.n for grid in panel.grids), *means)
        for panel, means in zip(panels.panels, panels.means(), strict=True)
    ]
    table = pd.DataFrame(rows, columns=list(HEAD))
    section = Section("", NOTE, [table], [panels.figure()], stretch=panels.is_lines)
    return Page(panels.title, [section], panels.to_dict(), f"--size {size}")
