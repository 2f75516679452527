"""The order of the site's pages, a hook of MkDocs: how-to pages and notebooks are found, so that a new one is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent


def on_config(config: Any) -> Any:
    """Fill in ``nav``: start, guide, how to, notebooks, reference, zoo, proofs."""
    found = {name: [str(page.relative_to(DOCS)) for page in sorted(DOCS.glob(pattern))] for name, pattern in GROUPS}
    pages = [{name: found[name]} if name in found else page for name, page in ORDER]
    config.nav = [page for page in pages if page not in ({name: []} for name in found)]
    return config


GROUPS = (("How to", "add_*.md"), ("Notebooks", "notebooks/*.md"))
ORDER = (
    ("Start", "README.md"),
    ("Guide", "guide.md"),
    ("How to", None),
    ("Notebooks", None),
    ("Reference", {"Reference": ["glossary.md", "hooks.md", "reference.md"]}),
    ("The zoo", "zoo.md"),
    ("Proofs", "proofs.md"),
)
