"""Small domains: every problem is run, counted once, and the verdict is what the model says when asked alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
import models
from interp.cli import main
from interp.proofs import check_certificate, load_certificate
from interp.proofs.listed import exhaustive
from interp.proofs.listed.exhaustive import certify_exhaustively, listed_domain
from interp.proofs.verdict.time_limit import TimeUp, time_limit
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.evaluation import predict
from models.tasks import Multiplication, Parity, TenDigitAddition
from models.tasks.named.addition import TwoDigitAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.conftest import dense, in_shape, zoo
from tests.sampling import sampled

RIGHT = "addlm-adder-two-digit"
pytestmark = pytest.mark.usefixtures("without_shape_checks")  # twenty batches of one problem each, and more


@cache
def flipped():
    """The right model with one entry of a bias moved by one and a half times its smallest margin."""

    def nudge(weights):
        weights["unembed.b_U"] = weights.get("unembed.b_U", torch.zeros(10)).clone()
        weights["unembed.b_U"][3] += 1.5 * verdict_on("right").smallest_margin

    return dense(RIGHT, nudge)


def model_of(which: str):
    return zoo(RIGHT) if which == "right" else flipped()


@cache
def verdict_on(which: str) -> Verdict:
    return certify_exhaustively(model_of(which))


def parity_of(bits: int, nudge: float = 0.0):
    """The hand-built parity model as a plain one, with the "0" logit's bias moved."""
    built = models.build("parity-hand-built", max_bits=8)
    free = ArithmeticTransformer(DenseWeights(built.config), in_shape(built, bits), name="free parity")
    with torch.no_grad():
        weights = {key: value.clone() for key, value in built.effective_weights().items()}
        weights["unembed.b_U"][0] += nudge
        for key, parameter in free.weight_map.named_parameters():
            parameter.copy_(weights.get(key.replace("/", "."), torch.zeros_like(parameter)))
    return free


# ---- the space


def test_two_digit_pairs_are_numbered_like_numbers():
    task = TwoDigitAddition()
    assert task.domain.size == 10_000 and task.kind_of_problems == "pairs"
    assert torch.equal(task.domain.at(torch.arange(10_000)), task.domain.every())


@pytest.mark.parametrize(
    "task", [Parity(7), Multiplication(1, 2), Multiplication(2, 1), models.tasks.TwoDigitAddition()]
)
def test_every_problem_comes_once_and_is_one_of_the_task(task):
    numbers = task.numbers(task.domain.every())
    assert len(set(numbers)) == task.domain.size == len(numbers)
    drawn = task.numbers(task.sample(200, torch.Generator().manual_seed(0)))
    assert set(drawn) <= set(numbers)
    written = task.problem_text(numbers[-2])
    assert task.numbers(task.as_problems([written])) == [numbers[-2]]


def test_spaces_too_large_are_refused():
    with pytest.raises(UserError, match="about 10.20 pairs, and more than 1,048,576"):
        listed_domain(TenDigitAddition())
    with pytest.raises(UserError, match="16,777,216 strings of 24 bits.*a smaller shape may do"):
        listed_domain(Parity(24))
    assert listed_domain(Parity(20)).size == 2**20


# ---- verdicts


@pytest.mark.parametrize("which", sampled(["right", "flipped"], "flipped"))
def test_the_verdict_is_that_of_an_independent_enumeration(which):
    found, task = verdict_on(which), TwoDigitAddition()
    pairs = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    right = (predict(model_of(which), pairs) == task.targets(pairs)).all(1)
    assert right.all() == (which == "right")
    assert (found.score.n, found.score.correct) == (10_000, int(right.sum()))
    assert found.status == ("certified" if right.all() else "refuted")
    by_length = found.score.by_chain_length
    for length in range(3):
        rows = task.chain_length(pairs) == length
        assert (by_length[length].n, by_length[length].correct) == (int(rows.sum()), int(right[rows].sum()))
    assert found.provenance.strength == found.score.strength == "exhaustive"


