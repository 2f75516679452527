"""One sentence on two models, of three comparisons: it calls copies the same and fresh models not the same."""

import pytest
import torch

import interp
import models
from models.errors import UserError

NAME = "microadder-57"
SMALL = {"n": 64, "untrained": 2}


def moved(name: str):
    """The same model with its two MLP neurons exchanged: other parameters, one function."""
    model = models.load(name).dense_copy()
    with torch.no_grad():
        weights = dict(model.weight_map.named_parameters())
        for key, axis in (("blocks/0/mlp/W_in", 1), ("blocks/0/mlp/b_in", 0), ("blocks/0/mlp/W_out", 0)):
            if key in weights:
                weights[key].copy_(weights[key].flip(axis).clone())
    return model


def test_a_model_with_its_neurons_exchanged_is_the_same():
    found = interp.sameness(models.load(NAME).dense_copy(), moved(NAME), **SMALL)
    assert found.verdict == "the same"
    assert found.distance <= 0.01 or len(found.swaps.kept()) == len(found.swaps.components)


@pytest.mark.slow
def test_fresh_parameters_are_not_the_same_model():
    found = interp.sameness(models.load(NAME), models.build(NAME, seed=1), **SMALL)
    assert found.verdict == "not the same" and not found.swaps.kept()


@pytest.mark.slow
def test_a_twin_by_hand_reads_alike_and_the_parts_that_survive_are_named():
    found = interp.sameness(models.load(NAME), models.build(f"{NAME}-by-hand"))
    table = found.to_dataframe()
    assert table.loc[table["comparison"] == "reading", "value"].max() <= 0.1
    assert found.distance > 0.1 and found.verdict == "undecided"
    assert set(table.loc[(table["comparison"] == "exchanged") & table["same"], "part"]) == set(found.swaps.kept())


def test_of_a_model_that_cannot_add_it_is_not_asked():
    with pytest.raises(UserError):
        interp.sameness(models.build(NAME, seed=1), models.load(NAME), **SMALL)
