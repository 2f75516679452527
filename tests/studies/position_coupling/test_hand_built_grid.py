"""The hand-built transformer on its grid: the problems, the command, the stored result."""

from __future__ import annotations

import pytest
import torch

import models
from interp.proofs.hand_built.shape_problems import carry_heavy, grid_problems
from models.errors import UserError
from studies.position_coupling.hand_built import (
    LARGEST,
    load_grid,
    run_cell,
    run_hand_built,
    run_size,
)
from studies.runs.study import Settings

NAME = "position-coupling-hand-built"


@pytest.fixture(scope="module")
def model():
    return models.build(NAME)


def test_carry_heavy_problems_have_long_chains():
    problems = carry_heavy(2, 20, 50, torch.Generator().manual_seed(0))
    uniform = torch.randint(10, (50, 2, 20), generator=torch.Generator().manual_seed(0))
    task = models.get_spec(NAME).task().at(2, 20)
    assert task.chain_length(problems).float().mean() > 2 * task.chain_length(uniform).float().mean()


def test_grid_problems_are_valid_and_include_all_nines():
    problems = grid_problems(4, 5, 100, seed=0)
    assert problems.shape == (100, 4, 5) and (problems >= 0).all() and (problems <= 9).all()
    assert (problems == 9).all((1, 2)).any() and (problems == 0).all((1, 2)).any()
    assert len({tuple(problem.flatten().tolist()) for problem in problems}) > 90
    assert torch.equal(problems, grid_problems(4, 5, 100, seed=0))


def test_the_stored_grid_is_complete_and_without_a_wrong_answer():
    grid = load_grid()
    cells = grid.cells
    assert set(zip(cells.operands, cells.digits, strict=True)) == {(m, n) for m in range(1, 31) for n in range(1, 31)}
    assert (cells.problems == cells.correct).all() and (cells.problems >= 100).all()
    assert 0.99 < cells.min_margin.min() <= 1.0
    assert len(cells) == 900


def test_a_stored_cell_is_reproduced(model):
    grid = load_grid()
    stored = grid.cells[(grid.cells.operands == 6) & (grid.cells.digits == 4)].iloc[0]
    again = run_cell(model, grid_problems(6, 4, int(stored.problems), grid.settings["seed"]))
    assert (again.correct, again.predictions) == (stored.correct, stored.predictions)
    assert again.min_margin == pytest.approx(stored.min_margin, abs=1e-3)


def test_a_grid_run_goes_on_where_its_file_ends_and_refuses_another_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(LARGEST, "small", 2)
    first = run_hand_built(Settings(tmp_path, problems=5, progress=False))
    assert first is not None and [cell[2:4] for cell in first.data["cells"]] == [[5, 5]] * 4
    monkeypatch.setattr("studies.position_coupling.hand_built.run_cell", None)
    again = run_hand_built(Settings(tmp_path, problems=5, progress=False))
    assert again is not None and again.data == first.data
    with pytest.raises(UserError, match="problems differs"):
        run_hand_built(Settings(tmp_path, problems=6, progress=False))
    assert run_hand_built(Settings(tmp_path / "new", minutes=0.0, progress=False)) is None


# ---- far beyond the grid


def test_a_sample_of_positions_includes_numbers_ends():
    whole, sampled = (run_size(12, 9, sampled=n) for n in (None, 40))
    assert whole["correct"] == sampled["correct"] == whole["problems"] == 3
    assert whole["positions"] == 13 * 12 and 20 < sampled["positions"] <= 41


@pytest.mark.slow
@pytest.mark.parametrize("size", [(2, 1000, "float64"), (300, 3), (40, 40)])
def test_hundreds_of_digits_and_operands(size):
    result = run_size(*size)
    assert result["correct"] == result["problems"] == 3
