"""A verdict is about the task's own answer, keeps what it found when its time ends, and says what is in its way."""

import json
from dataclasses import replace

import pytest
import torch

import interp
import models
from interp.compare.certified_circuits import NO_EDGES
from interp.proofs import certify, check_certificate, load_certificate
from interp.proofs.certify import method_for
from interp.proofs.columns import column_method, per_operator
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.digit_layout import read_layout
from interp.proofs.listed import exhaustive
from interp.proofs.listed.exhaustive import certify_exhaustively
from interp.proofs.reading.unit_ranges import unit_ranges
from interp.proofs.verdict.method import CertifyOptions, Outcome
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import TimeUp
from interp.proofs.verdict.verdict import Verdict
from interp.proofs.verdict.verdict_files import parse_verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models.errors import UserError
from models.tasks import formatted, function
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.columns.columns_by_hand import by_hand

FORMAT, IDS = "{a:10r}+{b:10r}={s:11r}<EOS>", {**{str(d): d for d in range(10)}, "+": 0, "=": 0, "<EOS>": 0}


def sums(answer, **options):
    """Ten-digit sums in MicroAdder's format, with an answer of one's own."""
    return formatted(FORMAT, answer, vocabulary=IDS, name="sums", **options)


def adder_of(task) -> ArithmeticTransformer:
    return ArithmeticTransformer(models.load("microadder-57").weight_map, task).eval()


# ---- the task's answer


@pytest.mark.parametrize("answer", ["a + b", "b + a", "max(a, b) + min(a, b)", "(a + b) % 10**11"])
def test_a_sum_that_is_derived_is_certified(answer):
    assert read_layout(sums(answer)).rule.tried is None


@pytest.mark.parametrize(
    "planted",
    ["(a == b)", "(a == 0) * (b == 1234567890)", "(a // 9999999999) * (b == 0)", "(a + b == 7)", "(a < 2) * (b < 2)"],
)
def test_an_answer_that_differs_on_few_pairs_has_no_proof(planted):
    task = sums(f"a + b + {planted}")
    with pytest.raises(UserError):
        read_layout(task)
    for ask in (interp.decompile, unit_ranges, interp.accuracy_bounds):
        with pytest.raises(UserError):
            ask(adder_of(task))


def short_adder(digits: int, answer) -> ArithmeticTransformer:
    """An adder of few digits, set by hand, and an answer of one's own."""
    adder = by_hand(digits, subtracts=False)
    return ArithmeticTransformer(adder.weight_map, formatted(adder.task.format, answer), name="a short adder").eval()


@pytest.mark.parametrize(
    ("made", "planted"),
    [
        (lambda answer: short_adder(3, answer), "(a + b == 7)"),
        pytest.param(lambda answer: adder_of(sums(answer)), "(a == b)", marks=pytest.mark.slow),
        pytest.param(lambda answer: adder_of(sums(answer)), "(a + b == 7)", marks=pytest.mark.slow),
    ],
)
def test_an_adder_is_not_certified_for_a_sum_that_differs_on_few_pairs(made, planted):
    try:
        status = certify(made(f"a + b + {planted}"), arithmetic="interval", minutes=0.1).status
    except UserError:  # the machine alone takes longer, or the answer needs a larger memory
        status = "refused"
    assert status in ("refuted", "undecided", "refused")


def test_what_was_only_tried_is_conditional_and_every_claim_says_so(tmp_path):
    model = short_adder(2, lambda a, b: a + b)
    verdict = certify_one_layer(model, "interval")
    assert (verdict.status, verdict.exit_status) == ("conditional", 5)
    assert verdict.rule.tried >= 1000 and verdict.provenance.strength == "sampled"
    assert verdict.provenance.n == verdict.rule.tried
    (tmp_path / "verdict.json").write_text(json.dumps(verdict.to_dict()))
    stored = load_certificate(tmp_path / "verdict.json")
    assert check_certificate(stored, model).status == "conditional"
    found = interp.accuracy_bounds(model)
    assert found.provenance.strength == "sampled" and model.task.parsed.operand_fields[0].name in str(found)
    value = stored.to_dict()
    for change in ({"status": "certified"}, {"rule": value["rule"] | {"tried": None}}):
        with pytest.raises(UserError):
            Verdict.from_dict(value | change, "a file")


