"""Induction: its problems, its answers, and what a run keeps of it."""

from __future__ import annotations

from itertools import permutations
from math import perm

import pytest
import torch

import models
from models.tasks import induction
from models.tasks.counter_rng import row_keys
from models.training.model_definition import task_of


def test_the_answer_follows_the_first_of_two():
    task = induction(6)
    assert [task.token_text(row) for row in task.targets(["abcdeb", "ponmlp", "gabhcb"])] == ["c", "o", "h"]
    assert task.variables(["abcdeb", "ponmlp"])["first"].tolist() == [[1], [0]]
    assert task.encode("abcdeb").tolist() == [[0, 1, 2, 3, 4, 1]]


@pytest.mark.parametrize("text", ["abcdef", "abcded"[:5] + "e", "aabcda", "abcabc", "abcde"])
def test_a_text_that_is_no_problem_is_refused(text: str):
    with pytest.raises(models.UserError):
        induction(6).encode(text)


def test_all_problems_are_those_that_the_rule_says():
    task = induction(4, tokens=5)
    said = {(*rows, rows[i]) for rows in permutations(range(5), 3) for i in (0, 1)}
    assert {tuple(row) for row in task.domain.every().tolist()} == said
    assert len(said) == task.domain.size == task.size == perm(5, 3) * 2
    for row, answer in zip(task.domain.every().tolist(), task.targets(task.domain.every())[:, 0].tolist(), strict=True):
        assert answer == row[row.index(row[-1]) + 1]


def test_each_problem_is_drawn_as_often_as_another():
    task = induction(4, tokens=5)
    keys = row_keys(0, 0, 24_000, torch.device("cpu"))
    uniform = {
        "sampled": task.sample(24_000, torch.Generator().manual_seed(0)),
        "drawn": task.uniform_by(lambda i: torch.rand(24_000, generator=torch.Generator().manual_seed(i))),
    }
    for rows in uniform.values():
        counts = rows.unique(dim=0, return_counts=True)[1]
        assert len(counts) == 120
        assert ((counts - 200) ** 2 / 200).sum() < 190  # chi squared with 119 degrees of freedom: p = 4e-5
    assert not task.held_out.holds(task.held_out.training(keys)).any()


def test_problems_of_long_strings_are_drawn_and_counted():
    task = induction(12)
    rows = task.held_out.training(row_keys(3, 5, 64, torch.device("cpu")))
    assert task.domain.holds(rows).all() and task.domain.size == 1_743_565_824_000
    assert induction(6).domain.size == 2_096_640


@pytest.mark.parametrize(("length", "tokens"), [(2, 16), (18, 16), (6, 5_000)])
def test_other_sizes_are_refused(length: int, tokens: int):
    with pytest.raises(models.UserError):
        induction(length, tokens)


def test_tasks_by_name_are_made_again_from_what_a_run_keeps():
    for task in (induction(5, 7), models.tasks.function("0123", 3, "sorted"), models.tasks.function("01", 5, "parity")):
        assert task.definition is not None
        again = task_of(task.definition)
        problems = task.sample(50, torch.Generator().manual_seed(0))
        assert again.name == task.name and torch.equal(again.targets(problems), task.targets(problems))
        assert again.held_out.problems.equal(task.held_out.problems)
    assert models.tasks.function("01", 5, lambda bits: bits.sum(1) > 2).definition is None
