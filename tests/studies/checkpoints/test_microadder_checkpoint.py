"""Published MicroAdder checkpoints come in whole, and nothing else comes in."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.tasks.named.adder_test_sets import ADDER_BOARD
from studies.checkpoints import load_published
from tests.published import STRENGTHS, upper_rung, write_published

FILES = {"microadder-57": "microadder_57p.pt", "microadder-67": "microadder_67p.pt"}
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(
    params=[
        *((name, "checkpoint") for name in FILES),
        *(pytest.param((name, "published_checkpoint"), marks=pytest.mark.slow) for name in FILES),
    ]
)
def published(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """(name of the model, path of its checkpoint): written here in the public layout, and the published one."""
    name, which = request.param
    return name, request.getfixturevalue(which)(FILES[name])


def test_every_layout_comes_in_to_the_bit(published: tuple[str, Path], tmp_path: Path) -> None:
    """Also a published file that was read and written again: all of its tensors, and no others."""
    name, path = published
    model = load_published(path)
    again = write_published(tmp_path / "again.pt", model)
    theirs, ours = (torch.load(p, map_location="cpu", weights_only=True) for p in (path, again))
    assert theirs["config"] == ours["config"]
    assert theirs["model_state_dict"].keys() == ours["model_state_dict"].keys()
    for key, tensor in theirs["model_state_dict"].items():
        assert torch.equal(tensor, ours["model_state_dict"][key]), key
    mixed = models.build(name, seed=3)
    for parameter in mixed.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape)
    loaded = dict(load_published(write_published(tmp_path / "mixed.pt", mixed)).weight_map.named_parameters())
    assert all(torch.equal(loaded[key], value) for key, value in mixed.weight_map.named_parameters())


def changed(path: Path, folder: Path, change: Change) -> Path:
    """A copy of a checkpoint with something changed."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    change(content)
    torch.save(content, folder / "changed.pt")
    return folder / "changed.pt"


# ---- what is imported


def test_the_published_models_answer_all_of_adderboard(published: tuple[str, Path]) -> None:
    name, path = published
    model = load_published(path)
    assert model.name_or_path == name
    assert sum(parameter.numel() for parameter in model.parameters()) == int(name.split("-")[1])
    assert models.score(model).correct == 10_010
    found = models.score(model, ADDER_BOARD.problems[:1_000], method="greedy")
    assert found.correct == found.n == 999  # of the ten fixed pairs two are the same


def test_load_takes_published_files_too(published: tuple[str, Path]) -> None:
    _, path = published
    tokens = torch.zeros(1, 33, dtype=torch.int64)
    assert torch.equal(models.load(path)(tokens), load_published(path)(tokens))
    assert torch.equal(models.load(str(path))(tokens), load_published(path)(tokens))


def test_the_weights_are_the_file_s_to_the_bit(published: tuple[str, Path]) -> None:
    _, path = published
    state = torch.load(path, map_location="cpu", weights_only=True)["model_state_dict"]
    parameters = dict(load_published(path).weight_map.named_parameters())
    assert torch.equal(parameters["W_head"], state["head_proj.weight"])
    assert torch.equal(parameters["pos_z_hi"], state["z_hi_pos"][0])
    assert parameters["arc_stride"].item() == state["tok_arc_stride"].item()
    if "W_fc2" in parameters:
        assert torch.equal(parameters["W_fc2"], state["blocks.0.ffn.fc2.weight"].T)


def as_74(content: dict[str, Any]) -> None:
    """A 67-parameter checkpoint turned into the 74-parameter layout, with numbers of its own."""
    state, config = content["model_state_dict"], content["config"]
    state["blocks.0.attn.q_proj.weight"] = torch.randn(5, 3)
    state["spiral_amp"], state["spiral_phase"] = torch.tensor(3.56), torch.tensor(-0.44)
    config.update(qk_dim=0, freeze_spiral="")


