"""What a verdict says, what it is about, and what it refuses: numbers on their safe side, altered models, files."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import json
import random
import re
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import interp
import models
from interp.cli import main, prove
from interp.proofs import check_certificate, load_certificate, schedule, stored_verdicts
from interp.proofs.certify import method_for, parse_certificate
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.class_prover import ClassProver
from interp.proofs.columns.column_evidence import PairEvidence
from interp.proofs.columns.column_method import RESERVE
from interp.proofs.hand_built.hand_built_method import HandBuiltEvidence, ProofStep
from interp.proofs.verdict import time_limit
from interp.proofs.verdict.method import METHODS, Outcome
from interp.proofs.verdict.verdict import Verdict
from interp.proofs.verdict.verdict_files import LARGEST_FILE, parse_verdict
from models.errors import UserError
from models.evaluation import predict
from models.number_format import p_cell, p_value, percent, shown, small
from studies.checkpoints import load_published
from tests.interp.proofs.conftest import certificate, dense, in_shape, zoo

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # a proof is some 10^6 calls
FAST = "microadder-74"


@cache
def certified() -> Verdict:
    found = stored_verdicts.stored_certificate(FAST)
    assert found is not None
    return found


@cache
def no_eos() -> Verdict:
    """The 67 with the position of its last digit moved: EOS alone is decided by it."""
    return interp.certify(model_without_eos(), arithmetic="interval")


@cache
def model_without_eos():
    model = models.load("microadder-67")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("z_hi"):
                parameter.zero_()
    return model


# ---- numbers on their safe side


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [(3.0662, "3.0", "3.1"), (0.94519, "0.94", "0.95"), (0.0059897, "0.0059", "0.0060"), (0.5, "0.50", "0.50")],
)
def test_bounds_of_the_published_models_are_written_on_their_safe_side(value, down, up):
    assert (shown(value), shown(value, up=True)) == (down, up)


@given(st.floats(1e-12, 1e6), st.integers(1, 6))
def test_no_number_is_written_beyond_its_bound(value, digits):
    low, high = read(shown(value, digits)), read(shown(value, digits, up=True))
    assert low <= Fraction(value) <= high and high - low <= Fraction(value) * Fraction(10) ** (1 - digits)


@pytest.mark.parametrize("seconds", [0.0, 12.34, 9e9])
def test_a_sentence_does_not_depend_on_the_clock(seconds: float):
    one = certified()
    assert one.replace(seconds=seconds).sentence() == one.sentence()


def test_proved_bounds_are_rounded_down_wherever_they_are_printed():
    one = certified().replace(classes=certified().classes.copy(deep=True))
    one.classes.proved.values[:] = 0.0059897
    assert numbers(one.finding())[-1] == 0.0059
    part = ProofStep("a step", 0.94599)
    built = Verdict(
        model="m",
        fingerprint="f",
        task="t",
        method="hand-built",
        status="certified",
        seconds=1.0,
        versions={},
        evidence=HandBuiltEvidence("all", (), "interval", (part,)),
    )
    assert 0.945 in numbers(built.sentence())


def numbers(text: str) -> list[float]:
    """The decimal numbers that are written."""
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


@pytest.mark.parametrize("value", ["x", [1], {}, None, True, 10**400, float("nan"), float("inf"), "9" * 5000])
@pytest.mark.parametrize("name", ["seconds", "versions", "status", "counterexample", "shape", "score", "smallest"])
def test_every_value_of_a_certificates_field_is_read_or_refused(name: str, value: object):
    file = Path(models.zoo.__file__).parent / "modular-addition-113-uniform" / stored_verdicts.FILE
    content = json.loads(gzip.decompress(file.read_bytes()))
    assert name in content and parse_certificate(json.dumps(content).encode(), file)
    with contextlib.suppress(UserError):
        parse_certificate(json.dumps(content | {name: value}).encode(), file)
    if name == "seconds":
        with pytest.raises(UserError):
            parse_certificate(json.dumps(content | {name: value}).encode(), file)


def test_shares_of_pairs_read_as_shares():
    assert percent(Fraction(1), up=True) == "100%" and percent(Fraction(1, 3)) == "33.3%"
    assert percent(Fraction(15, 10**5)) == "1.50 x 10^-4"


def read(text: str) -> Fraction:
    """The number that is written."""
    mantissa, _, exponent = text.partition(" x 10^")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def test_small_numbers_and_p_values_are_never_zero_or_in_e_notation():
    assert [small(x) for x in (4.2e-5, 1e-5, 0.0, 0.031, 12.0)] == ["4.2 x 10^-5", "1.0 x 10^-5", "0", "0.031", "12"]
    assert small(np.float32(0.25)) == "0.25" and small(np.float64("nan")) == "nan"
    assert small(9.996e-4, 1) == "0.001" and small(9.4e-8, 1) == "9 x 10^-8"
    assert [p_value(p) for p in (0.0, 9e-4, 0.001, 0.0314, 1.0)] == [
        "p < 0.001", "p < 0.001", "p = 0.001", "p = 0.031", "p = 1",
    ]  # fmt: skip
    assert [p_cell(p) for p in (9e-4, 0.0314)] == ["< 0.001", "0.031"]


# ---- EOS and digits


def test_a_wrong_eos_is_named_and_the_digits_are_judged_apart(published_checkpoint):
    """The published 226: all eleven digits of all pairs are right, EOS is not."""
    model = load_published(published_checkpoint("microadder_226p.pt"))
    found = interp.certify(model, arithmetic="interval", tolerance=None)
    assert (found.status, found.digits, found.exit_status) == ("refuted", "certified", 1)
    wrong = found.counterexample
    ((a, b),) = model.task.as_problems([wrong.problem]).tolist()
    assert wrong.target == "EOS" and int(wrong.predicted) == int(wrong.expected) == a + b
    assert int((~(found.classes.margin > 0)).sum()) == found.failing == 2
    assert set(found.classes.target.values[~(found.classes.proved.values > 0)].tolist()) == {11}
    digits = interp.certify(model, targets="digits")
    assert (digits.status, len(digits.cuts), digits.targets) == ("certified", 3440, "digits")
    assert 0.69 < digits.smallest_margin < 0.7 and digits.lower_bound < digits.smallest_margin
    assert check_certificate(digits, model).status == "certified"
    with pytest.raises(UserError):  # a proof of the digits is none of the whole answer
        check_certificate(digits.replace(targets="all"), model)


def test_a_wrong_digit_is_named_as_the_model_writes_it():
    def spoil(weights):
        weights["unembed.W_U"][:, 3] *= 1.02

    model = dense("microadder-67", spoil)
    found = interp.certify(model, arithmetic="interval", tolerance=None)
    assert found.status == "refuted" and found.digits == "refuted"
    wrong = found.counterexample
    ((a, b),) = model.task.as_problems([wrong.problem]).tolist()
    said, right = predict(model, [(a, b)], "greedy")[0].tolist(), model.task.targets([(a, b)])[0].tolist()
    first = next(i for i, (x, y) in enumerate(zip(said, right, strict=True)) if x != y)
    assert wrong.target == f"s{first}" and int(wrong.predicted) != int(wrong.expected) == a + b
    assert int(wrong.predicted) // 10**first % 10 == said[first]


def test_a_question_about_digits_is_for_ten_digit_adders():
    with pytest.raises(UserError):
        interp.certify(models.load("toygpt-learned-pre"), targets="digits")
    with pytest.raises(UserError):
        interp.certify(zoo(FAST), targets="EOS")


# ---- undecided


def test_published_75_and_133_are_certified_with_rounding(published_checkpoint):
    for size, smallest in ((75, 0.589), (133, 3.434)):
        found = interp.certify(load_published(published_checkpoint(f"microadder_{size}p.pt")))
        assert found.status == "certified" and found.smallest_margin == pytest.approx(smallest, abs=1e-3)
        assert found.lower_bound >= (1 - RESERVE) * 0.8 * smallest


@pytest.mark.slow
def test_time_that_is_up_leaves_classes_open():
    found = interp.certify(zoo(FAST), arithmetic="interval", minutes=1e-9)
    assert found.status == "undecided" and found.open == 3442 and found.obstacle
    for minutes in (0, -1.0, float("nan"), float("inf"), True):
        with pytest.raises(UserError):
            interp.certify(zoo(FAST), minutes=minutes)
    with pytest.raises(UserError):
        interp.certify(models.load("toygpt-learned-pre"), arithmetic="float", minutes=1e-9)
    time_limit.check_time()  # the limit went with its question


def test_a_proof_is_tried_for_a_limited_time_in_which_every_stored_one_was_made():
    for each in (interp.certify, prove.certify):
        assert inspect.signature(each).parameters["minutes"].default == time_limit.MINUTES
    files = list(Path(models.zoo.__file__).parent.glob(f"*/{stored_verdicts.FILE}"))
    taken = {path: json.loads(gzip.decompress(path.read_bytes()))["seconds"] for path in files}
    given = {
        path: models.zoo.read_entry(path.parent)["certificate"].get("minutes", time_limit.MINUTES) for path in files
    }
    assert len(taken) > 20 and all(2 * taken[path] <= 60 * given[path] for path in files)


@pytest.mark.slow
@pytest.mark.parametrize(("arithmetic", "tensor"), [("float32", "W_O"), ("interval", "W_in")])
def test_a_broken_model_of_many_layers_ends_when_the_time_is_up_and_says_what_is_left(arithmetic, tensor):
    model = models.load("toygpt-learned-pre").eval()
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if name.endswith(tensor)).mul_(1e3)
    start = time.monotonic()
    found = interp.certify(model, arithmetic=arithmetic, minutes=0.02)
    assert time.monotonic() - start < 60 and found.status in ("undecided", "refuted")
    assert found.status == "refuted" or found.obstacle


@pytest.mark.slow
def test_a_refuted_model_is_wrong_on_some_pair():
    found = interp.certify(model_without_eos(), arithmetic="interval", tolerance=1.0)
    assert found.status == "refuted" and found.accuracy.upper < 1


# ---- models that compute something else than their weights say


class Shifting(nn.Module):
    """A weight map whose weights differ from call to call."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.calls = inner, 0

    def __getattr__(self, name):
        return super().__getattr__(name) if name in ("inner",) else getattr(super().__getattr__("inner"), name)

    def forward(self, *args):
        self.calls += 1
        return {name: value * (1 + 1e-4 * self.calls) for name, value in self.inner(*args).items()}


