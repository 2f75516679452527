"""What the list of models says of all inputs comes from stored proofs, counts and verdicts."""

import json
import shutil
from dataclasses import replace

import pytest

import interp
import models
from interp.proofs import check_certificate
from interp.proofs.stored_verdicts import (
    CONSTRUCTED,
    all_pairs,
    judge_constructed,
    on_all_inputs,
    store,
    stored_verdict,
)
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import zoo
from models.errors import UserError
from models.evaluation import predict
from models.registry import constructed
from tests.sampling import stored_models

GUESSES = "parity-coupling-1l4h-nope-no-scratchpad-small"  # right on about half of the strings
ATTACKED = [name for name in zoo.zoo_names() if zoo.read_entry(name).get("certificate", {}).get("method") == "attack"]


def test_every_constructed_model_has_a_stored_verdict_and_no_other():
    assert json.loads(CONSTRUCTED.read_text()).keys() == set(constructed())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parity-hand-built", "adder-3-by-hand", "adder-4-by-hand", "microadder-57-by-hand"])
def test_a_stored_verdict_is_what_the_certifier_says(name):
    found, stored = judge_constructed(name), json.loads(CONSTRUCTED.read_text())[name]
    assert found.pop("smallest_margin") == pytest.approx(
        stored.pop("smallest_margin"), abs=1e-5
    )  # float32's exponential
    assert found == stored


def test_trained_models_show_their_proof_or_their_exhaustive_count():
    assert on_all_inputs("microadder-57") == "certified with rounding"
    whole = zoo.read_entry("toygpt-learned-pre")["score"]["all"]
    assert on_all_inputs("toygpt-learned-pre") == f"exhaustive: {whole['correct']:,} of {whole['n']:,}"
    assert on_all_inputs("addlm-adder-two-digit").endswith("10,000 of 10,000")
    assert on_all_inputs("addlm-0.8m") == on_all_inputs("position-coupling-1l2h") == ""


def test_a_refuted_adder_has_no_evidence_that_it_is_right():
    assert all_pairs("microadder-57") == "certified with rounding" and all_pairs("microadder-75") == ""
    assert on_all_inputs("microadder-75").startswith("refuted: ")


@pytest.mark.parametrize("name", stored_models())
def test_every_stored_model_with_right_answers_has_a_verdict_or_a_reason(name):
    words, score = on_all_inputs(name), zoo.read_entry(name)["score"]
    if "loss" in score:
        assert words == ""
        return
    kind = words.split(" ")[0].rstrip(":")
    assert kind in ("certified", "exhaustive", "refuted", "not")
    if kind == "not":  # only where there is too much to run
        assert words.startswith("not judged: no proof for ") and words.endswith("too many to run")
    if score["correct"] < score["n"]:
        assert kind in ("exhaustive", "refuted")


@pytest.mark.parametrize("name", stored_models(ATTACKED))
def test_a_stored_wrong_answer_is_what_the_model_says(name):
    found, model = zoo.read_entry(name)["certificate"], models.load(name)
    problem = model.task.as_problems([found["problem"]])
    wrong = wrong_answer(model, model.task, problem)
    assert wrong is not None
    number = model.task.decode(predict(model, problem, "greedy"))[0]
    said = found["counterexample"].removeprefix(f"{found['problem']} -> ")
    assert said in (wrong.predicted, str(number)) and said != wrong.expected
    assert on_all_inputs(name) == f"refuted: {found['counterexample']}"
    assert f"**Refuted**: {found['counterexample']}" in zoo.entry_file(name, "card.md").decode()


@pytest.fixture
def entry(tmp_path):
    return shutil.copytree(zoo.resolve(GUESSES), tmp_path / GUESSES)


def test_an_attacks_wrong_answer_goes_into_an_entry_only_if_the_entrys_model_gives_it(entry):
    model = models.load(GUESSES)
    found = interp.attack(model, runs=20)
    assert found.wrong
    with pytest.raises(UserError, match="found nothing wrong"):
        store(entry, replace(found, wrong=()))
    with pytest.raises(UserError, match="was on"):
        store(entry, interp.attack(model, task=model.task.at(5), runs=20))
    right = next(bits for bits in ("0" * 20, "0" * 19 + "1") if _right(model, bits))
    with pytest.raises(UserError, match="rightly"):
        store(entry, replace(found, wrong=(replace(found.wrong[0], problem=tuple(map(int, right))),)))
    store(entry, found)
    assert zoo.read_entry(entry)["certificate"]["problem"] == found.text(found.wrong[0].problem)


def _right(model, bits):
    return wrong_answer(model, model.task, model.task.as_problems([bits])) is None


def test_a_count_over_all_problems_goes_into_an_entry_and_can_be_checked(entry):
    model = models.load(GUESSES)
    found = interp.certify(model, task=model.task.at(6))
    store(entry, found)
    kept = stored_verdict(entry)
    assert kept is not None and kept.to_dict() == found.to_dict()
    check_certificate(kept, model)
    card = zoo.entry_file(entry, "card.md").decode()
    wrong = found.score.n - found.score.correct
    assert found.status == "refuted" and f"wrong on {wrong} of all 64 strings of 6 bits" in card