def test_margins_are_the_models_and_none_is_smaller():
    found, model = verdict_on("right"), zoo(RIGHT)
    task = model.task
    with torch.no_grad():
        logits = model(task.encode(TwoDigitAddition().domain.every()))[:, list(task.query_positions)].double()
    right = task.targets(TwoDigitAddition().domain.every())
    lead = logits.gather(2, right[..., None])[..., 0]
    lead -= logits.scatter(2, right[..., None], -torch.inf).amax(2)
    assert found.smallest_margin == pytest.approx(float(lead.min()), abs=1e-4)
    a, b = (int(x) for x in found.witness.split(" + "))
    assert float(lead[100 * a + b].min()) == pytest.approx(found.smallest_margin, abs=1e-4)
    for target, label in enumerate(found.smallest.target.values):
        for token in found.smallest.token.values:
            rows, cell = right[:, target] == int(token), found.smallest.sel(target=label, token=token)
            assert int(cell.n) == int(rows.sum())
            if rows.any():
                assert float(cell.margin) == pytest.approx(float(lead[rows, target].min()), abs=1e-4)


def test_a_refutation_is_a_problem_that_the_model_gets_wrong_alone():
    found, model = verdict_on("flipped"), flipped()
    assert found.status == "refuted" and found.counterexample is not None
    a, b = (int(x) for x in found.counterexample.problem.split(" + "))
    said = model.task.decode(predict(model, [(a, b)], "greedy", 1))[0]
    assert str(said) == found.counterexample.predicted and said != a + b == int(found.counterexample.expected)


def test_a_tie_is_decoded_alone_and_counted():
    """At a nudge of 1, "0" ties with what is right; a hair beside it, each string is judged by itself."""
    fine = certify_exhaustively(parity_of(4))
    assert (fine.status, fine.near_ties, fine.open) == ("certified", 0, 0)
    assert fine.smallest_margin == pytest.approx(1.0, abs=1e-5)
    for nudge, status in ((0.9998, "certified"), (1.0002, "refuted")):
        model = parity_of(4, nudge)
        found = certify_exhaustively(model)
        task = model.task
        problems = task.domain.every()
        right = [torch.equal(predict(model, one, "greedy", 1), task.targets(one)) for one in problems.split(1)]
        assert found.near_ties > 0 and found.score.correct == sum(right)
        assert found.status == status


def test_logits_that_are_no_numbers_are_wrong_answers():
    model = parity_of(3, float("nan"))
    found = certify_exhaustively(model)
    assert found.status == "refuted" and found.score.correct == 0 and found.smallest_margin == -np.inf
    assert found.counterexample is not None and found.counterexample.predicted == "..."
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_a_trained_model_is_judged_in_the_shape_asked_for():
    model = zoo("parity-coupling-1l4h-small")
    found = interp.certify(model, task=in_shape(model, 5), arithmetic="float")
    assert found.shape == (5,) and found.score.n == 32


def test_a_model_with_hooks_is_refused():
    model = models.load(RIGHT)
    with (
        model.hooks(fwd_hooks=[("blocks.0.hook_attn_out", lambda value, hook: value * 0)]),
        pytest.raises(UserError),
    ):
        certify_exhaustively(model)


# ---- files, the command line, the picture


def test_a_certificate_survives_its_file_and_is_checked_again(tmp_path):
    path = tmp_path / "certificate.json"
    model = parity_of(5)
    found = certify_exhaustively(model)
    path.write_text(json.dumps(found.to_dict()))
    again = load_certificate(path)
    assert again.to_dict() == found.to_dict() and again.smallest.identical(found.smallest)
    assert again.score == found.score and again.shape == (5,)
    check_certificate(again, model)
    with pytest.raises(UserError, match="other weights"):
        check_certificate(again, parity_of(5, 1e-6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "undecided"}, "claims nothing"),
        ({"fingerprint": "0" * 64}, "other weights"),
        ({"near": 0.0, "smallest": "raised"}, "other margins"),
        ({"score": "fewer"}, "does not hold"),
    ],
)
def test_a_tampered_certificate_does_not_hold(tmp_path, change, message):
    path, model = tmp_path / "certificate.json", parity_of(4)
    path.write_text(json.dumps(certify_exhaustively(model).to_dict()))
    value = json.loads(path.read_text())
    if change.get("smallest") == "raised":
        value["smallest"]["rows"][0]["margin"] += 0.5
        change = {}
    if change.get("score") == "fewer":
        value["score"]["n"] = value["score"]["correct"] = 8
        change = {}
    path.write_text(json.dumps(value | change))
    with pytest.raises(UserError, match=message):
        check_certificate(load_certificate(path), model)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certify_exhaustively(parity_of(3)).to_dict()))
    value = json.loads(path.read_text())
    for change in ({"format": 9}, {"status": "refuted"}, {"score": {}}, {"smallest": {}}):
        path.write_text(json.dumps(value | change))
        with pytest.raises(UserError, match="certificate"):
            load_certificate(path)


