"""Low rank and grokking: seeds are counted per model, and only neighbours of one recipe are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import fisher_exact

import models
from interp.papers.adder_456.low_rank import STEPS, compared, rate_of, show_low_rank
from interp.papers.studies import Settings, reproduce
from models.numerals import p_cell
from models.registry import get_spec
from models.training.recipes import get_recipe


def row(model: str, grokked: int, seeds: int) -> dict[str, object]:
    first = [1000 * (i + 1) if i < grokked else None for i in range(seeds)]
    return {"model": model, "parameters": 1, "steps": 27_000, "seeds": list(range(seeds)), "first_perfect": first}


def test_pairs_differ_in_their_factors_and_not_in_their_recipe():
    for more, fewer, _ in STEPS:
        recipes = [get_recipe(str(get_spec(name).recipe)) for name in (more, fewer)]
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