def hooked(model):
    wrong = model.task.encode([(123, 456)])[0]

    def break_one(module, args, output):
        return torch.where((args[0] == wrong).all(-1)[:, None, None], -output, output)

    model.register_forward_hook(break_one)


def other_eps(model):
    model.ln_final.eps = 0.02


def training(model):
    model.train()


def replaced(model):
    forward = model.blocks[0].mlp.forward
    model.blocks[0].mlp.forward = lambda *args, **kwargs: forward(*args, **kwargs)


def shifting(model):
    model.weight_map = Shifting(model.weight_map)


@pytest.mark.parametrize("alter", [hooked, other_eps, training, replaced, shifting])
@pytest.mark.parametrize(
    "ask", [interp.certify, interp.accuracy_bounds, lambda model: check_certificate(certified(), model)]
)
def test_altered_models_are_refused(alter, ask):
    model = models.load(FAST)
    alter(model)
    with pytest.raises(UserError):
        ask(model)


def test_lower_precision_of_the_cpus_products_alone_is_refused():
    kernels = getattr(torch.backends.mkldnn, "matmul", None)
    if not hasattr(kernels, "fp32_precision"):
        pytest.skip("this version of torch has no such setting")
    before, kernels.fp32_precision = kernels.fp32_precision, "bf16"
    try:
        with pytest.raises(UserError):
            interp.certify(zoo(FAST), arithmetic="interval")
    finally:
        kernels.fp32_precision = before


