"""Training that begins at the construction: what is reported of a model that stayed, and of one that did not."""

from __future__ import annotations

import json

import torch

from interp.papers.position_coupling.from_construction import (
    arm_of,
    pattern_changes,
    show_from_construction,
)
from interp.papers.position_coupling.from_construction import from_construction as study
from interp.papers.position_coupling.squares import SQUARES
from interp.papers.studies import Settings
from models.hand_built.free_addition import constructed
from models.registry import recipe_of


def test_patterns_change_by_nothing_where_attention_stays_and_by_all_where_a_head_looks_elsewhere():
    start, moved = constructed(41), constructed(41)
    with torch.no_grad():
        moved.weight_map.own()["blocks.0.mlp.W_out"].mul_(3)  # the MLP has no part in it
    assert pattern_changes(start, moved).abs().max() == 0
    with torch.no_grad():
        moved.weight_map.own()["blocks.0.attn.W_Q"][2].zero_()  # uniform over all keys
    changes = pattern_changes(start, moved)
    assert changes[2] > 0.3 and changes[[0, 1, 3]].abs().max() == 0


def test_a_few_steps_train_every_arm_and_the_page_shows_them(tmp_path, monkeypatch):
    recipe = recipe_of(arm_of(41, True).model).replace(
        steps=2, warmup_steps=0, batch_size=4, eval_every=1, validation_size=4, snapshots=0
    )
    module = "interp.papers.position_coupling.from_construction"
    monkeypatch.setattr(f"{module}.recipe_of", lambda name: recipe)
    for name, value in (("WIDTHS", (41,)), ("RANDOM_WIDTHS", (41,)), ("SQUARES", (4,))):
        monkeypatch.setattr(f"{module}.{name}", value)
    monkeypatch.setattr("interp.papers.position_coupling.squares.SQUARES", (4,))
    made = study.run(Settings(out=tmp_path, seeds=1, problems=5, device="cpu", progress=False, say=lambda text: None))
    assert made is not None
    data = json.loads(json.dumps(made.data))
    right = {row["arm"]: row["right"] for row in data["rows"]}
    assert right["the construction, untrained"] == 5 and right["d = 41, from random weights"] == 0
    built, random = data["moved"]
    assert 0 < built["distance"] < 0.1 and len(built["pattern"]) == 4 and random["pattern"] is None
    *_, moved = show_from_construction(data)
    assert moved.tables[0]["arm"].tolist() == [built["arm"], random["arm"]]


def test_an_arm_stays_by_the_median_of_its_seeds_at_the_largest_size():
    right = {"the construction, untrained": [100], "stayed": [100, 92, 0], "left": [100, 80, 85]}
    rows = [
        {"arm": arm, "seed": seed, "size": size, "right": k if size == SQUARES[-1] else 100, "new": 0, "new_right": 0}
        for arm, counts in right.items()
        for seed, k in enumerate(counts)
        for size in SQUARES
    ]
    said, *_ = show_from_construction({"rows": rows, "moved": [], "n": 100, "trained": 4})
    assert "stayed stays; left does not stay" in said.text and "untrained stays" not in said.text
