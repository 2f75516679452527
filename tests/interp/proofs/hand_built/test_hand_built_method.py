"""Hand-built models: proofs bound what the models compute, and weights that are off are refuted or left open."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
import models
from interp.cli import main
from interp.proofs import check_certificate, load_certificate
from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.hand_built.parity_proof import ParityProof
from interp.proofs.hand_built.sink_heads import SinkHead
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.evaluation import margins, predict
from models.tasks.named.position_coupling.parity import DOLLAR
from tests.interp.proofs.conftest import in_shape

pytestmark = pytest.mark.usefixtures("without_shape_checks")
ADDITION, PARITY = "position-coupling-hand-built", "parity-hand-built"


def changed(name: str, key: str, index, by: float, **options):
    """The construction with one weight moved."""
    model = models.build(name, **options)
    with torch.no_grad():
        model.weight_map.get_buffer(key.replace(".", "/"))[index] += by
    return model


def is_wrong_on(model, certificate: Verdict) -> bool:
    assert certificate.counterexample is not None
    text = certificate.counterexample.problem
    task = in_shape(model, *certificate.counterexample.shape)
    return not torch.equal(predict(model, [text], "greedy", 1, task), task.targets([text]))


# ---- what is proved


@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_parity_is_certified_for_all_strings(arithmetic):
    found = interp.certify(models.build(PARITY, max_bits=30), arithmetic=arithmetic)
    assert found.status == "certified" and len(found.parts) == 60 and found.open == 0
    assert 0.99 < found.smallest_margin <= 1
    strength = {"interval": "certified in intervals", "float32": "certified with rounding"}[arithmetic]
    assert found.provenance.strength == strength


@pytest.mark.parametrize("eta", [2.5, 4.0, 16.0])
@pytest.mark.parametrize("bits", [1, 2, 9])
def test_proved_margins_are_below_those_of_every_string_and_close(bits, eta):
    """Every string of this length, in the model's own float32 and in float64 with the same weights."""
    model = models.build(PARITY, max_bits=9, eta=eta)
    task = in_shape(model, bits)
    problems = task.domain.every()
    tokens, targets = task.encode(problems), task.targets(problems)
    weights = {key: value.detach().double() for key, value in model.effective_weights().items()}
    for arithmetic, given in ((FLOAT32, None), (REAL, weights)):
        proof = ParityProof(model, 9, arithmetic)
        with torch.no_grad():
            logits = model(tokens) if given is None else model(tokens, weights=given)
        lead = margins(logits[:, list(task.query_positions)], targets)
        for k in range(bits + 1):
            bound, measured = proof.margin(k, ends=k == bits), float(lead[:, k].min())
            assert bound <= measured + 1e-12
            if bits == 9:  # of shorter strings less leaks
                assert measured - bound < 10 * np.exp(-2 * eta) * bits + 0.01


def test_the_head_is_read_exactly():
    """Scores are integers times eta: a match ties with BOS, all else is two eta or more below."""
    model = models.build(PARITY, max_bits=9)
    weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
    head = SinkHead.read(weights, 11, DOLLAR, 1.0)
    for query in range(1, 11):
        for key in range(1, 11):
            gap = head.gap[query, key]
            assert isinstance(gap, Fraction) and (gap == 0) == (key == query + 1)
            assert gap == 0 or (gap <= -32 and gap % 32 == 0)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 4)])
def test_addition_is_certified_shape_by_shape(shape):
    model = models.build(ADDITION, max_operands=4, max_digits=4)
    one = interp.certify(model, task=in_shape(model, *shape))
    assert one.status == "certified" and len(one.parts) == 1 and one.smallest_margin > 0.8


def test_addition_is_certified_up_to_its_limits():
    found = interp.certify(models.build(ADDITION, max_operands=3, max_digits=4))
    assert found.status == "certified" and len(found.parts) == 12


# ---- what is not


@pytest.mark.parametrize(
    ("key", "index", "by"),
    [
        ("blocks.0.mlp.b_in", 1, 0.75),  # the exclusive or's second knot
        ("blocks.0.mlp.W_out", (1, 5), 1.5),
        ("unembed.b_U", 2, 1.5),  # "=" is said everywhere
        ("blocks.0.attn.W_K", (0, 1, 3), -2.0),  # BOS is no tie any more
        ("pos_embed.W_pos", (0, 3, 7), -2.0),  # id 3 is taken for another
    ],
)
def test_broken_parity_weights_are_refuted_by_a_string_that_is_wrong(key, index, by):
    model = changed(PARITY, key, index, by, max_bits=6)
    found = interp.certify(model)
    assert found.status == "refuted" and found.open > 0 and is_wrong_on(model, found)
    assert found.provenance.strength == "sampled"
    check_certificate(found, model)


