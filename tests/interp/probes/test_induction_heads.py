"""Scores of induction heads, against TransformerLens' detector and planted heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformer_lens import FactoredMatrix
from transformer_lens.head_detector import (
    compute_head_attention_similarity_score,
    get_induction_head_detection_pattern,
    get_previous_token_head_detection_pattern,
)

import interp
import models
from interp.probes.induction_heads import attention_scores, copying_scores, matched_keys
from tests.comparing import numbers_are_finite


@pytest.fixture(scope="module")
def trained():
    return models.load("induction-6")


def test_a_trained_model_has_both_heads(trained):
    found = interp.induction_heads(trained, n=512)
    previous, matching, copying = (found.largest(score) for score in ("previous", "matching", "copying"))
    assert previous.name == "L0H0" and previous.value > 2 * previous.control
    assert matching.name == "L1H0" and matching.value > 0.95 and matching.low > 5 * matching.control
    assert copying.name == "L1H0" and copying.value > 0.95 > 0.5 > abs(copying.control)
    assert abs(found.table["matching_untrained"][1] - 1 / 6) < 0.02


def test_the_scores_are_those_of_the_detector(trained):
    tokens = trained.task.sample(24, torch.Generator().manual_seed(1))
    previous, matching = attention_scores(trained, tokens)
    _, cache = trained.run_with_cache(tokens)
    for i, row in enumerate(tokens):
        patterns = {
            "previous": get_previous_token_head_detection_pattern(row[None]),
            "matching": get_induction_head_detection_pattern(row[None]),
        }
        assert torch.equal(patterns["matching"].bool(), matched_keys(row[None])[0])
        for layer in range(2):
            said = {
                name: compute_head_attention_similarity_score(
                    cache["pattern", layer][i, 0], detection_pattern=pattern, exclude_bos=False,
                    exclude_current_token=False, error_measure="mul",
                )
                for name, pattern in patterns.items()
            }  # fmt: skip
            # the detector divides by all queries; those without a previous or a matched key count as zero there
            assert previous[i, layer, 0] * 5 / 6 == pytest.approx(said["previous"], abs=1e-5)
            assert matching[i, layer, 0] / 6 == pytest.approx(said["matching"], abs=1e-5)


def test_copying_is_the_share_of_positive_eigenvalues(trained):
    for layer, found in enumerate(copying_scores(trained, trained.task)[:, 0]):
        whole = (FactoredMatrix(trained.W_E, trained.OV[layer, 0].AB) @ trained.W_U).AB.detach()
        values = torch.linalg.eigvals(whole.double())
        assert found == pytest.approx(float(values.real.sum() / values.abs().sum()), abs=1e-4)


def test_a_head_that_forbids_what_it_sees_has_negative_copying(trained):
    turned = trained.dense_copy()
    with torch.no_grad():
        turned.blocks[1].attn.W_O.neg_()
    one, other = copying_scores(trained, trained.task), copying_scores(turned, turned.task)
    np.testing.assert_allclose(other, one * [[1], [-1]], atol=1e-6)


def test_attention_that_sees_all_keys_alike_is_not_above_chance(trained):
    even = trained.dense_copy()
    with torch.no_grad():
        for block in even.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
    found = interp.induction_heads(even, n=64)
    whole = interp.induction_heads(trained, n=64)
    for score in ("previous", "matching"):
        assert found.largest(score).value == pytest.approx(found.largest(score).control, abs=1e-5)
        assert whole.largest(score).low > whole.largest(score).control
    assert found.sentence().startswith("No head") and not whole.sentence().startswith("No head")


@pytest.mark.parametrize("n", [2, 3])
def test_few_problems_have_wide_intervals_and_none_is_refused(trained, n: int):
    found = interp.induction_heads(trained, n=n)
    best = found.largest("matching")
    assert best.low <= best.value <= best.high and best.low < 0.9
    with pytest.raises(models.UserError):
        interp.induction_heads(trained, n=1)


@pytest.mark.parametrize("n", [4, 64])
def test_the_finding_has_the_interval_that_decides_it(trained, n: int):
    found = interp.induction_heads(trained, n=n)
    assert "[" in str(found.largest("matching")) and str(found.largest("matching")) in found.sentence()


def test_weights_that_are_not_finite_are_refused(trained):
    broken = trained.dense_copy()
    with torch.no_grad():
        broken.blocks[1].attn.W_K[0, 0, 0] = float("nan")
    for ask in (interp.induction_heads, interp.composition_scores):
        with pytest.raises(models.UserError):
            ask(broken)


def test_without_a_repeated_token_nothing_matches(trained):
    adder = models.build("modular-addition-59")
    found = interp.induction_heads(adder, problems=[(3, 4), (5, 6)])
    assert found.table["matching"].isna().all() and numbers_are_finite(found.sentence())
    with pytest.raises(models.UserError):
        found.largest("matching")


def test_a_model_of_another_vocabulary_and_post_norms_are_refused():
    with pytest.raises(models.UserError):
        interp.induction_heads(models.load("toygpt-learned-post"), n=4)
