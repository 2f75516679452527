"""A page in one file, with its data and plotly.js inside."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from interp.site.pages.figure import as_data
from interp.site.pages.page_security import secured
from interp.site.pages.page_style import style, theme_script

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style><script>{theme}</script><script>{plotlyjs}</script></head><body>
<main>
<h1>{title}</h1>
{body}
<p>Made by <code>{command}</code>; the numbers are in this page, in the element <code>#data</code>{elsewhere}.</p>
</main>
<script type="application/json" id="data">{data}</script>
</body></html>
"""


_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>\n</body></html>', re.DOTALL)


def document(title: str, body: str, data: Any, command: str, with_file: bool = False) -> str:
    """The page as text.

    Args:
        title: title and heading of the page.
        body: HTML.
        data: content of the element ``#data``.
        command: the command that made the page.
        with_file: say that the data are also in a file next to the page.
    """
    page = _PAGE.format(
        title=html.escape(title),
        style=style(),
        theme=theme_script(),
        plotlyjs=get_plotlyjs(),
        body=body,
        command=html.escape(command),
        elsewhere=", and in a file next to it" if with_file else "",
        data=as_data(json.dumps(data)),
    )
    return secured(page)


def page_data(path: Path) -> Any:
    """The content of the element ``#data`` of a page that :func:`document` made; None if it has none."""
    found = _DATA.search(path.read_text(encoding="utf-8", errors="replace"))
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:
        return None