def test_the_74_parameter_layout_is_known_by_its_configuration(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    path = changed(checkpoint(FILES["microadder-67"]), tmp_path, as_74)
    model = load_published(path)
    assert model.name_or_path == "microadder-74"
    assert sum(parameter.numel() for parameter in model.parameters()) == 74
    assert model.weight_map.spiral_amp.item() == pytest.approx(3.56)


def test_the_file_name_does_not_matter(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "microadder_57p.pt"
    path.write_bytes(checkpoint(FILES["microadder-67"]).read_bytes())
    assert load_published(path).name_or_path == "microadder-67"


# ---- other models


def test_the_published_100_answers_all_of_adderboard(checkpoint: Callable[[str], Path]) -> None:
    model = load_published(checkpoint("microadder_100p.pt"))
    assert model.name_or_path == "microadder-100"
    assert sum(parameter.numel() for parameter in model.parameters()) == 100
    assert models.score(model).correct == 10_010


@pytest.mark.parametrize("name", STRENGTHS)
def test_the_rungs_of_that_layout_are_known_by_their_configurations(name: str, tmp_path: Path) -> None:
    """What a configuration does not name is what its generation of the code did: two heads, 14 tokens, biases."""
    model = models.build(name, seed=1)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape)
    imported = load_published(write_published(tmp_path / "some.pt", model))
    assert imported.name_or_path == name
    tokens = model.task.encode([(57, 48), (9_999_999_999, 1)])
    assert torch.equal(imported(tokens), model(tokens))


def test_a_configuration_between_the_rungs_is_imported_without_being_named(tmp_path: Path) -> None:
    """141 parameters, of which the public notes tell: the 133 with 14 tokens. It is no rung of the paper."""
    from dataclasses import replace

    from models.families.microadder import MicroAdderWeights
    from models.families.microadder_ladder import rung

    weight_map = MicroAdderWeights(replace(rung(133).options, delimiters=True))
    weight_map.initialise(torch.Generator().manual_seed(0))
    model = models.ArithmeticTransformer(weight_map, weight_map.options.task(), name="microadder-141")
    config = STRENGTHS["microadder-133"] | {"vocab_size": 14}
    state = {key: value.detach().contiguous() for key, value in upper_rung(model).items()}
    torch.save({"config": config, "model_state_dict": state}, tmp_path / "some.pt")
    imported = load_published(tmp_path / "some.pt")
    assert sum(parameter.numel() for parameter in imported.parameters()) == 141
    assert imported.name_or_path == "microadder-141-imported"


def test_another_family_is_refused(tmp_path: Path) -> None:
    torch.save({"config": {"n_layer": 1}, "model_state_dict": {"w": torch.ones(1)}}, tmp_path / "other.pt")
    assert load_published(tmp_path / "other.pt") is None
    with pytest.raises(UserError, match="task="):
        models.load(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c["config"].update(d_model=6), "d_model=6"),
        (lambda c: c["config"].update(freeze_spiral="amp"), "freeze_spiral='amp'"),
        (lambda c: c["config"].update(qk_dim=3), "W_qk as [4, 3]"),
        (lambda c: c["config"].update(qk_dim=[4]), "list as its setting qk_dim"),
        (lambda c: c["config"].update(d_model=torch.ones(2)), "Tensor as its setting d_model"),
        (lambda c: c["config"].update(equals_spiral_idx=3.0), "equals_spiral_idx=3.0"),
        (lambda c: c["config"].update(norm_mode="no_ln2"), "norm_mode='no_ln2'"),
        (lambda c: c["config"].update(vocab_size=12), "vocab_size=12"),
        (lambda c: c["config"].update(ffn_dim=0), "sizes"),
        (lambda c: c["config"].update(ffn_dim=3), "d_mlp cannot be 3"),
        (lambda c: c["model_state_dict"].pop("head_proj.weight"), "lacks head_proj.weight"),
        (lambda c: c["model_state_dict"].update(extra=torch.ones(1)), "unknown extra"),
        (lambda c: c["model_state_dict"].update({"head_proj.weight": torch.ones(3, 5)}), r"W_head as [3, 5]"),
        (lambda c: c["model_state_dict"].update({"head_proj.weight": torch.ones(2, 5).double()}), "float64"),
        (lambda c: c["model_state_dict"].update({"head_proj.weight": "text"}), "str where the tensor"),
        (lambda c: c["model_state_dict"].update(spiral_amp=torch.tensor(3.4)), "another spiral_amp than the 3.5"),
        (lambda c: c["model_state_dict"].update(_eos_pos=torch.ones(1, 3)), "_eos_pos that is not zero"),
        (lambda c: c["model_state_dict"].update({"norm2.weight": torch.ones(5)}), "norm1.weight and norm2.weight"),
        (lambda c: c.pop("config"), "does not say its task"),
        (lambda c: c.update(model_state_dict=[1]), "does not say its task"),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(
    checkpoint: Callable[[str], Path], tmp_path: Path, change: Change, complaint: str
) -> None:
    path = changed(checkpoint(FILES["microadder-57"]), tmp_path, change)
    with pytest.raises(UserError) as error:
        models.load(path)
    assert complaint in str(error.value)
    assert str(path) in str(error.value)


# ---- files that are no checkpoints


class Payload:
    """Unpickling this would create a file."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def torch_file(content: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "dump",
    [
        torch_file,
        lambda content: torch_file(content, _use_new_zipfile_serialization=False),
        lambda content: pickle.dumps(content, protocol=2),
        lambda content: pickle.dumps(content, protocol=4),
    ],
    ids=["archive", "legacy", "pickle 2", "pickle 4"],
)
def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path, dump: Callable[[Any], bytes]) -> None:
    target = tmp_path / "it-ran"
    path = tmp_path / "evil.pt"
    path.write_bytes(dump({"config": {"tok_dim": 2, "pos_dim": 3}, "model_state_dict": Payload(target)}))
    with pytest.raises(UserError, match=r"evil\.pt contains code.*was not loaded"):
        models.load(path)
    assert not target.exists()


def test_the_payload_of_that_test_does_run_when_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "it-ran")))
    assert (tmp_path / "it-ran").exists()


def test_a_pickled_module_is_code_too(tmp_path: Path) -> None:
    (tmp_path / "module.pt").write_bytes(torch_file(torch.nn.Linear(2, 2)))
    with pytest.raises(UserError, match=r"contains code \(torch\.nn\.modules\.linear\.Linear\)"):
        load_published(tmp_path / "module.pt")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a complete PyTorch checkpoint"),
        (b"just some text\n" * 100, "not a complete PyTorch checkpoint"),
        (bytes(1000), "not a complete PyTorch checkpoint"),
        (torch_file({"a": torch.ones(3)})[:300], "not a complete PyTorch checkpoint"),
        (torch_file([1, 2]), "holds a list"),
        (torch_file(torch.ones(2)), "holds a Tensor"),
        (torch_file({"weights": torch.ones(2)}), "does not say its task"),
    ],
    ids=["empty", "text", "zeros", "truncated", "list", "tensor", "other dictionary"],
)
def test_what_is_no_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "thing.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"thing\.pt .*{complaint}"):
        models.load(path)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_checkpoint_is_refused(published: tuple[str, Path], tmp_path: Path, kept: float) -> None:
    data = published[1].read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: int(kept * len(data))])
    with pytest.raises(UserError, match=r"cut\.pt is not a complete PyTorch checkpoint"):
        load_published(tmp_path / "cut.pt")


def test_a_missing_file_is_named_and_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file .*none\.pt"):
        models.load(tmp_path / "none.pt")
    assert load_published(tmp_path) is None
