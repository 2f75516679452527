"""AddLM's attention against its definition with every difference written out, gradients included."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from models.transformer.parts import tropical
from models.transformer.parts.tropical import attend, attend_in_blocks, pair_scores
from tests.comparing import assert_same

KINDS = ("neg_l1", "max_plus", "dot")


def naive_scores(q, k, kind):
    if kind == "dot":
        return q @ k.transpose(-1, -2)
    pairs = q[..., :, None, :] + (-1 if kind == "neg_l1" else 1) * k[..., None, :, :]
    return -pairs.abs().sum(-1) if kind == "neg_l1" else pairs.max(-1).values


def naive(q, k, v, kind, scale, top_k):
    scores = naive_scores(q, k, kind) / scale
    n_query, n_key = scores.shape[-2:]
    scores = scores.masked_fill(torch.ones(n_query, n_key, dtype=torch.bool).triu(1 + n_key - n_query), -torch.inf)
    if top_k is not None:
        least = scores.topk(min(top_k, n_key), -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    return scores.softmax(-1) @ v


def heads(n_query=20, n_key=20, dtype=torch.float64, whole=False):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(2, 3, n, 8, dtype=torch.float64, generator=generator) for n in (n_query, n_key, n_key)]
    if whole:  # many equal scores and equal coordinates
        drawn = [drawn[0].round(), drawn[1].round(), drawn[2]]
    return [x.to(dtype).requires_grad_() for x in drawn]


def with_gradients(z, inputs):
    weight = torch.randn(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(z.dtype)
    return (z, *torch.autograd.grad((z * weight).sum(), inputs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("top_k", [None, 1, 4, 99])
@pytest.mark.parametrize("n_query", [20, 7])
def test_blocks_of_queries_are_the_definition(kind, top_k, n_query, monkeypatch):
    monkeypatch.setattr(tropical, "SCORES_AT_ONCE", 1)
    monkeypatch.setattr(tropical, "FEWEST_QUERIES", 3)
    inputs = heads(n_query)
    expected = with_gradients(naive(*inputs, kind, 1.7, top_k), inputs)
    found = with_gradients(attend_in_blocks(*inputs, kind, 1.7, top_k), inputs)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("top_k", [None, 4])
def test_float32_is_exact_to_a_hundred_thousandth_by_whatever_path_is_chosen(kind, top_k):
    inputs = heads(dtype=torch.float32)
    expected = with_gradients(naive(*inputs, kind, 1.7, top_k), inputs)
    found = with_gradients(attend(*inputs, kind, 1.7, top_k), inputs)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 1e-5)


@pytest.mark.parametrize("top_k", [None, 1, 4])
def test_ties_and_coordinates_at_distance_zero(top_k):
    """Keys that tie for the last place all take part, and |x| has gradient 0 at 0, as in the definition."""
    inputs = heads(whole=True)
    expected = with_gradients(naive(*inputs, "neg_l1", 1.0, top_k), inputs)
    found = with_gradients(attend_in_blocks(*inputs, "neg_l1", 1.0, top_k), inputs)
    for one, other in zip(found, expected, strict=True):
        assert one.isfinite().all()
        assert_same(one, other, 1e-11)


def test_a_query_that_is_its_key_has_a_finite_gradient():
    q = torch.randn(1, 1, 6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    grads = torch.autograd.grad(attend(q, q, q, "neg_l1", 1.0, 2).sum(), q)
    assert grads[0].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_their_gradients_are_the_definition_under_vmap_as_well(kind):
    q, k, _ = heads()
    weight = torch.randn(2, 3, 20, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.autograd.grad((naive_scores(q, k, kind) * weight).sum(), (q, k))
    scores = torch.func.vmap(lambda a, b: pair_scores(a, b, kind))(q, k)
    assert_same(scores, naive_scores(q, k, kind), 1e-12)
    for one, other in zip(torch.autograd.grad((scores * weight).sum(), (q, k)), expected, strict=True):
        assert_same(one, other, 1e-12)


def test_negative_l1_is_a_sum_of_minima_and_a_bias_a_query_and_a_key():
    q, k, _ = heads()
    least = torch.minimum(q[..., :, None, :], k[..., None, :, :]).sum(-1)
    assert_same(pair_scores(q, k, "neg_l1"), 2 * least - q.sum(-1)[..., None] - k.sum(-1)[..., None, :], 1e-12)


MEMORY = """
import resource, torch
from models.transformer.parts.tropical import attend, attend_in_blocks
torch.set_num_threads(1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
q, k, v = (torch.randn(1, 4, 4096, 32).requires_grad_() for _ in range(3))
before = peak()
{call}(q, k, v, "neg_l1", 1.0, {top_k}).sum().backward()
assert all(x.grad.isfinite().all() for x in (q, k, v))
print(peak() - before, peak())
"""


@pytest.mark.slow
@pytest.mark.parametrize("call, top_k", [("attend", 16), ("attend_in_blocks", 16), ("attend_in_blocks", None)])
def test_4096_positions_of_four_heads_take_less_than_a_gigabyte(call, top_k):
    """Forward and backward, the whole process with torch in it; the naive form's differences alone are 8 GB."""
    out = subprocess.run(
        [sys.executable, "-c", MEMORY.format(call=call, top_k=top_k)], capture_output=True, text=True, check=True
    )
    more, whole = map(float, out.stdout.split())
    assert more < 500
    assert whole < 1024