def test_a_function_that_differs_where_it_is_tried_has_no_proof():
    with pytest.raises(UserError):
        read_layout(sums(lambda a, b: a + b + (a == b)))


def test_a_replaced_method_of_a_task_leaves_nothing_derived():
    task = sums("a + b")
    task.targets = task.targets
    assert read_layout(task).rule.tried is not None
    parity = models.build("parity-hand-built")
    assert method_for(parity, parity.task).name == "hand-built"
    parity.task.targets = parity.task.targets
    assert method_for(parity, parity.task).name != "hand-built"


# ---- the time that is given


def bits(length: int, answer=lambda tokens: tokens.sum(1) % 2) -> ArithmeticTransformer:
    """An untrained model of strings of bits."""
    task = function("01", length=length, answer=answer)
    config = TransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=8, d_vocab=task.d_vocab, n_ctx=task.input_length
    )
    torch.manual_seed(0)
    return ArithmeticTransformer(DenseWeights(config), task).eval()


def ending_after(batches: int):
    """A loop of the certifier whose time is over after so many items."""

    def watched(items, *args, **options):
        for i, item in enumerate(items):
            if i == batches:
                raise TimeUp
            yield item

    return watched


def test_a_wrong_problem_in_hand_is_a_refutation_when_the_time_ends(tmp_path, monkeypatch):
    model = bits(11)
    whole = certify_exhaustively(model)
    monkeypatch.setattr(exhaustive, "watched", ending_after(2))
    found = certify_exhaustively(model)
    assert found.status == "refuted" and 0 < found.score.n < found.size == whole.score.n
    assert 0 < found.score.n - found.score.correct <= whole.score.n - whole.score.correct
    assert found.provenance.strength == "sampled"
    monkeypatch.undo()
    (tmp_path / "verdict.json").write_text(json.dumps(found.to_dict()))
    assert check_certificate(load_certificate(tmp_path / "verdict.json"), model).status == "refuted"


def test_the_end_of_time_is_no_verdict_where_nothing_is_wrong(monkeypatch):
    monkeypatch.setattr(exhaustive, "watched", ending_after(0))
    with pytest.raises(TimeUp):
        certify_exhaustively(bits(12))


def test_operators_judged_before_the_time_ended_refute(monkeypatch):
    """The first operator's verdict is kept when the second one's proof does not end."""
    model = models.load("mixed-ten-digits")
    refuted = replace(
        certify_one_layer(models.load("microadder-57"), "float", tolerance=None),
        status="refuted",
        counterexample=WrongAnswer("0+0", "1", "0", "s0"),
    )

    def prove(subject, claim, options):
        if subject.task.name.endswith("-"):
            raise TimeUp
        return Outcome("refuted", refuted.evidence, refuted.counterexample)

    monkeypatch.setattr(column_method, "prove", prove)
    monkeypatch.setattr(per_operator, "_counterexample", lambda *args: None)
    found = per_operator.prove(Subject(model), "float", CertifyOptions())
    assert found.status == "refuted" and list(found.evidence.parts) == ["+"]


def test_near_ties_of_a_refuted_model_are_decoded_in_batches(monkeypatch):
    model, alone = bits(12), []
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # every answer is an exact tie
    decode = exhaustive.predict

    def counted(model, problems, method, batch_size, task):
        alone.append(len(problems) if batch_size == 1 else 0)
        return decode(model, problems, method, batch_size, task)

    monkeypatch.setattr(exhaustive, "predict", counted)
    found = certify_exhaustively(model)
    assert found.near_ties == found.score.n == 4096
    assert sum(alone) < found.score.n / 2


# ---- what is in the way


