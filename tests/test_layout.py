"""The layout shows the architecture: who may import whom, in no circle, and that the studies can be taken away."""

import ast
import os
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
#: Imports every module of the library where the studies are not, and asks a question.
REST = """
import os
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec

sys.path[:] = [path for path in sys.path if path != os.environ["CHECKOUT"]]  # which an editable install puts there
import interp
import models
from models.plugins import import_plugins

assert find_spec("studies") is None and import_plugins() == ()
for package in (models, interp):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
assert "attention_by_role" in interp.probes(models.load("microadder-57")).index
"""


def test_rooms_import_those_below_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(cache_dir=None) == EXIT_STATUS_SUCCESS


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports within functions count, and so do those for type checkers and those by a text."""
    graph = grimp.build_graph("models", "interp", "studies", cache_dir=None)
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
    return {
        each
        for each in found
        if each.split(".")[0] in ("models", "interp", "studies") and each != module.rpartition(".")[0]
    }


@pytest.mark.slow
def test_the_library_works_without_the_studies(tmp_path: Path) -> None:
    for package in ("models", "interp"):
        (tmp_path / package).symlink_to(ROOT / package)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "CHECKOUT": str(ROOT)}
    command = [sys.executable, "-c", REST]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_file_name_says_which_file_is_meant() -> None:
    """Figures and commands are called as what they draw and run, and papers have files of one kind each."""
    rooms = ["models", *(f"interp/{room}" for room in ("core", "probes", "causal", "proofs", "compare", "site"))]
    files = [path.relative_to(ROOT) for room in rooms for path in (ROOT / room).rglob("*.py")]
    for package in ("models", "interp"):
        names = Counter(path.name for path in files if path.parts[0] == package)
        assert {name for name, times in names.items() if times > 1} <= {"__init__.py", "expressions.py"}


def test_a_class_has_a_name_of_its_own() -> None:
    """A public class of the library shares its name with no other, so that a reader never has to ask which."""
    homes = Counter(
        node.name
        for package in ("models", "interp")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in homes.items() if count > 1] == []
