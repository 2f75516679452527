"""Stored models load to the same bits, and nothing that is wrong with a file goes unnoticed."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models import zoo
from models.errors import UserError
from models.files import checkpoint
from models.zoo.card import render_card
from models.zoo.entry_writer import change_entry
from tests.published import write_published
from tests.sampling import sampled, stored_models

NAME = "microadder-67"


@pytest.fixture
def model() -> models.ArithmeticTransformer:
    return models.build(NAME, seed=11)


@pytest.fixture
def entry(tmp_path: Path, model: models.ArithmeticTransformer) -> Path:
    extra = {"snapshots/000100.bin": b"\x00\x01"}
    return models.save_entry(tmp_path / "entry", model, {"seed": 11}, {"correct": 0, "n": 10}, extra)


def same_parameters(a: models.ArithmeticTransformer, b: models.ArithmeticTransformer) -> bool:
    first, second = dict(a.weight_map.named_parameters()), dict(b.weight_map.named_parameters())
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def edit_config(entry: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((entry / "config.json").read_text())
    change(config)
    (entry / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", stored_models())
def test_a_stored_card_is_what_its_entry_renders_to(name: str) -> None:
    config = zoo.read_entry(name)
    files = {file: zoo.entry_file(name, file) for file in config["sha256"]}
    assert files["card.md"].decode() == render_card(config, files)


def test_a_card_follows_the_data_that_are_added_to_an_entry_and_the_rest_of_it_stays(
    entry: Path, model: models.ArithmeticTransformer
) -> None:
    before = zoo.read_entry(entry)
    weights = (entry / "model.safetensors").read_bytes()
    change_entry(entry, {"Measured": ["first"], "More": ["third"]})
    change_entry(entry, {"Measured": ["second"]}, extra_files={"proof": b"1"})
    card = zoo.entry_file(entry, "card.md").decode()
    assert card.startswith(f"# {NAME}\n\n{NAME} has 67 free parameters.")
    assert card.endswith("\n\n## Measured\n\nsecond\n\n## More\n\nthird\n") and "first" not in card
    assert zoo.read_entry(entry)["notes"] == {"Measured": ["second"], "More": ["third"]}
    assert (entry / "model.safetensors").read_bytes() == weights
    assert [zoo.entry_file(entry, name) for name in ("proof", "snapshots/000100.bin")] == [b"1", b"\x00\x01"]
    after = zoo.read_entry(entry)
    assert [after[key] for key in ("model", "training", "score")] == [
        before[key] for key in ("model", "training", "score")
    ]
    with pytest.raises(UserError):
        change_entry(entry, {"Measured": ["third"]}, extra_files={"../proof": b"2"})
    assert zoo.entry_file(entry, "card.md").decode() == card


# ---- saving and loading


def test_a_saved_model_loads_to_the_same_bits(entry: Path, model: models.ArithmeticTransformer) -> None:
    loaded = models.load(entry)
    assert same_parameters(loaded, model)
    assert loaded.registered == NAME and loaded.name_or_path == entry.name
    assert not loaded.training
    tokens = model.task.encode([(57, 48)])
    assert torch.equal(loaded(tokens), model(tokens))


def test_an_entry_holds_the_free_parameters_and_nothing_else(entry: Path) -> None:
    tensors, metadata = checkpoint.load_weights(entry / "model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == 67
    assert metadata == {"model": NAME}


def test_an_entry_s_config_says_what_it_is(entry: Path) -> None:
    config = zoo.read_entry(entry)
    assert (config["format"], config["model"], config["weights"]) == (1, NAME, "model.safetensors")
    assert (config["training"], config["score"]) == ({"seed": 11}, {"correct": 0, "n": 10})
    files = {str(path.relative_to(entry)) for path in entry.rglob("*") if path.is_file()}
    assert config["sha256"].keys() == files - {"config.json"}
    for name, digest in config["sha256"].items():
        assert checkpoint.sha256((entry / name).read_bytes()) == digest


def test_other_files_of_an_entry_are_read_with_their_hash_checked(entry: Path) -> None:
    assert zoo.entry_file(entry, "snapshots/000100.bin") == b"\x00\x01"
    (entry / "card.md").write_bytes(b"# Another card\n")
    with pytest.raises(UserError, match=r"card.md does not match its recorded SHA-256"):
        zoo.entry_file(entry, "card.md")
    with pytest.raises(UserError, match="Did you mean 'card.md'"):
        zoo.entry_file(entry, "cart.md")


def test_a_weight_file_of_ours_loads_by_itself(entry: Path, model: models.ArithmeticTransformer) -> None:
    assert same_parameters(models.load(entry / "model.safetensors"), model)
    assert same_parameters(models.load(str(entry / "model.safetensors")), model)


# ---- names


@pytest.fixture
def zoo_of_one(entry: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(zoo, "ZOO", entry.parent)
    return entry.name


def test_a_zoo_name_loads(zoo_of_one: str, model: models.ArithmeticTransformer) -> None:
    assert models.zoo_names() == [zoo_of_one]
    assert same_parameters(models.load(zoo_of_one), model)


def test_a_zoo_name_wins_over_a_folder_that_happens_to_have_it(
    zoo_of_one: str, model: models.ArithmeticTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / zoo_of_one).mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    assert same_parameters(models.load(zoo_of_one), model)
    with pytest.raises(UserError, match=r"no config\.json"):
        models.load(f"./{zoo_of_one}")


@pytest.mark.usefixtures("zoo_of_one")
def test_an_unknown_name_brings_the_closest_match() -> None:
    with pytest.raises(UserError, match=r"no stored model 'entri'. Did you mean 'entry'\?"):
        models.load("entri")


@pytest.mark.parametrize("name", ["x" * 300, "", "\0"])
def test_a_name_that_no_file_can_have_is_refused_like_any_other(
    name: str, entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(entry)  # which holds a config.json
    with pytest.raises(UserError):
        models.load(name)


@pytest.mark.usefixtures("zoo_of_one")
def test_a_constructed_model_loads_by_its_name_and_its_name_is_among_the_closest() -> None:
    assert models.load("adder-3-by-hand").name_or_path == "adder-3-by-hand"
    with pytest.raises(UserError, match=r"Did you mean 'adder-3-by-hand'\?"):
        models.load("adder-3-by-hnd")


@pytest.mark.usefixtures("zoo_of_one")
def test_a_model_that_is_not_stored_can_still_be_built() -> None:
    with pytest.raises(UserError):
        models.load("microadder-57")
    assert models.build("microadder-57").name_or_path == "microadder-57"


# ---- damage


def test_missing_weights_are_named(entry: Path) -> None:
    (entry / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"There is no file .*model\.safetensors"):
        models.load(entry)


@pytest.mark.parametrize("damage", ["truncated", "bit flipped", "replaced"])
def test_damaged_weights_are_refused(entry: Path, damage: str) -> None:
    path = entry / "model.safetensors"
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-10])
    elif damage == "bit flipped":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:  # by a valid weight file of other parameters
        other = dict(models.build(NAME, seed=12).weight_map.named_parameters())
        checkpoint.save_weights(path, other, {"model": NAME})
    with pytest.raises(UserError, match=r"model\.safetensors does not match its recorded SHA-256"):
        models.load(entry)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda config: config.update(format=2), "format 2; this version reads format 1"),
        (lambda config: config.pop("format"), "format None"),
        (lambda config: config.pop("model"), "needs an entry 'model'"),
        (lambda config: config.update(sha256=[]), "'sha256' of type dict"),
        (lambda config: config.update(sha256={}), "no SHA-256 for its weights"),
        (lambda config: config.update(model="microader-67"), "Did you mean 'microadder-67'"),
        (lambda config: config.update(model="microadder-57"), "has W_fc2, which this model does not"),
        (lambda config: config.update(model="microadder-74"), "lacks spiral_amp"),
        (lambda config: config["sha256"].update({"../secret": "0" * 64}), "outside its own folder"),
        (lambda config: config["sha256"].update({"/etc/passwd": "0" * 64}), "outside its own folder"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused(
    entry: Path, change: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    edit_config(entry, change)
    with pytest.raises(UserError) as error:
        models.load(entry)
    assert complaint in str(error.value)
    assert str(entry) in str(error.value)


def test_a_config_cut_short_is_named(entry: Path) -> None:
    text = (entry / "config.json").read_text()
    (entry / "config.json").write_text(text[: len(text) // 2])
    with pytest.raises(UserError, match=r"config\.json is not valid JSON"):
        models.load(entry)


def test_weights_without_a_model_s_name_are_tensors_of_some_task(tmp_path: Path) -> None:
    checkpoint.save_weights(tmp_path / "x.safetensors", {"w": torch.ones(1)})
    with pytest.raises(UserError, match=r"x\.safetensors does not say its task"):
        models.load(tmp_path / "x.safetensors")


# ---- overwriting


def test_an_entry_is_not_overwritten_unless_asked(entry: Path, model: models.ArithmeticTransformer) -> None:
    other = models.build(NAME, seed=12)
    with pytest.raises(UserError, match="exists already; nothing was overwritten"):
        models.save_entry(entry, other, {}, {})
    assert same_parameters(models.load(entry), model)
    models.save_entry(entry, other, {}, {}, overwrite=True)
    assert same_parameters(models.load(entry), other)
    assert not (entry / "snapshots").exists()  # the old entry is gone as a whole
    assert os.listdir(entry.parent) == [entry.name]


@pytest.mark.parametrize(
    "name", ["../outside", "/outside", "a/../../outside", "config.json", "model.safetensors", "card.md", ""]
)
def test_extra_files_stay_inside_the_entry(tmp_path: Path, model: models.ArithmeticTransformer, name: str) -> None:
    with pytest.raises(UserError, match=r"outside its own folder|cannot be an extra file"):
        models.save_entry(tmp_path / "entry", model, {}, {}, {name: b""})
    assert os.listdir(tmp_path) == []


def test_what_is_not_json_is_refused_before_anything_is_written(
    tmp_path: Path, model: models.ArithmeticTransformer
) -> None:
    with pytest.raises(UserError, match="must be JSON"):
        models.save_entry(tmp_path / "entry", model, {"loss": float("nan")}, {})
    assert os.listdir(tmp_path) == []


def test_a_model_of_no_registered_name_cannot_be_stored(tmp_path: Path, model: models.ArithmeticTransformer) -> None:
    model.registered = "mine"
    with pytest.raises(UserError, match="no model 'mine'"):
        models.save_entry(tmp_path / "entry", model, {}, {})


@pytest.mark.parametrize("renames_that_work", [0, 1])
def test_a_failure_while_overwriting_keeps_the_old_entry(
    entry: Path, model: models.ArithmeticTransformer, monkeypatch: pytest.MonkeyPatch, renames_that_work: int
) -> None:
    rename, calls = Path.rename, []

    def fail_later(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == renames_that_work + 1:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_later)
    with pytest.raises(UserError, match="No space left on device"):
        models.save_entry(entry, models.build(NAME, seed=12), {}, {}, overwrite=True)
    assert same_parameters(models.load(entry), model)
    assert os.listdir(entry.parent) == [entry.name]


def test_a_crash_between_the_two_renames_is_undone_on_the_next_load(
    entry: Path, model: models.ArithmeticTransformer
) -> None:
    entry.rename(entry.with_name(f".{entry.name}.carrylens-old"))
    assert same_parameters(models.load(entry), model)


# ---- the zoo itself


@pytest.mark.parametrize("name", stored_models())
def test_every_stored_model_loads_and_answers_as_its_config_says(name: str) -> None:
    """The first 200 problems of its test set (a repeated one counts once), of those that answer all."""
    config, model = zoo.read_entry(name), models.load(name)
    for file in config["sha256"]:
        zoo.entry_file(name, file)
    if model.task.selected_by != "loss" and config["score"]["correct"] == config["score"]["n"]:
        found = models.score(model, model.task.held_out.problems[:200])
        assert found.correct == found.n and min(200, config["score"]["n"]) - 2 <= found.n <= 200


@pytest.mark.slow
@pytest.mark.parametrize("name", models.zoo_names())
def test_every_stored_model_has_the_score_that_its_config_says(name: str) -> None:
    config, model = zoo.read_entry(name), models.load(name)
    if model.task.selected_by == "loss":
        return  # needs the text: tests/models/tasks/named/test_shakespeare.py
    result = models.score(model)
    assert (result.correct, result.n) == (config["score"]["correct"], config["score"]["n"])
    if config.get("certificate", {}).get("status") == "certified":  # right on all problems
        assert result.correct == result.n


@pytest.mark.parametrize("name", stored_models())
def test_a_stored_model_that_is_copied_elsewhere_still_loads(name: str, tmp_path: Path) -> None:
    shutil.copytree(zoo.resolve(name), tmp_path / "copy")
    assert same_parameters(models.load(tmp_path / "copy"), models.load(name))


def test_seeds_that_began_near_one_model_have_no_interval() -> None:
    assert zoo.grokked_seeds(zoo.read_entry("microadder-57")["training"]) == "1 (0.0-4.3%); again 0 of 128"
    assert zoo.grokked_seeds(zoo.read_entry("microadder-11")["training"]) == "8, all begun near microadder-13"


# ---- names


@pytest.mark.parametrize("stem", sampled(["mine", "microadder-57", NAME], "mine", NAME))
def test_a_loaded_file_has_its_own_name_everywhere(tmp_path: Path, stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its weights are of: another's checkpoint, an entry, a weight file; also one called as a model is."""
    monkeypatch.chdir(tmp_path)
    model = models.build(NAME, seed=3)
    models.save_entry(tmp_path / stem, model, {}, {})
    weights = tmp_path / f"{stem}.safetensors"
    weights.write_bytes((tmp_path / stem / "model.safetensors").read_bytes())
    write_published(tmp_path / f"{stem}.pt", model)
    for path in (tmp_path / stem, f"./{stem}", weights, weights.name, tmp_path / f"{stem}.pt", f"{stem}.pt"):
        loaded = models.load(path)
        own = loaded.name_or_path
        assert own not in models.names(sweeps=True) and stem in own
        assert loaded.registered == NAME and copy.copy(loaded).registered == NAME
        score = models.score(loaded, [(57, 48)])
        assert score.model == own and own in str(score) and NAME not in str(score).replace(own, "")
        assert loaded.dense_copy().name_or_path == own and copy.copy(loaded).name_or_path == own
        models.save_entry(tmp_path / "again", loaded, {}, {}, overwrite=True)
    assert models.load("microadder-57").name_or_path == "microadder-57" == models.load("microadder-57").registered
