"""The parts of a page whose script draws its figures: paragraphs, commands, tables, figures, sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from interp.core.sections import Section
from interp.site.pages.figure import figure_data
from interp.site.pages.page_sections import table_html
from interp.site.pages.words import as_read

LONG = 14  # tables with more rows are folded


def paragraph(text: str) -> Markup:
    return Markup("<p>{}</p>").format(as_read(text))


def control(text: str) -> Markup:
    """A paragraph on what an untrained model of the same shape does."""
    return Markup("<p class='control'>Control, the same architecture untrained: {}</p>").format(as_read(text))


def subheading(text: str) -> Markup:
    return Markup("<h3>{}</h3>").format(as_read(text))


def commands(lines: Sequence[str]) -> Markup:
    return Markup("<pre><code>{}</code></pre>").format("\n".join(lines))


def folded(summary: str, content: str) -> Markup:
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, Markup(content))


def table(frame: pd.DataFrame, name: str = "Table") -> Markup:
    """A table, folded if it is long."""
    html = table_html(frame)
    return Markup(html) if len(frame) <= LONG else folded(f"{name}: {len(frame)} rows", html)


def sections(found: Sequence[Section], under: str = "") -> list[Markup]:
    """Sections of level 3 with figures as data and long tables folded. The heading ``under`` is not repeated."""
    items: list[Markup] = []
    for section in found:
        items += [subheading(section.heading)] if section.heading and section.heading != under else []
        paragraphs = [paragraph(text) for text in section.text.split("\n\n") if text.strip()]
        if len(paragraphs) > 6:
            items.append(folded(f"{len(paragraphs)} sentences", "".join(paragraphs)))
        else:
            items += paragraphs
        items += map(figure, section.figures)
        items += [table(frame) for frame in section.tables]
    return items


def figure(drawn: Any) -> Markup:
    """A figure as data, as wide as its column unless its cells are to be square."""
    return figure_data(drawn, fixed=not _stretches(drawn))


def _stretches(figure: Any) -> bool:
    """Whether a figure may be as wide as its column, which maps with square cells may not."""
    return not any(axis.scaleanchor or axis.constrain for axis in figure.select_yaxes())
