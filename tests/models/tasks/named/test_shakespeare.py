"""The text task: its characters, windows and split; and the losses of stored models."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import models
from interp.cli import main
from models.errors import UserError
from models.files.texts import TINYSHAKESPEARE, VARIABLE, cache_path, fetch, read_corpus
from models.tasks.counter_rng import row_keys
from models.tasks.named.shakespeare import CHARACTERS, N_CTX, TRAINING, CharacterLanguage
from models.text_scores import text_loss
from models.training import train
from models.training.named_recipes import get_recipe
from tests.text_at_hand import needs_text

task = CharacterLanguage()


# ---- without the text


def test_models_are_built_and_run_without_the_text(tmp_path, monkeypatch):
    """And nothing is downloaded: there is no network to use."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", None)
    model = models.build("addlm-0.8m")
    assert model("To be, or").shape == (1, 9, 65) and model.to_string(model.to_tokens("be")) == ["be"]


@pytest.mark.slow
def test_a_process_of_its_own_needs_no_text_either(tmp_path):
    script = (
        "import socket; socket.socket.connect = None\n"
        "import models; m = models.build('addlm-0.8m')\n"
        "print(tuple(m('To be, or').shape), m.to_string(m.to_tokens('be')))"
    )
    environment = {"PATH": "/usr/bin", "HOME": str(tmp_path), "PYTHONPATH": str(Path(models.__file__).parents[1])}
    if bytecode := os.environ.get("PYTHONPYCACHEPREFIX"):  # without it, all of torch would be compiled
        environment["PYTHONPYCACHEPREFIX"] = bytecode
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "(1, 9, 65) ['be']"


def test_there_are_65_characters_in_the_order_of_their_code_points():
    assert len(CHARACTERS) == len(set(CHARACTERS)) == task.d_vocab == 65
    assert list(CHARACTERS) == sorted(CHARACTERS)


def test_tokens_spell_their_text():
    text = "First Citizen:\nBefore we proceed"
    assert task.token_text(task.encode(text)[0]) == text
    assert [task.vocabulary.index(c) for c in CHARACTERS] == list(range(65))


@pytest.mark.parametrize("bad", ["naïve", "", ["ab", "c"], "7"])
def test_text_that_cannot_be_encoded_is_refused(bad):
    with pytest.raises(UserError, match="no token|one length"):
        task.encode(bad)


@pytest.mark.parametrize("bad", [-1, TINYSHAKESPEARE.characters - N_CTX, 1.5, "x" * 3, None, [[1.0]], [True]])
def test_a_window_starts_at_an_integer_inside_the_text(bad):
    with pytest.raises(UserError, match="start"):
        task.as_problems(bad)


def test_training_windows_end_before_the_validation_part_begins():
    starts = task.held_out.training(row_keys(0, 0, 200_000, torch.device("cpu")))
    assert starts.min() >= 0
    assert TRAINING - 60 < starts.max() + N_CTX + 1 <= TRAINING
    assert abs(starts.double().mean() / (TRAINING - N_CTX) - 0.5) < 0.005


def test_windows_of_a_step_depend_on_seed_and_step_alone():
    draw = lambda *keys: task.held_out.training(row_keys(*keys, torch.device("cpu")))  # noqa: E731
    assert torch.equal(draw(1, 7, 32), draw(1, 7, 64)[:32])
    assert not torch.equal(draw(1, 7, 32), draw(1, 8, 32))
    assert not torch.equal(draw(1, 7, 32), draw(2, 7, 32))
    tenth = task.held_out.training(row_keys(0, 0, 100, torch.device("cpu")), share=0.1)
    assert tenth.max() + N_CTX + 1 <= TRAINING // 10
    with pytest.raises(UserError):
        task.held_out.training(row_keys(0, 0, 1, torch.device("cpu")), share=1e-5)


