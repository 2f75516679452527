"""Nothing that a command did not write is lost, and it writes nothing that it was not asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import models
from interp.cli import main
from models.files.stored_names import ZOO
from models.zoo.entry_writer import save_entry

SCORE = ["score", "microadder-57"]


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score of a few problems in place of ten thousand."""
    whole = models.score
    monkeypatch.setattr(models, "score", lambda model, **options: whole(model, [(57, 48)], **options))


@pytest.mark.parametrize("text", ["mine", "", '{"mine": 1}', "[1]", "<!doctype html>"])
def test_a_file_of_somebody_else_stays_unless_it_is_empty(text: str, tmp_path: Path, score: None, capsys) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(text)
    assert main([*SCORE, "--json", str(path)]) == (2 if text else 0)
    if text:
        assert path.read_text() == text and "--force" in capsys.readouterr().err
        assert main([*SCORE, "--json", str(path), "--force"]) == 0
    assert json.loads(path.read_text())["result"]["data"]["correct"] == 1
    assert main([*SCORE, "--json", str(path)]) == 0  # its own
    assert f"wrote {path}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


def test_an_input_is_not_written_over(tmp_path: Path, score: None) -> None:
    weights = tmp_path / "model.safetensors"
    shutil.copy(ZOO / "microadder-57" / "model.safetensors", weights)
    before = weights.read_bytes()
    for force in ([], ["--force"]):
        assert main(["score", str(weights), "--json", str(weights), *force]) == 2
        linked = tmp_path / "linked.json"
        linked.unlink(missing_ok=True)
        linked.symlink_to(weights)
        assert main(["score", str(weights), "--json", str(linked), *force]) == 2
    assert weights.read_bytes() == before


def test_nothing_is_written_into_a_model_or_the_zoo(tmp_path: Path, score: None) -> None:
    entry = tmp_path / "entry"
    shutil.copytree(ZOO / "microadder-57", entry)
    for name, path in ((str(entry), entry / "config.json"), (str(entry), entry / "new.json")):
        assert main(["score", name, "--json", str(path), "--force"]) == 2
    assert main([*SCORE, "--json", str(ZOO / "microadder-74" / "config.json"), "--force"]) == 2
    assert not (entry / "new.json").exists()


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["compare", "microadder-57", "microadder-74", "--out", str(page), "--json", str(page)]) == 2
    assert main(["certify", "microadder-57", "--json", str(page), "--standalone", f"{tmp_path}/./page.html"]) == 2
    assert not page.exists()


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    assert main([*SCORE, "--json", str(tmp_path / "file" / "numbers.json")]) == 2
    assert main([*SCORE, "--json", str(tmp_path)]) == 2


# ---- entries


def stored(folder: Path, **options: object) -> Path:
    return save_entry(folder, models.load("microadder-57"), {"seed": 1}, {"n": 1, "correct": 1}, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.zoo.card.render_card", lambda config, files: "card")


def test_only_an_entry_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years")
    with pytest.raises(models.UserError, match="not an entry"):
        stored(folder, overwrite=True)
    (folder / "config.json").write_text(json.dumps({"model": {"name": "a run"}}))  # as a run's folder
    with pytest.raises(models.UserError, match="not an entry"):
        stored(folder, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "years"
    entry = stored(tmp_path / "entry")
    assert stored(entry, overwrite=True) == entry
    (entry / "notes.txt").write_text("mine")
    with pytest.raises(models.UserError, match="notes.txt"):
        stored(entry, overwrite=True)
    assert (entry / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("suffix", ["old", "new-1", "carrylens-old"])
def test_a_users_folder_of_a_similar_name_stays(suffix: str, tmp_path: Path) -> None:
    beside = tmp_path / f".entry.{suffix}"
    beside.mkdir()
    (beside / "mine.txt").write_text("mine")
    with pytest.raises(models.UserError):
        models.load(tmp_path / "entry")
    assert (beside / "mine.txt").read_text() == "mine"
    if suffix != "carrylens-old":  # which is in the way of replacing an entry
        stored(stored(tmp_path / "entry"), overwrite=True)
    assert (beside / "mine.txt").read_text() == "mine"
