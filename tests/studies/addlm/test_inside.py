"""Inside AddLM: integers are exact, and the parts of scores add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.addlm.scores import min_similarity, read_scores, score_terms
from studies.addlm.weights import (
    integer_circuits,
    integer_rank,
    value_composition,
)
from tests.studies.addlm.small import small


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
    table = value_composition(model, resamples=5).to_dataframe().set_index(["early", "late"])
    assert len(table) == 4  # two heads into two heads
    assert table.loc[("L0H0", "L1H1"), "score"] == 0 and table.loc[("L0H0", "L1H1"), "chance"] > 0
    assert (table.drop(("L0H0", "L1H1"))["score"] > 0).all()


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
