"""The one style sheet."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def style() -> str:
    """CSS of all pages: type, tables, figures, what is seen of the keyboard's focus, print."""
    return (files("interp.site.pages") / "style.css").read_text()
