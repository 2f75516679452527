"""The layout shows the architecture: who may import whom, and that a paper's folder can be taken away."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
PAPERS = sorted(
    path.parent.name for path in (ROOT / "interp" / "papers").glob("*/__init__.py") if "\nPAPER = " in path.read_text()
)
REST = """
import pkgutil
import sys
from importlib import import_module

import interp
import models

taken = f"interp.papers.{sys.argv[1]}"
for module in pkgutil.walk_packages(interp.__path__, "interp."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
assert not any(name.startswith(taken) for name in sys.modules)
assert "attention_by_role" in interp.probes(models.load("microadder-57")).index
"""


def test_rooms_import_those_below_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(cache_dir=None) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_else_works_without_a_papers_folder(paper: str, tmp_path: Path) -> None:
    for name in ("models", "interp"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "interp" / "papers" / paper)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", REST, paper]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
