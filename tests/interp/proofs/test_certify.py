"""Certificates of one-layer adders: published values, soundness against the models themselves, and refusals."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
import models
from benchmarks.false_certificates import perturb, random_pairs, rounded, trial
from interp.cli import main
from interp.proofs import check_certificate, load_certificate
from interp.proofs.columns.accuracy_bounds import AccuracyBounds
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.column_windows import WindowBounds
from interp.proofs.columns.pair_counting import Counts
from interp.proofs.columns.ratio_attention import read_ratio_attention
from interp.proofs.columns.small_margins import attention_of
from interp.proofs.numbers.rounded_operations import REAL
from interp.proofs.reading.decision_curves import decision_curves
from interp.proofs.stored_verdicts import stored_certificate
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.evaluation import predict
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from studies.checkpoints import load_published
from tests.interp.conftest import stock_copy
from tests.interp.proofs.conftest import certificate, class_of, dense, digits_of, zoo
from tests.sampling import sampled
from tests.studies.adderboard.submissions import HARD

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # a proof is some 10^6 calls


def assert_answered_so(wrong, model) -> None:
    """The model, decoding alone, gives the answer that a verdict says, and it is wrong."""
    problem = model.task.as_problems([wrong.problem])
    said = model.task.answer_text(predict(model, problem, "greedy").cpu())
    assert said == wrong.predicted != wrong.expected == str(int(problem.sum()))


@pytest.fixture
def certified() -> Verdict:
    found = stored_certificate("microadder-74")
    assert found is not None
    return found


@pytest.fixture
def rounded_to_bfloat16(published_checkpoint):
    """The published 57, which is right on all pairs, stored in fewer bits, in which it is not."""
    model = load_published(published_checkpoint("microadder_57p.pt"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(rounded(parameter.detach(), "bfloat16"))
    return model


def margin_of(model, pair, target: int) -> float:
    logits = model(model.task.encode([pair]))[0, model.task.query_positions[target]].detach()
    right = int(model.task.targets([pair])[0, target])
    others = torch.cat((logits[:right], logits[right + 1 :]))
    return float(logits[right] - others.max())


# ---- published values


@pytest.mark.parametrize(("size", "smallest", "pair"), [(57, 1.003, (4941000000, 4959000000)), (67, 0.138, None)])
def test_published_models_have_the_smallest_margins_that_were_measured(published_checkpoint, size, smallest, pair):
    model = load_published(published_checkpoint(f"microadder_{size}p.pt"))
    found = interp.certify(model, arithmetic="float")
    assert found.status == "sampled" and round(found.smallest_margin, 3) == smallest
    target = int(found.classes.target[found.classes.margin.values.argmin()])
    assert round(margin_of(model, found.witness, target), 3) == smallest
    if pair is not None:  # another pair that attains it, at one of its tokens
        assert round(min(margin_of(model, pair, t) for t in range(12)), 3) == smallest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["microadder-74", "microadder-57", "microadder-67"])
def test_zoo_models_are_certified_with_float32_rounding(name):
    found = interp.certify(zoo(name))
    assert (found.status, found.arithmetic, found.open, found.failing) == ("certified", "float32", 0, 0)
    assert 0 < found.lower_bound <= found.smallest_margin
    assert found.provenance.strength == "certified with rounding" and found.provenance.n == 10**20
    assert len(found.classes.target) == 3442


@pytest.mark.slow
def test_free_weights_of_the_same_value_get_the_same_verdict():
    """Effective weights decide, and not what they were made of."""
    free, own = interp.certify(dense("microadder-74"), arithmetic="float"), certificate("microadder-74", "float")
    assert (free.status, free.smallest_margin, free.witness) == (own.status, own.smallest_margin, own.witness)
    assert np.array_equal(free.classes.margin, own.classes.margin)


@pytest.mark.slow
def test_a_stock_model_is_judged_by_its_copy():
    stock = stock_copy(zoo("microadder-74"))
    task = zoo("microadder-74").task
    assert interp.certify(stock, arithmetic="float", task=task).status == "sampled"
    with pytest.raises(UserError, match="this project's own forward pass"):
        interp.certify(stock, task=task)


# ---- what is enclosed does enclose what the model computes


@pytest.mark.slow
def test_verdicts_near_certified_weights_agree_with_the_models():
    """One here; the slow test tries 91, ``python -m benchmarks.false_certificates`` as many as asked for."""
    found = trial(101, "interval", pairs=3000)
    assert found.agrees and found.status in ("certified", "refuted")


@pytest.mark.slow
def test_verdicts_of_more_models_agree():
    found = [trial(index) for index in range(15, 106)]
    assert all(one.agrees for one in found)
    assert {one.status for one in found} >= {"certified", "refuted"}


PUBLIC = Path("board/trained/dimopep_140p.py")  # rotary, norms of queries and keys, a gated MLP


def test_the_public_model_of_140_parameters_is_certified_with_rounding(shared_dir: Path):
    if not (shared_dir / PUBLIC).exists():
        pytest.skip("needs the public submissions")
    found = interp.certify(models.load(shared_dir / PUBLIC, trust="unconfined"))
    assert (found.status, found.arithmetic, found.open) == ("certified", "float32", 0)
    assert 0.29 < found.lower_bound < found.smallest_margin < 1.52


def test_verdicts_near_the_public_model_agree_with_the_models(shared_dir: Path):
    if not (shared_dir / PUBLIC).exists():
        pytest.skip("needs the public submissions")
    met, public = [], models.load(shared_dir / PUBLIC, trust="unconfined")
    for seed, noise in enumerate((1e-4, 1e-3, 3e-3, 1e-2, 3e-2)):
        model = copy.deepcopy(public)
        perturb(model, noise, "none", seed)
        found = interp.certify(model, arithmetic="interval", tolerance=None)
        pairs = random_pairs(2000, seed)
        wrong = (predict(model, pairs) != model.task.targets(pairs)).any(1)
        assert not (found.status == "certified" and wrong.any()), noise
        if found.status == "refuted":
            assert found.counterexample is not None
            assert_answered_so(found.counterexample, model)
        met.append(found.status)
    assert "certified" in met or "refuted" in met, met


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("microadder-74", {"attn_softmax": "softmax1"}),
        ("microadder-74", {"attn_bias": True}),
        ("microadder-74", {"layer_mix": True}),
        ("arc-decoder-16", {"rotary_dim": 2}),
        ("arc-decoder-16", {"rotary_frequencies": (1.0, 0.5)}),
    ],
)
def test_a_switch_that_the_certifier_does_not_know_is_refused(name, switch):
    model = zoo(name)
    config = replace(model.config, **switch)
    with pytest.raises(UserError):
        read_adder(ArithmeticTransformer(DenseWeights(config), model.task, name="switched"))


# ---- refuted and undecided


def test_a_refutation_is_a_problem_that_the_model_gets_wrong(rounded_to_bfloat16):
    found = interp.certify(rounded_to_bfloat16)
    assert found.status == "refuted" and found.failing >= 1 and found.counterexample is not None
    assert_answered_so(found.counterexample, rounded_to_bfloat16)
    assert found.provenance.strength == "sampled"
    check_certificate(found, rounded_to_bfloat16)


@pytest.mark.slow
def test_weights_beyond_the_bounds_on_rounding_are_undecided():
    """The same function over the reals, with values 2^13 times larger: certified there, and never with rounding."""

    def inflate(weights):
        weights["blocks.0.attn.W_V"] *= 2.0**13
        weights["blocks.0.attn.W_O"] *= 2.0**-13

    model = dense("microadder-74", inflate)
    found = interp.certify(model)
    assert (found.status, found.open) == ("undecided", 3442) and found.obstacle and found.reals is not None
    assert found.reals.open == 0 and 0 < found.reals.lower_bound <= found.smallest_margin + 1e-3
    with pytest.raises(UserError, match="claims nothing"):
        check_certificate(found, model)


# ---- certificates on disk


def test_a_certificate_survives_its_file_and_is_checked_again(certified, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certified.to_dict()))
    again = load_certificate(path)
    assert again.to_dict() == certified.to_dict() and again.cuts == certified.cuts
    assert again.classes.identical(certified.classes)
    assert json.loads(path.read_text())["fingerprint"] == certified.fingerprint
    with pytest.raises(UserError, match="other weights"):
        check_certificate(again, zoo("microadder-67"))


def test_a_certificate_of_weights_one_bit_away_is_refused(certified):
    def nudge(weights):
        w = weights["blocks.0.mlp.W_in"]
        w[0, 0] = torch.nextafter(w[0, 0], torch.tensor(float("inf")))

    with pytest.raises(UserError, match="other weights"):
        check_certificate(certified, dense("microadder-74", nudge))


def broken(certificate: Verdict, how: str) -> Verdict:
    classes = certificate.classes.copy(deep=True)
    if how == "a class dropped":
        return certificate.replace(classes=classes.isel(input_class=slice(1, None)), cuts=certificate.cuts[1:])
    if how == "an answer changed":
        classes.answer.values[77] = (int(classes.answer[77]) + 1) % 10
        return certificate.replace(classes=classes)
    if how == "a bound raised":
        classes.proved.values[3000] *= 1.2  # a tenth is kept back
        return certificate.replace(classes=classes)
    if how == "a bound lost":
        classes.proved.values[3000] = float("nan")
        return certificate.replace(classes=classes)
    if how == "a margin raised":
        classes.margin.values[classes.margin.values.argmin()] += 5
        return certificate.replace(classes=classes)
    if how == "another witness":
        classes.a.values[50] = (int(classes.a[50]) + 7) % 10**10
        return certificate.replace(classes=classes)
    raise AssertionError(how)


TAMPERINGS = ("a class dropped", "an answer changed", "a bound raised", "a bound lost", "a margin raised")
TAMPERINGS += ("another witness",)


@pytest.mark.parametrize("how", sampled(TAMPERINGS, "an answer changed"))
def test_a_tampered_certificate_does_not_hold(certified, how):
    with pytest.raises(UserError, match="does not hold"):
        check_certificate(broken(certified, how), zoo("microadder-74"))


@pytest.mark.slow
def test_a_proof_over_the_reals_does_not_pass_for_one_with_rounding():
    """Relabelled, with bounds that hold with float32's rounding too: but the model does not run in it."""
    model = dense("microadder-74").to(torch.float64)
    found = interp.certify(model, arithmetic="interval", tolerance=None)
    classes = found.classes.copy(deep=True)
    classes["proved"] = classes.proved * 0.01
    with pytest.raises(UserError, match="float32 rounding is bounded for float32 models"):
        check_certificate(found.replace(arithmetic="float32", classes=classes), model)