def test_validation_windows_cover_the_last_tenth_once():
    starts = task.validation_windows()[:, 0]
    assert starts[0] == TRAINING
    assert (starts.diff() == N_CTX).all()
    left = TINYSHAKESPEARE.characters - (int(starts[-1]) + N_CTX + 1)
    assert 0 <= left < N_CTX
    some = task.held_out.validation(10, seed=0)
    assert len(some.unique()) == 10
    with pytest.raises(UserError, match="871 windows"):
        task.held_out.validation(872, seed=0)


def test_what_arithmetic_has_is_refused_or_empty():
    assert task.variables([0]) == {}
    assert task.chain_length([0, 5]).tolist() == [0, 0]
    assert task.decode(torch.zeros(1, 128, dtype=torch.int64)) == [None]
    with pytest.raises(UserError):
        models.score(models.build("addlm-0.8m-float"))


# ---- fetching


def test_a_missing_text_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path(TINYSHAKESPEARE).is_relative_to(tmp_path)
    with pytest.raises(UserError, match="interp fetch-data"):
        read_corpus(TINYSHAKESPEARE)


def test_another_text_is_refused_and_not_written(tmp_path):
    wrong, target = tmp_path / "wrong.txt", tmp_path / "target.txt"
    wrong.write_text("To be")
    with pytest.raises(UserError, match="SHA-256"):
        fetch(TINYSHAKESPEARE, target, source=wrong)
    assert not target.exists()
    with pytest.raises(UserError, match="SHA-256"):
        read_corpus(TINYSHAKESPEARE, wrong)


@needs_text
def test_the_command_keeps_a_checked_copy(tmp_path, capsys, monkeypatch):
    source = tmp_path / "copy.txt"
    source.write_text(read_corpus(TINYSHAKESPEARE))
    target = tmp_path / "kept.txt"
    assert main(["fetch-data", "--data", str(source), "--out", str(target)]) == 0
    assert "1,115,394 characters" in capsys.readouterr().out
    assert target.read_bytes() == source.read_bytes()
    monkeypatch.setenv(VARIABLE, str(target))
    assert set(read_corpus(TINYSHAKESPEARE)) == set(CHARACTERS)
    assert main(["fetch-data", "tinyshakspeare"]) == 2


# ---- with it


@needs_text
def test_a_window_predicts_its_own_text():
    tokens, targets = task.encode([0, 1000]), task.targets([0, 1000])
    text = read_corpus(TINYSHAKESPEARE)
    assert task.token_text(tokens[1]) == text[1000:1128]
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    rows = task.encode_rows(torch.tensor([[0], [1000]]))
    assert torch.equal(rows[0].T.long(), tokens)
    assert torch.equal(rows[1].T.long(), targets)


@needs_text
def test_the_loss_is_the_hooked_model_s():
    model, starts = models.build("addlm-0.8m", seed=1), task.validation_windows()[:3]
    found = text_loss(model, starts)
    logits, targets = model(task.encode(starts)).double(), task.targets(starts)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert found.loss == pytest.approx(float(expected), abs=1e-5)
    assert (found.n, found.windows) == (3 * 128, 3)
    assert found.correct == int((logits.argmax(-1) == targets).sum())


@needs_text
def test_a_run_keeps_the_step_of_the_lowest_validation_loss(tmp_path):
    recipe = get_recipe("addlm-0.8m").replace(steps=2, batch_size=2, eval_every=1, validation_size=4, snapshots=1)
    result = train("addlm-0.8m", tmp_path / "run", recipe=recipe, device="cpu", compile=False, progress=False)
    (state,) = result.seeds
    from models.training.run_folder import RunFolder

    curve = [line["validation_loss"][0] for line in RunFolder(result.folder).metrics()]
    assert len(curve) == 2
    assert (state.best_loss, state.validation_loss) == (min(curve), curve[-1])
    assert state.best_step == 1 + curve.index(min(curve))


@needs_text
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in models.zoo_names() if "loss" in models.zoo.read_entry(name)["score"]]
)
def test_a_stored_model_has_the_loss_that_its_config_says(name):
    stored, found = models.zoo.read_entry(name)["score"], text_loss(models.load(name))
    assert found.loss == pytest.approx(stored["loss"], abs=1e-4)
    assert found.n == stored["n"] == 871 * 128
