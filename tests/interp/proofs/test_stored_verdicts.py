"""Certificates in training and in the zoo: what stops a run, what a card says, and that both are true."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
import models
from benchmarks.false_certificates import rounded
from interp.cli import main
from interp.cli.parsing import with_bare
from interp.proofs import check_certificate, load_certificate
from interp.proofs.certify import parse_certificate
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.stored_verdicts import (
    FILE,
    all_pairs,
    facts,
    on_all_inputs,
    store,
    stored_certificate,
)
from interp.proofs.training_judge import Prover
from models.errors import UserError
from models.evaluation import predict
from models.tasks.named.addition import adds_pairs_below
from models.training import train
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.warm_start import Start
from models.zoo.card import render_card
from tests.interp.proofs.conftest import certificate, zoo
from tests.sampling import stored_models

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # a proof is some 10^6 calls
NAME = "microadder-67"
VERDICTS = {name: models.zoo.read_entry(name).get("certificate", {}) for name in models.zoo_names()}
CERTIFIED = [name for name, found in VERDICTS.items() if "targets" in found and found["status"] == "certified"]
# A learning rate so small that planted weights stay what they are.
STILL = Recipe(
    steps=30, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=4, lr=1e-9, weight_decay=0.0
)


def certifier(arithmetic: Any) -> Prover:
    """The judge of ``--certify``."""
    return Prover(arithmetic, None, gives_back=False)


def run(
    out: Path, weights: dict[str, torch.Tensor], certifier: Prover | None, name: str = NAME, recipe: Recipe = STILL
):
    start = Start(weights, "a trained one", "this test", noise=0.0)
    return train(name, out, recipe=recipe, start=start, judge=certifier, progress=False, compile=False, device="cpu")


def parameters(name: str, rounding: str = "none") -> dict[str, torch.Tensor]:
    model = models.load(name)
    return {key: rounded(value.detach(), rounding) for key, value in model.weight_map.named_parameters()}


# ---- in training


@pytest.mark.slow
def test_a_run_that_starts_at_certified_weights_stops_at_its_first_validation_and_is_published(tmp_path, capsys):
    result = run(tmp_path / "run", parameters(NAME), certifier("interval"))
    (state,) = result.seeds
    assert (state.status, state.stopped_at, state.turned_down, result.complete) == ("accepted", 10, 0, True)
    (line,) = RunFolder(tmp_path / "run").metrics()
    assert line["verdicts"][0]["statement"].startswith("certified in interval arithmetic: all 10^20 pairs")
    kept = tmp_path / "run" / "accepted" / "seed-0"
    assert main(["publish", str(tmp_path / "run"), "--out", str(tmp_path / "entry")]) == 0
    assert "holds: certified in interval arithmetic: all 10^20 pairs" in capsys.readouterr().out
    found = stored_certificate(tmp_path / "entry")
    assert (
        found is not None
        and found.arithmetic == "interval"
        and all_pairs(tmp_path / "entry") == found.provenance.strength
    )
    assert (tmp_path / "entry" / FILE).read_bytes() == (kept / FILE).read_bytes()
    kept_facts = models.zoo.read_entry(tmp_path / "entry")["certificate"]
    assert kept_facts == facts(found) and kept_facts["status"] == "certified"
    assert found.fingerprint == read_adder(models.load(kept / "model.safetensors")).fingerprint


@pytest.mark.slow
def test_a_trained_model_is_published_loaded_and_certified_and_its_card_says_so(tmp_path):
    run(tmp_path / "run", parameters(NAME), None)
    entry = tmp_path / "entry"
    assert main(["publish", str(tmp_path / "run"), "--out", str(entry)]) == 0
    weights, before = (entry / "model.safetensors").read_bytes(), models.zoo.read_entry(entry)
    assert "certificate" not in before and models.load(entry).name_or_path == NAME
    assert main(["certify", str(entry), "--arithmetic", "interval", "--card"]) == 0
    config, found = models.zoo.read_entry(entry), stored_certificate(entry)
    assert found is not None and config["certificate"] == facts(found) and found.status == "certified"
    files = {file: models.zoo.entry_file(entry, file) for file in config["sha256"]}
    assert files["card.md"].decode() == render_card(config, files)
    assert "* **Certified** in interval arithmetic: all 10^20 pairs." in files["card.md"].decode()
    assert (files["model.safetensors"], config["score"]) == (weights, before["score"])


def test_a_candidate_that_is_wrong_somewhere_is_logged_with_a_problem_and_training_goes_on(tmp_path):
    """The zoo's 57 in bfloat16 answers all of the validation problems, and not all problems."""
    once = replace(STILL, steps=10)
    result = run(tmp_path / "run", parameters("microadder-57", "bfloat16"), certifier("float32"), "microadder-57", once)
    (state,) = result.seeds
    assert (state.status, state.exact, state.turned_down, state.accepted) == ("finished", 1.0, 1, None)
    assert not (tmp_path / "run" / "accepted").exists()
    said = RunFolder(tmp_path / "run").metrics()[0]["verdicts"][0]["statement"]
    prefix = "validated at 100% and refuted: "
    assert said.startswith(prefix)
    problem, answer = said.removeprefix(prefix).partition(" (run through")[0].split(" -> ")
    a, b = (int(x) for x in problem.split(" + "))
    model = models.load("microadder-57")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(rounded(parameter.detach(), "bfloat16"))
    (decoded,) = model.task.decode(predict(model, [(a, b)], "greedy"))
    assert decoded != a + b and answer == ("no number" if decoded is None else str(decoded))


