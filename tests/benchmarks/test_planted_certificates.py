"""Plants take, are made from their number alone, and none is certified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import models
from benchmarks.false_certificates import own_forward, planted
from benchmarks.false_certificates.bases import TRAINED, Base, drawn, induction
from benchmarks.false_certificates.drafts import harmed, watched
from benchmarks.false_certificates.planted import (
    NUMBERS,
    PARTLY,
    Plants,
    PlantTrial,
    is_proved,
    plant_trial,
    summary,
    wrong_as,
)
from benchmarks.false_certificates.plants import PLANTED
from interp.proofs.attention_only.arrangement_method import certify_arrangements

#: A quick plant of each method, and of several kinds.
DRAWN = (14, 28, 118, 180, 191, 195, 210, 241, 252, 258, 266, 267)


@pytest.mark.parametrize("index", DRAWN)
def test_no_planted_wrong_model_is_certified(index: int):
    found = plant_trial(index, minutes=0.1)
    assert found.took and not found.falsely
    assert found.status != "raised"


@pytest.mark.parametrize(
    "name",
    ["microadder-57", "subtractor-47", "modular-addition-59", "parity-hand-built"]
    + [
        f"{TRAINED}{name}"
        for name in ("add-3-rms-gated-silu-0", "add-3-part-rotary-0", "add-3-post-norm-0", "copy-8-0")
    ],
)
def test_the_forward_pass_of_its_own_computes_what_models_do(name: str):
    model = models.load(name).eval()
    tokens = model.task.encode(model.task.sample(8, torch.Generator().manual_seed(0)))
    with torch.no_grad():
        wanted, weights = model(tokens).numpy(), model.effective_weights()
    for dtype in (np.float64, np.float32):
        found = own_forward.logits(model.config, weights, tokens, model.task.position_ids(tokens), dtype)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_leads_are_none_where_a_logit_is_none_or_two_are_infinite():
    logits = np.array([[[1.0, 3.0]], [[np.inf, np.inf]], [[np.nan, 0.0]], [[np.inf, 1.0]], [[2.0, 2.0]]])
    found = own_forward.leads(logits, np.zeros((5, 1), int), [0])[:, 0]
    np.testing.assert_array_equal(found, [-2.0, np.nan, np.nan, np.inf, 0.0])


@pytest.mark.parametrize(
    ("leads", "wrong"),
    [
        ((1.0, 1.0, 1.0), ()),
        ((-1.0, -1.0, -1.0), ("as it runs", "over the reals")),
        ((1.0, float("nan"), float("-inf")), ("as it runs",)),
        ((-1e-9, 1e-7, 1e-7), ("over the reals",)),
        ((1.0, -1.0, 1.0), ()),
    ],
)
def test_what_a_plant_gets_wrong(leads: tuple[float, float, float], wrong: tuple[str, ...]):
    assert wrong_as(*leads) == wrong


def test_every_method_has_plants_and_three_hundred_in_all():
    assert NUMBERS.keys() == PLANTED.keys() and sum(NUMBERS.values()) == 300
    assert NUMBERS["two layers of attention"] <= 10


def test_a_plant_is_made_from_its_number_alone():
    first, second = (replace(plant_trial(252, minutes=0.1), seconds=0.0, sentence="") for _ in range(2))
    assert first == second and first.took


def _trial(index: int, **changes: object) -> PlantTrial:
    known = PlantTrial(
        index=index, method="prefix tree", plant="head", model="constant", notes={}, problem="0", float64=-1.0,
        float32=-1.0, own=-1.0, wrong=("as it runs", "over the reals"), judged_by="prefix tree", status="refuted",
        arithmetic="float32", sentence="", checked=False, seconds=0.0,
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]


def test_trials_go_on_after_those_in_the_file_and_fail_by_a_certified_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[int] = []

    def trial(index: int, minutes: float) -> PlantTrial:
        asked.append(index)
        return _trial(index, status="certified" if index == 3 else "refuted")

    monkeypatch.setattr(planted, "plant_trial", trial)
    out = tmp_path / "plants.jsonl"
    assert Plants(n=2, out=out).run() == 0
    assert "0 of 2 planted" in capsys.readouterr().out
    assert Plants(n=4, out=out).run() == 1
    assert asked == [0, 1, 2, 3] and [one.index for one in planted.read(out)] == asked
    assert "1 of 4 planted" in capsys.readouterr().out


def test_a_wrong_string_is_in_no_set_that_two_layers_prove():
    """A search refutes such a model at once, so that its sets are looked at."""
    draft = Base(lambda rng: induction(rng, places=4, tokens=5), drawn).draft(np.random.default_rng(0))
    seen = watched(draft, 900.0, layer=0, together=True)
    model = harmed(seen.draft, seen.out, 3.0).model()
    verdict, wrong = certify_arrangements(model), set()
    every = model.task.domain.every()
    for problem, lead in zip(every, seen.draft.leads(every, np.float32).min(1), strict=True):
        if not lead > 0:
            wrong.add(tuple(model.task.encode(problem[None])[0].tolist()))
    assert 0 < len(wrong) < len(every)
    assert not any(is_proved(verdict, model.task, string) for string in wrong)
    assert any(is_proved(verdict, model.task, string) for string in model.task.encode(every).tolist())
    assert _trial(0, status=PARTLY).falsely and not _trial(0, status=PARTLY, wrong=()).falsely


def test_a_certificate_is_held_against_what_it_claims():
    assert _trial(0, status="certified").falsely
    assert not _trial(0, status="certified", wrong=("over the reals",)).falsely
    assert _trial(0, status="certified", wrong=("over the reals",), arithmetic="interval").falsely
    assert not _trial(0, status="certified", wrong=()).falsely
    assert not _trial(0, status="undecided").falsely
    found = [
        _trial(0, status="certified"),
        _trial(1, wrong=()),
        _trial(2, status="certified", wrong=("over the reals",)),
    ]
    assert summary(found).splitlines()[3].split()[-7:] == ["3", "2", "1", "1", "0", "0", "0"]
