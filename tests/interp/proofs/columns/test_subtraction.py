"""Subtraction, with a borrow for a carry: planted models, right and broken, against all pairs of few digits."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.checker_export import write_standalone
from interp.proofs.columns.column_classes import all_classes
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.digit_layout import read_layout
from interp.proofs.listed import prefix_method
from interp.proofs.reading.decompile import SIGNED, SUBTRACTION, prove_program
from interp.proofs.stored_verdicts import stored_certificate
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.evaluation import margins
from models.tasks.formats.formatted_task import FormattedTask
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.interp.proofs.columns.columns_by_hand import VALUE, Weights, by_hand, column_task
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

TWO = ColumnRule(2, 2, subtracts=True)


def all_pairs(digits: int, ordered: bool = True) -> torch.Tensor:
    a, b = (x.reshape(-1) for x in torch.meshgrid(*[torch.arange(10**digits)] * 2, indexing="ij"))
    return torch.stack((a, b), 1)[a >= b] if ordered else torch.stack((a, b), 1)


@torch.inference_mode()
def leads(model: ArithmeticTransformer, pairs: torch.Tensor) -> torch.Tensor:
    """[n, target]: the right tokens' leads, run through the model."""
    found = []
    for batch in pairs.split(4096):
        logits = model(model.task.encode(batch))[:, list(model.task.query_positions)]
        found.append(margins(logits, model.task.targets(batch)))
    return torch.cat(found)


def noisy(
    seed: int, digits: int = 2, noise: float = 0.02, subtracts: bool = True, signed: bool = False
) -> ArithmeticTransformer:
    def change(weights: Weights) -> None:
        generator = torch.Generator().manual_seed(seed)
        for value in weights.values():
            value.mul_(1 + noise * torch.randn(value.shape, generator=generator))

    return by_hand(digits, subtracts, change, signed)


@cache
def certified() -> Verdict:
    return certify_one_layer(by_hand(2))


def keys_of(task: FormattedTask, pairs: torch.Tensor, target: int) -> dict[str, np.ndarray]:
    """What says which class each pair is in, written independently of the programme."""
    digits, (a, b) = task.parsed.operand_fields[0].width, pairs.numpy().T
    sign = -1 if "-" in task.format else 1
    power = 10 ** min(target, digits)
    low = a % power + sign * (b % power)
    total = a // 10**target % 10 + sign * (b // 10**target % 10) if target < digits else np.full(len(a), -1)
    token = task.encode(pairs).numpy()[:, task.query_positions[target]]
    return {"token": token, "carry": ((low < 0) | (low >= power)).astype(int), "total": total}


# ---- classes


@pytest.mark.parametrize(
    ("digits", "written", "end", "signed"),
    sampled(
        [(3, 3, ".", False), (2, 2, "", False), (2, 3, ".", False), (2, 3, "", False), (2, 3, ".", True)],
        (2, 2, "", False), (2, 3, ".", True),
    ),
)  # fmt: skip
def test_classes_hold_their_problems(digits: int, written: int, end: str, signed: bool):
    """The numbers of problems and the answers of all classes, and whose classes pairs are in, against all pairs."""
    task, pairs = column_task(digits, True, end, written, signed), all_pairs(digits, not signed)
    layout = read_layout(task)
    classes, targets = all_classes(layout), task.targets(pairs).numpy()
    own = classes.hold(np.broadcast_to(pairs.numpy(), (len(classes), *pairs.shape)))
    assert own.sum(1).tolist() == list(classes.numbers)
    for target in range(len(layout.queries)):
        frame = pd.DataFrame(keys_of(task, pairs, target) | {"answer": targets[:, target]})
        true = frame.groupby(["token", "carry", "total"]).agg(n=("answer", "size"), answer=("answer", "unique"))
        own = np.flatnonzero(classes.target == target)
        assert len(true) == len(own)
        for row in own:
            wanted = true.loc[classes.token[row], classes.carry[row], classes.total[row]]
            assert wanted.n == classes.numbers[row] and wanted.answer.tolist() == [classes.answer[row]]


