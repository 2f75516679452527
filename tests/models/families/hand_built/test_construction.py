"""What all constructed models have in common: they decode to the right answer, and take the options that can be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import models
from models.errors import UserError

ADDITION, MULTIPLICATION, PARITY = "position-coupling-hand-built", "multiplication-hand-built", "parity-hand-built"


@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        *((ADDITION, {"max_operands": 4, "max_digits": 6}, shape) for shape in ((3, 2), (2, 6), (4, 3))),
        *((MULTIPLICATION, {"max_digits": 4}, shape) for shape in ((1, 1), (3, 2), (2, 4))),
        *((PARITY, {"max_bits": 40}, (bits,)) for bits in (1, 7, 40)),
    ],
)
def test_greedy_decoding_gives_the_answer_and_stops(name: str, size: dict[str, int], shape: tuple[int, ...]) -> None:
    model = models.build(name, **size)
    task = model.task.at(*shape)
    drawn = task.sample(200, torch.Generator().manual_seed(3))
    problems = torch.cat((drawn.amax(0, keepdim=True), drawn[:19]))  # all nines, or all ones, and others
    score = models.score(model, problems, method="greedy", task=task)
    assert score.correct == score.n == len(problems.unique(dim=0))  # a repeated one counts once
    assert not list(model.parameters()) and not model.state_dict()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (ADDITION, {"max_operand": 3}, f"no option of {ADDITION} 'max_operand'.*Did you mean 'max_operands'"),
        (ADDITION, {"max_operands": 0}, "max_operands must be an integer from 1 on, not 0"),
        (ADDITION, {"max_digits": 2.5}, "max_digits must be an integer"),
        (ADDITION, {"eta": 0.0}, "eta must be positive and finite"),
        (ADDITION, {"hidden": "papers"}, "no hidden 'papers'.*Did you mean 'paper'"),
        (ADDITION, {"last_next": "one"}, "no last_next 'one'"),
        (ADDITION, {"dtype": "float46"}, "no dtype 'float46'"),
        (ADDITION, {"max_operands": 9, "P2": 3}, "P2 must be at least 4"),
        (MULTIPLICATION, {"max_digits": 0}, "max_digits must be an integer from 1 on, not 0"),
        (MULTIPLICATION, {"eta": -1.0}, "eta must be positive and finite, not -1.0"),
        (MULTIPLICATION, {"dtype": "bfloat16"}, "bfloat16 does not hold the whole numbers up to 890"),
        (MULTIPLICATION, {"dtype": "float23"}, "Did you mean 'float32'"),
        (MULTIPLICATION, {"max_digit": 3}, "Did you mean 'max_digits'"),
        (PARITY, {"max_bits": True}, "max_bits must be an integer from 1 on, not True"),
        (PARITY, {"eta": float("inf")}, "eta must be positive and finite, not inf"),
        (PARITY, {"dtype": "float23"}, "Did you mean 'float32'"),
        (PARITY, {"max_bit": 3}, "Did you mean 'max_bits'"),
        ("microadder-57", {"max_digits": 3}, "no option of microadder-57 'max_digits'; there is none"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")  # users run without them
def test_options_that_cannot_be_right_are_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        models.build(name, **options)