def test_lower_precision_and_autocast_are_refused():
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(UserError):
            interp.certify(zoo(FAST), arithmetic="interval")
    finally:
        torch.set_float32_matmul_precision("highest")
    small = zoo("parity-coupling-1l4h-small")
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(UserError, match="autocast"):
            interp.certify(small, task=in_shape(small, 3), arithmetic="interval")
        with pytest.raises(UserError, match="autocast"):
            read_adder(zoo(FAST))


@pytest.mark.slow
def test_a_margin_below_what_was_proved_of_its_class_is_an_error(monkeypatch):
    """Whatever the guard does not know of: what runs must reach what was proved."""
    prove = ClassProver.prove_class

    def high(self, index, aim):
        proof = prove(self, index, aim)
        return replace(proof, lowest=proof.lowest + 1e3)

    monkeypatch.setattr(ClassProver, "prove_class", high)
    with pytest.raises(UserError):
        interp.certify(zoo(FAST), arithmetic="interval", tolerance=None)


@pytest.mark.slow
def test_margins_over_the_reals_are_those_of_the_reals():
    """In half precision the model computes another function than the one that is proved right."""
    model = models.load("adder-456").to(torch.float16)
    found = interp.certify(model, arithmetic="interval", tolerance=None)
    assert found.status == "certified" and found.lower_bound <= found.smallest_margin
    assert (found.classes.margin.values >= found.classes.proved.values - 1e-6).all()
    at = int(found.classes.margin.values.argmin())
    target, right = int(found.classes.target[at]), int(found.classes.answer[at])
    weights = {name: value.detach() for name, value in model.effective_weights().items()}
    leads = []
    for dtype in (torch.float64, torch.float16):
        own = {name: value.to(dtype) for name, value in weights.items()}
        row = model(model.task.encode([found.witness]), weights=own)[0, model.task.query_positions[target]].double()
        leads.append(float(row[right] - torch.cat((row[:right], row[right + 1 :])).max()))
    assert found.smallest_margin == pytest.approx(leads[0], abs=1e-9) != leads[1]


