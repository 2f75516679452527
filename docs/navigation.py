"""The order of the site's pages, as a hook of MkDocs. How-to pages and notebooks are found by their file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def found(pattern: str) -> list[str]:
    """Pages under docs/ by a pattern, sorted."""
    return [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.glob(pattern))]


def on_config(config: Any) -> Any:
    """Fill in the navigation."""
    order: list[tuple[str, str | list[str]]] = [
        ("Start", "README.md"),
        ("Guide", "guide.md"),
        ("How to", found("add_*.md")),
        ("Notebooks", found("notebooks/*.md")),
        ("Reference", ["glossary.md", "hooks.md", "reference.md"]),
        ("The zoo", "zoo.md"),
        ("Proofs", "proofs.md"),
        ("Public models", "board.md"),
    ]
    config.nav = [{title: pages} for title, pages in order if pages]
    return config
