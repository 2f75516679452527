"""Grids count what decoding says, cell by cell, and say what they rest on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import models
from interp.core.stats import clopper_pearson
from models.errors import UserError
from models.families.position_coupling import SMALL
from models.run import greedy
from models.tasks import Parity
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.weight_map import WeightMap
from studies.position_coupling.exact_match_grid import exact_match_grid, rectangle
from studies.position_coupling.grid_cells import BLOCK, CellScorer, Offsets, Verdicts, cell_problems
from studies.position_coupling.grid_panels import ExactMatchGrid, GridPanel, GridPanels
from tests.exams.coupled_subjects import built, untrained_summer
from tests.exams.coupled_subjects import spoilt as at_lengths
from tests.models.coders import coder

ADDER = models.build("position-coupling-hand-built", max_operands=6, max_digits=6)


def spoilt(what: str, strength: float, seed: int = 0) -> ArithmeticTransformer:
    """The hand-built adder with noise on one weight."""
    model = models.build("position-coupling-hand-built", max_operands=6, max_digits=6)

    class Noisy(WeightMap):
        def forward(self):
            weights = dict(ADDER.effective_weights())
            weight = weights.get(what, torch.zeros(model.weight_shapes[what]))
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
            return weights | {what: weight + strength * noise}

        def initialise(self, generator):
            pass

        def decay_mask(self):
            return {}

    model.weight_map = Noisy(model.config)
    return model


#: Some digits are preferred to others, so that some problems of every size go wrong.
SOMETIMES = spoilt("unembed.b_U", 0.5, seed=1)


def grid(model=ADDER, **options) -> ExactMatchGrid:
    return exact_match_grid(model, **({"progress": False, "n": 60, "largest": (4, 3)} | options))


def test_a_correct_adder_is_right_in_every_cell():
    result = grid(n=20)
    assert result.accuracy.dims == ("digits", "operands")
    assert result.accuracy.digits.values.tolist() == [1, 2, 3]
    assert result.accuracy.operands.values.tolist() == [2, 3, 4]
    assert (result.accuracy == 1).all() and (result.table.n == 20).all()
    assert result.provenance.strength == "sampled"


@pytest.mark.parametrize("offsets", ["start 2", "random"])
def test_cells_count_what_greedy_decoding_answers(offsets):
    """An independent count: cached greedy decoding of each problem, against the text of its sequence."""
    result = grid(SOMETIMES, n=8, offsets=offsets)
    assert 0.1 < float(result.accuracy.mean()) < 0.9  # partly failing, or this shows nothing
    for operands, digits in [(2, 3), (4, 3)]:
        task = SOMETIMES.task.at(operands, digits)
        problems = cell_problems(task, 8, 0)
        scorer = CellScorer(SOMETIMES, task, offsets)
        shifts = scorer.shifts(task, 8, 0)
        right = 0
        for problem, shift in zip(problems, shifts, strict=True):
            tokens = task.sequences(problem[None]).tokens
            start = tokens[0].tolist().index(task.vocabulary.index("=")) + 1
            ids = lambda t, s=shift, of=task.position_ids: torch.where(of(t) > 0, of(t) + s, 0)  # noqa: E731
            said = greedy(SOMETIMES, tokens[:, :start], tokens.shape[1] - start, position_ids=ids)
            right += torch.equal(said, tokens[:, start:])
        assert int(result.table.correct.sel(operands=operands, digits=digits)) == right


@pytest.mark.parametrize("offsets", ["start 1", "random"])
def test_teacher_forcing_agrees_with_greedy_decoding_on_whole_responses(offsets):
    forced, greedily, decoded = both_verdicts(SOMETIMES, [(2, 2), (3, 2), (3, 3), (5, 4)], 40, offsets)
    assert torch.equal(forced.exact, greedily) and 0 < greedily.sum() < 160
    # A slip in the scratchpad spoils later numbers that would have been right behind the true one.
    assert forced.answer_forced.sum() != decoded.sum()


def both_verdicts(model, shapes, n, offsets="start 1"):
    """Teacher-forced verdicts, and by greedy decoding those on whole responses and on final answers."""
    scorer, found = CellScorer(model, model.task, offsets), []
    for shape in shapes:
        at = model.task.at(*shape)
        problems, shifts = cell_problems(at, n, 0), scorer.shifts(at, n, 0)
        forced = scorer.verdicts(at, problems, shifts)
        found.append((forced.exact, forced.answer_forced, *scorer.greedy_verdicts(at, problems, shifts)))
    exact, answer, greedily, decoded = (torch.cat(each) for each in zip(*found, strict=True))
    return Verdicts(exact, answer), greedily, decoded


@pytest.mark.parametrize("form", [AdditionFormat(True, False), AdditionFormat(True, False, False, False)])
def test_formats_without_padding_are_scored_row_by_row(form):
    model = coder("-nope")
    model.task = MultiOperandAddition(3, 2, form)
    forced, greedily, _ = both_verdicts(model, [(2, 2), (3, 3)], 12)
    assert torch.equal(forced.exact, greedily)
    # Teacher-forced on the model's own tokens, everything is right: rows of different lengths are told apart.
    scorer, task = CellScorer(model, model.task.at(2, 2)), model.task.at(2, 2)
    problems = cell_problems(task, 12, 0)
    assert len({row.tolist().count(task.special) for row in task.sequences(problems).tokens}) > 1
    weights = dict(scorer.weights)
    scorer.weights = weights | {"unembed.W_U": torch.zeros_like(weights["unembed.W_U"])}
    scorer.weights["unembed.b_U"] = torch.nn.functional.one_hot(torch.tensor(3), model.config.d_vocab).float()
    assert not scorer.verdicts(task, problems, None).exact.any()


def test_a_cell_depends_on_its_shape_and_seed_alone():
    one, other = grid(SOMETIMES, shapes=[(4, 3)]), grid(SOMETIMES)
    assert int(one.table.correct.item()) == int(other.table.correct.sel(operands=4, digits=3))
    assert not np.array_equal(grid(SOMETIMES, seed=1).table.correct, other.table.correct)
    task = ADDER.task.at(4, 3)
    assert torch.equal(cell_problems(task, 20, 0), cell_problems(task, 170, 0)[:20])
    assert not torch.equal(cell_problems(task, 20, 0), cell_problems(task, 20, 1))


def test_a_cell_of_failures_is_left_after_the_first_block_and_no_other():
    never = coder("-nope")
    result = grid(never, n=70)
    assert (result.table.n == BLOCK).all() and (result.table.correct == 0).all()
    assert f"{BLOCK} where those were all wrong" in result.provenance.source
    assert (grid(never, n=70, early_exit=False, largest=(2, 1)).table.n == 70).all()
    sometimes = grid(SOMETIMES, n=70)
    assert ((sometimes.table.n == 70) == (sometimes.table.correct > 0)).all()
    last = result.to_dataframe().iloc[0]
    ends = (last.accuracy_low, last.accuracy_high)
    assert ends == pytest.approx(clopper_pearson(0, BLOCK)) and ends[1] < 0.072


def test_sizes_beyond_the_tables_are_out_of_reach_and_not_zero():
    model = models.build(SMALL["addition"].name)
    shapes = [(operands, digits) for operands in (2, 9, 10, 11, 12) for digits in (1, 9, 10, 11)]
    result = grid(model, n=1, shapes=shapes)
    for operands, digits in shapes:
        task = model.task.at(operands, digits)
        beyond = int(task.position_ids(task.encode([[9] * operands])).max()) > 12
        cell = result.table.sel(digits=digits, operands=operands)
        assert (int(cell.n) == 0) == beyond
        assert bool(result.accuracy.sel(digits=digits, operands=operands).isnull()) == beyond
    assert result.out_of_reach.any()
    with pytest.raises(UserError):
        result.rate(digits=11, operands=12)
    later = grid(model, n=1, shapes=shapes, offsets=3)
    assert int(later.out_of_reach.sum()) > int(result.out_of_reach.sum())


def test_shapes_that_the_task_itself_refuses_are_out_of_reach():
    result = grid(n=4, largest=(8, 8))
    beyond = (result.table.digits > 6) | (result.table.operands > 6)
    assert result.out_of_reach.equals(beyond.transpose(*result.table.n.dims))


def test_random_offsets_stay_within_each_levels_own_table():
    variant = SMALL["multiplication"]
    model = models.build(variant.name)
    scorer, task = CellScorer(model, model.task, "random"), model.task.at(2, 3)
    assert scorer.limits == variant.position_limits == (16, 8, 16)
    highest = torch.tensor(task.highest_ids())
    top = highest + scorer.shifts(task, 4000, 0)
    assert (top.amax(0) == torch.tensor(scorer.limits)).all() and (top.amin(0) == highest).all()
    assert not scorer.reaches(model.task.at(2, 9))  # level 2 counts to 9, its table to 8, the others further


def test_models_without_ids_reach_every_size():
    assert not grid(coder("-fire"), n=2, largest=(12, 2)).out_of_reach.any()


def test_a_killed_evaluation_goes_on_where_it_stopped(tmp_path: Path, monkeypatch):
    whole = grid(SOMETIMES)
    file, calls = tmp_path / "cells.jsonl", []
    exact = CellScorer.exact

    def dies(self, task, *rest):
        calls.append(task.shape)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return exact(self, task, *rest)

    monkeypatch.setattr(CellScorer, "exact", dies)
    with pytest.raises(KeyboardInterrupt):
        grid(SOMETIMES, store=file)
    done = {tuple(json.loads(line)["shape"]) for line in file.read_text().splitlines()[1:]}
    assert done and done < set(rectangle(ADDER.task, (4, 3)))
    file.write_text(file.read_text() + '{"shape": [4, 3], "cou')  # a line cut short
    calls[:] = [None] * 100
    resumed = grid(SOMETIMES, store=file)
    assert resumed.table.equals(whole.table)
    assert done.isdisjoint(calls[100:])


def test_a_store_of_another_grid_is_refused_and_untouched(tmp_path: Path):
    file = tmp_path / "cells.jsonl"
    grid(store=file, n=4)
    before = file.read_bytes()
    for change, what in [({"n": 5}, "n"), ({"offsets": 2}, "offsets"), ({"model": SOMETIMES}, "weights")]:
        with pytest.raises(UserError, match=f"its {what} differs"):
            grid(**({"store": file, "n": 4} | change))
    assert file.read_bytes() == before


def test_a_grid_survives_json_and_needs_no_model(tmp_path: Path):
    result = grid(SOMETIMES, largest=(8, 3))
    result.save(tmp_path / "grid.json")
    again = ExactMatchGrid.load(tmp_path / "grid.json")
    assert again.table.identical(result.table)
    assert again.figure().to_json() == result.figure().to_json()
    with pytest.raises(UserError, match="exact-match grid"):
        ExactMatchGrid.from_dict({"kind": "something"})


def test_parity_counts_final_answers_by_greedy_decoding():
    """A model that always says 1: every second answer is right, a whole response of ten almost never."""
    model = models.build(SMALL["parity"].name)
    scorer, task = CellScorer(model, model.task), model.task.at(10)
    scorer.weights["unembed.b_U"] = torch.nn.functional.one_hot(torch.tensor(1), 4) * 1e6
    problems = cell_problems(task, 400, 0)
    odd = problems.sum((1, 2)) % 2 == 1
    exact, answer = scorer.greedy_verdicts(task, problems, scorer.shifts(task, 400, 0))
    assert torch.equal(answer, odd) and not exact.any()
    assert torch.equal(scorer.verdicts(task, problems, scorer.shifts(task, 400, 0)).answer_forced, odd)


def test_a_parity_grid_reports_both_accuracies():
    model = models.build("parity-hand-built", max_bits=9)
    result = exact_match_grid(model, n=12, largest=(8,), progress=False)
    assert result.table.n.dims == ("bits",)
    assert (result.share("answer") == 1).all() and (result.accuracy == 1).all()
    assert {"answer_accuracy", "answer_low", "answer_forced_high"} <= set(result.to_dataframe())
    with pytest.raises(UserError, match="final_answer=True"):
        grid(n=2).share("answer")


def test_without_a_scratchpad_the_answer_is_the_same_either_way():
    model = models.build("parity-coupling-1l4h-nope-no-scratchpad-small", seed=3)
    result = exact_match_grid(model, n=60, largest=(6,), progress=False)
    assert result.table.answer.equals(result.table.answer_forced)
    assert isinstance(model.task, Parity) and not model.task.scratchpad


def test_products_have_their_own_axes():
    model = models.build("multiplication-hand-built", max_digits=3)
    result = exact_match_grid(model, n=6, largest=(3, 2), progress=False)
    assert result.accuracy.dims == ("second digits", "first digits") and result.accuracy.shape == (2, 3)
    assert (result.accuracy == 1).all()


def test_the_training_range_is_the_recipes():
    result = grid(models.build(SMALL["addition"].name), n=2, largest=(6, 6))
    assert result.trained == {"operands": (2, 4), "digits": (1, 4)}
    assert int(result.in_training_range.sum()) == 3 * 4
    assert ADDER.name_or_path and not grid(n=2).trained


@pytest.mark.parametrize(
    ("model", "right"),
    [
        (lambda: at_lengths(lambda length: length < 18), [[0, 1], [1, 1]]),
        (built, [[1, 1], [1, 1]]),
        (lambda: at_lengths(lambda length: length >= 18), [[1, 0], [0, 0]]),
        (untrained_summer, [[0, 0], [0, 0]]),
    ],
    ids=["spoilt where it is short", "a right model", "spoilt where it is long", "untrained"],
)
def test_planted_errors_are_found_at_the_sizes_where_they_were_planted(model, right):
    """By digits (1 and 2) and operands (2 and 3)."""
    assert grid(model(), largest=(3, 2), n=10).accuracy.values.tolist() == right


def test_panels_take_the_median_over_seeds():
    grids = [grid(spoilt("unembed.b_U", 0.5, seed), n=30) for seed in range(3)]
    median = GridPanel("three", tuple(grids)).median()
    assert np.array_equal(median.values, np.median([g.accuracy.values for g in grids], 0))
    panels = GridPanels("Adders", (GridPanel("three", tuple(grids)), GridPanel("one", (grids[0],))))
    assert panels.provenance.n == 4 * 9 * 30
    again = GridPanels.from_dict(json.loads(json.dumps(panels.to_dict())))
    assert again.to_dataframe().equals(panels.to_dataframe())
    with pytest.raises(UserError, match="different sizes"):
        GridPanel("mixed", (grids[0], grid(n=30, largest=(3, 3))))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "n must be a whole number from 1"),
        ({"largest": (3,)}, "has 2 sizes"),
        ({"shapes": []}, "no shape"),
        ({"offsets": "sometimes"}, "Offsets are 'random'"),
        ({"offsets": (1, 2, 3)}, "2 of them"),
        ({"offsets": 0}, "a number from 1 on"),
        ({"model": models.build("microadder-57")}, "problems of many lengths"),
        ({"task": Parity(3)}, "4 tokens and the model 14"),
    ],
)
def test_bad_input_is_one_sentence(options, sentence):
    with pytest.raises(UserError, match=sentence):
        grid(**options)


def test_offsets_are_read_from_words_and_numbers():
    assert Offsets.parse("start 3", 2) == Offsets.parse(3, 2) == Offsets.parse((3, 3), 2)
    assert str(Offsets.parse("start 3, 5", 2)) == "ids start at 3, 5"
    assert str(Offsets.parse("random", 2)) == "random offsets"