# ---- checks of what is printed


def changed(certificate: Verdict, how: str) -> Verdict:
    if how == "the model's name":
        return certificate.replace(model="gpt-9")
    if how == "problems counted":
        counts = list(certificate.counts)
        counts[7] = (counts[7][0] + 1, 0, 0)
        return certificate.replace(counts=tuple(counts))
    raise AssertionError(how)


@pytest.mark.parametrize("how", ["the model's name", pytest.param("problems counted", marks=pytest.mark.slow)])
def test_what_a_check_prints_was_compared(how):
    with pytest.raises(UserError):
        check_certificate(changed(certified(), how), zoo(FAST))


@pytest.mark.slow
def test_a_witness_of_a_larger_margin_does_not_hold():
    one = certified()
    classes = one.classes.copy(deep=True)
    # The smallest margin is taken from another class's witness, which is no problem of this class.
    row, other = int(classes.margin.values.argmin()), int(classes.margin.values.argmax())
    for name in ("a", "b", "margin"):
        classes[name].values[row] = classes[name].values[other]
    with pytest.raises(UserError):
        check_certificate(one.replace(classes=classes), zoo(FAST))


@pytest.mark.slow
def test_a_witness_of_its_class_with_a_larger_margin_does_not_hold():
    model = zoo("adder-456")
    hunted = certificate("adder-456", "float")
    row = int(hunted.classes.margin.values.argmin())
    a, b = int(hunted.classes.a[row]), int(hunted.classes.b[row])
    # Others of the same class: four low digits that carry nothing.
    low = torch.randint(5000, (300, 2), generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[a, b]]) - torch.tensor([[a % 10**4, b % 10**4]]) + low
    target, answer = int(hunted.classes.target[row]), int(hunted.classes.answer[row])
    assert (a % 10**4 + b % 10**4) < 10**4 and target > 5
    logits = model(model.task.encode(pairs))[:, model.task.query_positions[target]].detach()
    margins = logits[:, answer] - torch.cat((logits[:, :answer], logits[:, answer + 1 :]), 1).amax(1)
    best = int(margins.argmax())
    other = hunted.classes.copy(deep=True)
    other.a.values[row], other.b.values[row] = pairs[best].tolist()
    other.margin.values[row] = float(margins[best])
    assert float(other.margin.min()) > hunted.smallest_margin + 0.1
    with pytest.raises(UserError):
        check_certificate(hunted.replace(classes=other), model)
    check_certificate(hunted, model)


