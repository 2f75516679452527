"""How far heads that see near ids alone generalise: what is counted, on a model that adds and on one that does not."""

from __future__ import annotations

import torch

import models
from interp.papers.position_coupling.near_ids import SQUARES, first_digits, right_at, show_near_ids
from models.tasks.multi_addition import MultiOperandAddition


def test_first_digits_are_those_of_the_last_two_running_sums():
    task = MultiOperandAddition(5, 3)
    problems = task.sample(50, torch.Generator().manual_seed(0))
    places = 10 ** torch.arange(3)
    numbers = (problems * places).sum(-1)  # units first
    expected = torch.stack((numbers[:, :-1].sum(1), numbers.sum(1)), 1) // 1000
    assert torch.equal(first_digits(task, problems), expected)


def test_problems_with_first_digits_that_training_has_not_are_counted_apart():
    model = models.build("position-coupling-hand-built", max_operands=6, max_digits=6)
    trained = MultiOperandAddition(4, 4)
    found = right_at(model, trained, 6, 40)
    assert found["right"] == 40 and 0 < found["new"] == found["new_right"] < 40
    assert right_at(model, trained, 4, 20)["new"] == 0  # nothing is new in the training range
    untrained = models.build("position-coupling-1l4h-ids40-window1-small", seed=0)
    assert right_at(untrained, trained, 6, 40)["right"] == 0


def test_the_page_says_the_median_of_the_seeds():
    rows = [
        {"arm": arm, "seed": seed, "size": size, "right": right, "new": 0, "new_right": 0}
        for arm, per_seed in (("all ids", (0, 0, 2)), ("ids at most 1 away", (90, 100, 40)))
        for seed, right in enumerate(per_seed)
        for size in SQUARES
    ]
    _, drawn, counted = show_near_ids({"rows": rows, "n": 100, "trained": 4})
    table = counted.tables[0]
    assert table["ids at most 1 away: right of 100, by seed"].tolist() == ["90, 100, 40"] * len(SQUARES)
    assert table["all ids: first digits as in training"][0].startswith("2 of 300")
    thick = [trace for trace in drawn.figures[0].data if trace.line.width == 4]
    assert [list(trace.y) for trace in thick] == [[0.0] * len(SQUARES), [0.9] * len(SQUARES)]
