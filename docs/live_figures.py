"""Figures that the reader can move on, as a hook of MkDocs: plotly.js once for the site, and the script that draws."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url
from plotly.offline import get_plotlyjs
from stored_notebooks import figure_words, read_notebook, stored_notebooks

from interp.site.pages import figure_script
from interp.site.pages.items import figure

SCRIPTS = {"site/plotly.js": get_plotlyjs, "site/figures.js": figure_script}
_PICTURE = re.compile(r"^!\[.*\]\(.*\.png\)$", re.MULTILINE)  # docs/notebooks.py writes it, with its note if it has one


def on_files(files: Any, config: Any) -> Any:
    """Add the scripts."""
    for path, text in SCRIPTS.items():
        files.append(File.generated(config, path, content=text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """On a notebook's page, put the stored figures in the place of their pictures, which other readers of docs/ see."""
    path, stored = PurePosixPath(page.file.src_uri), stored_notebooks()
    if path.parent.name != "notebooks" or path.stem not in stored:
        return markdown
    drawn = [piece.figure for piece in read_notebook(stored[path.stem]).pieces if piece.figure is not None]
    first, *others = _PICTURE.split(markdown)
    assert len(others) == len(drawn), f"{path}: {len(others)} pictures of {len(drawn)} figures"
    notes = [f"\n\n*{note}*" if (note := figure_words(each)[1]) else "" for each in drawn]
    assert all(text.startswith(note) for text, note in zip(others, notes, strict=True)), f"{path}: not a figure's note"
    shown = [figure(each) + text.removeprefix(note) for each, text, note in zip(drawn, others, notes, strict=True)]
    return first + "".join(shown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Load the scripts on pages that have figures."""
    if "class='drawing'" not in html:
        return html
    return html + "".join(f'<script defer src="{get_relative_url(path, page.url)}"></script>\n' for path in SCRIPTS)