@pytest.mark.slow
def test_a_refutation_is_checked_answer_and_all():
    model, found = model_without_eos(), no_eos()
    assert found.status == "refuted"
    again = check_certificate(found, model)
    assert (again.status, again.counterexample) == (found.status, found.counterexample)
    wrong = found.counterexample
    assert wrong is not None
    for claim in (
        found.replace(counterexample=replace(wrong, predicted=f"{wrong.predicted}1")),
        found.replace(counterexample=replace(wrong, target="s3" if wrong.target != "s3" else "s4")),
        found.replace(counterexample=replace(wrong, problem="1+2")),
        found.replace(counterexample=replace(wrong, problem="no problem")),
        found.replace(counts=tuple((c, 0, a + b) for a, b, c in found.counts)),
        found.replace(accuracy=None if found.accuracy is None else replace(found.accuracy, method="by magic")),
    ):
        if claim.accuracy is None and found.accuracy is None and claim == found:
            continue
        with pytest.raises(UserError):
            check_certificate(claim, model)


# ---- files


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("certificates") / "c.json"
    path.write_text(json.dumps(certified().to_dict()))
    return path


@pytest.mark.parametrize(
    ("field", "value"), [("domain", "all numbers"), ("smallest_margin", 99.0), ("witness", [1, 2])]
)
def test_summaries_in_a_file_are_held_against_its_classes(written, tmp_path, field, value):
    text = json.loads(written.read_text())
    load_certificate(written)
    (tmp_path / "c.json").write_text(json.dumps(text | {field: value}))
    with pytest.raises(UserError):
        load_certificate(tmp_path / "c.json")


@pytest.mark.slow
def test_malformed_fields_give_one_sentence_each(written, tmp_path):
    """Every field, replaced by things of other types: an error of ours, or a certificate that can be printed."""
    value, rng = json.loads(written.read_text()), random.Random(0)
    things = [None, "x", -1, 2**70, 1.5, True, [], [1], {}, [[1]], {"a": 1}, "-1", [None], [["x"]]]
    path, refused = tmp_path / "c.json", 0
    for field in value:
        for thing in things:
            refused += _loads(path, value | {field: thing})
    for column, rows in value["classes"].items():
        for thing in things:
            changed_rows = list(rows)
            changed_rows[rng.randrange(len(rows))] = thing
            refused += _loads(path, value | {"classes": value["classes"] | {column: changed_rows}})
            refused += _loads(path, value | {"classes": value["classes"] | {column: thing}})
    assert refused > 300


def _loads(path: Path, value: dict) -> bool:
    path.write_text(json.dumps(value))
    try:
        found = load_certificate(path)
    except UserError:
        return True
    assert found.sentence() and found._repr_html_() and len(found.to_dataframe())
    return False


@pytest.mark.parametrize("name", ["exhaustive", "prefix tree", "hand-built"])
def test_malformed_files_of_other_ways_are_refused_too(name, tmp_path):
    if name != "hand-built":
        model, arithmetic = models.load("parity-coupling-1l4h-small"), "float" if name == "exhaustive" else "interval"
        found = interp.certify(model, arithmetic=arithmetic, task=in_shape(model, 3))
        assert found.method == name
    else:
        found = interp.certify(models.load("parity-hand-built"), task=in_shape(zoo("parity-hand-built"), 2))
    path = tmp_path / "c.json"
    path.write_text(json.dumps(found.to_dict()))
    value = json.loads(path.read_text())
    for field in value:
        for thing in (None, "x", -1, 1.5, [], [1], {}, [[1]], ["x"]):
            path.write_text(json.dumps(value | {field: thing}))
            try:
                again = load_certificate(path)
            except UserError:
                continue
            assert again.sentence() and again._repr_html_()


def test_fields_of_a_file_are_no_html(written):
    one = certified().replace(
        model="<script>alert(1)</script>", obstacle="<img src=x onerror=alert(1)>", status="undecided"
    )
    text = one._repr_html_()
    assert "<script" not in text and "<img" not in text and "&lt;img" in text


def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path):
    bomb = gzip.compress(b" " * (LARGEST_FILE + 2**20))
    assert len(bomb) < 2**20
    with pytest.raises(UserError):
        parse_verdict(bomb, "bomb")
    path = tmp_path / "c.json.gz"
    path.write_bytes(bomb[:-8])
    with pytest.raises(UserError):
        load_certificate(path)
    large = tmp_path / "c.json"
    with large.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(UserError):
        load_certificate(large)


