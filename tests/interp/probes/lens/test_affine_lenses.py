"""The Jacobian lens and the tuned lens: derivatives and minima by other means, problems held out, and controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import interp
import models
from interp.core.key_roles import ALL_TARGETS
from interp.core.named_places import stream_points
from interp.probes.lens.affine_lens import helps, most_common_right
from interp.probes.lens.jacobian_lens import _turned_at_random, mean_jacobians
from interp.probes.lens.logit_lens import unembedded
from interp.probes.lens.tuned_lens import PENALTY, trained
from models.errors import UserError
from tests.interp.probes.lens.made import random_model

TOY = models.load("toygpt-learned-pre")


def read_by(found: Any) -> Any:
    """The share of right tokens of all targets together [lens, point]."""
    return found.table.accuracy.sel(target=ALL_TARGETS)


def tokens_of(model: Any, n: int) -> torch.Tensor:
    return model.task.encode(model.task.sample(n, torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("name", ["ln", "rms", "rms-gated-rotary", "attention-only"])
def test_the_jacobian_is_the_mean_of_all_derivatives_of_the_last_stream(name: str):
    model = random_model(name).double()
    tokens, queries = tokens_of(model, 3), list(model.task.query_positions)
    points = stream_points(model)
    found = mean_jacobians(model, tokens, list(points.values()), queries)
    layer = 1
    with torch.no_grad():
        before = model.run_with_cache(tokens)[1][f"blocks.{layer - 1}.hook_resid_post"]
    last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"

    def rest(stream: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        model.run_with_hooks(stream, start_at_layer=layer, fwd_hooks=[(last, lambda x, hook: kept.append(x))])
        return kept[0]

    total = torch.zeros_like(found[0])
    for one in before:
        whole = torch.func.jacrev(rest)(one[None])[0, :, :, 0]  # [later, out, pos, in]
        for t in queries:
            total += whole[queries][:, :, t].sum(0).T
    expected = total / (len(before) * len(queries))
    ours = found[list(points).index(f"L{layer - 1} post")]
    assert torch.allclose(ours, expected, rtol=1e-9, atol=1e-11)
    assert torch.allclose(found[-1], torch.eye(12, dtype=torch.float64))


def test_where_nothing_is_added_later_the_jacobian_lens_is_the_logit_lens():
    model = TOY.dense_copy().eval()
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            if name.startswith(("blocks/2", "blocks/3")) and name.endswith(("W_O", "b_O", "W_out", "b_out")):
                parameter.zero_()
    found = interp.jacobian_lens(model, n=64)
    later = read_by(found).sel(point=["L1 post", "L2 mid", "L2 post", "L3 mid", "L3 post"])
    assert np.array_equal(later.sel(lens="Jacobian lens"), later.sel(lens="logit lens"))
    points, queries = stream_points(model), list(model.task.query_positions)
    matrix = dict(zip(points, mean_jacobians(model, tokens_of(model, 32), [*points.values()], queries), strict=True))
    eye = torch.eye(TOY.config.d_model)
    assert torch.allclose(matrix["L1 post"], eye, atol=1e-6) and not torch.allclose(matrix["L1 mid"], eye, atol=1e-2)


def test_the_control_of_the_jacobian_has_its_singular_values_and_other_directions():
    matrix = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turned = _turned_at_random(matrix, 0)
    assert torch.allclose(torch.linalg.svdvals(turned), torch.linalg.svdvals(matrix))
    assert torch.equal(turned[-1], matrix[-1]) and not torch.allclose(turned[0], matrix[0], atol=0.1)


def test_a_translator_is_at_the_minimum_of_the_divergence():
    """Without norms the divergence is convex in A and b, so that long gradient descent must end at the same value."""
    model = random_model("no-norm").double()
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(2, 60, 1, 12, generator=generator, dtype=torch.float64)
    final = torch.randn(60, 1, model.config.d_vocab, generator=generator, dtype=torch.float64)
    found = trained(model, stream, final, 500)
    wanted = final[:, 0].log_softmax(-1)
    x, size = stream[0, :, 0], stream[0].pow(2).mean().sqrt()

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        log_p = unembedded(model, (x + x @ a + size * b)[None])[0].log_softmax(-1)
        return (wanted.exp() * (wanted - log_p)).sum(-1).mean() + PENALTY * (a.pow(2).sum() + b.pow(2).sum()) / 12

    a, b = torch.zeros(12, 12, dtype=torch.float64), torch.zeros(12, dtype=torch.float64)
    first, value = loss(a, b), loss(a, b)
    for each in (a, b):
        each.requires_grad_()
    descent = torch.optim.Adam([a, b], lr=5e-3)
    for _ in range(2500):
        descent.zero_grad()
        value = loss(a, b)
        a.grad, b.grad = torch.autograd.grad(value, (a, b))
        descent.step()
    ours = loss(found.matrix[0] - torch.eye(12), found.bias[0] / size)
    assert ours.item() <= value.item() + 1e-5 and value.item() < 0.5 * first.item()
    assert torch.equal(found.matrix[1], torch.eye(12, dtype=torch.float64)) and not found.bias[1].any()


def test_a_tuned_lens_reads_a_two_digit_adder_two_layers_before_the_logit_lens_and_its_control_reads_nothing():
    found = interp.tuned_lens(TOY, n=600, steps=25)
    own, control, plain = read_by(found).values
    point = found.table.point.values.tolist().index("L1 post")
    assert own[point] > 0.9 and plain[point] < 0.75 and control[:-1].max() < 0.35
    divergence = found.table.kl.sel(target=ALL_TARGETS).values
    assert (divergence[0, :-1] < divergence[1:, :-1]).all()
    assert own[-1] == control[-1] == plain[-1] > 0.99
    at = found.table.sel(lens="tuned lens", point="L1 post", target=ALL_TARGETS)
    assert at.gain_low > 0.1 and at.p_value < 1e-3
    assert found.provenance.n <= 300  # half of the problems, each once
    assert len(found.to_dataframe()) == 3 * 9 * 4 and len(found.figure().data) >= 9
    assert all(parameter.grad is None for parameter in TOY.parameters())


def test_what_no_affine_map_can_read_is_not_said_to_be_read():
    """MicroAdder's digit is made by its MLP: before it, nothing is found that a map to shuffled answers would not."""
    for ask in (interp.tuned_lens, interp.jacobian_lens):
        found, again = (ask(models.load("microadder-57"), n=300) for _ in range(2))
        assert found.table.identical(again.table)
        assert found.table.p_value.min() > 0.05  # of all streams together
        assert float(read_by(found).sel(point="L0 mid")[0]) < 0.3


