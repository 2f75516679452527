"""A page as data: headings, prose, tables and figures. :mod:`interp.site.pages` writes it as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs of plain text, and the tables and figures under them."""

    heading: str
    text: str = ""  # paragraphs are separated by an empty line
    tables: Sequence[pd.DataFrame] = ()
    figures: Sequence[Any] = ()  # plotly figures
    level: int = 2  # a section of level 3 belongs to the last one of level 2
    stretch: bool = True  # figures fill the page's width; those with square cells keep their own


@dataclass(frozen=True)
class Page:
    """A title, sections, and the data they show, as JSON can hold it; ``options``: those of the page's command."""

    title: str
    sections: Sequence[Section]
    data: dict[str, Any]
    options: str = ""


def records(table: pd.DataFrame, decimals: int | None = None) -> list[dict[str, Any]]:
    """A table's rows as JSON can hold them: None for what is not finite, rounded if ``decimals`` are given."""
    rows = (table if decimals is None else table.round(decimals)).to_dict("records")
    return [{str(key): _finite(value) for key, value in row.items()} for row in rows]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float | np.floating) and not math.isfinite(value) else value
