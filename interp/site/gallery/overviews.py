"""Pages about several models at once: the comparison, and views to step through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp.site.explorer import as_view, view_data, weights_apart
from interp.site.gallery.papers import part_of
from interp.site.gallery.render import Link, page
from models.zoo import load
from studies.runs.stored_studies import stored_studies

COMPARISON = "compare.html"
#: Views to step through: one model, or two next to each other.
EXPLORED: Mapping[str, tuple[str, ...]] = {
    "explore/microadder-57.html": ("microadder-57", "microadder-57-by-hand"),
    "explore/microadder-11.html": ("microadder-11", "adder-3-by-hand"),
    "explore/adder-456.html": ("adder-456",),
    "explore/toygpt-learned-pre.html": ("toygpt-learned-pre",),
}


def comparisons() -> list[str]:
    """Targets of stored results about several papers' models."""
    return [target for target in stored_studies() if target.startswith("comparison:")]


def comparison_page(links: Sequence[Link]) -> bytes:
    """The page with the comparison matrix and other measurements across models."""
    words = (
        "Models of different formats asked the same questions, seeds of one architecture aligned to each other, parts "
        "of one model put into another."
    )
    parts = [part_of(target) for target in comparisons()]
    return page(
        "paper.html.j2", COMPARISON, "Comparison", links, heading="The same algorithm?", words=words, parts=parts,
        models=[],
    )  # fmt: skip


# ---- views to step through


def views(here: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The views of :data:`EXPLORED` whose models are all on the site."""
    return {path: names for path, names in EXPLORED.items() if set(names) <= set(here)}


def view_links(name: str, here: Sequence[str]) -> list[Link]:
    """The views that show a model."""
    return [Link(path, " and ".join(shown)) for path, shown in views(here).items() if name in shown]


def view_page(path: str, here: Sequence[str], links: Sequence[Link]) -> bytes:
    """A page that runs one or two models, whose weights are in a file next to it."""
    names, data = EXPLORED[path], _data(path)
    weights_apart(data)
    title = " and ".join(names)
    others = [Link(other, " and ".join(shown)) for other, shown in views(here).items()]
    return page(
        "explore.html.j2", path, title, links, heading=title, view=as_view(data), others=others,
        weights=weights_path(path),
    )  # fmt: skip


def weights_path(path: str) -> str:
    """The path of a view's weights."""
    return f"{path.removesuffix('.html')}.weights.js"


def weights_file(path: str) -> bytes:
    """The weights of a view in float32 or float64, as a script: ToyGPT's 800,000 are 4 MB."""
    return weights_apart(_data(path)).encode()


def _data(path: str) -> dict[str, Any]:
    return view_data([load(name) for name in EXPLORED[path]])