def test_a_lens_that_says_less_than_the_most_common_token_does_not_help():
    """What helps is above the other two lenses, and above saying one token always, wherever that lies."""
    found = interp.tuned_lens(TOY, n=600, steps=25)
    own = found.table.sel(lens="tuned lens", target=ALL_TARGETS)
    gains = (own.gain > 0) & (own.p_value < 0.05)
    assert 0.1 < own.accuracy_most_common < 0.4
    assert helps(found.table)[found.table.point.values.tolist().index("L1 post")]
    for base in (0.0, *own.accuracy_low.values.tolist(), 1.0):
        other = found.table.assign(accuracy_most_common=("target", np.full(4, base)))
        assert np.array_equal(helps(other), (gains & (own.accuracy_low > base)).values)


def test_of_tokens_that_are_as_common_each_is_said_as_often():
    """The first of them by number would be another one in another order of tokens."""
    assert most_common_right(np.array([3, 1, 1, 3, 2]), np.array([1, 1, 3, 0])) == pytest.approx(3 / 8)
    assert most_common_right(np.array([2, 2, 1]), np.array([2, 1, 2, 2])) == 0.75


@pytest.mark.slow
def test_half_precision_is_read_like_single():
    half = models.load("toygpt-learned-pre").to(torch.bfloat16)
    asked: Any = ((interp.tuned_lens, {"steps": 5}), (interp.jacobian_lens, {}))
    for ask, options in asked:
        ours, theirs = (read_by(ask(each, n=120, **options))[0] for each in (half, TOY))
        assert np.abs(ours - theirs).mean() < 0.06


def test_few_problems_are_refused():
    for ask in (interp.tuned_lens, interp.jacobian_lens):
        with pytest.raises(UserError, match="at least 32 different problems, not 2"):
            ask(TOY, problems=[(1, 2), (1, 2), (3, 4)])
