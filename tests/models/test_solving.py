"""models.solve: a model's own answers to what somebody types."""

import pytest
import torch

import models
from models.errors import UserError
from models.tasks import formatted
from models.weight_maps.dense import DenseWeights


def test_the_answers_are_the_models_own_and_wrong_ones_are_said():
    adder = models.load("adder-3-by-hand")
    (found,) = models.solve(adder, "57+48")
    assert (found.answer, found.expected, found.right, str(found)) == (105, 105, True, "57+48 = 105")
    assert [each.answer for each in models.solve(adder, ["1+2", (999, 1)])] == [3, 1000]
    assert [each.answer for each in models.solve(adder, torch.tensor([[1, 2], [999, 1]]))] == [3, 1000]
    config = models.TransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=0, d_vocab=12, n_ctx=8, act_fn="relu"
    )
    untrained = models.ArithmeticTransformer(DenseWeights(config), formatted("{a:2}+{b:2}={s:3}", "a + b"))
    assert not models.solve(untrained, "57+48")[0].right and "it is 105" in str(models.solve(untrained, "57+48"))


def test_what_is_no_problem_is_refused():
    adder = models.load("adder-3-by-hand")
    for bad in ([], "57*48", "57", torch.tensor(3), torch.tensor([1, 2])):
        with pytest.raises(UserError):
            models.solve(adder, bad)
    with pytest.raises(UserError, match="task="):
        models.solve(lambda tokens: tokens, "57+48")
