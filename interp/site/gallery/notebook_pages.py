"""Pages of the stored notebooks, with their output and interactive figures."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from interp.site.gallery.overviews import EXPLORED
from interp.site.gallery.render import Link, figure, folded, markdown, page
from interp.site.notebooks import Notebook, Piece, read_notebook, stored_notebooks
from interp.site.pages import with_long_cells

NOTEBOOKS = "notebooks.html"
LONG = 25  # longer code or output is folded


def notebook_path(name: str) -> str:
    return f"notebook/{name}.html"


def notebooks_page(links: Sequence[Link]) -> bytes:
    """The list of all notebooks."""
    found = [read_notebook(path) for path in stored_notebooks().values()]
    rows = [(notebook_path(one.name), one.title, markdown(one.about)) for one in found]
    return page("notebooks.html.j2", NOTEBOOKS, "Notebooks", links, rows=rows)


def notebook_page(notebook: Notebook, links: Sequence[Link]) -> bytes:
    """A notebook from top to bottom."""
    items = [_item(piece, links) for piece in notebook.pieces]
    return page(
        "notebook.html.j2", notebook_path(notebook.name), notebook.title, links, heading=notebook.title,
        name=notebook.name, items=items,
    )  # fmt: skip


def _item(piece: Piece, links: Sequence[Link]) -> Markup:
    if piece.kind == "markdown":
        return markdown(piece.text, lower=0)
    if piece.kind == "widget":
        explorer = next((link for link in links if link.path in EXPLORED), None)
        there = (
            Markup(" <a href='../{}'>{}</a> is it as a page.").format(explorer.path, explorer.label) if explorer else ""
        )
        return Markup("<p class='control'>In Jupyter, the explorer runs here.{}</p>").format(there)
    if piece.kind == "table":
        return Markup("<div class='scroll out'>{}</div>").format(Markup(with_long_cells(piece.text)))
    if piece.figure is not None:
        return figure(piece.figure)
    is_code = piece.kind == "code"
    block = Markup("<pre class='{}'><code>{}</code></pre>").format("in" if is_code else "out", piece.text)
    lines = piece.text.count("\n") + 1
    return block if lines <= LONG else folded(f"{lines} lines of {'code' if is_code else 'output'}", block)
