"""Inside AddLM: integers are exact, score parts add up, heads' measures are what they are defined to be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from interp.core.results import Provenance, Result
from interp.papers.addlm.heads import head_table, key_measures, window_losses
from interp.papers.addlm.inside import show_inside
from interp.papers.addlm.patching import CORRUPTIONS, KINDS, check_patching, one_character
from interp.papers.addlm.scores import min_similarity, read_scores, score_terms
from interp.papers.addlm.weights import (
    integer_circuits,
    integer_rank,
    load_circuits,
    ternary_training,
    value_composition,
)
from models import UserError
from models.transformer import ArithmeticTransformer
from tests.interp.papers.addlm.small import small


@pytest.fixture(scope="module")
def model() -> ArithmeticTransformer:
    return small()


@pytest.fixture(scope="module")
def text() -> tuple[torch.Tensor, torch.Tensor]:
    window = torch.randint(0, 65, (3, 31), generator=torch.Generator().manual_seed(1))
    return window[:, :-1], window[:, 1:]


# ---- weights


def test_an_ov_circuit_is_its_scale_times_its_integers_exactly(model):
    circuits = integer_circuits(model)
    weights = {key: w.detach().double() for key, w in model.effective_weights().items()}
    ternary = model.weight_map.ternary()
    for layer in range(2):
        v, o = (weights[f"blocks.{layer}.attn.W_{x}"] / ternary[f"blocks.{layer}.attn.W_{x}"].scale for x in "VO")
        assert torch.equal(v @ o, circuits.values[layer].double())
        ov = weights[f"blocks.{layer}.attn.W_V"] @ weights[f"blocks.{layer}.attn.W_O"]
        torch.testing.assert_close(ov, circuits.scale[layer] * circuits.values[layer].double(), rtol=1e-12, atol=0)
    assert circuits.values.abs().max() <= 12


def test_circuits_are_stored_and_compared_without_a_tolerance(model, tmp_path):
    circuits = integer_circuits(model)
    circuits.save(tmp_path / "circuits.safetensors")
    again = load_circuits(tmp_path / "circuits.safetensors")
    assert again.equals(circuits) and again.ranks == circuits.ranks
    again.values[1, 0, 3, 4] += 1
    assert not again.equals(circuits)


@pytest.mark.parametrize("rank", [0, 1, 5, 9])
def test_the_rank_of_integers_is_numpys(rank):
    generator = np.random.default_rng(rank)
    matrix = generator.integers(-3, 4, (14, rank)) @ generator.integers(-3, 4, (rank, 11))
    assert integer_rank(torch.from_numpy(matrix)) == np.linalg.matrix_rank(matrix.astype(float)) <= rank


def test_a_head_that_reads_only_where_the_earlier_one_does_not_write_composes_with_it_not_at_all():
    model = small()
    written = (torch.arange(24) < 12).float()
    with torch.no_grad():
        parameters = dict(model.weight_map.named_parameters())
        parameters["blocks/0/attn/W_O"][0] *= written
        parameters["blocks/1/attn/W_V"][1] *= 1 - written[:, None]
    table = value_composition(model, draws=5).to_dataframe().set_index(["early", "late"])
    assert len(table) == 4  # two heads into two heads
    assert table.loc[("L0H0", "L1H1"), "score"] == 0 and table.loc[("L0H0", "L1H1"), "chance"] > 0
    assert (table.drop(("L0H0", "L1H1"))["score"] > 0).all()


def test_flips_count_entries_that_changed_their_ternary_value(model):
    start = {name: p.detach().clone()[None] for name, p in model.weight_map.named_parameters()}
    later = {name: p.clone() for name, p in start.items()}
    later["blocks/0/attn/W_Q"] *= -1  # every entry that is not zero flips, in one of two W_Q
    found = ternary_training({0: start, 10: later}, model).table
    ternary = model.weight_map.ternary()
    not_zero = float((ternary["blocks.0.attn.W_Q"].values != 0).double().mean())
    assert float(found["flipped"].sel(step=10, kind="W_Q")) == pytest.approx(not_zero / 2)
    assert float(found["to_end"].sel(step=0, kind="W_Q")) == pytest.approx(not_zero / 2)
    assert float(found["flipped"].sel(step=10, kind="W_K")) == 0
    assert np.isnan(found["flipped"].sel(step=0)).all()
    zeros = torch.cat([ternary[f"blocks.{i}.mlp.W_in"].values.flatten() for i in range(2)]) == 0
    assert float(found["zeros"].sel(step=0, kind="W_in")) == pytest.approx(float(zeros.double().mean()))


# ---- scores


def test_coordinates_and_similarity_with_key_bias_add_up_to_the_models_scores(model, text):
    _, cache = model.run_with_cache(text[0])
    q, k = (cache[name, 1].transpose(1, 2) for name in "qk")
    scores = cache["attn_scores", 1]
    seen = scores > float("-inf")
    for ours in (score_terms(q, k, 1.0).sum(-1), min_similarity(q, k, 1.0).scores):
        torch.testing.assert_close(ours[seen], scores[seen], atol=1e-4, rtol=0)


def test_the_query_term_changes_no_pattern(model, text):
    _, cache = model.run_with_cache(text[0])
    q, k = (cache[name, 0].transpose(1, 2) for name in "qk")
    parts = min_similarity(q, k, 1.0)
    without = parts.similarity + parts.key_bias.unsqueeze(-2)
    torch.testing.assert_close(without.softmax(-1), parts.scores.softmax(-1), atol=1e-5, rtol=0)


def test_reading_scores_gives_every_head_a_number_of_coordinates_between_one_and_all(model, text):
    found = read_scores(model, text[0], "random characters")
    assert len(found.table) == 4 and found.error < 1e-4
    assert found.table["coordinates"].between(1, 12).all() and found.table["top_share"].between(1 / 12, 1).all()
    with pytest.raises(UserError, match="'dot'"):
        read_scores(small(attn_scores="dot"), text[0], "")


# ---- heads


def test_effective_keys_and_dropped_mass_of_a_pattern_that_one_can_count():
    scores = torch.zeros(1, 1, 6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf"))
    pattern = torch.zeros(1, 1, 6, 6)
    pattern[..., :2] = 0.5  # of the 5 and 6 equal keys of queries 4 and 5, two are kept
    found = key_measures(scores, pattern, top_k=4)
    assert found["effective_keys"].item() == pytest.approx(2)
    assert found["dropped_mass"].item() == pytest.approx((3 / 5 + 4 / 6) / 2)
    assert found["previous"].item() == 0
    with pytest.raises(UserError, match="more than 6"):
        key_measures(scores, pattern, top_k=6)


def test_ablating_a_head_that_writes_nothing_costs_nothing(text):
    model = small()
    with torch.no_grad():
        dict(model.weight_map.named_parameters())["blocks/1/attn/W_O"][0] = 0
    rows = head_table(model, *text, "random characters").table.set_index("head")
    assert rows.loc["L1H0", "zero"] == rows.loc["L1H0", "mean"] == 0
    assert (rows.loc[["L0H0", "L0H1", "L1H1"], "zero"].abs() > 1e-4).all()
    assert rows["effective_keys"].between(1, 4.001).all() and rows["dropped_mass"].between(0, 1).all()


# ---- attribution against patching


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_the_estimate_is_the_slope_of_the_real_effect(corruption, text):
    model = small().double()
    found = check_patching(model, *text, "random characters", corruption, steps=(1e-7, 1.0))
    near = found.effects.sel(step=1e-7)
    for kind in KINDS:
        real, estimate = (near[name].sel(kind=kind).values for name in ("real", "estimate"))
        np.testing.assert_allclose(real, estimate, atol=1e-3 * np.abs(estimate).max())
    assert len(found.to_dataframe()) == 8


def test_patching_all_the_way_is_a_run_with_the_other_windows_head(model, text):
    tokens, targets = text
    found = check_patching(model, tokens, targets, "random characters", steps=(1.0,))
    _, cache = model.run_with_cache(tokens.roll(-1, 0))
    mine = (torch.arange(2) == 1)[:, None]
    hook = ("blocks.0.attn.hook_z", lambda z, hook: torch.where(mine, cache["z", 0], z))
    expected = window_losses(model, tokens, targets, [hook]) - window_losses(model, tokens, targets, [])
    real = found.effects["real"].sel(step=1.0, kind="z").values[0, 1]
    np.testing.assert_allclose(real, expected.numpy(), atol=1e-5)


def test_one_character_changes_one_and_refuses_where_there_is_nothing_to_change_it_to(model, text):
    corrupted = one_character(text[0])
    assert ((corrupted != text[0]).sum(1) == 1).all() and (corrupted != text[0])[:, 15].all()
    with pytest.raises(UserError, match="one character in the middle"):
        one_character(torch.zeros(3, 10, dtype=torch.long))
    with pytest.raises(UserError, match="at least two windows"):
        check_patching(model, text[0][:1], text[1][:1], "")
    with pytest.raises(UserError, match="no corruption 'one'"):
        check_patching(model, *text, "", "one")


# ---- pictures and stored numbers


def test_every_result_says_what_it_found_and_draws_it(model, text):
    results = [integer_circuits(model), value_composition(model, 3), head_table(model, *text, "text")]
    results += [read_scores(model, text[0], "text"), check_patching(model, *text, "text")]
    for result in results:
        assert result.sentence().endswith(".") and len(result.to_dataframe()) and result.figure().data


def test_the_stored_numbers_are_of_every_head_and_kind():
    stored = json.loads((files("interp") / "data/experiments/addlm-inside.json").read_text())
    circuits = stored["circuits"]["rows"]
    assert len(circuits) == 16 and {row[3] for row in circuits} == {32}
    assert len(stored["composition"]["rows"]) == 6 * 16  # pairs of heads in different layers
    assert {len(part["rows"]) for part in stored["heads"].values()} == {16}
    assert len(stored["patching"]["rows"]) == 2 * 2 * 2 * 4  # models, corruptions, steps, kinds


@dataclass(frozen=True)
class Named(Result):
    """A result whose picture is its name."""

    name: str
    provenance: Provenance

    def sentence(self) -> str:
        return self.name

    def to_dataframe(self) -> pd.DataFrame:
        return pd.DataFrame()

    def figure(self, **options: Any) -> Any:
        return self.name


def test_the_stored_page_puts_every_sentence_and_picture_where_it_belongs():
    stored = json.loads((files("interp") / "data/experiments/addlm-inside.json").read_text())
    said = stored["sentences"]
    results = [Named(f"{i}", Provenance(1, None, "")) for i in range(len(said))]
    bare, drawn = show_inside(stored), show_inside(stored, results)
    assert [figure for section in drawn for figure in section.figures] == [each.name for each in results]
    assert not any(section.figures for section in bare)
    for section, full in zip(drawn, bare, strict=True):
        assert section.text == full.text and all(said[int(figure)] in section.text for figure in section.figures)
    heads, full = drawn[3].tables[0], bare[3].tables[0]
    assert "effective_keys_low" in full and "effective_keys_low" not in heads
