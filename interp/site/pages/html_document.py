"""A page in one file, with its style, its data and plotly.js inside, and a policy by which it loads nothing.

Scripts in a page are allowed by their SHA-256, so that a handler or a script that gets into the page later (from its
address, say) does not run. Pages of a site also load scripts and styles that lie next to them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from interp.site.pages.figure import as_data

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


@cache
def style() -> str:
    """CSS of all pages: type, tables, figures, keyboard focus, print."""
    return (files("interp.site.pages") / "style.css").read_text()


@cache
def theme_script() -> str:
    """A script for a page's head: it applies the system's theme or the reader's choice, and adds the button for it."""
    return (files("interp.site.pages") / "theme.js").read_text()


MADE_BY = "carrylens"
_HEAD = re.compile(r'<meta charset="utf-8">\n?')
_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)
_HOLDS_DATA = re.compile(r"""type=['"]application/json['"]""")


def secured(page: str) -> str:
    """A page with its policy, and with the name of this package as its generator, at the start of its head."""
    hashes, beside = [], ""
    for attributes, code in _SCRIPT.findall(page):
        if " src=" in attributes:
            beside = "'self' file: "
        elif not _HOLDS_DATA.search(attributes):
            digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            hashes.append(f"'sha256-{digest}'")
    scripts = beside + " ".join(dict.fromkeys(hashes)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline' 'self' file:; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    said = (
        f'<meta name="generator" content="{MADE_BY}">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    return _HEAD.sub(lambda found: f"{found[0].rstrip()}\n{said}\n", page, count=1)
