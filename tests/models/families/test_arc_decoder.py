"""The arc decoders: the published formula, written out here once more, gives the same logits; and what is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import interp
import models
from interp.proofs.stored_verdicts import on_all_inputs, stored_verdict
from models.errors import UserError
from models.families.arc_decoder import CONSTANTS, DECODERS
from models.registry import constructed, numbers_of, recipe_of

NAMES = list(DECODERS)


def turned(h: Tensor, angle: Tensor | float) -> Tensor:
    c, s = torch.cos(torch.as_tensor(angle)), torch.sin(torch.as_tensor(angle))
    a, b = h[..., 0::2], h[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def published_logits(name: str, tokens: Tensor) -> Tensor:
    """The formula of the publication, one operation at a time, in float64."""
    of = DECODERS[name]
    phi = torch.tensor(of.numbers, dtype=torch.float64)
    zero, g = phi.new_zeros(()), phi[list(of.g)]
    Q, G, U = (
        torch.stack([phi[places[i]] if i in places else zero for i in range(3 * rows)]).reshape(rows, 3)
        for rows, places in ((4, of.Q), (2, of.G), (2, of.U))
    )
    gain = torch.stack((phi[of.f], zero - 1.0, zero, zero + 3.6))
    angle = 1.0 + torch.arange(10, dtype=torch.float64) * math.pi / 48
    E = 160.0 * torch.stack((angle.cos(), angle.sin(), 0 * angle), 1)

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    x = E[tokens]
    n = tokens.shape[1]
    h = norm(x, g) @ Q.T
    place = torch.arange(n, dtype=torch.float64)[:, None] * torch.tensor([1.0, 3.0**-0.5], dtype=torch.float64)
    q, k = (turned(norm(part, gain), place) for part in (h, turned(h, 0.5)))
    scores = q @ k.transpose(-1, -2) / 2 + torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
    x = x + scores.softmax(-1) @ h @ Q
    y = norm(x, g)
    hidden = turned(torch.nn.functional.silu(y @ G.T) * (y @ U.T), 1.8)
    return norm(x + hidden @ U, g) @ E.T


@pytest.mark.parametrize("name", NAMES)
def test_the_weight_map_has_the_logits_of_the_published_formula(name: str) -> None:
    model = models.load(name)
    tokens = model.task.encode(model.task.held_out.problems[:20])
    weights = {key: value.double() for key, value in model.weight_map.double()().items()}
    ours = model(tokens, weights=weights)
    assert torch.allclose(ours, published_logits(name, tokens), rtol=1e-5, atol=1e-3)  # rotary positions are float32


@pytest.mark.parametrize("name", NAMES)
def test_it_is_neither_trained_here_nor_set_by_hand(name: str) -> None:
    assert models.get_spec(name).made == "published numbers" and name not in constructed()
    with pytest.raises(UserError, match="others published"):
        recipe_of(name)
    card = models.zoo.entry_file(name, "card.md").decode()
    assert "8 constants" in card and "bounds no error rate" in card and "95% confidence" not in card
    assert numbers_of(name) == (int(name[-2:]), CONSTANTS)


def test_the_16_is_proved_over_the_reals_and_the_15_is_wrong_on_an_exact_share() -> None:
    assert on_all_inputs("arc-decoder-16") == "certified in intervals"
    found = stored_verdict("arc-decoder-15")
    assert found is not None and found.status == "refuted"
    assert found.accuracy.wrong().startswith("wrong on exactly 0.00050544")
    pair = torch.tensor([[9010009999, 9499989999]])
    answer = models.evaluation.predict(models.load("arc-decoder-15"), pair, "greedy")
    assert models.load("arc-decoder-15").task.decode(answer) == [18609999998]


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_the_16_is_the_program_that_this_projects_adders_are() -> None:
    ours, theirs = (interp.decompile(models.load(name)) for name in ("microadder-22", "arc-decoder-16"))
    assert theirs.program == ours.program and theirs.gap > 0.4
    assert (theirs.levels.along == 1).sum() > 80  # along the second direction, where the first does not have them
