"""Counting multiplications: by hand on a small model, and the properties that AddLM's claim rests on."""

from __future__ import annotations

import pytest

import models
from models.errors import UserError
from models.transformer.config import TransformerConfig
from studies.addlm.multiplications import compute_multiplications, count_multiplications

TINY = TransformerConfig(1, 4, 1, 4, 8, 5, 3, normalization_type="LN")  # one layer, d_model 4, 8 units, 5 tokens


def test_a_small_float_model_by_hand():
    count = compute_multiplications(TINY, False, 3, "tiny")
    pairs = 1 + 2 + 3
    assert count.products == {
        "projections (Q, K, V, O)": 4 * 3 * 4 * 4,
        "scores": pairs * (4 + 1),  # the sum of four products, and 1 / sqrt(4)
        "softmax": pairs,
        "mixing values": pairs * 4,
        "MLP": 3 * (4 * 8 + 8 * 4) + 3 * 8,
        "norms": 3 * 3 * 3 * 4,
        "head": 3 * 4 * 5,
    }
    assert count.functions == {"softmax": pairs, "MLP": 3 * 8, "norms": 3 * 3}


def test_addlm_multiplies_in_scales_softmax_values_norms_and_head_only():
    cfg = TINY.replace(attn_scores="neg_l1", attn_scale=1.0, attn_top_k=2, act_fn="relu")
    count = compute_multiplications(cfg, True, 3, "tiny")
    kept = 1 + 2 + 2
    assert count.products["scores"] == 0
    assert count.products["projections (Q, K, V, O)"] == 4 * 3 * 4
    assert count.products["MLP"] == 3 * (8 + 4)
    assert count.products["mixing values"] == kept * 4
    assert count.total > 0  # "no multiplications anywhere" does not hold
    assert count.to_dataframe()["share"].sum() == pytest.approx(1)


def test_the_share_removed_grows_with_the_width():
    shares = [
        count_multiplications(models.build(f"addlm-{size}")).share_removed(
            count_multiplications(models.build(f"addlm-{size}-float"))
        )
        for size in ("0.8m", "5m")
    ]
    assert 0.9 < shares[0] < shares[1] < 1


def test_more_positions_than_the_model_has_are_refused():
    with pytest.raises(UserError, match="n_pos must be in 1..128"):
        count_multiplications(models.build("addlm-0.8m"), 129)
