"""Every notebook runs from top to bottom, in the setting of its readers: it is fast enough for both."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbmake.nb_run import NotebookRun

from tests.conftest import SHARED

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


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
