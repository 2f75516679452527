"""Right answers are counted stratum by stratum, and what they rest on is said."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import interp
import models
from interp.core.results import Provenance
from interp.probes.score import TAKEN, tabulated
from interp.probes.score_result import Scores, error_bound
from models.errors import UserError
from models.tasks.named.addition import TwoDigitAddition

ADDER = models.load("microadder-57")


class Flawed(models.ArithmeticTransformer):
    """The stored 57-parameter model, but its lowest digit is wrong where the first operand's is 3."""

    def forward(self, input, *args, **options):
        logits = super().forward(input, *args, **options)
        return torch.where((input[:, 0] == 3)[:, None, None], -logits, logits)


FLAWED = Flawed(ADDER.weight_map, ADDER.task, name="flawed")
PROBLEMS = [(first, second) for first in (13, 5, 7, 93) for second in range(10)]


def test_labels_of_ones_own_sort_the_problems_in_the_order_in_which_they_come():
    found = interp.score(FLAWED, problems=PROBLEMS, by={"unit": [str(first % 10) for first, _ in PROBLEMS]})
    assert found.to_dataframe()[["unit", "n", "correct"]].values.tolist() == [
        ["3", 20, 0],
        ["5", 10, 10],
        ["7", 10, 10],
    ]
    assert found.wrong == 20 and found.rate(unit="5").correct == found.rate(unit="7").n == 10
    assert found.table.wrong_example.values[0].startswith("13 + 0 = ") and found.table.wrong_example.values[1] == ""
    with pytest.raises(UserError):
        found.rate(unit="4")
    with pytest.raises(UserError):
        interp.score(FLAWED, problems=PROBLEMS, by={"unit": [1, 2]})


def test_a_repeated_problem_is_no_further_evidence_and_keeps_its_labels():
    problems = [PROBLEMS[0]] * 50 + [PROBLEMS[10]] * 50
    found = interp.score(FLAWED, problems=problems, by={"kind": [*["x"] * 50, *["y", "z"] * 25]}).to_dataframe()
    assert found[["kind", "n", "correct"]].values.tolist() == [["x", 1, 0], ["y", 1, 1], ["z", 1, 1]]
    assert interp.score(FLAWED, problems=problems).rate().n == 2
    with pytest.raises(UserError):
        interp.score(ADDER, problems=[(57, 48)] * 200)


@pytest.mark.parametrize("name", [*TAKEN, "target", ""])
def test_labels_cannot_have_the_name_of_a_column_of_the_result(name):
    with pytest.raises(UserError):
        interp.score(ADDER, problems=PROBLEMS, by={name: ["x", "y"] * 20})


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NA])
def test_a_missing_label_is_refused_and_not_dropped(missing):
    with pytest.raises(UserError, match="missing for 1 problems"):
        interp.score(ADDER, problems=PROBLEMS, by={"kind": [missing, *["x"] * 39]})
    with pytest.raises(UserError, match="missing for 1 problems"):
        interp.score(ADDER, problems=PROBLEMS, by={"kind": ["x"] * 40, "size": [*[1.5] * 39, missing]})


@pytest.mark.parametrize("name", ["kind", "table", "model", "chain_length", "digits", "series"])
def test_labels_of_any_other_name_sort_every_problem(name):
    frame = interp.score(ADDER, problems=PROBLEMS, by={name: ["x", "y"] * 20}).to_dataframe()
    assert frame[[name, "n", "correct"]].values.tolist() == [["x", 20, 20], ["y", 20, 20]]


def test_two_strata_are_a_heat_map_and_combinations_that_no_problem_has_are_not_asked():
    found = interp.score(ADDER, problems=[(1, 2), (5, 6), (55, 66), (10, 3)], by=("carries", "digits"))
    assert found.table.n.values.tolist() == [[1, 1], [1, -1], [-1, 1]]  # carries 0, 1, 2 by digits 1, 2
    assert found.figure().data[0].type == "heatmap" and len(found.to_dataframe()) == 4


