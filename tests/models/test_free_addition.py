"""The construction's decoder with free weights: it computes the construction, at any width, and can be trained."""

from __future__ import annotations

import pytest
import torch

import models
from models.hand_built.free_addition import OPTIONS, WIDTHS, constructed, name_of
from models.partial_forward import exact_match


@pytest.mark.parametrize("width", WIDTHS)
def test_the_start_computes_the_construction_whatever_stands_in_further_dimensions(width):
    built = models.build("position-coupling-hand-built", bos_tie=OPTIONS.bos_tie)
    free = constructed(width)
    task = free.task.at(5, 7)
    tokens = task.encode(task.sample(20, torch.Generator().manual_seed(1)))
    torch.testing.assert_close(free(tokens), built(tokens))
    assert exact_match(free, task, task.sample(20, torch.Generator().manual_seed(2))).all()


def test_gradients_reach_weights_that_read_the_further_dimensions():
    free = constructed(64)
    tokens = free.task.encode(free.task.sample(8, torch.Generator().manual_seed(0)))
    loss = free(tokens).log_softmax(-1)[..., 0].sum()
    loss.backward()
    gradients = {
        name: p.grad for name, p in free.weight_map.named_parameters() if name.endswith(("W_V", "W_in", "W_U"))
    }
    reading = [g[:, 41:] if name.endswith("W_V") else g[41:] for name, g in gradients.items()]
    assert len(reading) == 3 and all(g.abs().max() > 0 for g in reading)


def test_random_weights_do_not_add():
    model = models.build(name_of(41), seed=0)
    assert not exact_match(model, model.task, model.task.sample(20, torch.Generator().manual_seed(2))).any()
