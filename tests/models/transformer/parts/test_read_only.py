"""Writing into a computed weight raises; into a parameter, a clone or a dense copy it does what it says."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import models
from models.errors import UserError
from tests.sampling import every_third

COMPUTED = ("microadder-57", "adder-456", "addlm-adder-two-digit")


def _set(x: Any) -> None:
    x[0] = 0


def _add(x: Any) -> None:
    x += 1


def _assign_data(x: Any) -> None:
    x.data = torch.zeros_like(x)


WRITES = {
    "item": lambda w: _set(w),
    "item of a row": lambda w: _set(w[0]),
    "augmented": lambda w: _add(w),
    "method": lambda w: w.zero_(),
    "of the transpose": lambda w: w.T.fill_(1),
    "of data": lambda w: w.data.mul_(0),
    "item of data": lambda w: _set(w.data),
    "of detached": lambda w: w.detach().copy_(w),
    "of one of its rows": lambda w: w.unbind()[0].zero_(),
    "data itself": _assign_data,
    "as an output": lambda w: torch.add(w, 1, out=w),
    "initialisation": lambda w: torch.nn.init.zeros_(w),
    "in-place activation": lambda w: F.relu(w, inplace=True),
    "many at once": lambda w: torch._foreach_mul_([w], 2),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", every_third(COMPUTED))
def test_a_computed_weight_is_not_written(name: str, write: str) -> None:
    model = models.build(name)
    for weight in (
        lambda: model.blocks[0].attn.W_Q[0],
        lambda: model.W_Q,
        lambda: model.W_K[0, 0],
        lambda: model.b_Q[0],
    ):
        before = weight().clone()
        if write == "of the transpose" and before.ndim != 2:
            continue
        if write == "item of a row" and before.ndim == 1:
            continue
        with torch.no_grad(), pytest.raises(UserError):
            WRITES[write](weight())
        assert torch.equal(weight(), before)


def test_parameters_that_are_handed_on_are_written_as_ever() -> None:
    model = models.build("toygpt-learned-pre")
    tokens = model.task.encode([(57, 48)])
    before = model(tokens).detach()
    with torch.no_grad():
        model.blocks[0].mlp.W_out[0] = 0
        model.W_E.mul_(0.5)
    assert float(model.W_out[0, 0].abs().max()) == 0
    assert not torch.equal(model(tokens), before)
    with torch.no_grad(), pytest.raises(UserError):
        model.W_out[0, 0] = 0  # a stack of layers is a copy, and was lost in a HookedTransformer too


def test_reading_is_as_with_any_tensor() -> None:
    model = models.build("microadder-57")
    weight = model.W_E
    for plain in (weight.clone(), weight @ model.W_U, weight + 1, torch.stack((weight, weight)), weight.max(0).values):
        assert type(plain) is torch.Tensor
    with torch.no_grad():
        clone = weight.clone()
        clone[0] = 0
    assert torch.equal(torch.vmap(torch.sum)(weight), weight.sum(1))
    weight.square().sum().backward()
    assert model.weight_map.arc_A.grad is not None
    file = io.BytesIO()
    torch.save({"W_E": weight.detach()}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["W_E"], weight)
    assert type(copy.deepcopy(weight.detach())) is torch.Tensor
    assert repr(weight) == repr(weight.clone()).replace("CloneBackward0", "AliasBackward0") or "tensor(" in repr(weight)


@pytest.mark.parametrize("name", [*COMPUTED, "position-coupling-1l4h-small", "toygpt-rotary-post"])
def test_a_dense_copy_is_equal_and_free(name: str) -> None:
    model = models.build(name)
    task = model.task.at(2, 2) if model.task.has_other_sizes else model.task
    tokens = task.encode(task.sample(3, torch.Generator().manual_seed(0)))
    dense = model.dense_copy()
    assert torch.equal(dense(tokens), model(tokens))
    assert dense.position_limits == model.position_limits and dense.name_or_path == model.name_or_path
    with torch.no_grad():
        dense.blocks[0].mlp.W_out[0] = 7.0
    assert float(dense.blocks[0].mlp.W_out[0].min()) == 7.0
    assert not torch.equal(dense(tokens), model(tokens))
