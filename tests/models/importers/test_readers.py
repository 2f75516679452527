"""The table of readers: what a path is decides who reads it, what lies there is read once, and plug-ins add rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.files import checkpoint
from models.files.stored_names import ZOO
from models.importers import readers
from models.importers.readers import FOLDER, File, LoadOptions, Reader, reader_of, register
from models.plugins import import_plugins
from tests.published import write_published

ROOT = Path(__file__).parents[3]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    """A copy of the table, which a test may add to."""
    models.load("microadder-57")  # fills it
    monkeypatch.setattr(readers, "READERS", copy := list(readers.READERS))
    return copy


def name_of(path: Path) -> str:
    found = reader_of(File(path), readers.READERS)
    return "" if found is None else found.name


def test_what_lies_at_a_path_says_who_reads_it(tmp_path: Path, table: list[Reader]) -> None:
    published = write_published(tmp_path / "a.pt", models.build("microadder-57"))
    torch.save({"transformer.wte.weight": torch.ones(2, 2)}, tmp_path / "gpt.pt")
    torch.save({"embed.W_E": torch.ones(2, 2)}, tmp_path / "lens.bin")
    torch.save({"w": torch.ones(2)}, tmp_path / "w.ckpt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    entry = ZOO / "microadder-57"
    assert name_of(entry) == name_of(entry / "model.safetensors") == table[0].name == "a model of the zoo"
    assert name_of(published) == "a MicroAdder checkpoint"
    assert name_of(tmp_path / "gpt.pt") == "a nanoGPT or minGPT checkpoint"
    assert name_of(tmp_path / "lens.bin") == "a TransformerLens state dict"
    assert name_of(tmp_path / "w.ckpt") == table[-1].name == "tensors with names of their own"
    assert name_of(tmp_path / "folder") == "a Hugging Face folder"
    assert name_of(tmp_path) == name_of(tmp_path / "nothing") == ""


def test_one_reader_takes_a_file_below_the_last_rank(tmp_path: Path, table: list[Reader]) -> None:
    files = [write_published(tmp_path / f"{name}.pt", models.build(name)) for name in ("microadder-57", "adder-456")]
    for path in (*files, ZOO / "adder-456", ZOO / "adder-456" / "model.safetensors"):
        file = File(path)
        assert sum(file.kind in row.kinds and row.reads(file) for row in table if row.rank < 4) == 1


@pytest.mark.parametrize("what", ["entry", "checkpoint"])
def test_what_lies_there_is_read_once(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ZOO / "microadder-57"
    if what == "checkpoint":
        path = write_published(tmp_path / "a.pt", models.build("microadder-57"))
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read.append(self) or read_bytes(self))
    models.load(path)
    assert read == ([path / "config.json", path / "model.safetensors"] if what == "entry" else [path])


def test_a_registered_reader_reads_its_files_and_takes_the_place_of_one_of_its_name(
    tmp_path: Path, table: list[Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"mine": 3}))
    with pytest.raises(UserError, match="no JSON file of a model"):
        models.load(tmp_path / "mine.json")

    def load(file: File, asked: LoadOptions) -> Any:
        return models.build("microadder-57", seed=file.content["mine"])

    monkeypatch.setattr("models.zoo.reader_of", lambda file: reader_of(file, readers.READERS))
    for _ in range(2):
        register(Reader("mine", (".json",), lambda file: "mine" in file.content, load))
    assert [row.name for row in readers.READERS].count("mine") == 1
    found, built = models.load(tmp_path / "mine.json"), models.build("microadder-57", seed=3)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), built.parameters(), strict=True))


def test_a_folder_without_a_config_has_none_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert File(tmp_path).kind == FOLDER and File(tmp_path).config == {} and File(tmp_path).content == {}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        _ = File(tmp_path).config


def test_a_seed_is_asked_of_a_run_alone(tmp_path: Path) -> None:
    checkpoint.save_weights(tmp_path / "x.safetensors", {"w": torch.ones(1)})
    for path in ("microadder-57", tmp_path / "x.safetensors"):
        with pytest.raises(UserError, match="no training run"):
            models.load(path, seed=1)


def test_the_library_loads_models_without_its_plug_ins(tmp_path: Path) -> None:
    """A folder of the same name elsewhere is somebody else's, and is not run."""
    assert import_plugins() == ("studies",)
    library, elsewhere = tmp_path / "library", tmp_path / "elsewhere"
    for package in ("models", "interp"):
        (library / package).parent.mkdir(exist_ok=True)
        (library / package).symlink_to(ROOT / package)
    (elsewhere / "studies").mkdir(parents=True)
    (elsewhere / "studies" / "__init__.py").write_text("raise SystemExit(3)")
    (tmp_path / "submission.py").write_text("")
    said = """
import models
from models.plugins import import_plugins

print(import_plugins(), models.load("microadder-57").name_or_path)
try:
    models.load("./submission.py", trust=True)
except models.UserError as error:
    print(error)
"""
    path = {"PYTHONPATH": f"{library}:{elsewhere}"}
    done = subprocess.run([sys.executable, "-c", said], cwd=tmp_path, env=path, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "() microadder-57" and "nothing that is installed here reads programs" in second


def test_the_table_of_formats_is_made_of_the_readers(table: list[Reader]) -> None:
    import_plugins()
    made = run_path(str(ROOT / "docs/formats.py"))["table"]()
    assert made in (ROOT / "docs/read_your_files.md").read_text()
    assert all(reader.formats for reader in table if reader.rank >= 3)
    assert len(made.splitlines()) == 2 + 1 + sum(len(reader.formats) for reader in table)
