"""Low rank and grokking: seeds are counted per model, and only neighbours of one recipe are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import fisher_exact

import models
from interp.papers.adder_456.low_rank import BASE, STEPS, compared, rank_2, rate_of, show_low_rank
from interp.papers.studies import Settings, reproduce
from models.low_rank_adder import RANK_2
from models.numerals import p_cell
from models.registry import get_spec, recipe_of


def row(model: str, grokked: int, seeds: int) -> dict[str, object]:
    first = [1000 * (i + 1) if i < grokked else None for i in range(seeds)]
    return {"model": model, "parameters": 1, "steps": 27_000, "seeds": list(range(seeds)), "first_perfect": first}


def test_pairs_differ_in_their_factors_and_not_in_their_recipe():
    for more, fewer, _ in STEPS:
        recipes = [recipe_of(name) for name in (more, fewer)]
        assert recipes[0] == recipes[1]
        a, b = (models.build(name) for name in (more, fewer))
        assert a.cfg.normalization_type == b.cfg.normalization_type and a.cfg.d_mlp == b.cfg.d_mlp
        assert sum(p.numel() for p in a.parameters()) > sum(p.numel() for p in b.parameters())


def test_two_models_are_compared_by_fishers_test():
    rows = {"adder-763": row("adder-763", 1, 32), "adder-582": row("adder-582", 9, 32)}
    (found,) = compared(rows).to_dict("records")
    assert found["p (Fisher)"] == p_cell(float(fisher_exact([[1, 31], [9, 23]])[1]))
    assert (rate_of(rows["adder-582"]).correct, rate_of(rows["adder-582"]).n) == (9, 32)


def test_the_page_counts_the_stored_seeds(tmp_path: Path):
    page = reproduce("adder-456:low-rank", Settings(out=tmp_path, say=lambda _: None))
    assert page is not None
    counts = {found["model"]: found for found in page.data["rows"]}
    assert len(counts["adder-456"]["seeds"]) == 32
    (section,) = show_low_rank(page.data)
    table = section.tables[0].set_index("model")
    for name, found in counts.items():
        rate = rate_of(found)
        assert table.loc[name, "grokked"] == rate.correct and table.loc[name, "95% high"] == pytest.approx(
            rate.interval[1]
        )
    assert section.figures[0].data


def test_a_part_of_rank_2_changes_that_part_alone():
    base = {name: tuple(p.shape) for name, p in models.build(BASE).weight_map.named_parameters()}
    for name, part in zip(RANK_2, ("qkv.", "mlp_"), strict=True):
        model = models.build(name)
        own = {key: tuple(p.shape) for key, p in model.weight_map.named_parameters()}
        assert own.keys() == base.keys()
        assert all(key.startswith(part) and 2 in own[key] for key in own if own[key] != base[key])
        assert sum(p.numel() for p in model.parameters()) < 456
        assert get_spec(name).recipe == get_spec(BASE).recipe


def test_without_time_the_seeds_of_456_stand_alone(tmp_path: Path):
    made = rank_2.run(Settings(out=tmp_path, minutes=0.0, say=lambda _: None))
    assert made is not None and made.data["experiment"] == "adder-456:rank-2"
    assert [(found["label"], len(found["seeds"])) for found in made.data["sweeps"]] == [(BASE, 32)]
    assert made.data["comparisons"] == []
