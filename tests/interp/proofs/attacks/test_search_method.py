"""What ``certify`` says of a model of three layers, which no proof reaches."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate, schedule
from interp.proofs.attacks.search_method import METHOD, search
from interp.proofs.listed import exhaustive
from interp.proofs.verdict.method import METHODS, Outcome, verdict_by
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import EndedBy
from interp.proofs.verdict.verdict import Verdict
from models import ArithmeticTransformer, UserError
from models.tasks import FormattedTask, formatted
from models.transformer.config import TransformerConfig
from models.weight_maps import DenseWeights

SUMS = formatted("{a:4}+{b:4}={s:5r}", "a + b")


def searched(model, reason, runs):
    """The verdict of a search alone."""
    subject = Subject(model)
    return verdict_by(METHOD.name, subject, search(subject, reason, runs=runs))


def random_model(task: FormattedTask = SUMS, bias: float = 0.0) -> ArithmeticTransformer:
    """Of three layers; ``bias`` is added to the logit of 0."""
    config = TransformerConfig(
        n_layers=3, d_model=8, n_heads=2, d_head=4, d_mlp=16, d_vocab=task.d_vocab, n_ctx=task.input_length
    )
    weights, generator = DenseWeights(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in weights.own().items():
            if name.rsplit(".", 1)[1].startswith("W_"):
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
            if name == "unembed.b_U":
                parameter.copy_(bias * (torch.arange(task.d_vocab) == 0))
    return ArithmeticTransformer(weights, task, name="of three layers")


def test_a_model_of_three_layers_that_is_wrong_is_refuted_by_a_problem_that_it_gets_wrong(tmp_path):
    model = random_model()
    found = interp.certify(model, minutes=0.02)
    assert found.status == "refuted" and found.exit_status == 1
    problem = SUMS.as_problems([found.counterexample.problem])
    said = models.evaluation.predict(model, problem, "greedy", 1, SUMS)
    assert not torch.equal(said, SUMS.targets(problem))
    (tmp_path / "x.json").write_text(json.dumps(found.to_dict()))
    again = load_certificate(tmp_path / "x.json")
    assert again.to_dict() == found.to_dict()
    assert check_certificate(again, model).status == "refuted"


def test_a_refutation_that_the_model_does_not_bear_out_is_no_certificate():
    model = random_model()
    found = searched(model, "a reason", 200)
    changed = found.replace(counterexample=replace(found.counterexample, predicted="12345"))
    with pytest.raises(UserError):
        check_certificate(changed, model)


def test_a_search_that_claims_more_than_a_wrong_answer_is_not_read():
    value = searched(random_model(), "a reason", 200).to_dict()
    for status in ("certified", "sampled", "conditional"):
        with pytest.raises(UserError):
            Verdict.from_dict(value | {"status": status, "counterexample": None})


def test_a_check_says_what_it_met_itself():
    model = random_model()
    found = searched(model, "a reason", 200)
    more = replace(found.attack, n_wrong=found.attack.n_wrong | {"attack": 1})
    again = check_certificate(found.replace(attack=more), model)
    assert again.finding() == found.finding() and again.to_dataframe().equals(found.to_dataframe())
    assert check_certificate(found.replace(attack=replace(found.attack, runs=0)), model).status == "refuted"


def test_what_a_search_does_not_find_is_undecided_with_the_reason_and_what_was_tried():
    model = random_model(formatted("{a:4}+{b:4}={s:1}", "0 * (a + b)"), bias=100.0)  # it always answers 0
    found = searched(model, "it has three layers", 400)
    assert found.status == "undecided" and found.counterexample is None and found.exit_status == 3
    assert found.reason == "it has three layers" and found.failures == 0 and found.tried > 100
    assert found.smallest_margin == found.to_dataframe()["attack"].min() > 50
    with pytest.raises(UserError, match="undecided"):
        check_certificate(found, model)
    assert json.loads(json.dumps(found.to_dict()))["status"] == "undecided"


def test_only_the_whole_answer_is_searched():
    with pytest.raises(UserError):
        interp.certify(random_model(), targets="digits")


def test_whether_all_problems_can_be_run_is_found_out_with_few_near_ties(monkeypatch):
    decoded = []
    again = exhaustive.predict
    monkeypatch.setattr(exhaustive, "predict", lambda *args: decoded.append(len(args[1])) or again(*args))
    model = random_model()
    assert not exhaustive.can_run_all(Subject(model), 0.02)
    assert sum(decoded) <= exhaustive.RUN_ALONE


def test_an_arithmetic_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match="arithmetic"):
        interp.certify(random_model(), arithmetic="float16", minutes=0.01)  # pyright: ignore[reportArgumentType]


BITS = formatted("{a}{b}{c}{d}{e}{f}{g}{h}=", "0 * (a + b + c + d + e + f + g + h)", base=2)


@pytest.fixture
def more_than_are_always_run(monkeypatch):
    """No method has a proof, and 2^8 problems are more than are always run."""
    monkeypatch.setattr(exhaustive, "LARGEST_SPACE", 2**7)
    only = {name: METHODS[name] for name in ("exhaustive", "search")}
    monkeypatch.setattr(schedule, "METHODS", only)
    monkeypatch.setitem(only, "exhaustive", replace(METHODS["exhaustive"], why_not=lambda _: "too many problems"))


@pytest.mark.usefixtures("more_than_are_always_run")
def test_many_problems_are_all_run_where_the_time_suffices():
    right = random_model(BITS, bias=100.0)
    found = interp.certify(right, minutes=1.0)
    assert (found.method, found.status, found.size, found.score.correct) == ("exhaustive", "certified", 2**8, 2**8)
    assert check_certificate(found, right).score.correct == 2**8
    assert interp.certify(right, minutes=1e-6).method == "search"
    assert interp.certify(right, arithmetic="interval").method == "search"
    wrong = interp.certify(random_model(BITS, bias=-100.0), minutes=1.0)
    assert (wrong.method, wrong.status) == ("search", "refuted")


def test_few_problems_of_which_classes_stay_open_are_all_run(monkeypatch):
    task = formatted("{a:3}+{b:2}={s:1}", "0 * (a + b)")
    config = TransformerConfig(
        n_layers=1,
        d_model=8,
        n_heads=2,
        d_head=4,
        d_mlp=16,
        d_vocab=task.d_vocab,
        n_ctx=task.input_length,
        normalization_type=None,
    )
    model = ArithmeticTransformer(DenseWeights(config), task, name="constant")
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():  # pyright: ignore
            parameter.fill_(0.0)
            if name.endswith("b_U"):
                parameter.copy_(torch.arange(task.d_vocab) == 0)
    proved = interp.certify(model)
    assert (proved.method, proved.status) == ("finite machine", "certified")

    def left_open(ended):
        """The finite machine's method, whose proofs stay open."""
        return replace(METHODS["finite machine"], run=lambda *_: Outcome("undecided", proved.evidence, ended=ended))

    monkeypatch.setitem(METHODS, "finite machine", left_open(None))
    found = interp.certify(model)
    assert (found.method, found.status, found.score.correct) == ("exhaustive", "certified", 10**5)
    assert interp.certify(model, arithmetic="float32").status == "undecided"
    monkeypatch.setitem(METHODS, "finite machine", left_open(EndedBy.INTERRUPT))  # who ends it wants no more to begin
    assert (interp.certify(model).method, interp.certify(model).status) == ("finite machine", "undecided")
