"""Names of studies and probes without torch: what the command line answers a mistyped one from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interp.cli import known_names
from interp.core.probe import find_probe
from interp.papers.headlines.table import PAPERS
from interp.papers.studies import find_study
from models.errors import UserError


def test_the_file_has_the_registries_names():
    """`python -m interp.cli.known_names` writes it again."""
    # In a process of its own: other tests' probes are registered in this one.
    code = "import json; from interp.cli.known_names import from_registries; print(json.dumps(from_registries()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(known_names.FILE.read_text()) == json.loads(done.stdout)


@pytest.mark.parametrize("wrong", ["fig1", "toygpt:", "toygpt:fig99", "toygtp:fig1", ":", ""])
def test_a_study_is_refused_in_the_words_of_find_study(wrong: str):
    with pytest.raises(UserError) as by_registry:
        find_study(wrong)
    with pytest.raises(UserError) as at_once:
        known_names.check_study(wrong)
    assert str(at_once.value) == str(by_registry.value)


@pytest.mark.parametrize("wrong", ["carry_unitz", "", "carry units"])
def test_a_probe_is_refused_in_the_words_of_find_probe(wrong: str):
    with pytest.raises(UserError) as at_once:
        known_names.check_probe(wrong)
    with pytest.raises(UserError) as by_registry:
        find_probe(wrong)
    assert str(at_once.value) == str(by_registry.value)


def test_names_that_there_are_pass_and_so_do_those_that_a_source_has_since(monkeypatch, tmp_path: Path):
    for paper in PAPERS:
        known_names.check_paper(paper)
    known_names.check_probe("carry_units")
    known_names.check_study("toygpt:fig1")
    known_names.check_study("comparison:models")
    (tmp_path / "new.py").write_text('@study("toygpt:fig98", "...")\n@probe("?")\ndef brand_new(model): ...\n')
    for check, name in ((known_names.check_probe, "brand_new"), (known_names.check_study, "toygpt:fig98")):
        with pytest.raises(UserError):
            check(name)
        with monkeypatch.context() as patched:
            patched.setattr(known_names, "_PACKAGE", tmp_path)
            check(name)
