"""Tasks with two answers, one of them rare: both are trained on equally often, and a score says its base rate."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from models.tasks import function
from models.tasks.counter_rng import row_keys


def share_of_yes(task, problems) -> float:
    return float((task.targets(problems) == task.vocabulary.index("1")).double().mean())


@pytest.mark.parametrize("length", [8, 24])  # a domain that is listed, and one that is drawn from
def test_training_and_validation_have_both_answers_equally_often(length: int):
    answer = "balanced" if length == 8 else lambda bits: (bits[:, :4] == 0).all(1)
    plain = function("()", length, answer)
    task = function("()", length, answer, balance=True)
    keys = row_keys(0, 0, 4000, torch.device("cpu"))
    assert abs(share_of_yes(task, task.held_out.training(keys)) - 0.5) < 0.03
    assert share_of_yes(plain, plain.held_out.training(keys)) < 0.1
    assert share_of_yes(task, task.held_out.validation(200, 0)) == 0.5
    assert torch.equal(task.held_out.problems, plain.held_out.problems)
    assert not task.held_out.holds(task.held_out.training(keys)).any()
    assert not task.held_out.holds(task.held_out.validation(200, 0)).any()
    assert torch.equal(task.held_out.training(keys)[:7], task.held_out.training(keys[:7]))


def test_what_has_no_two_answers_cannot_be_balanced():
    with pytest.raises(UserError, match="two values"):
        function("0123", 4, "max", balance=True)
    with pytest.raises(UserError, match="one of its two answers"):
        task = function("01", 4, lambda bits: bits.sum(1) > 9, balance=True)
        task.held_out.training(row_keys(0, 0, 4, torch.device("cpu")))


def test_a_score_says_how_often_the_more_common_answer_is_right():
    task = function("()", 8, "balanced", held_out=100)
    no = task.vocabulary.index("0")

    def never(tokens):
        return torch.nn.functional.one_hot(torch.full_like(tokens, no), task.d_vocab).float()

    score = models.score(never, task=task)
    assert score.base_rate == score.accuracy == 1 - share_of_yes(task, task.domain.every())  # it never had the split
    assert f"{100 * score.accuracy:.4g}%" in str(score).rpartition(";")[2]
    assert models.Score.from_dict(score.to_dict()) == score
    sums = models.score(models.load("adder-3-by-hand"))
    assert sums.base_rate is None and "base_rate" not in sums.to_dict()


def test_a_set_of_allowed_tokens_is_refused_with_what_can_be_asked():
    with pytest.raises(UserError, match="one right token"):
        function("()", 4, lambda x: torch.ones(len(x), 2, dtype=torch.bool))


def test_there_are_as_many_validation_problems_as_asked_for_where_the_seed_is_that_of_the_test_set():
    task = function("01", 24, "parity", seed=3)
    found = task.held_out.validation(200, 3)
    assert len(found) == 200 and not task.held_out.holds(found).any()
