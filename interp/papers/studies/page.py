"""One self-contained HTML page of headings, prose, tables and figures; it opens without a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from interp.papers.studies import Settings
from interp.site.pages import Section, document
from models.checkpoint import write_bytes_atomic, write_json_atomic

__all__ = ["Section", "records", "render_page", "write_experiment", "write_page"]


def render_page(
    title: str, sections: Sequence[Section], data: dict[str, Any], command: str, beside: bool = False
) -> str:
    """The page as text, with ``data`` in it; ``beside``: say that they also stand beside it."""
    return document(title, "\n".join(section.to_html() for section in sections), data, command, beside)


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
