"""The layout shows the architecture: who may import whom, in no circle, and that a paper's folder can be taken away."""

import ast
import os
import shutil
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
PAPERS = sorted(
    path.parent.name for path in (ROOT / "interp" / "papers").glob("*/__init__.py") if "\nPAPER = " in path.read_text()
)
#: Imports what all have in common, then everything else once per paper, in a fork of its own without that folder.
REST = """
import compileall
import os
import pkgutil
import sys
import traceback
from importlib import import_module
from pathlib import Path

import flint, jinja2, pandas, plotly.express, rich.table, scipy.stats, torch, transformer_lens, tyro, xarray

import models


def walk(paper):
    import interp

    for module in pkgutil.walk_packages(interp.__path__, "interp."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    assert not any(name.startswith(f"interp.papers.{paper}") for name in sys.modules)
    assert "attention_by_role" in interp.probes(models.load("microadder-57")).index


assert "interp" not in sys.modules
compileall.compile_dir("interp", quiet=2)
for paper in sys.argv[1:]:
    folder, away = Path("interp", "papers", paper).absolute(), Path("away").absolute()
    folder.rename(away)
    if not (child := os.fork()):
        try:
            walk(paper)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(paper, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    away.rename(folder)
"""


def test_rooms_import_those_below_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(cache_dir=None) == EXIT_STATUS_SUCCESS


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports within functions count, and so do those for type checkers and those by a text."""
    graph = grimp.build_graph("models", "interp", cache_dir=None)
    # What runs as a command may import itself by name, so that workers find its functions.
    others = {each: graph.find_modules_directly_imported_by(each) - {each} for each in graph.modules}
    for module in graph.modules:
        for named in imported_by_text(module):
            others[module] |= {each for each in graph.modules if f"{each}.".startswith(f"{named}.")} - {module}
    TopologicalSorter(others).prepare()


def imported_by_text(module: str) -> set[str]:
    """What a module imports by ``import_module("...")``; of a text with gaps, the package before the first gap. What
    lies within the module's own package is no circle: a package may import its modules."""
    path = ROOT / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module" and node.args:
            text = node.args[0]
            start = text.values[0] if isinstance(text, ast.JoinedStr) else text
            if isinstance(start, ast.Constant):
                found.add(str(start.value).rstrip("."))
    return {each for each in found if each.split(".")[0] in ("models", "interp") and each != module.rpartition(".")[0]}


@pytest.mark.slow
def test_everything_else_works_without_a_papers_folder(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "interp", tmp_path / "interp", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "models").symlink_to(ROOT / "models")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", REST, *PAPERS]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert PAPERS and done.stdout.split("\n") == [*(f"{paper} 0" for paper in PAPERS), ""], done.stderr[-2000:]


def test_a_file_name_says_which_file_is_meant() -> None:
    """Figures and commands are called as what they draw and run, and papers have files of one kind each."""
    rooms = ["models", *(f"interp/{room}" for room in ("core", "probes", "causal", "proofs", "compare", "site"))]
    files = [path.relative_to(ROOT) for room in rooms for path in (ROOT / room).rglob("*.py")]
    for package in ("models", "interp"):
        names = Counter(path.name for path in files if path.parts[0] == package)
        assert {name for name, times in names.items() if times > 1} <= {"__init__.py", "answers.py", "expressions.py"}
