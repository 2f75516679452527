"""Findings rendered as the HTML of a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from interp.core.sections import Section
from interp.site.pages import as_read, figure_data, secured, style, table_html, theme_script
from interp.site.pages.figure import CONFIG, template_json

_ASSETS = Path(__file__).parent / "assets"
LONG = 14  # tables with more rows are folded


@dataclass(frozen=True)
class Part:
    """A section of a page, with the anchor that the table of contents links to."""

    anchor: str
    heading: str
    items: Sequence[Markup]


@dataclass(frozen=True)
class Link:
    path: str
    label: str


@cache
def template(name: str, package: str = "interp.site.gallery") -> jinja2.Template:
    """A template of a package, which escapes text. Its filter ``read`` applies :func:`as_read` to what is not HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["read"] = lambda text: text if isinstance(text, Markup) else as_read(str(text))
    return environment.get_template(name)


def stylesheet() -> str:
    """The style of a site's pages."""
    return style() + (_ASSETS / "site.css").read_text()


def script() -> str:
    """The script that draws figures, sorts tables and changes the model that is shown."""
    text = (_ASSETS / "site.js").read_text()
    return text.replace('"TEMPLATE"', template_json()).replace('"CONFIG"', json.dumps(CONFIG))


def page(of_body: str, path: str, title: str, links: Sequence[Link], **content: Any) -> bytes:
    """A whole page at ``path`` (relative to the site), from a template of its body."""
    root = "../" * path.count("/")
    body = template(of_body).render(root=root, path=path, **content)
    figures = "class='drawing'" in body
    whole = template("base.html.j2").render(
        root=root, path=path, title=title, links=links, body=Markup(body), figures=figures,
        theme=Markup(theme_script())
    )  # fmt: skip
    return secured(whole).encode()


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


def markdown(text: str, lower: int = 1) -> Markup:
    """Markdown as HTML, without its title, which the page has, and with headings ``lower`` levels lower."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        tokens = tokens[3:]
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + lower)}"
        for child in token.children or ():
            if child.type == "text":
                child.content = as_read(child.content)
    html = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", "<div class='scroll'><table>").replace("</table>", "</table></div>")
    return Markup(html)


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(escape(text))
