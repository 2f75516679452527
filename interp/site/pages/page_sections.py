"""Sections of a page as HTML, and the page of them in one file, which opens without a network."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from interp.core.sections import Page, Section
from interp.site.pages.figure import figure_html, fixed_figure_html
from interp.site.pages.html_document import document
from interp.site.pages.words import as_read, heading
from models.files import write_bytes_atomic, write_json_atomic
from models.number_format import number

_NUMERAL = re.compile(r"[<>]? ?[+\-−]?\d[\d,]*(\.\d+)?%?|–")  # a formatted number, or the dash for a missing one
_SHORT = 24  # most characters of a cell that stays on one line


def section_html(section: Section, draw: Callable[[go.Figure], str] = figure_html) -> str:
    """The section as HTML; ``draw`` makes a figure part of the page."""
    title = f"<h{section.level}>{html.escape(as_read(section.heading))}</h{section.level}>"
    parts = [title] if section.heading else []
    parts += [
        f"<p>{html.escape(as_read(paragraph))}</p>" for paragraph in section.text.split("\n\n") if paragraph.strip()
    ]
    parts += [table_html(table) for table in section.tables]
    parts += [draw(figure) if section.stretch else fixed_figure_html(figure) for figure in section.figures]
    return "\n".join(parts)


def table_html(table: pd.DataFrame) -> str:
    """A table in a frame that scrolls. Columns of numbers are aligned right, and short texts stay on one line."""
    columns = [[*table.iloc[:, i]] for i in range(table.shape[1])]
    numbers = [bool(column) and all(map(_is_number, column)) for column in columns]
    names = zip(numbers, table.columns, strict=True)
    head = "".join(f"<th scope='col'{_kind('', of)}>{html.escape(heading(name))}</th>" for of, name in names)
    rows = []
    for row in table.itertuples(index=False):
        texts = zip(map(_text, row), numbers, strict=True)
        rows.append(f"<tr>{''.join(f'<td{_kind(text, of)}>{html.escape(text)}</td>' for text, of in texts)}</tr>")
    body = "\n".join(rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"


def _is_number(cell: object) -> bool:
    if isinstance(cell, str):
        return _NUMERAL.fullmatch(cell) is not None
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _kind(text: str, of_numbers: bool) -> str:
    if of_numbers:
        return " class='number'"
    return f" class='{'short' if len(text) <= _SHORT else 'long'}'" if text else ""


def _text(cell: object) -> str:
    """A cell's text, with numbers as a reader wants them."""
    if isinstance(cell, float):
        return "–" if cell != cell else as_read(number(cell))
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple)):
        return ", ".join(map(_text, cell))
    return f"{cell:,}" if isinstance(cell, int) else as_read(str(cell))


def page_html(page: Page, command: str, with_file: bool = False) -> str:
    """The page as text; with ``with_file`` it says that its data are also in a file next to it."""
    return document(page.title, "\n".join(map(section_html, page.sections)), page.data, command, with_file)


def write_page(path: Path, page: Page, command: str, with_file: bool = False) -> Path:
    """Write ``path`` (HTML) and, ``with_file``, the data next to it (JSON), both atomically; returns ``path``."""
    text = page_html(page, command, with_file)
    if with_file:
        write_json_atomic(path.with_suffix(".json"), page.data)
    write_bytes_atomic(path, text.encode())
    return path
