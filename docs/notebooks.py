"""Execute the notebooks once, and store what they show, with pages of it for readers of the repository and the site.

    python docs/notebooks.py [NAME ...]      all of notebooks/*.py unless named; five to ten minutes

Writes notebooks/stored/NAME.ipynb.gz, docs/notebooks/NAME.md and its pictures. Needs the extra "dev" and Chromium.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import jupytext
import kaleido
from nbclient import NotebookClient
from PIL import Image
from stored_notebooks import (
    Notebook,
    Piece,
    figure_words,
    read_notebook,
    store_notebook,
    stored_notebooks,
)
from tqdm import tqdm

from interp.figures.save_figure import save_figure

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "notebooks"
HEAD = "<!-- Written by `make notebooks` from notebooks/{name}.py. Change that file, not this one. -->"


def main(names: list[str]) -> None:
    """Execute, store and write."""
    known = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.py"))}
    started = time.monotonic()
    for name in (bar := tqdm(names or known, unit="notebook")):
        bar.set_postfix_str(name)
        notebook = jupytext.read(known[name])
        place = {"metadata": {"path": str(ROOT / "notebooks")}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
        store_notebook(name, notebook)
    for path in set(stored_notebooks()) - set(known):
        stored_notebooks()[path].unlink()
    size = write_pages(list(names or known))
    print(
        f"{len(names or known)} notebooks in {time.monotonic() - started:.0f} s; docs/notebooks has {size / 1e6:.1f} MB"
    )


def write_pages(names: list[str]) -> int:
    """Write the pages of stored notebooks; returns the bytes of all pages and pictures."""
    PAGES.mkdir(exist_ok=True)
    stored = {name: read_notebook(path) for name, path in stored_notebooks().items()}
    warnings.filterwarnings("ignore", message="The kopts argument is ignored")
    kaleido.start_sync_server(n=1, silence_warnings=True)
    for name in names:
        for old in (PAGES / name).glob("*.png"):
            old.unlink()
        figures = [piece.figure for piece in stored[name].pieces if piece.figure is not None]
        for i, figure in enumerate(figures):
            fewer_colours(save_figure(figure, PAGES / name / picture(i)))
        (PAGES / f"{name}.md").write_text(as_markdown(stored[name]))
    kaleido.stop_sync_server(silence_warnings=True)
    (PAGES / "README.md").write_text(contents(stored.values()))
    return sum(path.stat().st_size for path in PAGES.rglob("*") if path.is_file())


def fewer_colours(path: Path) -> None:
    """Write a picture again with a palette of 128 colours, which takes a quarter of the bytes."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def contents(notebooks: Iterable[Notebook]) -> str:
    """The list of all of them."""
    lines = [f"* [{one.title}]({one.name}.md): {one.about}" for one in notebooks]
    return "\n".join(["# Notebooks, with what they print and draw", "", *lines, ""])


def as_markdown(notebook: Notebook) -> str:
    """A notebook as a page with pictures."""
    parts, figures = [HEAD.format(name=notebook.name)], 0
    for piece in notebook.pieces:
        parts.append(_markdown(piece, notebook.name, figures))
        figures += piece.figure is not None
    return "\n\n".join(parts) + "\n"


def _markdown(piece: Piece, name: str, figures: int) -> str:
    if piece.kind == "code":
        return f"```python\n{piece.text}\n```"
    if piece.kind == "text":
        return f"```text\n{piece.text}\n```"
    if piece.kind == "widget":
        return "*In Jupyter, the explorer runs here; `interp explore` writes it as a page.*"
    if piece.figure is None:
        return piece.text
    title, note = figure_words(piece.figure)
    words = title.translate(str.maketrans("[]", "()")) or "figure"
    said = f"\n\n*{note}*" if note else ""
    return f"![{words}]({name}/{picture(figures)}){said}"


def picture(i: int) -> str:
    """The file of the figure ``i``, counted from 0."""
    return f"{i + 1:02d}.png"


if __name__ == "__main__":
    main(sys.argv[1:])
