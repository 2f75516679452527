"""Subtractors: opposed heads, and what they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.families.microadder import MicroAdderWeights
from models.families.microadder_options import MicroAdderOptions
from models.families.subtractors import TWIN
from models.training.choose_objective import objective_for
from models.training.stacked_objective import GeneralObjective
from models.training.ten_digit_problems import SubtractionProblems
from models.training.training_batches import TrainingStream
from tests.models.training.stacked import stack
from tests.sampling import every_third

NAMES = [name for name in models.names(sweeps=True) if name.startswith("subtractor-")]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_says_the_number_of_free_parameters(name: str):
    assert models.registry.parameter_count(name) == int(name.removeprefix("subtractor-"))


@pytest.mark.parametrize("name", every_third(NAMES))
def test_the_fast_objective_is_the_general_one(name: str):
    model, layout, theta = stack(name)
    fast = objective_for(model)
    tokens, targets = TrainingStream(model.task, SubtractionProblems(), 64, [0, 1, 2], torch.device("cpu")).batch(9_000)
    losses = [objective.loss(layout.unflatten(theta), tokens, targets) for objective in (fast, GeneralObjective(model))]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
    ours, general = (torch.autograd.grad(loss.sum(), theta)[0] for loss in losses)
    assert ((ours - general).abs() / general.abs().amax(1, keepdim=True)).max() < 2e-5


def test_each_head_has_an_operand_to_itself_from_the_start():
    model = models.build("subtractor-47")
    _, cache = model.run_with_cache(model.task.encode([(9_876_543_210, 1_234_567_890)]))
    pattern = cache["pattern", 0][0][:, 22:]  # of the answer's places after the equals sign
    operands = torch.stack([pattern[..., :10].sum(-1), pattern[..., 11:21].sum(-1)], 1)  # [head, operand, query]
    assert (operands[0, 0] > operands[0, 1]).all() and (operands[1, 1] > operands[1, 0]).all()


def test_the_second_operand_s_places_are_off_by_three_numbers_and_nothing_else_differs():
    weights = MicroAdderWeights(TWIN)
    weights.initialise(torch.Generator().manual_seed(0))
    made = weights()
    place, off = made["pos_embed.W_pos"][:, 2:], dict(weights.named_parameters())["pos_second"]
    torch.testing.assert_close(place[11:21], place[:10] + off)
    assert torch.equal(place[22:32], place[:10])
    for name in ("W_K", "W_V"):
        first, second = made[f"blocks.0.attn.{name}"]
        assert torch.equal(first, second)
    reflected = made["blocks.0.attn.W_Q"] * torch.tensor([1.0, 1, 1, 1, -1])[:, None]
    assert torch.equal(reflected[0], made["blocks.0.attn.W_Q"][1])


@pytest.mark.parametrize(
    "changes",
    [
        {"n_heads": 1},
        {"opposed": False},
        {"values": "own"},
        {"out_rank": None},
        {"columns": "table", "plus": "zero", "equals": "learned", "level": False},
        {"tie_qk": False},
        {"qk": "circle"},
    ],
)
def test_opposed_heads_refuse_what_they_cannot_share(changes: dict[str, Any]):
    with pytest.raises(UserError, match="one direction"):
        replace(TWIN, **changes)
    assert not MicroAdderOptions().opposed