def test_the_command_line_says_the_verdict_and_exits_with_it(tmp_path: Path, capsys):
    path = tmp_path / "certificate.json"
    name = "parity-coupling-1l4h-small"
    assert main(["certify", name, "--shape", "4", "--arithmetic", "float", "--json", str(path)]) == 0
    assert capsys.readouterr().out.startswith("certified exhaustively: all 16 strings of 4 bits, smallest margin")
    assert main(["certify", name, "--check", str(path)]) == 0
    assert capsys.readouterr().out.startswith("holds: certified exhaustively")
    assert main(["certify", "parity-coupling-1l4h-fire-small", "--check", str(path)]) == 2
    assert "other weights" in capsys.readouterr().err
    fire = "parity-coupling-1l4h-fire-small"  # whose biases no proof encloses
    assert main(["certify", fire, "--shape", "4", "--arithmetic", "interval"]) == 2
    assert "by running all problems" in capsys.readouterr().err
    assert main(["certify", name, "--shape", "4", "4"]) == 2
    assert "A shape of parity is 1 number, not (4, 4)" in capsys.readouterr().err
    assert main(["certify", "microadder-57", "--shape", "4"]) == 2
    assert main(["certify", "addlm-0.8m"]) == 2
    assert "does not say which problems it has" in capsys.readouterr().err


def test_the_picture_has_every_target_and_token():
    found = verdict_on("flipped")
    figure = found.figure()
    assert list(figure.data[0].x) == ["s0", "s1", "s2"] and list(figure.data[0].y) == [str(i) for i in range(10)]
    assert figure.data[1].name == "wrong"
    table = found.to_dataframe()
    assert list(table.n[:4]) == [10_000] * 4 and set(table.by) == {"all", "target", "chain length"}


# ---- near ties take long, as each is decoded alone


def all_tied(answer: int) -> ArithmeticTransformer:
    """A model of 256 strings of eight bits whose two logits are equal, so that greedy decoding answers 0; the right
    token is ``answer``, or with 2 the string's first bit."""
    right = lambda bits: bits[:, :1] if answer == 2 else torch.full_like(bits[:, :1], answer)  # noqa: E731
    task = models.tasks.function("01", 8, right, name="tied")
    config = TransformerConfig(
        n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=0, d_vocab=task.d_vocab, n_ctx=task.input_length
    )
    weights = DenseWeights(config)
    with torch.no_grad():
        for value in weights.own().values():
            value.zero_()
    return ArithmeticTransformer(weights, task, name="tied").eval()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many problems were decoded alone as near ties, one number for each call."""
    decoded: list[int] = []

    def counted(model, problems, method, batch_size, task):
        decoded.append(len(problems) if batch_size == 1 else 0)
        return predict(model, problems, method, batch_size, task)

    monkeypatch.setattr(exhaustive, "predict", counted)
    return decoded


def test_a_time_limit_holds_where_everything_is_a_near_tie(alone):
    """The clock is the number of problems that were decoded alone: of 256 some 60, and a batch more."""
    with pytest.raises(TimeUp), time_limit(1.0, lambda: float(sum(alone))):
        certify_exhaustively(all_tied(0))
    assert 60 < sum(alone) <= 60 + exhaustive.RUN_ALONE
    assert certify_exhaustively(all_tied(0)).score.correct == 256


@pytest.mark.parametrize(("answer", "correct"), [(1, 0), (2, 128)])
def test_near_ties_are_decoded_alone_until_one_is_wrong(answer, correct, alone):
    found = certify_exhaustively(all_tied(answer))
    assert found.status == "refuted" and found.score.n == 256 and found.score.correct == correct
    assert found.near_ties == 256 and sum(alone) < 256


def test_what_was_found_wrong_is_told_though_the_time_is_over(alone):
    """A clock that passes the limit once a near tie was decoded wrongly."""
    with time_limit(1.0, lambda: 100.0 * len(alone)):
        found = certify_exhaustively(all_tied(1), batch_size=64)
    assert found.status == "refuted" and found.score.n == 64 and found.score.correct == 0
