"""The style sheet of all pages, and the switch between light and dark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def style() -> str:
    """CSS of all pages: type, tables, figures, keyboard focus, print."""
    return (files("interp.site.pages") / "style.css").read_text()


@cache
def theme_script() -> str:
    """A script for a page's head: it applies the system's theme or the reader's choice, and adds the button for it."""
    return (files("interp.site.pages") / "theme.js").read_text()
