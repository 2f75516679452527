"""A page in one file, with its data and plotly.js inside."""

from __future__ import annotations

import html
import json
from typing import Any

from plotly.offline import get_plotlyjs

from interp.pages.style import style

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style><script>{plotlyjs}</script></head><body>
<main>
<h1>{title}</h1>
{body}
<p>{note}Made by <code>{command}</code>; {data_note} in this page, in the element <code>#data</code>, and beside it.</p>
</main>
<script type="application/json" id="data">{data}</script>
</body></html>
"""


def document(title: str, body: str, data: Any, command: str, note: str = "", data_note: str = "the numbers are") -> str:
    """The page as text: ``body`` is HTML, ``data`` goes into the element ``#data``, ``command`` is what made it."""
    return _PAGE.format(
        title=html.escape(title),
        style=style(),
        plotlyjs=get_plotlyjs(),
        body=body,
        note=f"{html.escape(note)} " if note else "",
        command=html.escape(command),
        data_note=html.escape(data_note),
        data=json.dumps(data).replace("</", "<\\/"),
    )
