"""Sections of a page as HTML."""

from __future__ import annotations

import html
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go

from interp.core.sections import Section
from interp.site.pages.figure import figure_html, fixed_figure_html
from models.numerals import number


def section_html(section: Section, draw: Callable[[go.Figure], str] = figure_html) -> str:
    """The section as HTML; ``draw`` makes a figure part of the page."""
    heading = f"<h{section.level}>{html.escape(section.heading)}</h{section.level}>"
    parts = [heading] if section.heading else []
    parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph.strip()]
    parts += [table_html(table) for table in section.tables]
    parts += [draw(figure) if section.stretch else fixed_figure_html(figure) for figure in section.figures]
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
        return "–" if cell != cell else number(cell)
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
