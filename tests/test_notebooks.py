"""Every notebook runs from top to bottom and shows what is stored of it, on the pages made of that."""

from __future__ import annotations

import math
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbmake.nb_run import NotebookRun
from stored_notebooks import Notebook, read_notebook, said, store_notebook, stored_notebooks

from models.errors import UserError
from tests.conftest import SHARED

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.mark.slow  # a process and ten to forty seconds each
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path: Path, tmp_path: Path):
    notebook = jupytext.read(path)
    nbformat.validate(notebook)
    paired = tmp_path / "checkout" / "notebooks" / f"{path.stem}.ipynb"
    paired.parent.mkdir(parents=True)
    nbformat.write(notebook, paired)
    if SHARED.is_dir():  # beside the checkout
        (tmp_path / SHARED.name).symlink_to(SHARED)
    result = NotebookRun(paired, default_timeout=120, kernel="python3").execute()
    assert result.error is None, result.error.trace
    drawn = sum(
        "application/vnd.plotly.v1+json" in output.get("data", {})
        for cell in result.nb.cells
        for output in cell.get("outputs", [])
    )
    assert drawn >= 1
    found = said(Notebook(path.stem, result.nb.cells))
    stored = said(read_notebook(stored_notebooks()[path.stem]))
    assert len(found) == len(stored)
    for now, then in zip(found, stored, strict=True):
        if not SHARED.is_dir() and "The published checkpoint is not here." in now:
            continue
        assert same(now, then), f"run `make notebooks`: it says\n{now}\nand not\n{then}"


def same(a: str, b: str) -> bool:
    """Equal words, and numbers that differ by 2% at most: the last digits depend on the machine."""
    numbers = zip(NUMBER.findall(a), NUMBER.findall(b), strict=False)
    return NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(
        math.isclose(float(x.replace(",", "")), float(y.replace(",", "")), rel_tol=0.02, abs_tol=1e-9)
        for x, y in numbers
    )


def test_numbers_that_differ_are_told_from_last_digits():
    assert same("1,000 of 1,000, 0.0501", "1,000 of 1,000, 0.0502")
    assert not same("n = 10", "n = 11") and not same("10 units", "10 heads")


def test_what_is_stored_are_the_notebooks_as_they_stand():
    stored = {name: read_notebook(path) for name, path in stored_notebooks().items()}
    assert list(stored) == [path.stem for path in sorted((ROOT / "notebooks").glob("*.py"))]
    for name, notebook in stored.items():
        cells = jupytext.read(ROOT / "notebooks" / f"{name}.py").cells
        assert notebook.sources() == [(cell.cell_type, cell.source) for cell in cells], f"{name}: run `make notebooks`"


def test_the_pages_in_docs_are_made_of_what_is_stored():
    pytest.importorskip("kaleido")
    writer = load_writer()
    size = 0
    for name, path in stored_notebooks().items():
        page = (writer.PAGES / f"{name}.md").read_text()
        assert page == writer.as_markdown(read_notebook(path)), f"{name}: run `make notebooks`"
        pictures = re.findall(r"^!\[[^]]+\]\((.+?)\)$", page, flags=re.MULTILINE)
        files = sorted((writer.PAGES / name).iterdir())
        assert [writer.PAGES / picture for picture in pictures] == files
        size += sum(file.stat().st_size for file in files) + len(page)
    assert size < 3_000_000


def load_writer():
    """docs/notebooks.py as a module."""
    spec = spec_from_file_location("docs_notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_differs_from_run_to_run_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stored_notebooks.STORED", tmp_path)
    cell = {"cell_type": "code", "source": "1", "metadata": {"time": "now"}, "execution_count": 7}
    html = '<style>#T_1 {}</style><table id="T_1"><td class="a">x (10.3 s)</td></table>'
    outputs = [
        {"output_type": "execute_result", "execution_count": 7, "data": {"text/html": html, "text/plain": "at 0x7f"}},
        {"output_type": "stream", "name": "stdout", "text": ["a   (2.6 s)\n", "b\n"]},
    ]
    path = store_notebook("n", {"cells": [cell | {"outputs": outputs}]})
    assert [(piece.kind, piece.text) for piece in read_notebook(path).pieces] == [
        ("code", "1"), ("table", "<table><td>x</td></table>"), ("text", "a\nb"),
    ]  # fmt: skip
    before = path.read_bytes()
    cell |= {"metadata": {}, "execution_count": 8}
    assert store_notebook("n", {"cells": [cell | {"outputs": outputs}]}).read_bytes() == before
    path.write_bytes(before[:40])
    with pytest.raises(UserError):
        read_notebook(path)