@pytest.mark.parametrize(("eta", "status"), [(0.5, "refuted"), (4.0, "certified")])
def test_a_temperature_too_small_is_refuted(eta, status):
    model = models.build(PARITY, max_bits=40, eta=eta)
    found = interp.certify(model)
    assert found.status == status
    if status == "refuted":
        assert is_wrong_on(model, found)


def test_where_leakage_may_matter_and_no_string_is_wrong_the_verdict_is_undecided():
    found = interp.certify(models.build(PARITY, max_bits=6, eta=1.55))
    assert found.status == "undecided" and found.exit_status == 3
    with pytest.raises(UserError, match="claims nothing"):
        check_certificate(found, models.build(PARITY, max_bits=6, eta=1.55))


@pytest.mark.parametrize(
    ("key", "index", "message"),
    [
        ("blocks.0.attn.W_Q", (0, 0, 0), "queries depend on the token"),
        ("blocks.0.attn.W_K", (0, 0, 0), "keys depend on the digit"),
        ("blocks.0.attn.W_V", (0, 8, 0), "values depend on the position"),
        ("pos_embed.W_pos", (0, 0, 8), "BOS has a position code"),
    ],
)
def test_weights_that_couple_bits_and_positions_are_not_proved(key, index, message):
    """However little: 2^-20."""
    model = changed(PARITY, key, index, 2.0**-20, max_bits=4)
    weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
    with pytest.raises(NotSeparated, match=message):
        SinkHead.read(weights, 6, DOLLAR, 1.0)
    with pytest.raises(NotSeparated, match=f"{key} is not what its options build"):
        ParityProof(model, 4, REAL)
    assert interp.certify(model).status == "undecided"


@pytest.mark.parametrize(("operands", "digits"), [(2, 2), (2, 6)])
def test_codes_that_wrap_around_are_refuted(operands, digits):
    """l + 1 = 2^P1: the next code of the last id is that of the delimiters."""
    assert (digits + 2).bit_count() == 1
    model = models.build(ADDITION, max_operands=operands, max_digits=digits, last_next="paper")
    found = interp.certify(model, arithmetic="interval", task=in_shape(model, operands, digits))
    assert found.status == "refuted"
    assert is_wrong_on(model, found)
    repaired = models.build(ADDITION, max_operands=operands, max_digits=digits)
    assert (
        interp.certify(repaired, arithmetic="interval", task=in_shape(repaired, operands, digits)).status == "certified"
    )


def test_what_cannot_be_judged_is_refused():
    assert (
        interp.certify(models.build(PARITY), arithmetic="float").method == "exhaustive"
    )  # nothing is proved in floats
    with pytest.raises(UserError, match="bounded for float32 models"):
        interp.certify(models.build(PARITY, max_bits=4, dtype="float16"))
    assert (
        interp.certify(models.build(PARITY, max_bits=4, dtype="float16"), arithmetic="interval").status == "certified"
    )


# ---- files and the command line


def test_a_certificate_survives_its_file_and_is_checked_again(tmp_path):
    path, model = tmp_path / "certificate.json", models.build(PARITY, max_bits=5)
    found = interp.certify(model)
    path.write_text(json.dumps(found.to_dict()))
    again = load_certificate(path)
    assert again.to_dict() == found.to_dict() and again.parts == found.parts
    check_certificate(again, model)
    with pytest.raises(UserError, match="other weights"):
        check_certificate(again, changed(PARITY, "unembed.b_U", 0, 2.0**-20, max_bits=5))
    with pytest.raises(UserError, match="other weights"):
        check_certificate(again, models.build("microadder-57"))
    raised = replace(again.parts[3], margin=0.9999999)
    with pytest.raises(UserError, match="is not proved with that margin"):
        check_certificate(again.replace(parts=(*again.parts[:3], raised, *again.parts[4:])), model)
    value = json.loads(path.read_text())
    for change in ({"parts": []}, {"status": "proved"}, {"status": "refuted"}, {"arithmetic": "float"}):
        path.write_text(json.dumps(value | change))
        with pytest.raises(UserError, match="certificate"):
            load_certificate(path)


def test_the_command_line_says_the_verdict_and_exits_with_it(tmp_path: Path, capsys):
    path = tmp_path / "certificate.json"
    assert main(["certify", PARITY, "--shape", "12", "--json", str(path)]) == 0
    assert capsys.readouterr().out.startswith("certified with rounding: all strings of up to 12 bits")
    assert main(["certify", PARITY, "--check", str(path)]) == 0
    assert capsys.readouterr().out.startswith("holds: certified with rounding")
    assert main(["certify", ADDITION, "--shape", "2", "2", "--arithmetic", "interval"]) == 0
    assert "over the real numbers: all problems of 2 operands of up to 2 digits" in capsys.readouterr().out
    assert main(["certify", PARITY, "--shape", "101"]) == 2
    assert len(interp.certify(models.build(PARITY, max_bits=3)).figure().data[0].x) == 6
