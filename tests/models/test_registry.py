"""Models by name."""

from __future__ import annotations

import re

import pytest
import torch

import models
from models.errors import UserError
from models.registry import PAPERS, by_paper, is_own, register

FREE = ["microadder-57", "microadder-67", "microadder-74"]
COUNTED = [name for name in models.names(sweeps=True) if re.fullmatch(r"(micro)?adder-\d+", name)]


@pytest.mark.parametrize("name", COUNTED)
def test_the_name_says_the_number_of_free_parameters(name: str) -> None:
    model = models.build(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == int(name.rpartition("-")[2])
    assert model.name_or_path == name


@pytest.mark.parametrize("name", FREE)
def test_a_seed_determines_the_parameters(name: str) -> None:
    drawn = [torch.cat([p.flatten() for p in models.build(name, seed=seed).parameters()]) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("make", [models.build, models.get_spec])
@pytest.mark.parametrize("typed", ["microadder57", "microader-57", "MicroAdder-57", "micro-adder-57"])
def test_an_unknown_name_brings_the_closest_match(make, typed: str) -> None:
    with pytest.raises(UserError, match=f"no model '{typed}'.*Did you mean 'microadder-57'"):
        make(typed)


def test_a_name_unlike_any_other_brings_no_guess() -> None:
    with pytest.raises(UserError, match="no model 'zzz'; there is ") as error:
        models.build("zzz")
    assert "Did you mean" not in str(error.value)


def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(UserError, match="registered already"):
        register(models.get_spec("microadder-57"))


def test_all_registered_names_are_listed() -> None:
    assert set(models.names()) >= set(FREE)


def test_a_models_paper_is_listed_in_one_block_and_others_come_last() -> None:
    names = [name for name in models.names(sweeps=True) if not is_own(name)]  # which other tests leave
    listed = by_paper(names)
    papers = [models.get_spec(name).paper for name in listed]
    assert set(papers) == {*PAPERS, None}
    assert papers == sorted(papers, key=[*PAPERS, None].index)
    assert {name.partition("-")[0] for name in listed if models.get_spec(name).paper is None} == {
        "arc",
        "clock",
        "comparison",
        "complement",
        "induction",
        "mixed",
        "modular",
        "signed",
        "subtractor",
    }
    assert sorted(listed) == sorted(names)
    beside = [name for name in listed if models.get_spec(name).paper == "Position Coupling"]
    assert {"position-coupling-hand-built", "multiplication-hand-built", "parity-hand-built"} <= set(beside)
    family = [name for name in listed if name in ("microadder-57", "microadder-67", "microadder-242")]
    assert family == [name for name in names if name in family]
