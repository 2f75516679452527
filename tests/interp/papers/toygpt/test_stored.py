"""What the stored results of ToyGPT's experiments say, and that zoo and cards say the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import interp
import models
from interp.papers.toygpt.seeds import accuracies, largest_gap, orderings
from interp.papers.toygpt.studies import BEST, BUDGET, PLACEMENTS, POSITIONS, SEEDS, comparison_of, errors
from models.toygpt import VARIANTS
from models.zoo import entry_file, read_entry

DATA = Path(interp.__file__).parent / "data" / "experiments"


def stored(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"toygpt-{name}.json").read_text())


@pytest.mark.parametrize(("name", "variants"), [("table-positions", POSITIONS), ("table-layernorm", PLACEMENTS)])
def test_the_tables_rows_count_sums_and_are_of_the_papers_variants(name: str, variants: dict[str, str]):
    data = stored(name)
    assert data["variants"] == variants
    for row in data["rows"]:
        assert 0 <= row["test"] <= 500
        if row["train"] is not None:
            wrong = 10_000 - row["test"] - row["train"]
            assert sum(row["errors"]["first_wrong"].values()) == wrong
            assert sum(row["errors"]["kinds"].values()) == 10_000 - row["errors"]["digits"]["tens"]


def test_the_order_of_positions_holds_at_the_papers_budget_and_rotary_catches_up_with_more():
    result = comparison_of(stored("table-positions"))
    at_budget = orderings(result).set_index("iterations").loc[[BUDGET]]
    assert (at_budget["holds in"] == at_budget["seeds"]).all() and (at_budget["seeds"] >= 2).all()
    longer = result.of("toygpt-rotary-pre").sel(step=slice(BUDGET + 1, None))
    assert float(longer.max()) > 0.9 > accuracies(result, "toygpt-rotary-pre", BUDGET).max()


def test_seeds_of_pre_and_post_layer_norm_overlap_while_none_stays_behind():
    result = comparison_of(stored("table-layernorm"))
    pre, post, none = (accuracies(result, model, BUDGET) for model in PLACEMENTS)
    assert len(pre) == len(post) == len(none) == SEEDS
    assert largest_gap(post.to_numpy()) > 0.1 > largest_gap(pre.to_numpy())  # one seed of post-LN lags far behind
    assert none.max() < min(pre.min(), 0.3)
    assert post.max() > 0.9


def test_the_carry_data_is_about_the_model_in_the_zoo():
    data, score = stored("carry"), read_entry(BEST)["score"]
    assert data["errors"]["test"] == score["correct"]
    assert data["errors"]["test"] + data["errors"]["train"] == score["all"]["correct"]
    card = " ".join(entry_file(BEST, "card.md").decode().split())
    assert " ".join(data["sentences"][2].split()) in card


@pytest.mark.slow
def test_errors_of_the_stored_model_are_counted_as_they_are_stored():
    found, kept = errors(models.load(BEST)), stored("carry")["errors"]
    assert found["errors"] | {key: found[key] for key in ("test", "train")} == kept
    assert found["errors"]["kinds"] == {"missed": 16, "spurious": 6, "other": 0}


def test_attention_moves_the_carry_to_where_the_tens_are_predicted():
    rows = {(row["site"], row["position"]): row for row in stored("carry")["path"]}
    streams = [rows[site, "s0"]["share"] for site in ("embed", "L0", "L1", "L2", "L3")]
    assert streams[0] == 0.0 and streams[-1] == 1.0
    assert max(b - a for a, b in pairwise(streams)) > 0.5


def test_every_variant_is_in_the_zoo_with_its_exhaustive_score():
    for variant in VARIANTS:
        entry = read_entry(variant.name)
        assert entry["score"]["all"]["n"] == 10_000 and entry["score"]["all"]["rung"] == "exhaustive"
        assert entry["training"]["step"] == BUDGET
        assert (models.zoo.resolve(variant.name) / "model.safetensors").stat().st_size < 2_000_000


@pytest.mark.slow
def test_a_stored_model_scores_as_its_entry_says():
    for variant in VARIANTS[:2]:
        assert (
            models.score(models.load(variant.name), method="greedy").correct
            == (read_entry(variant.name)["score"]["correct"])
        )