# ---- verdicts


@pytest.mark.slow
def test_a_subtractor_of_ten_digits_is_certified_with_rounding():
    found = interp.certify(by_hand(10))
    assert found.status == "certified" and found.provenance.n == 50_000_000_005_000_000_000
    assert found.rule == ColumnRule(10, 10, subtracts=True) and len(found.classes.target) == 3230
    assert found.shares().certified.tolist() == [1] * 10


@pytest.mark.parametrize(
    ("digits", "noise", "kind"),
    sampled(
        [*product((2,), (5e-4, 5e-3, 2e-2), ("sum", "ordered", "signed")), (1, 5e-4, "ordered"), (1, 2e-2, "signed")],
        (1, 5e-4, "ordered"), (1, 2e-2, "signed"),
    ),
)  # fmt: skip
def test_verdicts_bounds_and_counts_are_those_of_all_pairs(digits: int, noise: float, kind: str):
    """Models with noise, all problems of which are run: what is proved of them is so, and shares are exact or hold."""
    subtracts = kind != "sum"
    model = noisy(3, digits, noise, subtracts, signed=kind == "signed")
    found, pairs = certify_one_layer(model, tolerance=0), all_pairs(digits, kind == "ordered")
    lead = leads(model, pairs)
    wrong = ~(lead > 0).all(1)
    assert found.status == ("refuted" if wrong.any() else "certified") and (noise < 1e-3) == (not wrong.any())
    for target in range(lead.shape[1]):
        frame = pd.DataFrame(keys_of(model.task, pairs, target) | {"lead": lead[:, target]})
        for key, rows in frame.groupby(["token", "carry", "total"]):
            names = zip(("target", "token", "carry", "total"), (target, *key), strict=True)
            (row,) = np.flatnonzero(np.logical_and.reduce([found.classes[name] == value for name, value in names]))
            right, failed, open_ = found.counts[row]
            assert right <= (rows.lead > 0).sum() and failed <= (rows.lead <= 0).sum()
            assert right + failed + open_ == len(rows)
            assert not found.classes.proved[row] > 0 or found.classes.proved[row] <= rows.lead.min()
    bounds = interp.accuracy_bounds(model, tolerance=0, arithmetic="float32")
    right = 1 - Fraction(int(wrong.sum()), len(wrong))
    assert bounds.lower <= right <= bounds.upper and float(bounds.width) < 0.02
    for target, (name, counts) in enumerate(bounds.targets.items()):
        failed = int((~(lead[:, target] > 0)).sum())
        assert name == f"s{target}" and counts.wrong[0] <= failed <= counts.wrong[0] + counts.open[0]
    chains = torch.bincount(model.task.chain_length(pairs), minlength=digits + 1)
    assert bounds.chains.sizes == tuple(chains.tolist())
    frame = bounds.to_dataframe()
    assert frame.pairs.iloc[0] == len(pairs) and {"borrow chain" if subtracts else "carry chain"} < {*frame.part}


def broken_value(weights: Weights) -> None:
    """The digit 7 of the first number alone counts for less than it should."""
    weights["embed.W_E"][7, VALUE] = 6.2


def broken_borrow(weights: Weights) -> None:
    """A borrow is noticed too late: at level -1.2 in place of -0.9 to 0."""
    weights["blocks.0.mlp.W_in"][2] -= 0.6


def broken_place(weights: Weights) -> None:
    """The second number's digit in one column is not seen."""
    weights["blocks.0.attn.W_Q"][1][5] = 0


