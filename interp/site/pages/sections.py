"""A page's sections: a heading, prose, tables and figures."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from interp.site.pages.figure import figure_html


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs of plain text, and what stands under them."""

    heading: str
    text: str = ""  # paragraphs are separated by an empty line
    tables: Sequence[pd.DataFrame] = ()
    figures: Sequence[go.Figure] = ()
    level: int = 2  # 3 stands under the last section of level 2

    def to_html(self, draw: Callable[[go.Figure], str] = figure_html) -> str:
        """The section; ``draw`` makes a figure part of the page."""
        parts = [f"<h{self.level}>{html.escape(self.heading)}</h{self.level}>"]
        parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in self.text.split("\n\n") if paragraph.strip()]
        parts += [table_html(table) for table in self.tables]
        parts += [draw(figure) for figure in self.figures]
        return "\n".join(parts)


def table_html(table: pd.DataFrame) -> str:
    """A table in a frame that scrolls; columns of numbers alone stand right."""
    columns = [[*table.iloc[:, i]] for i in range(table.shape[1])]
    kinds = [" class='number'" if column and all(map(_kind, column)) else "" for column in columns]
    names = zip(kinds, table.columns, strict=True)
    head = "".join(f"<th scope='col'{kind}>{html.escape(str(column))}</th>" for kind, column in names)
    rows = []
    for row in table.itertuples(index=False):
        cells = (f"<td{_kind(cell)}>{html.escape(_text(cell))}</td>" for cell in row)
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"


def _kind(cell: object) -> str:
    return " class='number'" if isinstance(cell, (int, float)) and not isinstance(cell, bool) else ""


def _text(cell: object) -> str:
    """Numbers as a reader wants them; text for anything that needs its own format."""
    if isinstance(cell, float):
        return "–" if cell != cell else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
