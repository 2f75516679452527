"""Where seeds begin: the placed start is where trained models end, and arcs that shrink to a point are counted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import models
from interp.core.stats import clopper_pearson
from interp.core.thresholds import SHRUNK
from interp.papers.microadder.starts import PAPERS, PLACED, arc_row, arms, starts
from interp.papers.studies import Settings
from models.microadder_ladder import PLACED_START


def test_the_placed_start_lies_where_trained_arcs_and_the_column_before_the_first_lie():
    begin = dict(PLACED_START.begin_at or ())
    trained = {name: p.item() for name, p in models.load("microadder-57").weight_map.named_parameters() if p.ndim == 0}
    centre = begin["arc_start"] + 4.5 * begin["arc_stride"]
    assert centre == pytest.approx(math.pi / 4)
    assert trained["arc_start"] + 4.5 * trained["arc_stride"] == pytest.approx(centre, abs=0.1)
    assert begin["arc_stride"] == pytest.approx(trained["arc_stride"], abs=0.03)
    columns = models.load("microadder-57").W_pos[:10, 2:4]  # each a tenth of a turn after the one before
    angle = math.atan2(begin["pos_equals[1]"], begin["pos_equals[0]"])
    assert angle == pytest.approx(math.atan2(columns[0, 1], columns[0, 0]) - 2 * math.pi / 10, abs=1e-5)


def test_no_seed_of_the_study_is_one_that_the_recipe_was_found_with():
    used = [set(range(arm.first_seed, arm.first_seed + 64)) for arm in arms()]
    assert not any(seeds & set(range(32)) for seeds in used) and not used[0] & used[1]


def test_a_shorter_schedule_holds_for_the_same_share_of_it():
    recipe = PLACED_START
    short = recipe.shrunk(5)
    shares = [{step / each.steps for _, step in each.hold_until or ()} for each in (recipe, short)]
    assert shares[0] == shares[1] == {1 / 3}


def test_arcs_that_shrank_to_a_point_are_counted_with_how_far_their_seeds_came():
    row = {"label": PLACED, "token": [0.3, 0.9, 0.2, 1.0]}
    found = arc_row(row, [SHRUNK / 2, 9.0, 0.1, 8.0])
    assert found["arcs shrunk to a point"] == 2 and (found["95% low"], found["95% high"]) == clopper_pearson(2, 4)
    assert found["median token accuracy of these"] == 0.25 and found["of the others"] == 0.95
    assert math.isnan(arc_row(row, [9.0] * 4)["median token accuracy of these"])


def test_without_time_the_seeds_of_the_zoo_stand_alone(tmp_path: Path):
    made = starts.run(Settings(out=tmp_path, minutes=0.0, say=lambda _: None))
    assert made is not None
    assert [row["label"] for row in made.data["sweeps"]] == [PAPERS] and not made.data["verdicts"]
    assert len(made.data["sweeps"][0]["seeds"]) == 128
