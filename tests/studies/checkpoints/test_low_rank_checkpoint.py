"""Published checkpoints of the 456-parameter family come in whole, and nothing else comes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.families.low_rank_adder import OPTIONS
from studies.checkpoints import load_published
from tests.published import low_rank_adder

FILES = {"adder-456": "adder456_s43.pt", "adder-512": "adder512_s42.pt"}


def stored(content: dict[str, Any], folder: Path) -> Path:
    torch.save(content, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_size_comes_in_to_the_bit(name: str, tmp_path: Path):
    model = load_published(stored(low_rank_adder(models.build(name, seed=5)), tmp_path))
    assert model.name_or_path == name
    expected = dict(models.build(name, seed=5).weight_map.named_parameters())
    for key, parameter in model.weight_map.named_parameters():
        assert torch.equal(parameter, expected[key])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("which", ["checkpoint", "published_checkpoint"])
def test_files_are_recognised_by_their_content(name: str, which: str, request: pytest.FixtureRequest):
    model = load_published(request.getfixturevalue(which)(FILES[name]))
    assert model.name_or_path == name
    assert sum(p.numel() for p in model.parameters()) == int(name.split("-")[1])
    problems = [(9999999999, 1), (1234567890, 9876543210), (0, 0), (999, 1)]
    assert models.score(model, problems, method="greedy").correct == 4


def drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_state"].pop(key)


def set_config(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_config"].update(values)


def set_state(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model_state"].update({key.replace("__", "."): v for key, v in values.items()})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (drop("pos_emb.B"), "lacks pos_emb.B"),
        (drop("lm_head.weight"), "lacks lm_head.weight"),
        (set_state(extra=torch.zeros(1)), "unknown extra"),
        (set_state(lm_head__weight=torch.zeros(14, 7)), "should be one tensor"),
        (set_state(pos_emb__A="text"), "str where the tensor pos_emb.A"),
        (set_state(pos_emb__A=torch.zeros(33)), "1 axes"),
        (set_state(pos_emb__A=torch.zeros(33, 4)), "pos.A"),
        (set_config(qkv_rank=4), "qkv_rank=4"),
        (set_config(tie_qkv="all"), "tie_qkv='all'"),
        (set_config(d_model=8), "d_model=8"),
        (set_config(rotary=True), "rotary=True"),
        (set_config(dropout=[0.0]), "list as its setting dropout"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(change: Callable, complaint: str, tmp_path: Path):
    content = low_rank_adder(models.build("adder-456", seed=5))
    change(content)
    with pytest.raises(UserError) as error:
        load_published(stored(content, tmp_path))
    assert complaint in str(error.value)