def random_weights(task, **switches) -> ArithmeticTransformer:
    """A model of one layer (unless said) that was not trained."""
    shape = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 8} | switches
    config = TransformerConfig(**shape, d_vocab=task.d_vocab, n_ctx=task.input_length)
    torch.manual_seed(0)
    return ArithmeticTransformer(DenseWeights(config), task).eval()


BEYOND_COLUMNS = [
    ("{a:3r}+{b:3r}={s:4r}", {"act_fn": "gelu_new"}),
    ("{a:3r}+{b:3r}={s:4r}", {"d_mlp": 0}),
    ("{a:3r}+{b:3r}={s:4r}", {"parallel_attn_mlp": True}),
    ("{a:3}+{b:3}={s:4}", {"d_model": 16, "d_head": 16}),
    ("{a:4r}+{b:2r}={s:5r}", {"d_model": 16, "d_head": 16}),
]


@pytest.mark.parametrize(("task", "switches"), BEYOND_COLUMNS)
def test_what_one_method_does_not_know_is_left_to_the_proof_by_a_machine(task, switches):
    model = random_weights(formatted(task, "a + b"), **switches)
    assert method_for(model, model.task).name == "finite machine"


@pytest.mark.slow
@pytest.mark.parametrize(("task", "switches"), BEYOND_COLUMNS)
def test_what_one_method_does_not_know_the_proof_by_a_machine_judges(task, switches):
    found = certify(random_weights(formatted(task, "a + b"), **switches), minutes=0.5, exact_share=True)
    assert (found.method, found.status) == ("finite machine", "refuted")


@pytest.mark.parametrize(
    ("switches", "named"),
    [({"n_layers": 3}, "3"), ({"attn_top_k": 2}, "attn_top_k"), ({"dtype": "float64"}, "float32")],
)
def test_a_refusal_names_what_blocks_the_method_for_such_tasks(switches, named):
    with pytest.raises(UserError) as refusal:
        method_for(model := random_weights(sums("a + b"), **switches), model.task)
        certify(model, exact_share=True)  # a method finds on the way what it does not know
    assert named in str(refusal.value)


def test_the_circuit_without_edges_is_an_empty_tuple_and_a_model():
    task = formatted("{a}{b}=", "a * 0 + b * 0 + 1", base=3)
    config = TransformerConfig(
        n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=0, d_vocab=task.d_vocab, n_ctx=task.input_length,
        normalization_type=None, norm_placement="none", final_norm=False,
    )  # fmt: skip
    model = ArithmeticTransformer(DenseWeights(config), task).eval()
    with torch.no_grad():
        dict(model.weight_map.named_parameters())["unembed/b_U"][1] = 5.0
    found = interp.certified_circuits(model, constants="zero", n=9)
    assert found.minimal == ((),) and NO_EDGES in set(found.table["circuit"])
    assert certify(interp.circuit_as_model(model, found.minimal[0], "zero")).status == "certified"


# ---- files


def windows(value, path=()):
    """The paths of a file's numbers and texts, two of each list."""
    if isinstance(value, dict):
        for key in value:
            yield from windows(value[key], (*path, key))
    elif isinstance(value, list) and value:
        for index in {0, len(value) // 2}:
            yield from windows(value[index], (*path, index))
    else:
        yield path


def other(value):
    kinds = {
        bool: lambda: not value,
        int: lambda: value + 1,
        float: lambda: 1.5 * value + 0.1,
        str: lambda: f"{value}x",
    }
    return kinds.get(type(value), lambda: 7)()


@pytest.mark.parametrize("prove", [pytest.param(certify_exhaustively, marks=pytest.mark.slow), certify])
def test_every_field_of_a_file_is_checked_or_derived_again(prove):
    model = bits(2)
    whole = prove(model).to_dict()
    for path in windows(whole):
        altered = json.loads(json.dumps(whole))
        *above, last = path
        holder = altered
        for key in above:
            holder = holder[key]
        holder[last] = changed = other(holder[last])
        try:
            again = check_certificate(Verdict.from_dict(parse_verdict(json.dumps(altered).encode(), "a file")), model)
        except UserError:
            continue
        found = again.to_dict()
        for key in path:
            found = found[key]
        assert found != changed, path
