"""Where a response goes wrong first, and the pictures of all coupled results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
import models
from interp.compare.construction.needed_keys import key_sets
from interp.core.results import Provenance
from interp.probes.score_result import Scores
from models.errors import UserError
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from models.zoo import load, zoo_names
from studies.position_coupling.first_error_position import compute_first_errors, first_error_position
from tests.exams.coupled_subjects import built, wrong_at

TASK = MultiOperandAddition(2, 2)
KEYS = key_sets(TASK)
TRAINED = "position-coupling-1l4h-small"


def right_tokens(n: int) -> np.ndarray:
    return TASK.targets(TASK.sample(n, torch.Generator().manual_seed(0))).numpy()


def compute(predicted: np.ndarray, expected: np.ndarray) -> Scores:
    provenance = Provenance(len(expected), 0, "made-up problems")
    return compute_first_errors(predicted, expected, KEYS, TASK.vocabulary, TASK.shape, provenance)


def test_a_perfect_model_has_no_first_error():
    result = first_error_position(built(), n=32)
    assert result.about["wrong_problems"] == 0 and result.about["p_boundary"] == 1
    assert float(result.table["first"].sum()) == 0
    assert (result.table.n.values == 32).all()


def test_only_the_first_wrong_token_of_a_problem_counts():
    expected = right_tokens(10)
    predicted = expected.copy()
    labels = list(KEYS.target_labels)
    digit, boundary = labels.index("b1[1]"), labels.index("> after b1")
    predicted[:4, digit] = (predicted[:4, digit] + 1) % 10
    predicted[:6, boundary] = TASK.vocabulary.index("$")
    predicted[9, -1] = TASK.vocabulary.index(">")
    result = compute(predicted, expected)
    assert result.about["wrong_problems"] == 7 and result.about["boundary_errors"] == 3
    cell = result.table.sel(step=1, place="1")
    assert (int(cell["first"]), int(cell.n), int(cell.wrong)) == (4, 10, 4)
    cell = result.table.sel(step=1, place="boundary")
    assert (int(cell["first"]), int(cell.n), int(cell.wrong)) == (2, 6, 6)
    assert int(result.table.sel(step=2, place="boundary")["first"]) == 1
    assert int(result.about["confusions"].sel(expected="digit", predicted="digit")) == 4
    assert int(result.about["confusions"].sel(expected=">", predicted="$")) == 2
    assert int(result.about["confusions"].sel(expected="$", predicted=">")) == 1
    assert int(result.table["first"].sum()) == result.about["wrong_problems"]


def test_errors_spread_evenly_are_not_said_to_sit_at_boundaries():
    expected = right_tokens(400)
    predicted = expected.copy()
    at = np.random.default_rng(0).integers(expected.shape[1], size=400)
    predicted[np.arange(400), at] = -1
    result = compute(predicted, expected)
    assert result.about["boundary_targets"] == pytest.approx(1 / 4)
    assert result.about["wrong_problems"] == 400 and result.about["p_boundary"] > 0.01
    assert int(result.about["confusions"].sel(predicted="other").sum()) == 400


def test_the_paper_s_wrap_around_misses_every_boundary_from_the_first():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=6, last_next="paper")
    result = first_error_position(model, task=model.task.at(3, 6), n=16)  # l + 1 = 8 = 2^P1
    assert result.about["wrong_problems"] == result.about["boundary_errors"] == 16
    assert int(result.table.sel(step=0, place="boundary")["first"]) == 16
    assert result.about["p_boundary"] < 1e-6


def test_without_scratchpad_there_is_one_number_and_its_end():
    model = models.build("position-coupling-1l4h-nope-no-scratchpad-small")
    result = first_error_position(model, task=model.task.at(3, 2), n=8)
    assert result.table.step.values.tolist() == [3]
    assert result.table.place.values.tolist() == ["0", "1", "2", "boundary"]


def test_predictions_of_other_targets_are_refused():
    with pytest.raises(UserError, match="do not fit"):
        compute(right_tokens(3)[:, :-1], right_tokens(3)[:, :-1])


# ---- the stored model, where there is one


@pytest.mark.slow
def test_trained_heads_look_where_the_constructed_digit_sum_and_carry_heads_do():
    if TRAINED not in zoo_names():
        pytest.skip(f"the zoo has no {TRAINED}")
    model = load(TRAINED)
    roles = interp.key_attention(model, task=model.task.at(4, 4), n=64)
    assert {"sum", "carry"} <= set(roles.roles().values())


@pytest.mark.parametrize(
    ("model", "wrong", "boundary", "at"),
    [
        (built, 0, 0, {}),
        (lambda: wrong_at(">"), 24, 24, {(0, "boundary"): 24}),
        (lambda: wrong_at("b1[2]"), 24, 0, {(1, "2"): 24}),
    ],
    ids=["a right model", "planted at a boundary", "planted at a digit"],
)
def test_a_planted_first_error_is_found_where_it_was_planted(model, wrong, boundary, at):
    found = first_error_position(model(), n=24)
    places = found.table["first"].fillna(0).stack(cell=("step", "place"))
    where = {cell: int(count) for cell, count in zip(places.cell.values, places.values, strict=True) if count}
    assert (found.about["wrong_problems"], found.about["boundary_errors"]) == (wrong, boundary)
    assert where == at
