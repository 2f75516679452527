"""Names of models without torch: what the command line answers a mistyped one from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import models
from models import known_names
from models.errors import UserError
from models.registering import REGISTERING


def test_the_file_has_the_registrys_names():
    """`python -m models.known_names` writes it again."""
    data = json.loads(known_names.FILE.read_text())
    assert data["modules"] == list(REGISTERING)
    # In a process of its own: sizes that other tests asked for are registered in this one.
    code = "import json; from models.known_names import from_registry; print(json.dumps(from_registry()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    registered, constructed, notations = json.loads(done.stdout)
    assert sorted(data["registered"]) == sorted(registered)
    assert sorted(data["constructed"]) == sorted(constructed)
    assert data["notations"] == notations


def test_a_file_about_other_modules_is_not_believed(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(known_names, "FILE", tmp_path / "names.json")
    nothing = {"modules": [], "registered": ["nothing"], "constructed": ["nothing"], "notations": []}
    known_names.FILE.write_text(json.dumps(nothing))
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


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("microadder-57-by-hand", "57+x"),
        ("microadder-57-by-hand", "1+2+3"),
        ("microadder-57-by-hand", "-1+2"),
        ("adder-4-by-hand", "9999999999+10000000000"),
        ("toygpt-learned-pre", "57+100"),
        ("position-coupling-hand-built", "57-48"),
        ("multiplication-hand-built", "37*"),
        ("parity-hand-built", "0121"),
    ],
)
def test_a_problem_is_refused_in_the_words_of_the_models_task(name: str, wrong: str):
    with pytest.raises(UserError) as at_once:
        known_names.check_problem(name, wrong)
    spec = models.get_spec(name)
    with pytest.raises(UserError) as by_task:
        spec.task(**spec.options).as_problems([wrong])
    assert str(at_once.value) == str(by_task.value)


def test_problems_as_people_write_them_and_those_of_other_models_pass():
    known_names.check_problem("microadder-57", " 0000000000057 + 48 = ")
    known_names.check_problem("position-coupling-hand-built", "57+48+96=")
    known_names.check_problem("runs/mine", "57+x")
