"""Pairs of problems: seeds, what is recorded and checked, the entry by name, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from models.errors import UserError
from models.tasks import (
    AdditionFormat,
    MultiOperandAddition,
    PairConstraint,
    ProblemPairs,
    TenDigitAddition,
    TwoDigitAddition,
    carry_pairs,
    chain_pairs,
    digit_pairs,
    formatted,
    pairs,
    problem_pairs,
    variable_pairs,
)
from models.tasks.named.shakespeare import CharacterLanguage
from models.tasks.paired.problem_pairs import KINDS
from tests.toy_task import ToyAddition

TEN, TWO = TenDigitAddition(), TwoDigitAddition()


# ---- seeds, the record and its check


def test_a_seed_gives_the_same_pairs_and_kinds_and_columns_of_one_seed_are_drawn_apart():
    one, again, other = (carry_pairs(TEN, 4, 64, seed) for seed in (7, 7, 8))
    assert torch.equal(one.clean, again.clean) and torch.equal(one.corrupted, again.corrupted)
    assert not torch.equal(one.clean, other.clean) and one.seed == 7
    columns = [carry_pairs(TEN, column, 64, 7, "made").clean % 10 for column in (4, 5)]
    assert (columns[0] == columns[1]).double().mean() < 0.5  # the units would be equal


@pytest.fixture
def recorded() -> ProblemPairs:
    return carry_pairs(TWO, 1, 8, 0)


def test_a_pair_is_there_once(recorded: ProblemPairs):
    with pytest.raises(UserError):
        recorded.select(torch.tensor([0, 1, 2, 3, 4, 5, 0, 1]))
    with pytest.raises(UserError):
        pairs(recorded.task, [(57, 48), (57, 48)], [(57, 43), (57, 43)])
    drawn = replace(recorded, clean=recorded.clean[[0, 0]], corrupted=recorded.corrupted[[0, 0]], changed={})
    assert len(drawn) == 2  # as of a small domain
    one_clean = pairs(recorded.task, [(57, 48), (57, 48)], [(57, 43), (57, 44)], target=0)
    assert len(one_clean) == 2


def test_what_is_recorded_and_promised_is_checked(recorded: ProblemPairs):
    assert recorded.check() is recorded
    changed = dict(recorded.changed)
    broken = {
        "two equal problems": replace(recorded, corrupted=recorded.clean),
        "in one order or the other": replace(
            recorded,
            clean=torch.cat((recorded.clean[:4], recorded.corrupted[:4])),
            corrupted=torch.cat((recorded.corrupted[:4], recorded.clean[:4])),
        ),
        "recorded as changed in 's'": replace(recorded, changed=changed | {"s": ~changed["s"]}),
        "'t' is only recorded": replace(recorded, changed=changed | {"t": changed["s"]}),
        "'s' is only computed": replace(recorded, changed={k: v for k, v in changed.items() if k != "s"}),
        r"8 of 8 pairs it does not hold that carry_in\[1\] is equal": replace(
            recorded, constraint=PairConstraint(keep=("carry_in[1]",))
        ),
        r"does not hold that carry_in\[0\] differs": replace(
            recorded, constraint=PairConstraint(differ=("carry_in[0]",))
        ),
        r"does not hold that carry_in\[0\] is 1 in the clean": replace(
            recorded, constraint=PairConstraint(values={"carry_in[0]": (1, 0)})
        ),
        "the answers are equal": replace(recorded, constraint=PairConstraint(answer="equal")),
    }
    for message, wrong in broken.items():
        with pytest.raises(UserError, match=message):
            wrong.check()


def test_pairs_can_be_exchanged_and_selected():
    pairs = chain_pairs(TEN, 6, 10, 0, (0, 3))
    swapped = pairs.swapped().check()
    assert torch.equal(swapped.clean, pairs.corrupted) and torch.equal(swapped.corrupted, pairs.clean)
    rows = torch.arange(10) % 3 == 0
    some = pairs.select(rows).check()
    assert torch.equal(some.clean, pairs.clean[rows]) and torch.equal(some.changed["s"], pairs.changed["s"][rows])
    assert not carry_pairs(TWO, 1, None).select(slice(0, 5)).exhaustive
    with pytest.raises(UserError, match="at least one"):
        pairs.select(slice(0, 0))


def test_pairs_made_by_hand_need_no_record():
    pairs = ProblemPairs(TWO, torch.tensor([[12, 34]]), torch.tensor([[12, 35]]), 0, "the units")
    assert pairs.check() is pairs and pairs.changed == {}
    differs = pairs.clean_tokens != pairs.corrupted_tokens
    assert differs.tolist() == [[False, False, False, True, True, False]]  # b0, which is read at the query of s0


# ---- two problems that a user types


def test_two_typed_problems_are_a_pair_about_the_first_digit_in_which_they_differ(without_shape_checks: None):
    for given in (
        ([(15, 27)], [(15, 22)]),
        (["15+27"], ["15+22"]),
        (torch.tensor([[15, 27]]), torch.tensor([[15, 22]])),
    ):
        found = pairs(TWO, clean=given[0], corrupted=given[1]).check()
        assert (len(found), found.target, found.clean.tolist()) == (1, 0, [[15, 27]])
        assert found.changed["carry_in"].tolist() == [[False, True, False]] and "15 + 27" in repr(found)
    assert pairs(TWO, [(15, 27)], [(15, 22)], target="s1").target == 1
    assert pairs(TWO, [(15, 27), (10, 20)], [(25, 27), (30, 20)]).target == 1  # the units never differ
    by_hand = ProblemPairs(TWO, [(15, 27)], [(15, 22)], 1, "the carry")  # type: ignore[arg-type]
    assert torch.equal(by_hand.clean, torch.tensor([[15, 27]]))


@pytest.mark.parametrize(
    "arguments",
    [
        ([(15, 27)], [(15, 27)]),
        ([(15, 27)], [(15, 22), (1, 2)]),
        ([(15, 27)], [(27, 15)]),  # in no digit
        ([(15, 27)], [(15, 270)]),
        ([(15, 27)], 5),
        ([], []),
        ([(15, 27)], [(15, 22)], "s7"),
        ([(15, 27)], [(15, 22)], 3),
        ([(15, 27)], [(15, 22)], -1),
    ],
)
def test_typed_pairs_that_make_no_sense_are_refused(arguments: Any, without_shape_checks: None):
    with pytest.raises(UserError):
        pairs(TWO, *arguments)


# ---- the entry


def test_every_kind_is_made_by_its_name():
    arguments: dict[str, dict[str, Any]] = {"variable": {"variable": "carry_in"}}
    difference = formatted("{a:4}-{b:4}={s:4}", "a - b", where="a >= b", variables="subtraction")
    for kind in KINDS:
        task = difference if "borrow" in kind else TEN
        pairs = problem_pairs(task, kind, column=3, n=5, seed=2, **arguments.get(kind, {}))
        assert len(pairs) == 5 and pairs.check() is pairs
    assert torch.equal(problem_pairs(TEN, "made carry", column=3, n=5).clean, carry_pairs(TEN, 3, 5, way="made").clean)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problem_pairs(TEN, "cary", column=3, n=5), "Did you mean 'carry'"),
        (lambda: problem_pairs(TEN, "carry", colunm=3, n=5), "Did you mean 'column'"),
        (
            lambda: problem_pairs(TEN, "made carry", column=3, n=5, way="passed"),
            "no argument of 'made carry' pairs 'way'",
        ),
        (lambda: problem_pairs(TEN, "variable", n=5), "need variable, column"),
        (lambda: carry_pairs(TEN, 0, 5), "columns 1 to 10"),
        (lambda: carry_pairs(TEN, 11, 5), "columns 1 to 10"),
        (lambda: carry_pairs(TEN, 1, 5, way="passed"), "columns 2 to 10"),
        (lambda: carry_pairs(TEN, 3, 0), "whole number from 1"),
        (lambda: carry_pairs(TEN, 3, "many"), "whole number from 1"),  # type: ignore[arg-type]
        (lambda: carry_pairs(TEN, 3, 5, way="pased"), "Did you mean 'passed'"),
        (lambda: carry_pairs(TEN, True, 5), "column"),
        (lambda: carry_pairs(MultiOperandAddition(), 1, 5), "variable_pairs takes any variable"),
        (lambda: carry_pairs(ToyAddition(), 1, 5), "variable_pairs takes any variable"),
        (lambda: digit_pairs(TEN, 10, 5), "columns 0 to 9"),
        (lambda: chain_pairs(TEN, 3, 5, lengths=(0, 4)), "0 to 3 reach column 3"),
        (lambda: chain_pairs(TEN, 3, 5, lengths=(2, 2)), "Two different lengths"),
        (lambda: variable_pairs(TEN, "cary_in", 3, 5), "Did you mean 'carry_in'"),
        (lambda: variable_pairs(TEN, "carry_in", 11, 5), "past the last column"),
        (lambda: variable_pairs(TEN, "carry_in", (1, 3), 5), "has 1 axes"),
        (lambda: variable_pairs(MultiOperandAddition(), "carry_in", 3, 5), r"\(step, column\)"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["carry_inn"]), "Did you mean 'carry_in'"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s[x]"]), "not an index"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s[1,2]"]), "2 indices"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s[40:]"]), "past the last column"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s[4:2]"]), "ends before it starts"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s[2:2]"]), "has no column in it"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, keep=["s["]), "names no variable"),
        (lambda: variable_pairs(TWO, "carry_in", 1, 5, keep=["a", "b"]), "No pair differs"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, target=12), "no target 12"),
        (lambda: variable_pairs(TEN, "carry_in", 3, 5, answer="other"), "rule for the answer"),
        (
            lambda: variable_pairs(MultiOperandAddition(format=AdditionFormat(zero_padding=False)), "a", (0, 0), 5),
            "no fixed places",
        ),
        (lambda: ProblemPairs(TWO, torch.tensor([[1, 2]]), torch.tensor([[1, 2], [3, 4]]), 0, "x"), "as many"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, message: str, without_shape_checks: None):
    with pytest.raises(UserError, match=message):
        make()


def test_a_text_task_has_no_digits_to_pair():
    with pytest.raises(UserError):
        variable_pairs(CharacterLanguage(), "x", 0, 5)
