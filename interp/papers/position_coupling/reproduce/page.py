"""One file with a figure, its table and its data; it opens without a network."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from interp.probes.heatmaps.panels import GridPanels
from interp.site.pages import document, figure_html, fixed_figure_html, table_html
from models.checkpoint import write_bytes_atomic

HEAD = ("panel", "model", "seeds", "problems", "in the training range", "outside")
NOTE = "Exact match of whole responses, mean over sizes."


def write_page(path: Path, panels: GridPanels, target: str, size: str) -> None:
    """Write ``path`` (HTML) and the data beside it (JSON), both atomically."""
    rows = [
        (panel.label, panel.grids[0].model, panel.seeds_text, sum(grid.provenance.n for grid in panel.grids), *means)
        for panel, means in zip(panels.panels, panels.means(), strict=True)
    ]
    figure = panels.figure()
    drawn = figure_html(figure) if panels.is_lines else fixed_figure_html(figure)
    body = f"{drawn}\n{table_html(pd.DataFrame(rows, columns=list(HEAD)))}"
    command = f"interp reproduce {target} --size {size}"
    page = document(panels.title, body, panels.to_dict(), command, True, NOTE, "the counts of every size are")
    panels.save(path.with_suffix(".json"))
    write_bytes_atomic(path, page.encode())
