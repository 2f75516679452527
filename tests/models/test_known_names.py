"""Names of models without torch: what the command line answers a mistyped one from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import models
from models import known_names
from models.errors import UserError


def test_the_file_has_the_registrys_names():
    """`python -m models.known_names` writes it again."""
    data = json.loads(known_names.FILE.read_text())
    assert data["modules"] == list(models.REGISTERING)
    # In a process of its own: sizes that other tests asked for are registered in this one.
    code = "import json; from models.known_names import from_registry; print(json.dumps(from_registry()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    registered, constructed = json.loads(done.stdout)
    assert sorted(data["registered"]) == sorted(registered)
    assert sorted(data["constructed"]) == sorted(constructed)


def test_a_file_about_other_modules_is_not_believed(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(known_names, "FILE", tmp_path / "names.json")
    known_names.FILE.write_text(json.dumps({"modules": [], "registered": ["nothing"], "constructed": ["nothing"]}))
    assert known_names.known.__wrapped__() == known_names.from_registry()
    assert "nothing" not in known_names.known.__wrapped__().registered


@pytest.mark.parametrize("wrong", ["microader-57", "microadder-170-frozen-spiral", "", "57+48"])
def test_a_name_is_refused_in_the_words_of_load(wrong):
    with pytest.raises(UserError) as at_once:
        known_names.check_loadable(wrong)
    with pytest.raises(UserError) as by_load:
        models.load(wrong)
    assert str(at_once.value) == str(by_load.value)


@pytest.mark.parametrize("right", ["microadder-57", "microadder-57-by-hand", "runs/microadder-57", "model.pt", "a/b"])
def test_names_that_can_be_loaded_and_paths_pass(right):
    known_names.check_loadable(right)
