"""The order of the site's pages, as the last hook of MkDocs: it finds pages of docs/ and generated ones by their names.

Pages of models are not in it: the zoo's table links to them.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any


def on_files(files: Any, config: Any) -> Any:
    """Fill in the navigation."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    start = pages["README.md"]

    def found(*patterns: str) -> list[dict[str, str]]:
        """Pages by patterns, sorted, each under its heading; a folder's README comes first."""
        fits = sorted((page for page in pages if any(fnmatch(page, one) for one in patterns)), key=_readme_first)
        return [{_heading(pages[page]): page} for page in fits]

    def in_router(page: dict[str, str]) -> int:
        """Where the first page names a recipe."""
        return start.index(next(iter(page.values())))

    order: list[tuple[str, Any]] = [
        ("Start", "README.md"),
        ("Models", ["zoo.md", *found("stories/*.md"), "explore.md", "board.md"]),
        ("Recipes", [*sorted(found("recipes/*.md"), key=in_router), "errors.md"]),
        ("Guide", "guide.md"),
        ("Notebooks", found("notebooks/*.md")),
        ("The papers' numbers", found("studies/*.md")),
        ("Papers", found("papers/*.md")),
        ("How to", [*found("read_*.md"), *found("add_*.md")]),
        ("If you know TransformerLens", "if_you_know.md"),
        ("Reference", ["code_in_ten_files.md", "glossary.md", "hooks.md", "reference.md", "speed.md"]),
        ("Proofs", "proofs.md"),
        ("Benchmark of circuits", "circuit_benchmark.md"),
    ]
    config.nav = [{title: pages} for title, pages in order if pages]
    return files


def _readme_first(page: str) -> tuple[bool, str]:
    return not page.endswith("README.md"), page


def _heading(text: str) -> str:
    """A comment that says what a page was written from may stand above it."""
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
