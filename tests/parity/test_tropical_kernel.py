"""The compiled L1 attention is the eager one: what it computes, whom it chooses, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models import TransformerConfig, UserError
from models.lens.runtime_config import RuntimeConfig
from models.transformer.parts import tropical_kernel
from models.transformer.parts.attention import Attention
from models.transformer.parts.tropical_kernel import eager_tropical_attention, fused_available, fused_tropical_attention

needs_compiler = pytest.mark.skipif(not fused_available(), reason="no C compiler here")


def on_a_grid(*shape: int, seed: int, step: float = 0.25) -> Tensor:
    """Multiples of ``step``, few enough that equal distances are common, and exact in any order of summation."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / step).round() * step


def inputs(batch: int, heads: int, queries: int, keys: int, d_head: int, seed: int) -> list[Tensor]:
    q = on_a_grid(batch, heads, queries, d_head, seed=seed)
    k = on_a_grid(batch, heads, keys, d_head, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed + 2)
    v, d_z = (torch.randn(batch, heads, n, d_head, generator=generator) for n in (keys, queries))
    return [q, k, v, d_z]


def with_gradient(attention, q: Tensor, k: Tensor, v: Tensor, d_z: Tensor, scale: float, top_k: int) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    z = attention(*leaves, scale, top_k)
    return [z.detach(), *torch.autograd.grad(z, leaves, d_z)]


def assert_same(q: Tensor, k: Tensor, v: Tensor, d_z: Tensor, scale: float, top_k: int) -> None:
    """Fused in float32 and eager in float64, to 1e-5 of the largest number (or of 1)."""
    fused = with_gradient(fused_tropical_attention, q, k, v, d_z, scale, top_k)
    exact = with_gradient(eager_tropical_attention, *(x.double() for x in (q, k, v, d_z)), scale, top_k)
    for name, got, expected in zip(("z", "d_q", "d_k", "d_v"), fused, exact, strict=True):
        size = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(got.double(), expected, atol=1e-5 * size, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


@needs_compiler
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 90), st.integers(0, 40), st.integers(1, 40), st.integers(0, 99)
)
def test_value_and_gradient_are_the_eager_ones_for_any_number_of_keys(batch, heads, queries, before, top_k, seed):
    assert_same(*inputs(batch, heads, queries, before + queries, 8, seed), scale=math.sqrt(8), top_k=top_k)


@needs_compiler
@pytest.mark.parametrize("d_head", [1, 5, 6, 12, 32, 64])
def test_heads_of_any_width(d_head: int):
    assert_same(*inputs(2, 2, 71, 71, d_head, seed=d_head), scale=1.0, top_k=16)


@needs_compiler
@pytest.mark.parametrize("top_k", [1, 2, 16, 17, 64, 300, 1000])
def test_any_top_k_up_to_more_than_there_are_keys(top_k: int):
    assert_same(*inputs(1, 2, 333, 333, 32, seed=top_k), scale=5.0, top_k=top_k)


@needs_compiler
def test_with_more_keys_than_the_best_all_that_equal_the_last_of_them_take_part():
    """All keys at one distance: every key has the same weight, however small top_k is."""
    q, k, v, d_z = inputs(1, 1, 150, 150, 8, seed=0)
    q, k = torch.zeros_like(q), torch.ones_like(k)
    z = fused_tropical_attention(q, k, v, 1.0, 3)
    torch.testing.assert_close(z, v.cumsum(2) / torch.arange(1, 151)[:, None], atol=1e-5, rtol=1e-5)
    assert_same(q, k, v, d_z, scale=1.0, top_k=3)


@needs_compiler
def test_a_key_that_is_not_chosen_has_no_gradient():
    q, k, v, d_z = inputs(1, 1, 30, 50, 8, seed=1)  # every query has more than twenty keys to choose four from
    k[0, 0, 7] += 100
    _, _, d_k, d_v = with_gradient(fused_tropical_attention, q, k, v, d_z, 1.0, 4)
    assert not d_k[0, 0, 7].any() and not d_v[0, 0, 7].any()
    assert d_k.any() and d_v.any()


@needs_compiler
@pytest.mark.parametrize("offset", [0.0, 3.0, -1000.0])
def test_off_the_grid_the_values_agree_wherever_the_choice_is_not_within_rounding(offset: float):
    """Where the 16th and 17th best differ by less than 1e-4, rounding may choose; those queries are few."""
    q, k, v = (torch.randn(2, 2, 300, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    q, k = q + offset, k + offset
    exact = eager_tropical_attention(*(x.double() for x in (q, k, v)), 2.0, 16)
    distance = torch.cdist(q.double(), k.double(), p=1.0)
    distance = distance.masked_fill(torch.ones(300, 300, dtype=torch.bool).triu(1), float("inf"))
    last, next = distance.topk(17, largest=False).values[..., -2:].unbind(-1)
    clear = ~((next - last) < 1e-4)
    assert clear.float().mean() > 0.99
    error = (fused_tropical_attention(q, k, v, 2.0, 16) - exact).abs().amax(-1)
    assert error[clear].max() < (1e-5 if abs(offset) < 10 else 5e-4)  # float32 inputs near 1000 have steps of 6e-5


@needs_compiler
def test_strided_views_of_batch_position_head_layout_are_taken_as_they_are():
    q, k, v, d_z = inputs(2, 3, 40, 40, 8, seed=3)
    moved = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    z = fused_tropical_attention(*moved, 1.0, 4)
    assert torch.equal(z, fused_tropical_attention(q, k, v, 1.0, 4))
    assert z.stride() == moved[0].stride()
    assert_same(*moved, d_z, scale=1.0, top_k=4)
    expanded = k[:, :1].expand(-1, 3, -1, -1)  # one key head for all
    assert_same(q, expanded, v, d_z, scale=1.0, top_k=4)
    assert_same(q[..., ::2], k[..., ::2], v[..., ::2], d_z[..., ::2], scale=1.0, top_k=4)


@needs_compiler
def test_threads_change_nothing():
    q, k, v, d_z = inputs(3, 3, 60, 60, 8, seed=4)
    one = with_gradient(fused_tropical_attention, q, k, v, d_z, 1.0, 5)
    torch.set_num_threads(4)
    try:
        four = with_gradient(fused_tropical_attention, q, k, v, d_z, 1.0, 5)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one, four, strict=True))


