"""Adders in AddLM's algebra: from nothing to a page, and on from where it stopped."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import models
from interp.papers.addlm.adder import KINDS, accuracy_table, multiplication_table, runs_of
from interp.papers.studies import Settings, reproduce
from models.addlm_adder import ADDERS
from models.registry import get_spec
from tests.quick_recipes import change_recipe


@pytest.fixture
def two_steps(monkeypatch) -> None:
    for what, kind in product(ADDERS, KINDS):
        change_recipe(
            monkeypatch, f"addlm-adder-{what}{kind}",
            steps=2, warmup_steps=1, batch_size=16, validation_size=8, eval_every=1, snapshots=0,
        )  # fmt: skip
    monkeypatch.setattr("interp.papers.addlm.adder.PER_CHAIN", 2)
    monkeypatch.setattr("interp.papers.addlm.adder.ADDERS", {"two-digit": ADDERS["two-digit"]})


@pytest.mark.slow
def test_from_nothing_to_a_page_with_every_pair_tried(two_steps, tmp_path: Path):
    settings = Settings(out=tmp_path, seeds=1, progress=False, say=lambda text: None)
    page = reproduce("addlm:adder", settings)
    assert page is not None
    tried = [(row["model"], row["problems"], row["rung"], row["n"]) for row in page.data["rows"]]
    for name in ("addlm-adder-two-digit", "addlm-adder-two-digit-float"):
        assert (name, "all pairs", "exhaustive", 10_000) in tried
    again = reproduce("addlm:adder", settings)  # nothing is left to train
    assert again is not None and again.data == page.data
    assert all(run.has(2) for run in runs_of(settings))


def test_only_samples_have_an_interval():
    rows = [
        {"model": "m", "seed": 0, "problems": "all pairs", "rung": "exhaustive", "n": 10_000, "correct": 10_000},
        {"model": "m", "seed": 0, "problems": "AdderBoard", "rung": "sampled", "n": 10_010, "correct": 10_010},
    ]
    table = accuracy_table(rows)
    assert list(table["95% interval"]) == ["", "0.9996 to 1.0000"]


def test_matrices_of_the_adders_need_a_twentieth_of_their_twins_multiplications_or_fewer():
    table = multiplication_table()
    matrices = table[table.part.isin(["projections (Q, K, V, O)", "MLP"])]
    assert (matrices["AddLM"] * 20 <= matrices["float twin"]).all()


@pytest.mark.parametrize("what", ADDERS)
def test_twins_differ_in_the_algebra_alone(what: str):
    ours, twin = (models.build(f"addlm-adder-{what}{kind}") for kind in ("", "-float"))
    assert {name: p.shape for name, p in ours.named_parameters()} == {n: p.shape for n, p in twin.named_parameters()}
    assert get_spec(f"addlm-adder-{what}").recipe == get_spec(f"addlm-adder-{what}-float").recipe
    w = ours.W_in[0]
    assert w.unique().numel() == 3 and twin.W_in[0].unique().numel() > 3