def test_targets_are_judged_given_the_right_ones_before():
    found = interp.score(FLAWED, problems=[(13, 4), (14, 4), (15, 4)], by="target")
    assert (found.table.n == 3).all() and (found.table.correct <= 3).all()
    assert found.table.target.values.tolist() == [role.label for role in ADDER.task.target_roles]


def test_chains_are_planted_where_the_task_can_and_all_problems_are_seen_to_be_all():
    found = interp.score(ADDER, n=7)
    assert (found.table.n == 7).all() and found.table.chain_length.values.tolist() == list(range(11))
    two = models.load("addlm-adder-two-digit")
    every = interp.score(two, problems=TwoDigitAddition().domain.every())
    assert every.provenance.strength == "exhaustive" and every.rate().n == 10_000
    frame = every.to_dataframe()
    assert (frame.accuracy_low == frame.accuracy).all() and (frame.accuracy_high == frame.accuracy).all()
    assert interp.score(two, problems=TwoDigitAddition().domain.every()[1:]).provenance.strength == "sampled"


@pytest.mark.parametrize("by", ["chain", (), ("carries", "length"), ("carries", "carries"), ("carries", "suite")])
def test_unknown_strata_and_strata_named_twice_are_refused(by: str | tuple[str, ...]):
    with pytest.raises(UserError):
        interp.score(ADDER, by=by, n=4)


def test_counts_add_up_whatever_the_order_of_the_labels():
    right = torch.tensor([True, False, True, True]).numpy()
    table = tabulated(right, {"length": [3, 1, 3, 2]})
    assert table.length.values.tolist() == [1, 2, 3]
    assert table.n.values.tolist() == [1, 1, 2] and table.correct.values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("strata, n", [(1, 50), (11, 50), (11, 1000)])
def test_a_bound_on_every_stratum_holds_for_all_of_them_together(strata, n):
    """With error rates at the bound, no error is seen in any stratum in at most one of twenty samples."""
    bound = error_bound(n, strata)
    seen_in_one = 1 - (1 - bound) ** n
    assert seen_in_one**strata == pytest.approx(0.95) and bound >= error_bound(n)


@pytest.mark.parametrize("sizes", [(1000,), (50, 50), (3, 40, 957), (1, 1), (2, 1)], ids=str)
def test_strata_without_a_wrong_answer_get_a_bound_unless_their_problems_are_all_there_are(sizes):
    """A model that errs on as many as the bound says would be seen to err in 19 of 20 samples."""
    counts = {name: ("chain_length", list(sizes)) for name in ("n", "correct")}
    table = xr.Dataset(counts, {"chain_length": list(range(len(sizes)))})
    drawn = Scores.of("planted", table, Provenance(sum(sizes), 0, "uniform problems"))
    bounds = [float(each) for each in re.findall(r"below (0\.\d+)", drawn.worst())]
    over_all, of_every = 1 - 0.05 ** (1 / sum(sizes)), error_bound(min(sizes), len(sizes))
    assert bounds[-1] == pytest.approx(of_every, rel=0.1) and bounds[-1] >= of_every
    if len(set(sizes)) > 1 or len(sizes) == 1:
        assert bounds[0] == pytest.approx(over_all, rel=0.1) and bounds[0] >= over_all
    all_there_are = replace(drawn, table=table.assign_coords(strength="exhaustive"))
    assert not re.findall(r"\d", all_there_are.worst())
    one_is_all = table.assign_coords(strength=("chain_length", ["exhaustive", *["sampled"] * (len(sizes) - 1)]))
    assert bool(re.findall(r"below 0\.", replace(drawn, table=one_is_all).worst())) == (len(sizes) > 1)


def test_a_model_that_errs_rarely_is_not_said_to_be_right_on_every_problem():
    model = models.load("toygpt-learned-pre")  # wrong on 22 of 10,000
    found = interp.score(model, seed=4)
    assert found.wrong == 0 and found.provenance.strength == "sampled"
    (over_all, *_) = [float(each) for each in re.findall(r"below (0\.\d+)", found.worst())]
    assert over_all > 22 / 10_000
