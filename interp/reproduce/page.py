"""One file with a figure, its table and its data; it opens without a network."""

from __future__ import annotations

import html
import json
from pathlib import Path

from plotly.offline import get_plotlyjs

from interp.heatmaps.panels import GridPanels
from interp.report.write import figure_html
from models.checkpoint import write_bytes_atomic

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 Inter, Helvetica, Arial, sans-serif; color: #222; max-width: 1240px; margin: 2rem auto;
  padding: 0 1rem; }}
figure {{ margin: 0; }} figcaption strong {{ display: block; font-size: 1.1rem; }}
figcaption small {{ color: #666; }} .plot {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin-top: 1.5rem; }} th, td {{ padding: .2rem .8rem; text-align: left;
  border-bottom: 1px solid #ddd; }} td.number {{ text-align: right; }}
</style><script>{plotlyjs}</script></head><body>
<h1>{title}</h1>
{figure}
<table>
<tr><th>panel</th><th>model</th><th>seeds</th><th>problems</th><th>in the training range</th><th>outside</th></tr>
{rows}</table>
<p>Exact match of whole responses, mean over sizes. Made by <code>{command}</code>; the counts of every size are in this
page, in the element <code>#data</code>, and beside it.</p>
<script type="application/json" id="data">{data}</script>
</body></html>
"""


def write_page(path: Path, panels: GridPanels, target: str, size: str) -> None:
    """Write ``path`` (HTML) and the data beside it (JSON), both atomically."""
    data = panels.to_dict()
    rows = [
        f"<tr><td>{html.escape(panel.label)}</td><td>{html.escape(panel.grids[0].model)}</td>"
        f"<td>{panel.seeds_text}</td><td class='number'>{sum(grid.provenance.n for grid in panel.grids):,}</td>"
        f"<td class='number'>{_share(inside)}</td><td class='number'>{_share(outside)}</td></tr>"
        for panel, (inside, outside) in zip(panels.panels, panels.means(), strict=True)
    ]
    figure = panels.figure()
    page = PAGE.format(
        title=html.escape(panels.title),
        plotlyjs=get_plotlyjs(),
        figure=figure_html(figure) if panels.is_lines else _fixed(figure),
        rows="\n".join(rows),
        command=html.escape(f"interp reproduce {target} --size {size}"),
        data=json.dumps(data).replace("</", "<\\/"),
    )
    panels.save(path.with_suffix(".json"))
    write_bytes_atomic(path, page.encode())


def _fixed(figure: object) -> str:
    """A figure at its own size: stretched, its cells would not be squares."""
    from plotly.io import to_html

    config = {"displaylogo": False}
    return f"<div class='plot'>{to_html(figure, include_plotlyjs=False, full_html=False, config=config)}</div>"


def _share(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"
