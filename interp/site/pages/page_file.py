"""A page in one file with its sections, its data and plotly.js, so it opens without a network."""

from __future__ import annotations

from pathlib import Path

from interp.core.sections import Page
from interp.site.pages.html_document import document
from interp.site.pages.page_sections import section_html
from models.files.checkpoint import write_bytes_atomic, write_json_atomic


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
