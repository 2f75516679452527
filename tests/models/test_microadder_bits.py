"""Weights of MicroAdder have the same bits on every processor, since a certificate is about every bit."""

from __future__ import annotations

import numpy as np
import pytest

import models


@pytest.mark.parametrize("name", ["microadder-57", "microadder-133", "microadder-187", "microadder-226"])
def test_products_are_rounded_term_by_term(name):
    weight_map = models.load(name).weight_map
    weights = {key: value.detach().numpy() for key, value in weight_map().items()}
    tokens = weights["embed.W_E"]
    own = {key: value.detach().numpy() for key, value in weight_map.named_parameters()}
    total = np.zeros((own["W_head"].shape[1], len(tokens)), dtype=np.float32)
    for k, row in enumerate(own["W_head"]):
        total += np.outer(row, tokens[:, k])
    assert np.array_equal(weights["unembed.W_U"], total)
