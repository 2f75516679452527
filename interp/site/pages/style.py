"""The one style sheet, and the one switch between light and dark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def style() -> str:
    """CSS of all pages: type, tables, figures, what is seen of the keyboard's focus, print."""
    return (files("interp.site.pages") / "style.css").read_text()


@cache
def theme_script() -> str:
    """A script for a page's head: the system's theme or the reader's choice, and the button that changes it."""
    return (files("interp.site.pages") / "theme.js").read_text()
