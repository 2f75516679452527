"""Composition scores, against full matrices, TransformerLens' formula and planted pairs."""

from __future__ import annotations

import pytest
import torch
from transformer_lens.utilities.matrix import composition_scores as of_lens

import interp
import models
from interp.probes.composition_scores import composition


@pytest.fixture(scope="module")
def two_heads():
    from benchmarks.provability.ordinary_models import MODELS

    return models.load(MODELS / "induction-6-two-heads-0")


def test_the_key_side_stands_out_in_a_trained_model():
    found = interp.composition_scores(models.load("induction-6"))
    rows = found.table.set_index("side")
    assert rows.score["key"] > rows.score_random_high["key"] and rows.p_value["key"] < 0.01
    assert (rows.score[["query", "value"]] < rows.score_random_low[["query", "value"]]).all()
    assert rows.score_random["key"] == pytest.approx(32**-0.5, rel=0.02)


@pytest.mark.parametrize("kind", ["query", "key", "value"])
def test_scores_are_those_of_full_matrices_and_of_the_lens(two_heads, kind):
    found = interp.composition_scores(two_heads)
    right = {"query": two_heads.QK, "key": two_heads.QK.T, "value": two_heads.OV}[kind]
    lens = of_lens(two_heads.OV[0], right[1], broadcast_dims=True)
    for one, writer in enumerate(("L0H0", "L0H1")):
        for two, reader in enumerate(("L1H0", "L1H1")):
            written, read = two_heads.OV.AB[0, one].double(), right.AB[1, two].double()
            expected = (written @ read).norm() / written.norm() / read.norm()
            score = found.cell("score", side=kind, writer=writer, reader=reader).value
            assert score == pytest.approx(float(expected), rel=1e-5)
            assert float(lens[one, two]) == pytest.approx(float(expected), rel=1e-4)


def test_a_reader_of_the_very_subspace_and_of_another_one():
    eye = torch.eye(8, dtype=torch.float64)
    one, other = eye[:, :2], eye[:, 2:4]
    assert float(composition((one, one), (one, one))) == pytest.approx(2**-0.5)
    assert float(composition((one, one), (other, one))) == 0
    first = eye[:, :1]
    assert float(composition((first, first), (first, first))) == pytest.approx(1)


def test_one_layer_is_refused():
    with pytest.raises(models.UserError):
        interp.composition_scores(models.load("microadder-57"))
    assert "composition_scores" not in interp.probes(models.load("microadder-57")).index
