"""Mixed addition and subtraction: the verdict is that of each operator, here of adders that read past the operator."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.columns.column_rule import column_rule
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.tasks.columns.column_places import column_places
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.interp.proofs.columns.columns_by_hand import by_hand

pytestmark = pytest.mark.usefixtures("without_shape_checks")
TOKENS = {**{str(digit): digit for digit in range(10)}, "+": 10, "=": 11, "-": 10, "&": 10}  # operators look the same


def mixed(second: str, answer: str, digits: int = 3) -> FormattedTask:
    """Addition, and a second operator."""
    return formatted(
        f"{{a:{digits}r}}{{op}}{{b:{digits}r}}={{s:{digits + 1}r}}",
        {"+": "a + b", second: answer},
        vocabulary=TOKENS,
        where={second: "a >= b"} if second == "-" else None,
        variables={"+": "addition", second: "subtraction" if second == "-" else "addition"},
    )


def adder(task: FormattedTask) -> ArithmeticTransformer:
    return ArithmeticTransformer(by_hand(3, subtracts=False).weight_map, task, name="an adder by hand")


@cache
def certified() -> tuple[ArithmeticTransformer, Verdict]:
    model = adder(mixed("&", "a + b"))
    return model, interp.certify(model)


@cache
def refuted() -> tuple[ArithmeticTransformer, Verdict]:
    model = adder(mixed("-", "a - b"))
    return model, interp.certify(model, tolerance=None)


@pytest.mark.slow
def test_a_model_that_is_right_with_every_operator_is_certified_on_all_their_problems():
    model, found = certified()
    assert found.status == "certified" and found.provenance.n == model.task.domain.size == 2 * 10**6
    assert found.provenance.strength == "certified with rounding" and "+" in found.witness
    assert found.domain == "+ of all 10^6 pairs and & of all 10^6 pairs"
    assert found.smallest_margin == min(part.lower_bound for part in found.parts.values()) > 0


@pytest.mark.slow
def test_the_bounds_are_those_of_addition_alone_to_the_bit():
    alone = certify_one_layer(by_hand(3, subtracts=False))
    for part in certified()[1].parts.values():
        assert part.lower_bound == alone.lower_bound and part.classes.identical(alone.classes)


@pytest.mark.slow
def test_one_wrong_operator_refutes_by_a_problem_of_it_that_the_model_gets_wrong():
    model, found = refuted()
    assert (found.status, found.parts["+"].status, found.parts["-"].status) == ("refuted", "certified", "refuted")
    assert found.provenance.strength == "sampled"
    problem = model.task.as_problems([found.counterexample.problem])
    assert problem[0, 1] == 1 and int(found.counterexample.predicted) == int(problem[0, 0] + problem[0, 2])
    assert check_certificate(found, model).counterexample == found.counterexample


@pytest.mark.slow
def test_the_file_is_read_again_and_what_was_changed_in_it_is_refused(tmp_path):
    model, found = certified()
    (tmp_path / "c.json").write_text(json.dumps(found.to_dict()))
    again = load_certificate(tmp_path / "c.json")
    assert again.to_dict() == found.to_dict() and check_certificate(again, model).status == "certified"
    plus, other = found.parts["+"], found.parts["&"]
    for parts in ({"+": plus}, {"+": plus, "&": plus}, {"+": plus, "-": other}):
        with pytest.raises(UserError):
            check_certificate(found.replace(parts=parts), model)
    bad, wrong = refuted()
    with pytest.raises(UserError):
        check_certificate(wrong.replace(status="certified", counterexample=None), bad)


def test_each_operator_s_task_writes_the_same_sequences():
    task = mixed("-", "a - b", 10)
    for index, (operator, own) in enumerate(task.by_operator.items()):
        problems = own.sample(100, torch.Generator().manual_seed(0))
        whole = torch.stack((problems[:, 0], torch.full((100,), index), problems[:, 1]), 1)
        assert torch.equal(own.encode(problems), task.encode(whole))
        assert torch.equal(own.targets(problems), task.targets(whole))
        assert column_rule(column_places(own)).subtracts == (operator == "-")
    assert task.domain.size == sum(own.domain.size for own in task.by_operator.values())
    assert formatted("{a:2}+{b:2}={s:3}", "a + b").by_operator == {}


def test_a_rule_of_operator_and_numbers_at_once_has_no_parts():
    rule = formatted("{a:2}{op}{b:2}={s:3r}", {"+": "a + b", "-": "a - b"}, where="(op == 0) | (a >= b)")
    assert rule.by_operator == {}
    by_operator = formatted("{a:2}{op}{b:2}={s:3r}", {"+": "a + b", "-": "a - b"}, where={"-": "a >= b"})
    assert rule.domain.size == by_operator.domain.size == len(by_operator.domain.kept) == 10_000 + 5_050


@pytest.mark.parametrize("where", [{"*": "a >= b"}, {"-": "op == 1"}, {"-": "a > 99"}])
def test_rules_that_cannot_be_are_refused(where: dict[str, str]):
    with pytest.raises(UserError):
        task = formatted("{a:2}{op}{b:2}={s:3r}", {"+": "a + b", "-": "a - b"}, where=where)
        task.by_operator["-"]


def test_a_definition_with_rules_by_operator_makes_the_task_again():
    definition = mixed("-", "a - b").definition
    assert definition is not None and formatted(**definition).definition == definition


@pytest.mark.slow
def test_the_trained_model_of_ten_digits_is_certified_with_every_operator():
    found = interp.certify(models.load("mixed-ten-digits"))
    assert found.status == "certified" and found.provenance.n == 10**20 + (10**20 + 10**10) // 2
