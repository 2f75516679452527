"""One self-contained HTML page of headings, prose, tables and figures; it opens without a network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from interp.report.write import figure_html
from models.checkpoint import write_bytes_atomic, write_json_atomic

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 Inter, Helvetica, Arial, sans-serif; color: #222; max-width: 1080px; margin: 2rem auto;
  padding: 0 1rem; }}
h2 {{ margin-top: 2.2rem; }} figure {{ margin: 0; }} figcaption strong {{ display: block; font-size: 1.1rem; }}
figcaption small {{ color: #666; }} .wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top; }}
th {{ border-bottom-color: #888; }} td.number {{ text-align: right; white-space: nowrap; }}
</style><script>{plotlyjs}</script></head><body>
<h1>{title}</h1>
{sections}
<p>Made by <code>{command}</code>; the numbers are in this page, in the element <code>#data</code>, and beside it.</p>
<script type="application/json" id="data">{data}</script>
</body></html>
"""


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs of plain text, and what stands under them."""

    heading: str
    text: str = ""  # paragraphs are separated by an empty line
    tables: Sequence[pd.DataFrame] = ()
    figures: Sequence[go.Figure] = ()

    def to_html(self) -> str:
        parts = [f"<h2>{html.escape(self.heading)}</h2>"]
        parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in self.text.split("\n\n") if paragraph.strip()]
        parts += [f"<div class='wide'>{_table(table)}</div>" for table in self.tables]
        parts += [f"<div class='wide'>{figure_html(figure)}</div>" for figure in self.figures]
        return "\n".join(parts)


def write_page(path: Path, title: str, sections: Sequence[Section], data: dict[str, Any], command: str) -> Path:
    """Write ``path`` (HTML) and ``data`` beside it (JSON), both atomically; returns ``path``."""
    page = PAGE.format(
        title=html.escape(title),
        plotlyjs=get_plotlyjs(),
        sections="\n".join(section.to_html() for section in sections),
        command=html.escape(command),
        data=json.dumps(data).replace("</", "<\\/"),
    )
    write_json_atomic(path.with_suffix(".json"), data)
    write_bytes_atomic(path, page.encode())
    return path


def _table(table: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
    rows = []
    for row in table.itertuples(index=False):
        cells = (f"<td{_kind(cell)}>{html.escape(_text(cell))}</td>" for cell in row)
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>\n" + "\n".join(rows) + "</table>"


def _kind(cell: object) -> str:
    return " class='number'" if isinstance(cell, (int, float)) and not isinstance(cell, bool) else ""


def _text(cell: object) -> str:
    """Numbers as a reader wants them; text for anything that needs its own format."""
    if isinstance(cell, float):
        return "–" if cell != cell else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
