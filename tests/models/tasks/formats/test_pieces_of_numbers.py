"""Formats in which a number is written in pieces, or the answer is several numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.tasks import formatted, machine_of
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.machines.machine import sequences
from models.tasks.task_definitions import task_of_text
from models.weight_maps.dense import DenseWeights

#: The definition, a problem as text, and its whole sequence as text.
WRITTEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "thousands": ({"format": "{a:3}+{b:3}={s:1},{t:3}", "answer": "a + b"}, "567+890", "567+890=1,457"),
    "dollars": (
        {"format": "${a:2}.{a:2}+${b:2}.{b:2}=${s:3}.{s:2}", "answer": "a + b", "variables": "addition"},
        "$16.25+$1.99",
        "$16.25+$01.99=$018.24",
    ),
    "a sign and an end": (
        {"format": "{a:2}.{a:1}-{b:2}.{b:1}={s:+2}.{s:1}<EOS>", "answer": "a - b", "variables": "subtraction"},
        "1.2-3.4",
        "01.2-03.4=-02.2<EOS>",
    ),
    "quotient and rest": (
        {"format": "{a:2}/{b:1}={q:2}r{r:1}", "answer": "a // b, a % b", "where": "b > 0"},
        "57/8",
        "57/8=07r1",
    ),
    "two in order": ({"format": "{a:1}:{b:1}={q:1},{r:1}", "answer": "min(a, b), max(a, b)"}, "7:4", "7:4=4,7"),
    "a scratchpad": (
        {
            "format": "{a:2}*{b:2}={x:3}+{y:4}={s:4}",
            "answer": ["a * (b % 10)", "a * (b // 10) * 10", "a * b"],
        },
        "57*48",
        "57*48=456+2280=2736",
    ),
    "base three": (
        {"format": "{a:2}.{a:2}+{b:2}={s:3}.{s:2}", "answer": "a + b", "base": 3},
        "8.8+8",
        "22.22+22=100.21",
    ),
    "max with a prefix": (
        {"format": "max({a:2},{b:2})={m:2}", "answer": "max(a, b)", "variables": "max"},
        "max(17,25)",
        "max(17,25)=25",
    ),
    "reversal": (
        {"format": "<rev>{a:3}={s:3}", "answer": "a % 10 * 100 + a // 10 % 10 * 10 + a // 100"},
        "123",
        "<rev>123=321",
    ),
    "by operator": (
        {"format": "{a:1}{op}{b:1}={q:1}r{r:1}", "answer": {"+": "(a + b) // 10, (a + b) % 10", "m": "min(a, b), a"}},
        "5m9",
        "5m9=5r5",
    ),
}


def made(name: str) -> FormattedTask:
    return formatted(**WRITTEN[name][0])


@pytest.mark.parametrize("name", WRITTEN)
def test_text_becomes_tokens_and_tokens_the_same_text(name: str):
    task, (_, problem, whole) = made(name), WRITTEN[name]
    tokens = torch.cat((task.encode_prompt([problem]), task.targets([problem])), 1)
    assert task.token_text(tokens[0]) == whole
    assert torch.equal(tokens[:, :-1], task.encode([problem]))
    prompt = task.token_text(task.encode_prompt([problem])[0])
    for text in (problem, whole, prompt) if task.base == 10 else (problem,):  # the text of a problem is in decimal
        assert torch.equal(task.as_problems([text]), task.as_problems([problem]))
    assert len(task.roles) == tokens.shape[1]


@pytest.mark.parametrize("name", [name for name in WRITTEN if name != "base three"])
def test_a_text_with_another_answer_is_refused(name: str):
    task, (_, _, whole) = made(name), WRITTEN[name]
    last = next(i for i in reversed(range(len(whole))) if whole[i].isdigit())
    wrong = whole[:last] + str((int(whole[last]) + 1) % task.base) + whole[last + 1 :]
    with pytest.raises(UserError, match="with its answer"):
        task.encode([wrong])


@pytest.mark.parametrize("name", WRITTEN)
def test_drawn_problems_are_read_back_from_their_text_and_decoded(name: str):
    task = made(name)
    problems = task.sample(50, torch.Generator().manual_seed(1))
    assert torch.equal(task.as_problems([task.problem_text(row) for row in task.numbers(problems)]), problems)
    spelt = [list(number) if isinstance(number, tuple) else number for number in task.decode(task.targets(problems))]
    assert spelt == task.answers(problems).tolist()
    again = formatted(**(task.definition or {}))
    assert torch.equal(again.encode(problems), task.encode(problems))
    assert (again.definition, again.parsed.ids) == (task.definition, task.parsed.ids)


def test_what_stands_within_an_answer_is_a_part_of_it():
    task = made("thousands")
    right = task.targets(["567+890"])
    wrong = right.clone()
    wrong[0, 1] = 0
    assert task.decode(right) == [1457] and task.decode(wrong) == [None]
    assert task.answer_text(right) == "1,457"


@pytest.mark.parametrize(
    "name", ["quotient and rest", "two in order", "a scratchpad", "by operator", "max with a prefix"]
)
def test_the_machine_has_every_problem_once(name: str):
    task = made(name)
    machine, problems = machine_of(task), task.domain.every()
    assert machine.count() == len(problems) and machine.checked_on is None
    assert torch.equal(machine.problems(machine.run(sequences(task, problems))), problems)


def test_the_carry_passes_through_the_point():
    task = made("dollars")
    machine = machine_of(task)
    assert (machine.state_name, max(machine.states), machine.count()) == ("carry", 2, 10**8)
    found = task.variables(["$16.25+$1.99"])
    assert found["carry_in"].tolist() == [[0, 1, 1, 0, 0]] and found["s"].tolist() == [[4, 2, 8, 1, 0]]
    assert machine_of(made("a sign and an end")).state_name == "borrow"


def test_numbers_of_an_answer_have_their_own_variables_and_columns():
    task = made("a scratchpad")
    found = task.variables(["57*48"])
    assert {name: found[name][0].tolist() for name in "xys"} == {"x": [6, 5, 4], "y": [0, 8, 2, 2], "s": [6, 3, 7, 2]}
    digits = [role for role in task.target_roles if role.kind == "answer"]
    assert [role.label for role in digits[:4]] == ["x2", "x1", "x0", "y3"] and digits[3].column == 3


def test_multiplication_and_max_are_families():
    product = formatted("{a:2}*{b:1}={s:3}", "a * b", variables="multiplication")
    found = product.variables(["57*8"])
    assert found["carry_out"].tolist() == [[5, 4, 0]] and found["digit_sum"].tolist() == [[56, 40, 0]]
    assert product.chain_length(["57*8", "10*1"]).tolist() == [2, 0]
    largest = formatted("{a:2}?{b:2}={s:2}", "max(a, b)", variables="max")
    assert largest.variables(["17?25"])["s"].tolist() == [[5, 2]]
    for answer, family in (("a + b", "multiplication"), ("min(a, b)", "max")):
        with pytest.raises(UserError, match="do not give the answers"):
            formatted("{a:2}*{b:2}={s:4}", answer, variables=family)


@pytest.mark.parametrize(
    "format, answer",
    [
        ("{a:2}+{a:2}={s:3}", "a"),  # two fields of one name with a sign of addition between them
        ("{a:2}+{b:2}={s:3}", "a"),  # b is no piece of the answer
        ("{a:2}.{a:2r}={s:4}", "a"),
        ("{a:2}.{b:2}.{a:2}={s:4}", "a + b"),
        ("{a:2}={s:1}.{s:+1}", "a"),
        ("{a:2}+{b:2}={s:1},{r:2}", "a + b, a"),  # the sum does not fit one digit
        ("{a:2}+{b:2}={s:3},{r:2}", "a, a"),  # no number is a function of b
        ("{a:2}={s:2},{r:2}", "a, a, a"),
        ("{a:2}={s:+2},{r:2}", "a, a"),  # the digits of several numbers have no sign in front
        ("{a:2}={s:2},{r:2}", []),
        ("{a:2}={s:2},{r:2}", {"+": []}),
    ],
)
def test_what_cannot_be_written_is_refused(format: str, answer):
    with pytest.raises(UserError):
        formatted(format, answer)


def test_an_operator_may_have_no_answer_where_another_one_has():
    task = formatted("{a:1}{op}{b:1}={s:+2}", {"+": "a + b", "/": "a // b"}, where={"/": "b > 0"})
    assert task.answers(["7/2", "7+0"]).tolist() == [3, 7] and task.domain.size == 190
    assert len(task.answers(task.domain.every())) == 190
    with pytest.raises(UserError):
        formatted("{a:1}{op}{b:1}={s:+2}", {"+": "a + b", "/": "a // b"})


def test_the_command_line_takes_an_answer_of_several_numbers():
    task = task_of_text("{a:2}/{b:1}={q:2}r{r:1}; a // b, a % b; where=b > 0")
    assert torch.equal(task.encode(["57/8"]), made("quotient and rest").encode(["57/8"]))


def test_a_model_takes_the_text_that_it_writes():
    for name, (_, problem, _) in WRITTEN.items():
        task = made(name)
        config = models.TransformerConfig(
            n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=0, d_vocab=task.d_vocab, n_ctx=task.input_length + 1
        )
        model = models.ArithmeticTransformer(DenseWeights(config), task)
        tokens = torch.cat((task.encode_prompt([problem]), task.targets([problem])), 1)
        for n in range(task.encode_prompt([problem]).shape[1] + 1, tokens.shape[1] + 1):
            assert torch.equal(model.to_tokens(model.to_string(tokens[:, :n])), tokens[:, :n]), name
        assert torch.equal(model.to_tokens(problem), tokens[:, :-1])


def test_numbers_of_an_answer_may_have_more_digits_together_than_int64_holds():
    task = formatted("{a:9}+{b:9}={x:10}>{y:9}>{z:9}", "a + b, a, b")
    answers = task.answers([(999_999_999, 1), (5, 7)])
    assert answers.tolist() == [[10**9, 999_999_999, 1], [12, 5, 7]]
    assert task.decode(task.targets([(5, 7)])) == [(12, 5, 7)]
    machine = machine_of(task)
    assert machine.count() == 10**18
