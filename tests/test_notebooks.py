"""Every notebook runs from top to bottom, with the sample sizes of its readers."""

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbmake.nb_run import NotebookRun

from tests.conftest import SHARED

SLOW = ("07_addlm", "08_bring_your_own_model")  # most of a minute each
NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))
]


@pytest.mark.parametrize("path", NOTEBOOKS)
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
