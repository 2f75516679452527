"""What ternary matrices hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.ternary import TERNARY, ternarise
from studies.addlm.entries import NORMAL, ternary_entries
from tests.studies.addlm.small import small


@pytest.fixture
def model() -> ArithmeticTransformer:
    return small()


def test_the_shares_are_counts_of_the_values_that_the_model_computes_with(model):
    result = ternary_entries(model)
    matrix = model.weight_map.ternary()["blocks.1.mlp.W_in"].values
    cell = result.table.sel(layer=1, kind="W_in")
    for name, value in (("minus", -1), ("zeros", 0), ("plus", 1)):
        assert float(cell[name]) == pytest.approx(float((matrix == value).double().mean()))
    assert int(cell.n) == matrix.numel()
    total = sum(m.values.numel() for m in model.weight_map.ternary().values())
    assert result.provenance.n == int(result.table.n.sum()) == total
    zeros = sum(int((m.values == 0).sum()) for m in model.weight_map.ternary().values())
    assert result.share() == pytest.approx(zeros / total)
    assert sum(result.share(of) for of in ("minus", "zeros", "plus")) == pytest.approx(1)


def test_uniform_weights_have_a_quarter_of_zeros_and_no_pile_at_the_thresholds(model):
    result = ternary_entries(model)  # as drawn
    assert result.share() == pytest.approx(0.25, abs=0.02)
    assert result.pile == pytest.approx(1, abs=0.15)


def test_the_share_of_zeros_of_a_normal_matrix_is_the_constant_that_is_printed():
    latent = torch.randn(1500, 1500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float((ternarise(latent).values == 0).double().mean()) == pytest.approx(NORMAL, abs=2e-3)


def test_weights_at_a_threshold_are_a_pile(model):
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            if name.rsplit("/", 1)[1] in TERNARY:
                scale = parameter.abs().mean()
                near = (parameter.abs() / scale - 0.5).abs() < 0.2
                parameter[near] = 0.5 * scale * parameter.sign()[near]  # the mean stays about the same
    assert ternary_entries(model).pile > 2


def test_float_weights_are_cut_only_if_asked_to():
    twin = models.build("addlm-0.8m-float", seed=0)
    with pytest.raises(UserError, match="no ternary weights"):
        ternary_entries(twin)
    result = ternary_entries(twin, as_if=True)
    assert result.as_if
    with pytest.raises(UserError, match="float models"):
        ternary_entries(models.build("addlm-0.8m", seed=0), as_if=True)
    with pytest.raises(UserError, match="float models"):
        ternary_entries(models.build("microadder-57"), as_if=True)


def test_the_histogram_holds_every_entry_within_its_reach(model):
    result = ternary_entries(model)
    assert int(result.histogram.sum()) == result.provenance.n  # uniform weights end at twice their mean
    figure = result.figure()
    bars = [trace for trace in figure.data if trace.type == "bar"]
    width = bars[0].x[1] - bars[0].x[0]
    assert sum(float(np.sum(bar.y)) for bar in bars) * width == pytest.approx(1)
    assert f"{result.share():.1%}" in figure.layout.title.text
