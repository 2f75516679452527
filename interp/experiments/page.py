"""One self-contained HTML page of headings, prose, tables and figures; it opens without a network."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from interp.experiments import Settings
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
th {{ border-bottom-color: #888; }} .number {{ text-align: right; }}
td.number {{ white-space: nowrap; }}
</style><script>{plotlyjs}</script></head><body>
<h1>{title}</h1>
{sections}
<p>Made by <code>{command}</code>; the numbers are in this page, in the element <code>#data</code>{beside}.</p>
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
    level: int = 2  # 3 stands under the last section of level 2

    def to_html(self) -> str:
        parts = [f"<h{self.level}>{html.escape(self.heading)}</h{self.level}>"]
        parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in self.text.split("\n\n") if paragraph.strip()]
        parts += [f"<div class='wide'>{_table(table)}</div>" for table in self.tables]
        parts += [f"<div class='wide'>{figure_html(figure)}</div>" for figure in self.figures]
        return "\n".join(parts)


def render_page(
    title: str, sections: Sequence[Section], data: dict[str, Any], command: str, beside: bool = False
) -> str:
    """The page as text, with ``data`` in it; ``beside``: say that they also stand beside it."""
    return PAGE.format(
        title=html.escape(title),
        plotlyjs=get_plotlyjs(),
        sections="\n".join(section.to_html() for section in sections),
        command=html.escape(command),
        beside=", and beside it" if beside else "",
        data=json.dumps(data).replace("</", "<\\/"),
    )


def write_page(path: Path, title: str, sections: Sequence[Section], data: dict[str, Any], command: str) -> Path:
    """Write ``path`` (HTML) and ``data`` beside it (JSON), both atomically; returns ``path``."""
    page = render_page(title, sections, data, command, beside=True)
    write_json_atomic(path.with_suffix(".json"), data)
    write_bytes_atomic(path, page.encode())
    return path


def write_experiment(
    settings: Settings, target: str, title: str, sections: Sequence[Section], data: dict[str, Any]
) -> Path:
    """:func:`write_page` for the experiment ``target`` ("paper:what"), at OUT/paper/what.html."""
    paper, _, what = target.partition(":")
    return write_page(settings.out / paper / f"{what}.html", title, sections, data, f"interp reproduce {target}")


def records(table: pd.DataFrame, decimals: int | None = None) -> list[dict[str, Any]]:
    """A table's rows as JSON can hold them: None for what is not finite; rounded, if ``decimals`` are given."""
    rows = (table if decimals is None else table.round(decimals)).to_dict("records")
    return [{str(key): _finite(value) for key, value in row.items()} for row in rows]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(table: pd.DataFrame) -> str:
    cells = [[*table.iloc[:, i]] for i in range(table.shape[1])]
    kinds = [" class='number'" if column and all(map(_kind, column)) else "" for column in cells]
    names = zip(kinds, table.columns, strict=True)
    head = "".join(f"<th{kind}>{html.escape(str(column))}</th>" for kind, column in names)
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