@pytest.mark.slow
def test_a_candidate_is_certified_in_floats_before_anything_dearer(monkeypatch):
    asked = []

    def counted(model, arithmetic, **_):
        asked.append(arithmetic)
        return certificate(NAME, arithmetic) if model is zoo(NAME) else interp.certify(model, arithmetic=arithmetic)

    monkeypatch.setattr("interp.proofs.training_judge.certify_one_layer", counted)
    assert certifier("interval")(zoo(NAME), 1, 0).accepted and asked == ["float", "interval"]
    assert not certifier("interval")(models.build(NAME, 0), 1, 0).accepted and asked[2:] == ["float"]
    verdict = certifier("float")(zoo(NAME), 1, 0)
    assert verdict.accepted and asked[3:] == ["float"] and verdict.certificate["status"] == "sampled"


def test_a_candidate_of_a_small_domain_is_judged_on_all_of_it():
    name = "modular-addition-59"
    verdict = certifier("float32")(models.load(name), 1, 0)
    assert verdict.accepted and verdict.certificate["status"] == "certified" and verdict.files
    assert verdict.certificate["domain"] == "all 3,481 pairs"
    fresh = certifier("float32")(models.build(name, 0), 1, 0)
    assert not fresh.accepted and fresh.statement.startswith("validated at 100% and refuted: ")


@pytest.mark.slow
def test_undecided_is_not_certified(monkeypatch):
    def undecided(model, arithmetic, **_):
        found = certificate(NAME, "float")
        return found if arithmetic == "float" else found.replace(status="undecided", arithmetic=arithmetic)

    monkeypatch.setattr("interp.proofs.training_judge.certify_one_layer", undecided)
    verdict = certifier("interval")(zoo(NAME), 1, 0)
    assert not verdict.accepted and not verdict.files
    assert verdict.statement.startswith(
        "validated at 100% and undecided in interval arithmetic: 3,442 of 3,442 classes"
    )


