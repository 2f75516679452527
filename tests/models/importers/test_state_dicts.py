"""State dicts as people save them: without the folder that they belong to, with this project's own config, and by
readers of one's own. What can be read has the logits of what was saved; the rest is refused, and the reason is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import models
from models.errors import UserError
from models.files import stored_names
from models.importers import readers
from models.importers.nearest_file_format import nearest
from models.importers.readers import Reader, reader_of, register
from models.tasks.formats.formatted_task import formatted
from tests.conformance.table import ROWS

TEXT = "{a:3}+{b:3}={s:4}; a + b; variables=addition"
TASK = formatted("{a:3}+{b:3}={s:4}", "a + b", variables="addition")
SIZE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": 20,
    "max_position_embeddings": 64,
}  # fmt: skip
KINDS: dict[str, Any] = {
    "Llama": transformers.LlamaConfig(**SIZE),
    "Llama with biases": transformers.LlamaConfig(**SIZE, attention_bias=True),
    "Llama, tied": transformers.LlamaConfig(**SIZE, tie_word_embeddings=True),
    "Mistral": transformers.MistralConfig(**SIZE, head_dim=6),
    "Qwen2": transformers.Qwen2Config(**SIZE),
    "Qwen2, tied": transformers.Qwen2Config(**SIZE, tie_word_embeddings=True),
    "Qwen3": transformers.Qwen3Config(**SIZE, head_dim=8),
    "Qwen3, tied": transformers.Qwen3Config(**SIZE, head_dim=8, tie_word_embeddings=True),
    "GPT-NeoX": transformers.GPTNeoXConfig(**SIZE),
}


def state_of_kind(config: Any) -> dict[str, Tensor]:
    """The parameters of a model as its own class names them; of a tied embedding, once."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def write(state: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tensors_of_a_folder_without_its_config_are_known_by_all_their_names(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    """Also where all names begin as a wrapper's do, and where the family has tensors that not all of it have."""
    state = state_of_kind(KINDS[kind])
    found = nearest(state)
    assert found is not None and found.whole and (found.same, found.names) == (len(state), len(state))
    path = write(state, tmp_path / f"a{suffix}")
    for ask in (lambda: models.load(path, task=TASK), lambda: models.guess(path, seconds=1.0)):
        with pytest.raises(UserError):
            ask()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_needed_tensor_that_such_a_file_lacks_or_names_otherwise_is_named(kind: str) -> None:
    state = state_of_kind(KINDS[kind])
    needed = next(name for name in state if name.endswith(("embed_tokens.weight", "embed_in.weight")))
    table = state.pop(needed)
    found = nearest(state)
    assert found is not None and not found.whole and (found.tensor, found.like) == (None, needed)
    other = needed.replace("embed", "embedd")
    found = nearest(state | {other: table})
    assert found is not None and found.tensor in (other, other.removeprefix("model.")) and found.like == needed


@pytest.mark.parametrize("body", [False, True], ids=["with its head", "its body alone"])
@pytest.mark.parametrize("act", ["gelu_new", "relu"])
@torch.no_grad()
def test_gpt2_s_own_state_dict_is_read_with_its_matrices_as_it_stores_them(
    act: str, body: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 20, "n_positions": 32, "initializer_range": 0.3}
    original = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, activation_function=act)).eval()
    state = (original.transformer if body else original).state_dict()
    path = write(dict(state), tmp_path / "gpt2.pt")
    with pytest.raises(UserError):  # it does not say how many heads there are
        models.load(path, task=TASK)
    found = models.load(path, task=TASK, config={"n_heads": 4, "act_fn": act})
    tokens = torch.randint(20, (4, TASK.input_length), generator=torch.Generator().manual_seed(0))
    expected = original(tokens).logits
    assert (found(tokens) - expected).abs().max() <= 1e-5 * expected.abs().max()
    wrong = {name: value.T[1:] if name.endswith("mlp.c_fc.weight") else value for name, value in state.items()}
    with pytest.raises(UserError):
        models.load(write(wrong, tmp_path / "wrong.pt"), task=TASK, config={"n_heads": 4})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@torch.no_grad()
def test_all_weights_with_the_model_s_own_config_are_the_model(row: Any, tmp_path: Path) -> None:
    """Whatever switches it has, also those that TransformerLens' config does not know."""
    original = row.build(0).eval()
    config = original.config.to_dict()
    torch.save({"state_dict": dict(original.all_weights()), "config": config}, tmp_path / "own.pt")
    found = models.load(tmp_path / "own.pt", task=original.task).eval()
    assert found.config == original.config
    tokens = original.task.encode(original.task.sample(3, torch.Generator().manual_seed(1)))
    expected = original(tokens)
    assert (found(tokens) - expected).abs().max() <= 1e-5 * expected.abs().max()
    torch.save({"state_dict": dict(original.all_weights()), "config": config | {"n_heads": 99}}, tmp_path / "other.pt")
    del config["d_head"]
    torch.save({"state_dict": dict(original.all_weights()), "config": config}, tmp_path / "less.pt")
    for name in ("other.pt", "less.pt"):
        with pytest.raises(UserError):
            models.load(tmp_path / name, task=original.task)


FRESH = """
import models
try:
    models.load({path!r}, task={task!r})
except models.UserError as error:
    print("task must be" in str(error))
"""


def test_a_task_is_text_in_a_process_that_has_imported_nothing_of_tasks(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    for task, refused in ((TEXT, "False"), (3, "True")):
        code = FRESH.format(path=str(tmp_path / "x.npz"), task=task)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == refused


@pytest.fixture
def own_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of files ".mine", whose models have the task that was asked for, or none."""
    models.load("microadder-57")  # fills the table
    monkeypatch.setattr(readers, "READERS", list(readers.READERS))
    monkeypatch.setattr(stored_names, "MODEL_FILES", kinds := set(stored_names.MODEL_FILES))
    monkeypatch.setattr(readers, "MODEL_FILES", kinds)
    for module in ("models.zoo", "models.importers.guess_from_model"):
        monkeypatch.setattr(f"{module}.reader_of", lambda file: reader_of(file, readers.READERS))
    built = models.build("toygpt-learned-pre")

    def load(file: Any, asked: Any) -> Any:
        return models.ArithmeticTransformer(built.weight_map, asked.task, name=file.path.stem)

    register(Reader("mine", (".mine",), lambda file: True, load))


@pytest.mark.usefixtures("own_reader")
def test_a_suffix_that_a_reader_was_registered_for_is_a_path_and_its_file_needs_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from interp.cli.commands import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.mine").touch()
    task = models.load("toygpt-learned-pre").task
    assert models.load("m.mine", task=task).task is task
    with pytest.raises(UserError):
        models.load("m.mine")
    assert main(["load", "m.mine"]) == 2
    assert main(["load", "m.mine", "--task", "{a:2}+{b:2}={s:3}; a + b"]) == 0
    assert main(["load", "n.mine"]) == 2
    assert "Traceback" not in capsys.readouterr().err
