"""The order of the site's pages, as a hook of MkDocs. How-to pages and notebooks are found by their file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def found(pattern: str) -> list[dict[str, str]]:
    """Pages under docs/ by a pattern, sorted, each under its heading; a folder's README comes first."""
    pages = sorted(DOCS.glob(pattern), key=lambda page: (page.name != "README.md", page))
    return [{_heading(page): page.relative_to(DOCS).as_posix()} for page in pages]


def _in_router(page: dict[str, str]) -> int:
    """Where the first page names a recipe."""
    return (DOCS / "README.md").read_text(encoding="utf-8").index(next(iter(page.values())))


def _heading(page: Path) -> str:
    """A comment that says what a page was written from may stand above it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))


def on_config(config: Any) -> Any:
    """Fill in the navigation."""
    order: list[tuple[str, Any]] = [
        ("Start", "README.md"),
        ("Recipes", [*sorted(found("recipes/*.md"), key=_in_router), "errors.md"]),
        ("Guide", "guide.md"),
        ("Papers", found("papers/*.md")),
        ("How to", [*found("read_*.md"), *found("add_*.md")]),
        ("Notebooks", found("notebooks/*.md")),
        ("Reference", ["glossary.md", "hooks.md", "reference.md", "speed.md"]),
        ("The zoo", "zoo.md"),
        ("Proofs", "proofs.md"),
        ("Public models", "board.md"),
    ]
    config.nav = [{title: pages} for title, pages in order if pages]
    return config
