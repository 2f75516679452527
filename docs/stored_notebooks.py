"""The stored, executed notebooks and their contents.

``make notebooks`` executes the notebooks of the checkout once and stores the results. The pages under
``docs/notebooks`` are made from them. The tests execute every notebook again and compare :func:`said`.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects as go

from models.errors import UserError
from models.files import write_bytes_atomic

STORED = Path(__file__).parents[1] / "notebooks" / "stored"
FIGURE, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
_SUFFIX = ".ipynb.gz"
_TOOK = re.compile(r" +\(\d+\.\d s\)")  # how long a proof took


@dataclass(frozen=True)
class Piece:
    """A piece of a notebook: text in Markdown, code, printed text, a table in HTML, a figure or a widget."""

    kind: Literal["markdown", "code", "text", "table", "figure", "widget"]
    text: str = ""
    figure: go.Figure | None = None


@dataclass(frozen=True)
class Notebook:
    """A notebook's name and its ``cells`` in Jupyter's format."""

    name: str
    cells: list[dict[str, Any]]

    @cached_property
    def pieces(self) -> list[Piece]:
        """All pieces in order. Printed texts of a cell with nothing between them are joined."""
        return [piece for cell in self.cells for piece in _pieces(cell)]

    @property
    def title(self) -> str:
        return self._opening[0].removeprefix("# ")

    @property
    def about(self) -> str:
        """The first paragraph of text."""
        return " ".join(self._opening[1].split())

    @property
    def _opening(self) -> list[str]:
        return _joined(self.cells[0]["source"]).split("\n\n")

    def sources(self) -> list[tuple[str, str]]:
        """Kind and text of every cell."""
        return [(cell["cell_type"], _joined(cell["source"])) for cell in self.cells]


def stored_notebooks() -> dict[str, Path]:
    """The files of the stored notebooks by name, in order."""
    return {path.name.removesuffix(_SUFFIX): path for path in sorted(STORED.glob(f"*{_SUFFIX}"))}


def read_notebook(path: Path) -> Notebook:
    """Read a stored notebook. Raises a UserError for any other file."""
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
        return Notebook(path.name.removesuffix(_SUFFIX), value["cells"])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"{path} is not a stored notebook: {error}.") from error


def store_notebook(name: str, notebook: Mapping[str, Any]) -> Path:
    """Store an executed notebook, without anything that differs from run to run."""
    cells = [
        {"cell_type": cell["cell_type"], "id": str(i), "metadata": {}, "source": _joined(cell["source"])}
        | ({"execution_count": None, "outputs": [_kept(o) for o in cell["outputs"]]} if "outputs" in cell else {})
        for i, cell in enumerate(notebook["cells"])
    ]
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    path = STORED / f"{name}{_SUFFIX}"
    write_bytes_atomic(path, gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), 9, mtime=0))
    return path


def said(notebook: Notebook) -> list[str]:
    """What the cells print, tabulate and draw, as text: of figures the title, the note and the names of the traces."""
    found = []
    for piece in notebook.pieces:
        if piece.kind == "table":
            found.append(" ".join(unescape(re.sub("<[^>]+>", " ", piece.text)).split()))
        elif piece.figure is not None:
            names = [trace.name for trace in piece.figure.data if trace.name]
            found.append(" | ".join([*figure_words(piece.figure), *names]))
        elif piece.kind == "text":
            found.append(piece.text)
    return found


def figure_words(figure: go.Figure) -> tuple[str, str]:
    """The title of a figure and the note below it, as plain text."""
    title = figure.layout.title
    return _plain(title.text), _plain(title.subtitle.text)


def _plain(text: str | None) -> str:
    return " ".join(unescape(re.sub(r"<(?!\s)[^>]+>", " ", text or "")).split())


def _pieces(cell: Mapping[str, Any]) -> Iterator[Piece]:
    source = _joined(cell["source"]).strip()
    if cell["cell_type"] == "markdown":
        yield Piece("markdown", source)
        return
    yield Piece("code", source)
    printed = ""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            printed += _lasting(_joined(output["text"]))
            continue
        if printed:
            yield Piece("text", printed.rstrip())
            printed = ""
        data = output.get("data", {})
        if FIGURE in data:
            yield Piece("figure", figure=go.Figure(data[FIGURE]["data"], data[FIGURE]["layout"]))
        elif WIDGET in data:
            yield Piece("widget")
        elif "text/html" in data:
            yield Piece("table", _bare(_joined(data["text/html"])))
        elif "text/plain" in data:
            yield Piece("text", _lasting(_joined(data["text/plain"])).rstrip())
    if printed:
        yield Piece("text", printed.rstrip())


def _kept(output: Mapping[str, Any]) -> dict[str, Any]:
    """An output in its richest form, without run numbers."""
    if output["output_type"] == "stream":
        return {"output_type": "stream", "name": output["name"], "text": _lasting(_joined(output["text"]))}
    data = output["data"]
    best = next(form for form in (FIGURE, WIDGET, "text/html", "text/plain") if form in data)
    value = data[best]
    if best == FIGURE:
        value = {"data": value["data"], "layout": value["layout"]}
    elif best == WIDGET:
        value = {}
    elif best == "text/html":
        value = _bare(_joined(value))
    else:
        value = _lasting(_joined(value))
    return {"output_type": "display_data", "metadata": {}, "data": {best: value}}


def _bare(html: str) -> str:
    """A table without its style, whose rules and names differ from run to run."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r""" (?:id|class|style|border)=("[^"]*"|'[^']*')""", "", html)
    # The odd parts are code, whose indentation means something.
    parts = re.split(r"(<pre.*?</pre>)", html, flags=re.DOTALL)
    lines = (line if i % 2 else line.strip() for i, part in enumerate(parts) for line in part.splitlines())
    return _lasting("\n".join(line for line in lines if line.strip()))


def _lasting(text: str) -> str:
    """Printed text without durations, which differ from run to run."""
    return _TOOK.sub("", text)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