def test_weights_beyond_every_method_are_no_end_of_a_run():
    model = models.load(NAME)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    assert "no verdict on all problems: " in certifier("float")(model, 1, 0).statement


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["position-coupling-2l2h-small", "--certify"], "cannot judge"),
        (["--certify", "position-coupling-2l2h-small", "--seeds", "2"], "cannot judge"),
        (["microadder-57", "--certify", "flaot32"], "flaot32"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_training_starts(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["train", *arguments])
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and sentence in error and "Traceback" not in error
    assert not any(tmp_path.iterdir())


def test_certify_alone_means_with_rounding():
    for arguments in (["--certify", NAME], [NAME, "--certify"], [NAME, "--certify", "--seeds", "4"]):
        found = with_bare("--certify", "float32", arguments, [NAME])
        assert found[found.index("--certify") + 1] == "float32" and len(found) == len(arguments) + 1
    assert with_bare("--certify", "float32", [NAME, "--certify", "interval"], [NAME])[-1] == "interval"


def test_the_command_line_trains_with_a_certifier(tmp_path, capsys):
    tiny = ["--batch-size", "32", "--eval-every", "10", "--validation-size", "64", "--device", "cpu", "--steps", "10"]
    assert main(["train", NAME, "--certify", "--out", str(tmp_path / "run"), *tiny]) == 0
    assert "0 of 1 seeds are certified on all problems" in capsys.readouterr().out
    assert main(["train", NAME, "--out", str(tmp_path / "run"), *tiny]) == 2
    assert "judge is '--certify float32' there and None now" in capsys.readouterr().err


# ---- in the zoo


def test_the_zoos_57_67_and_74_come_with_certificates():
    assert set(CERTIFIED) >= {"microadder-57", "microadder-67", "microadder-74"}


@pytest.mark.parametrize("name", stored_models(CERTIFIED))
def test_a_card_says_what_the_stored_certificate_says_and_that_is_about_the_stored_weights(name):
    rounding = "interval" if name == "arc-decoder-16" else "float32"  # which is proved over the reals alone
    found = stored_certificate(name)
    assert found is not None and (found.status, found.arithmetic, found.open) == ("certified", rounding, 0)
    assert models.zoo.read_entry(name)["certificate"] == facts(found)
    card, at = models.zoo.entry_file(name, "card.md").decode(), found.rule.problem(*found.witness)
    assert f"{found.smallest_margin:.3f} logits, at {at}. The proof is in `{FILE}`" in card
    assert found.fingerprint == read_adder(zoo(name)).fingerprint
    assert len(models.zoo.entry_file(name, FILE)) < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("name", CERTIFIED)
def test_a_stored_certificate_holds(name):
    found = stored_certificate(name)
    assert found is not None
    check_certificate(found, zoo(name))


@pytest.mark.slow
def test_a_stored_certificate_outlives_enclosures_that_come_out_a_little_wider():
    """Its bounds raised by a twentieth still are within what can be proved."""
    found = stored_certificate(NAME)
    assert found is not None
    tighter = found.classes.copy(deep=True)
    tighter["proved"] = tighter.proved * 1.05
    check_certificate(found.replace(classes=tighter), zoo(NAME))
    tighter["proved"] = found.classes.proved * 1.5
    with pytest.raises(UserError, match="is not proved by its splits"):
        check_certificate(found.replace(classes=tighter), zoo(NAME))


@pytest.mark.slow
def test_a_certificate_goes_into_an_entry_only_if_it_holds_for_its_model(tmp_path):
    weights = models.load(NAME)
    entry = models.save_entry(tmp_path / "entry", weights, {}, {})
    before = {path.name: path.read_bytes() for path in entry.iterdir()}
    found = certificate(NAME)
    with pytest.raises(UserError, match="this one is undecided"):
        store(entry, found.replace(status="undecided"))
    with pytest.raises(UserError, match="other weights"):
        store(entry, certificate("microadder-74"))
    with pytest.raises(UserError):  # samples are no proof
        store(entry, certificate(NAME, "float"))
    assert {path.name: path.read_bytes() for path in entry.iterdir()} == before


@pytest.mark.slow
def test_a_certificate_in_an_entry_is_the_one_that_was_put_there(tmp_path, capsys):
    entry, found = models.save_entry(tmp_path / "entry", models.load(NAME), {}, {}), certificate(NAME)
    store(entry, found)
    stored = stored_certificate(entry)
    assert stored is not None and stored.to_dict() == found.to_dict()
    assert "certified in intervals" in all_pairs(entry) and all_pairs("microadder-100") in (
        "",
        "certified with rounding",
    )
    assert main(["certify", str(entry / "model.safetensors"), "--card"]) == 2
    assert "is not a model: give a zoo name, an entry's folder" in capsys.readouterr().err


def test_a_gzipped_certificate_is_the_same_certificate_and_damage_is_noticed(tmp_path):
    found = stored_certificate(NAME)
    assert found is not None
    (tmp_path / "plain.json").write_text(json.dumps(found.to_dict()))
    (tmp_path / "small.json.gz").write_bytes(found.to_bytes())
    plain, small = (load_certificate(tmp_path / name) for name in ("plain.json", "small.json.gz"))
    assert plain.to_dict() == small.to_dict() == found.to_dict()
    data = (tmp_path / "small.json.gz").read_bytes()
    assert data == found.to_bytes() and 4 * len(data) < (tmp_path / "plain.json").stat().st_size
    for damaged in (data[:-100], data[:50] + b"?" + data[51:], b"\x1f\x8bnothing"):
        with pytest.raises(UserError, match="damaged"):
            parse_certificate(damaged, "a file")


#: One-layer adders whose proof did not end: the attention of clock-adder writes along four directions.
OPEN = ("clock-adder",)


@pytest.mark.parametrize("name", stored_models())
def test_every_zoo_model_that_branch_and_bound_can_judge_has_its_verdict(name):
    config = models.zoo.read_entry(name)
    model = models.load(name)
    if adds_pairs_below(model.task) != 10**10 or model.cfg.n_layers != 1:
        return
    verdict = on_all_inputs(name)
    if name in OPEN:
        assert "certificate" not in config and verdict.startswith("not judged")
        return
    assert verdict and config["certificate"]["status"] in ("certified", "refuted")
    if config["certificate"]["status"] == "refuted":
        a, b, said = re.fullmatch(r"refuted: (\d+) \+ (\d+) -> (.+)", verdict).groups()
        assert said != str(int(a) + int(b))
        assert verdict.removeprefix("refuted: ") in models.zoo.entry_file(name, "card.md").decode()
