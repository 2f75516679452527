"""Subtraction's training problems: those of addition, taken apart again."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

import models
from models.errors import UserError
from models.tasks import formatted
from models.training.ten_digit_problems import AdditionProblems, SubtractionProblems
from models.training.training_batches import require_problems_of

CPU, ROWS, SOURCE = torch.device("cpu"), 96, SubtractionProblems()


def test_a_borrow_stands_where_the_addition_carries():
    task = models.get_spec("subtractor-47").task()
    addition = models.get_spec("microadder-57").task()
    sums = AdditionProblems().draw(3, 5_000, 2_000, CPU)  # six digits: no sum has eleven
    borrows = task.variables(SOURCE.draw(3, 5_000, 2_000, CPU))["borrow_in"]
    assert torch.equal(borrows, addition.variables(sums)["carry_in"][:, :10])


def test_ten_digit_problems_are_uniform_where_a_is_at_least_b():
    plain = SubtractionProblems(carry_mix=None)
    a, b = torch.cat([plain.draw(seed, 60_000, 2_000, CPU) for seed in range(20)]).T
    assert (a >= b).all()
    # 25 equal rectangles' worth of probability: a / 10^10 squared and b / a are uniform and independent
    cells = 5 * ((a / 1e10) ** 2 * 5).long() + (b / (a + 1) * 5).long()
    assert chisquare(torch.bincount(cells, minlength=25).tolist()).pvalue > 1e-3


def test_a_task_with_wider_operands_is_drawn_without_the_native_sampler():
    wide = formatted("{a:12}-{b:12}={s:12}", "a - b", where="a >= b")
    assert SOURCE.native_batch(wide, torch.tensor([0]), 0, ROWS) is None


def test_another_arithmetic_is_refused():
    with pytest.raises(UserError):
        require_problems_of(models.get_spec("microadder-57").task(), SOURCE)
