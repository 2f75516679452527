"""What is meant by a model with hooks."""

import models
from models.transformer.hooked import Hooked
from tests.interp.conftest import stock_copy


def test_this_projects_models_and_transformer_lens_own_are_hooked_models() -> None:
    adder = models.load("microadder-57")
    assert isinstance(adder, Hooked) and isinstance(stock_copy(adder), Hooked)
    assert not isinstance(adder.weight_map, Hooked)