def test_damaged_files_are_refused(certified, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certified.to_dict()))
    value = json.loads(path.read_text())
    for change in ({"format": 9}, {"status": "proved"}, {"cuts": []}, {"classes": {}}):
        path.write_text(json.dumps(value | change))
        with pytest.raises(UserError, match="certificate"):
            load_certificate(path)


# ---- refusals


def infinite(weights):
    weights["unembed.W_U"][0, 0] = float("inf")


def not_a_number(weights):
    weights["blocks.0.attn.W_Q"][0, 0, 0] = float("nan")


@pytest.mark.parametrize("change", [infinite, not_a_number])
def test_weights_that_are_no_numbers_are_refused(change):
    with pytest.raises(UserError, match="not finite"):
        interp.certify(dense("microadder-57", change))


def test_what_cannot_be_judged_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="does not say which problems it has"):
        interp.certify(models.load("addlm-0.8m-float"))
    with pytest.raises(UserError, match="Did you mean 'interval'"):
        interp.certify(zoo("microadder-57"), arithmetic="intervall")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="has 14 tokens"):
        from models.tasks.named.addition import DelimitedAddition

        interp.certify(zoo("microadder-57"), task=DelimitedAddition())


def test_a_model_with_hooks_is_refused():
    model = models.load("microadder-57")
    model.blocks[0].hook_attn_out.add_hook(lambda value, hook: value * 0)
    with pytest.raises(UserError):
        interp.certify(model)


