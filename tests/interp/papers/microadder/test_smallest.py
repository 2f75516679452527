"""How few numbers: fresh seeds, what is random in them, and kept seeds that can be proved again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.core.stored_data import DATA
from interp.papers.microadder.smallest import FEWEST_SEEDS, SEEDS, WHOLE, ZOO, arms, show_smallest, smallest, start_of
from interp.papers.studies import Settings
from interp.papers.studies.seed_sweeps import seed_model
from interp.proofs import certify
from models.checkpoint import read_json
from models.microadder_ladder import POLISHED
from models.registry import build
from models.training.objective import ParameterLayout

STORED = DATA / "experiments" / "microadder-smallest.json"


def test_no_seed_of_the_study_is_one_that_its_arms_were_found_with():
    found_on = {*range(64), *range(4000, 4064), *range(5000, 5128)}
    for arm in arms():
        seeds = FEWEST_SEEDS if arm.label.endswith(WHOLE) else SEEDS
        assert not found_on & set(range(arm.first_seed, arm.first_seed + seeds))


def test_the_fewest_numbers_are_all_drawn_from_whole_ranges_and_none_is_held():
    arm = next(arm for arm in arms() if arm.label.endswith(WHOLE))
    layout = ParameterLayout(build(arm.model))
    drawn = dict(arm.recipe.begin_at or ())
    assert set(drawn) == set(layout.shapes) and arm.recipe.hold_until is None and layout.n == 10
    assert all(high > low for low, high in drawn.values())
    assert len(build(arm.model).weight_map.constants) == 3


def test_two_seeds_of_the_smallest_begin_apart_in_all_that_is_called_random():
    rows = [ParameterLayout(build("microadder-22")).flatten(build("microadder-22", seed)) for seed in (1, 2)]
    layout = ParameterLayout(build("microadder-22"))
    for name in ("W_v", "W_fc1", "W_head"):
        assert (rows[0][layout.places(name)] != rows[1][layout.places(name)]).all()
    assert {name.partition("[")[0] for name, _ in POLISHED.begin_at or ()} == {
        "arc_A", "arc_start", "arc_stride",
    }  # fmt: skip


def test_without_time_the_zoo_stands_alone(tmp_path: Path):
    made = smallest.run(Settings(out=tmp_path, minutes=0.0, say=lambda _: None))
    assert made is not None and not made.data["verdicts"]
    assert {start_of(row["label"]) for row in made.data["sweeps"]} == {ZOO}
    assert show_smallest(made.data)


@pytest.mark.slow
def test_the_kept_seeds_of_the_fewest_numbers_are_proved_again_from_their_numbers():
    data = read_json(STORED)
    proved = {(row["recipe"], row["seed"]) for row in data["verdicts"] if row["verdict"] == "certified"}
    least = min((row for row in data["sweeps"] if row["label"] in {label for label, _ in proved}), key=_size)
    seed = next(seed for label, seed in sorted(proved) if label == least["label"])
    model = seed_model(least, seed)
    found = certify(model, arithmetic="float32", width=None)
    assert found.status == "certified"
    spoiled = seed_model(least, seed)
    with torch.no_grad():
        next(spoiled.parameters()).mul_(0.5)  # the arc's radius
    assert certify(spoiled, arithmetic="float32", width=None).status == "refuted"


def _size(row: dict) -> int:
    return row["parameters"]
