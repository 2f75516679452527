"""Circuits that are proved right on every input, and a mask of the numbers that carry a variable."""

from __future__ import annotations

import pytest
import torch

import interp
import models
from interp.causal.interchange.interchange_intervention import interchange_intervention
from models.errors import UserError
from tests.exams.subjects import scaled


def test_circuits_that_cannot_be_listed_or_are_wrong_as_a_whole_are_refused():
    adder = models.load("microadder-57")
    with pytest.raises(UserError, match="more circuits of its edges than 4"):
        interp.certified_circuits(adder, n=16, most=4)
    with pytest.raises(UserError, match="wrongly with all of its edges"):
        interp.certified_circuits(scaled("out_A", 0.5), n=64)


@pytest.mark.slow  # three thousand circuits of a modular adder, one of which is proved
def test_the_only_circuit_of_a_construction_is_found_and_proved():
    found = interp.certified_circuits(models.build("modular-pizza-hand-built", p=13), constants="zero", n=169)
    assert [set(names) for names in found.minimal] == [{"embed->L0H0.v", "L0H0->L0.mlp", "L0.mlp->logits"}]
    assert set(found.table["status"]) == {"certified", "refuted"}
    assert (found.table.loc[found.table["status"] == "refuted", "wrong"] != "").all()


@pytest.mark.slow
def test_a_mask_takes_the_numbers_that_carry_a_variable():
    """The head writes along one direction in the token plane, so that two numbers of the stream carry the total."""
    model = models.load("microadder-57")
    place = "blocks.0.hook_resid_mid"
    found = interchange_intervention(
        model, "total", 5, sites=place, algorithm="ripple", subspace=2, method="dbm", n=100, n_train=200, controls=False
    )
    assert set(torch.from_numpy(found.bases[0]).argmax(0).tolist()) == {0, 1}
    assert found.largest("accuracy").value > 0.9