# ---- the command line and the picture


def test_the_command_line_says_the_verdict_and_exits_with_it(tmp_path: Path, capsys, rounded_to_bfloat16):
    path = tmp_path / "certificate.json"
    assert main(["certify", "microadder-74", "--arithmetic", "interval", "--json", str(path)]) == 0
    assert "certified in interval arithmetic: all 10^20 pairs" in capsys.readouterr().out
    assert main(["certify", "microadder-74", "--check", str(path)]) == 0
    assert capsys.readouterr().out.startswith("holds: certified")
    assert main(["certify", "microadder-67", "--check", str(path)]) == 2
    assert "other weights" in capsys.readouterr().err


def test_the_picture_has_every_position(certified):
    figure = certified.figure()
    assert list(figure.data[0].x) == [f"s{i}" for i in range(11)] + ["EOS"]
    assert np.nanmin(np.array(figure.data[0].z)) == pytest.approx(np.log10(certified.smallest_margin))
    assert len(certified.to_dataframe()) == 3442


def test_the_decision_function_says_what_the_model_says():
    """Each digit's lead at the s of a problem, and its range within what its class reaches."""
    model = zoo("microadder-67")
    found = decision_curves(model, target=5, token=3)
    assert found.inside == len(found.reached) == 38
    adder = read_adder(model)
    attention = read_ratio_attention(adder, REAL)
    query = WindowBounds(attention, adder.layout, 5, 3)
    pairs = random_pairs(300, seed=3)
    _, coords = attention_of(query, digits_of(pairs))
    for pair, s in zip(pairs.tolist(), coords[:, 0, 0].tolist(), strict=True):
        if sum(pair) // 10**4 % 10 != 3:
            continue
        _, _, carry, total = class_of(*pair, 5)
        row = found.reached[(found.reached.carry == carry) & (found.reached.total == total)].iloc[0]
        assert row.low <= s <= row.high
        lead = np.interp(s, found.lead.s, found.lead.sel(digit=sum(pair) // 10**5 % 10))
        assert lead == pytest.approx(margin_of(model, tuple(pair), 5), abs=1.0)  # curves bend between grid points
    drawn = [trace for trace in found.figure().data if trace.name == "where it is right" and trace.mode != "text"]
    assert len(drawn) == len(found.reached)
    with pytest.raises(UserError, match="No problem asks for target 11 after token 3"):
        decision_curves(model, 11, 3)
    with pytest.raises(UserError, match="writes along 3 directions"):
        decision_curves(models.load("adder-582"), 3, 1)


def test_a_certificate_of_an_earlier_versions_method_is_refused(certified, tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(certified.to_dict()))
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"method": "constant attention, rank 1"}))
    with pytest.raises(UserError):
        load_certificate(path)


