"""A folder ``models`` of a user's own, where Python looks first, is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["package", "module"])
def test_another_package_of_that_name_is_named(tmp_path: Path, kind: str):
    theirs = tmp_path / "models" / "__init__.py" if kind == "package" else tmp_path / "models.py"
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("MINE = 1\n")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", "import interp"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ") and str(tmp_path / "models") in last


def test_a_plain_folder_of_that_name_is_not_in_the_way(tmp_path: Path):
    (tmp_path / "models").mkdir()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    code = "from interp import _import_check; import models; print(models.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and str(Path(__file__).parents[2]) in done.stdout