@needs_compiler
def test_a_query_that_is_not_a_number_attends_to_nothing_as_in_the_hooked_forward():
    q, k, v, _ = inputs(1, 1, 30, 30, 8, seed=5)
    clean = fused_tropical_attention(q, k, v, 1.0, 4)
    q[0, 0, 11] = float("nan")
    z = fused_tropical_attention(q, k, v, 1.0, 4)
    assert not z[0, 0, 11].any()
    others = torch.arange(30) != 11
    assert torch.equal(z[:, :, others], clean[:, :, others])


@needs_compiler
@pytest.mark.parametrize("top_k", [1, 4, 50])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_a_key_that_is_not_finite_is_shown_as_eager_attention_shows_it(value: float, top_k: int):
    """Queries before it do not see it; those from it on have what eager attention makes of it."""
    q, k, v, _ = inputs(1, 2, 30, 30, 8, seed=5)
    clean = fused_tropical_attention(q, k, v, 1.0, top_k)
    k[0, 0, 11, 3] = value
    z, eager = fused_tropical_attention(q, k, v, 1.0, top_k), eager_tropical_attention(q, k, v, 1.0, top_k)
    torch.testing.assert_close(z, eager, atol=1e-5, rtol=1e-5, equal_nan=True)
    torch.testing.assert_close(z[:, :, :11], clean[:, :, :11], atol=1e-5, rtol=1e-5)
    assert z[0, 0, 11:].isnan().all() == math.isnan(value)
    torch.testing.assert_close(z[0, 1], clean[0, 1], atol=1e-5, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("top_k", [1, 3, 50])
def test_it_is_the_attention_of_the_hooked_forward(top_k: int):
    """Through one Attention component: its q, k, v in, its z out."""
    cfg = TransformerConfig(
        n_layers=1,
        d_model=16,
        n_heads=2,
        d_head=8,
        d_mlp=0,
        d_vocab=5,
        n_ctx=40,
        attn_scores="neg_l1",
        attn_top_k=top_k,
    )
    attention = Attention(cfg, (RuntimeConfig(cfg, None),))
    attention.name = "attn"
    generator = torch.Generator().manual_seed(0)
    weights = {f"attn.W_{x}": torch.randn(2, 16, 8, generator=generator) for x in "QKV"}
    weights["attn.W_O"] = torch.randn(2, 8, 16, generator=generator)
    seen: dict[str, Tensor] = {}
    for name in "qkvz":
        getattr(attention, f"hook_{name}").add_hook(lambda x, hook, n=name: seen.update({n: x}))
    x = torch.randn(3, 40, 16, generator=generator)
    attention(x, x, x, weights)
    z = fused_tropical_attention(*(seen[name].transpose(1, 2) for name in "qkv"), cfg.score_scale, top_k)
    torch.testing.assert_close(z.transpose(1, 2), seen["z"], atol=1e-5, rtol=1e-5)


def test_without_the_kernel_the_eager_form_answers(monkeypatch):
    q, k, v, _ = inputs(1, 2, 20, 20, 8, seed=6)
    monkeypatch.setattr(tropical_kernel, "kernel_of_width", lambda d_head: None)
    assert not fused_available()
    assert torch.equal(fused_tropical_attention(q, k, v, 1.0, 4), eager_tropical_attention(q, k, v, 1.0, 4))


def test_other_precisions_are_eager():
    q, k, v, _ = (x.double() for x in inputs(1, 2, 20, 20, 8, seed=7))
    assert torch.equal(fused_tropical_attention(q, k, v, 1.0, 4), eager_tropical_attention(q, k, v, 1.0, 4))


@pytest.mark.parametrize("attention", [fused_tropical_attention, eager_tropical_attention])
def test_what_cannot_be_is_refused(attention):
    q, k, v, _ = inputs(1, 1, 4, 6, 8, seed=8)
    with pytest.raises(UserError, match="top_k must be at least 1, not None"):
        attention(q, k, v, 1.0, None)
    with pytest.raises(UserError, match="not 0"):
        attention(q, k, v, 1.0, 0)
    with pytest.raises(UserError, match="scale"):
        attention(q, k, v, 0.0, 4)
    with pytest.raises(UserError, match="6 queries do not stand among 4 keys"):
        attention(k, q, v[:, :, :4], 1.0, 4)