@pytest.mark.slow
@pytest.mark.parametrize(("sharpness", "status"), [(0.1, "certified"), (0.01, "refuted")])
def test_an_adder_without_norms_is_judged(sharpness, status, tmp_path):
    """Five heads that nearly look at one key each, a rotary construction with a gain in place of the last norm."""
    path = tmp_path / "soft.py"
    path.write_text(HARD.replace("SHARP = 1000.0, 0.01, 64.0", f"SHARP = 1000.0, 0.01, {sharpness}"))
    model = models.load(path, trust="unconfined")
    found = interp.certify(model, arithmetic="interval")
    pairs = random_pairs(2_000, 0)
    right = (predict(model, pairs) == model.task.targets(pairs)).all(1)
    assert found.status == status
    if status == "certified":
        assert right.all() and found.smallest_margin > 0
    else:
        assert not right.all() and found.counterexample is not None


@pytest.fixture
def bounds() -> AccuracyBounds:
    refuted = stored_certificate("microadder-75")
    assert refuted is not None and refuted.accuracy is not None
    return refuted.accuracy


def test_a_certified_file_with_bounds_on_its_errors_is_no_certificate(certified, bounds, tmp_path):
    """A forged "wrong on at least 1.0" is not read."""
    path = tmp_path / "forged.json"
    value = certified.to_dict() | {"accuracy": bounds.to_dict() | {"wrong_at_least": 1.0}}
    path.write_text(json.dumps(value))
    with pytest.raises(UserError):
        load_certificate(path)


@pytest.mark.slow
def test_a_check_returns_no_forged_bounds(certified, bounds):
    assert check_certificate(certified.replace(accuracy=bounds), zoo("microadder-74")).accuracy is None


def test_a_certificate_of_another_task_does_not_hold(certified):
    with pytest.raises(UserError, match="is about 'subtraction'"):
        check_certificate(certified.replace(task="subtraction"), zoo("microadder-74"))


def test_bounds_that_say_nothing_are_not_a_sentence(bounds):
    counts = Counts((0,) * 11, (*(10**18,) * 10, 9 * 10**19 - 1), (0,) * 10 + (1,))
    found = replace(bounds, chains=counts)
    assert found.says_little and "%" not in found.wrong()