@pytest.mark.parametrize("change", sampled([broken_value, broken_borrow, broken_place], broken_borrow))
def test_what_is_broken_in_one_place_is_refuted_by_a_pair_that_fails(change):
    model = by_hand(2, change=change)
    found = certify_one_layer(model)
    assert found.status == "refuted"
    ((a, b),) = model.task.as_problems([found.counterexample.problem]).tolist()
    assert a >= b and found.counterexample.predicted != str(a - b)
    assert check_certificate(found, model).counterexample == found.counterexample
    sampled = model.task.sample(4000, torch.Generator().manual_seed(0))
    wrong = float((~(leads(model, sampled) > 0).all(1)).double().mean())
    assert float(1 - found.accuracy.upper) - 0.03 <= wrong <= float(1 - found.accuracy.lower) + 0.03


def test_witnesses_are_problems():
    """Pairs with a < b are none: what a model answers there does not count."""
    assert certified().status == "certified" and (certified().classes.a >= certified().classes.b).all()


# ---- what is stored


def test_a_certificate_is_read_and_checked_again(tmp_path):
    found = certified()
    (tmp_path / "c.json").write_text(json.dumps(found.to_dict()))
    again = load_certificate(tmp_path / "c.json")
    assert again.to_dict() == found.to_dict() and again.rule == TWO
    assert check_certificate(again, by_hand(2)).status == "certified"
    with pytest.raises(UserError):
        check_certificate(again.replace(rule=ColumnRule(2)), by_hand(2))
    with pytest.raises(UserError):
        Verdict.from_dict(found.to_dict() | {"rule": ColumnRule(2).to_dict()})


def test_a_certificate_without_a_rule_is_one_of_ten_digit_sums():
    adder = stored_certificate("microadder-57")
    assert adder is not None and "rule" not in adder.to_dict()
    assert certified().to_dict()["rule"] == {"digits": 2, "written": 2, "subtracts": True, "base": 10}


def test_the_trained_subtractor_has_a_certificate():
    found = stored_certificate("subtractor-47")
    assert found is not None and found.status == "certified" and found.rule == ColumnRule(10, 10, subtracts=True)
    assert found.fingerprint == read_adder(models.load("subtractor-47")).fingerprint
    assert found.lower_bound > 1.9 and found.shares().certified.tolist() == [1] * 10


def test_the_independent_checker_is_given_no_subtractor(tmp_path):
    with pytest.raises(UserError, match="knows adders"):
        write_standalone(certified(), by_hand(2), tmp_path / "c.json")


def test_few_problems_with_many_prefixes_are_run(monkeypatch):
    """5,050 problems, 16,315 prefixes."""
    monkeypatch.setattr(prefix_method, "LARGEST_TREE", 10_000)
    found = interp.certify(by_hand(2))
    assert found.status == "certified" and found.method == "exhaustive"


# ---- programs


@pytest.mark.slow
@pytest.mark.parametrize(("program", "signed"), [(SUBTRACTION, False), (SIGNED, True)])
def test_a_certified_subtractor_is_its_program(program: str, signed: bool):
    found = interp.decompile(by_hand(4, signed=signed))
    made: dict = {}
    exec(found.program, made)
    assert found.program == program and found.gap > 0 and found.states == 19 + 19 * 2 * 19
    assert found.levels_of == "difference minus borrow"
    digits = lambda number: [number // 10**i % 10 for i in range(4)]  # noqa: E731
    for a, b in [(0, 0), (9999, 9999), (1000, 1), (5000, 4999), (7203, 6904), *[(0, 1), (3000, 9999)] * signed]:
        assert made["subtract"](digits(a), digits(b)) == digits(a - b) + [int(a < b)] * signed


@pytest.mark.parametrize(("was", "now"), [("0.45", "1.2"), ("0.45", "-0.2"), ("/ 10", "/ 4"), ("range(-9", "range(-8")])
def test_a_program_that_is_wrong_somewhere_is_not_proved(was: str, now: str):
    assert was in SUBTRACTION
    with pytest.raises(UserError):
        prove_program(SUBTRACTION.replace(was, now), TWO)


# ---- a search


def test_an_attack_finds_problems_of_the_domain():
    found = interp.attack(by_hand(4, change=broken_place), runs=100)
    assert found.wrong and all(wrong.problem[0] >= wrong.problem[1] for wrong in found.wrong)