# ---- the command line


@pytest.mark.slow
def test_samples_have_a_status_and_an_exit_code_of_their_own(capsys, tmp_path):
    assert main(["certify", FAST, "--arithmetic", "float", "--json", str(tmp_path / "c.json")]) == 4
    found = load_certificate(tmp_path / "c.json")
    assert (found.status, found.exit_status, found.provenance.strength) == ("sampled", 4, "sampled")
    assert main(["certify", FAST, "--check", str(tmp_path / "c.json")]) == 4
    assert "certified" not in capsys.readouterr().out
    value = json.loads((tmp_path / "c.json").read_text())["result"]["data"]
    (tmp_path / "c.json").write_text(json.dumps(value | {"status": "certified"}))
    with pytest.raises(UserError):
        load_certificate(tmp_path / "c.json")


def test_minutes_on_the_command_line():
    assert main(["certify", "addlm-adder-two-digit", "--minutes", "1e-9"]) == 3
    assert main(["certify", FAST, "--minutes", "-1"]) == 2


@pytest.mark.slow
def test_digits_only_on_the_command_line(tmp_path):
    path = tmp_path / "c.json"
    assert main(["certify", FAST, "--arithmetic", "float", "--digits-only", "--json", str(path)]) == 4
    found = load_certificate(path)
    assert isinstance(found.evidence, PairEvidence) and (found.targets, len(found.classes.target)) == ("digits", 3440)


@pytest.mark.parametrize("shape", [1_000_000_000, 5000, 10**18])
def test_huge_shapes_are_refused_before_they_are_laid_out(shape, capsys):
    assert main(["certify", "parity-coupling-1l4h-small", "--shape", str(shape)]) == 2
    assert "smaller shape" in capsys.readouterr().err


def test_a_name_that_is_registered_and_not_trained_says_how_to_train_it(capsys):
    assert main(["certify", "position-coupling-1l2h"]) == 2
    assert "interp train position-coupling-1l2h" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "doing"),
    [
        pytest.param((FAST, "--arithmetic", "interval"), "proving", marks=pytest.mark.slow),
        pytest.param(("adder-456", "--arithmetic", "float"), "running", marks=pytest.mark.slow),
        (("parity-hand-built", "--shape", "3"), "proving"),
        (("position-coupling-hand-built", "--shape", "2", "2"), "proving"),
        (("parity-coupling-1l4h-small", "--shape", "3"), "proving"),
        (("parity-coupling-1l4h-small", "--shape", "3", "--arithmetic", "float"), "running"),
    ],
)
def test_every_way_shows_how_far_it_is(arguments, doing, monkeypatch, capsys):
    monkeypatch.setattr(time_limit, "DELAY", 0)
    monkeypatch.setattr(time_limit, "LINE_DELAY", 0)
    monkeypatch.setattr(time_limit, "tqdm", lambda items, **kwargs: _bar(items, **kwargs))
    main(["certify", *arguments])
    assert doing in capsys.readouterr().err


def _bar(items, **kwargs):
    from tqdm import tqdm

    return tqdm(items, **(kwargs | {"disable": False, "file": sys.stderr}))


# ---- the registry of methods


@pytest.mark.slow
def test_every_stored_verdict_is_of_a_registered_method_and_is_written_as_it_was_read():
    seen = set()
    for name in models.zoo.zoo_names():
        if (found := stored_verdicts.stored_verdict(name)) is not None:
            seen.add(found.method)
            assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()
    assert seen <= set(METHODS) and len(seen) > 2


def test_a_method_of_ones_own_judges_what_no_other_can(monkeypatch: pytest.MonkeyPatch):
    evidence, model = certified().evidence, models.load("toygpt-learned-pre")
    own = replace(
        METHODS["exhaustive"], name="own", why_not=lambda _: None, run=lambda *_: Outcome("certified", evidence)
    )
    monkeypatch.setattr(schedule, "METHODS", {})
    with pytest.raises(UserError, match="cannot judge"):
        method_for(model, model.task)
    monkeypatch.setattr(schedule, "METHODS", {own.name: own})
    found = interp.certify(model)
    assert (found.method, found.status) == ("own", "certified") and found.evidence is evidence
