"""The switches of public AdderBoard models, each against a reference written apart, in float64."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import Any

import pytest
import torch
from torch import Tensor

import models
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from studies.adderboard.framed_addition import Frame, framed_addition

SHAPE: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 6,
    "n_heads": 2,
    "d_head": 4,
    "d_mlp": 5,
    "d_vocab": 10,
    "n_ctx": 34,
    "dtype": "float64",
}
TASK = framed_addition(Frame((0,), (0, 0), (0,)))


ROTARY = ("rotary_dim", "rotary_frequencies")  # None where they are off


def built(**options: Any) -> ArithmeticTransformer:
    config = TransformerConfig(**SHAPE | options)
    weights = DenseWeights(config).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.normal_(0.0, 0.7, generator=generator)
    return ArithmeticTransformer(weights, TASK, name="switches")


def reference(model: ArithmeticTransformer, tokens: list[int]) -> Tensor:
    """Logits of one sequence by loops over positions, heads and pairs of coordinates."""
    c, w = model.config, {k: v.detach() for k, v in model.all_weights().items()}
    x = [w["embed.W_E"][t] + (w["pos_embed.W_pos"][i] if "pos_embed.W_pos" in w else 0) for i, t in enumerate(tokens)]

    def norm(v: Tensor, name: str) -> Tensor:
        return v if c.normalization_type is None else v / math.sqrt(float(v @ v) / len(v) + c.eps) * w[f"{name}.w"]

    def turned(v: Tensor, place: int) -> Tensor:
        if c.positional_embedding_type != "rotary":
            return v
        size = c.rotary_dim or len(v)
        out, half = v.clone(), size // 2
        for i in range(half):
            one, two = (2 * i, 2 * i + 1) if c.rotary_adjacent_pairs else (i, i + half)
            angle = place / c.rotary_scaling_factor * c.rotary_base ** (-2 * i / size)
            angle = angle if c.rotary_frequencies is None else place * c.rotary_frequencies[i]
            out[one] = v[one] * math.cos(angle) - v[two] * math.sin(angle)
            out[two] = v[one] * math.sin(angle) + v[two] * math.cos(angle)
        return out

    for layer in range(c.n_layers):
        b = f"blocks.{layer}"
        a, after = f"{b}.attn", []
        read = [norm(v, f"{b}.ln1") for v in x]
        for i, own in enumerate(x):
            mid = own + w[f"{a}.b_O"]
            for h in range(c.n_heads):
                q, ks, vs = (
                    [
                        y @ w[f"{a}.W_{n}"][h] + w[f"{a}.b_{n}"][h]
                        for y in (read[i : i + 1] if n == "Q" else read[: i + 1])
                    ]
                    for n in "QKV"
                )
                if c.use_qk_norm:
                    q, ks = (
                        [y / math.sqrt(float(y @ y) / len(y) + c.eps) * w[f"{a}.{n}_norm.w"] for y in ys]
                        for n, ys in (("q", q), ("k", ks))
                    )
                scores = [float(turned(q[0], i) @ turned(k, j)) / c.score_scale for j, k in enumerate(ks)]
                if c.attn_bias:
                    scores = [s + float(w[f"{a}.bias"][h, i, j]) for j, s in enumerate(scores)]
                e = [math.exp(s) for s in scores]
                total = sum(e) + (c.attn_softmax == "softmax1")
                mid = mid + sum(p / total * v for p, v in zip(e, vs, strict=True)) @ w[f"{a}.W_O"][h]
            m, y = f"{b}.mlp", norm(own if c.parallel_attn_mlp else mid, f"{b}.ln2")
            act = {"relu": torch.relu, "silu": lambda z: z / (1 + torch.exp(-z))}[c.act_fn]
            inner, b_in = y @ w[f"{m}.W_in"], w[f"{m}.b_in"]
            inner = act(y @ w[f"{m}.W_gate"]) * inner + b_in if c.gated_mlp else act(inner + b_in)
            out = mid + inner @ w[f"{m}.W_out"] + w[f"{m}.b_out"]
            after.append(own + w[f"{b}.mix"] * (out - own) if c.layer_mix else out)
        x = after
    last = [v * w["ln_final.w"] if c.final_gain else norm(v, "ln_final") for v in x]
    return torch.stack([v @ w["unembed.W_U"] + w["unembed.b_U"] for v in last])


@pytest.mark.parametrize(
    "options",
    [
        {"positional_embedding_type": "rotary", "rotary_scaling_factor": 3.02, "rotary_base": 3.0},
        {"positional_embedding_type": "rotary", "rotary_scaling_factor": 0.7, "rotary_adjacent_pairs": False},
        {"use_qk_norm": True, "positional_embedding_type": "rotary", "rotary_base": 3.0},
        {"attn_bias": True, "positional_embedding_type": "none"},
        {"attn_softmax": "softmax1"},
        {"normalization_type": None, "final_gain": True},
        {"layer_mix": True},
        {"parallel_attn_mlp": True},
        {"positional_embedding_type": "rotary", "rotary_dim": 2, "rotary_base": 5.0, "rotary_adjacent_pairs": False},
        {"positional_embedding_type": "rotary", "rotary_dim": 2, "rotary_frequencies": (0.31,)},
        {"gated_mlp": True, "act_fn": "silu", "use_qk_norm": True, "attn_bias": True, "layer_mix": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_switch_computes_what_its_reference_says(options: dict[str, Any]) -> None:
    model = built(**{"act_fn": "relu"} | options)
    tokens = TASK.encode([(8146025397, 2075931864)])[:, :26]
    found = model(tokens)[0].detach()
    expected = reference(model, tokens[0].tolist())
    assert torch.allclose(found, expected, rtol=1e-11, atol=1e-11)
    plain = model.config.replace(
        **{
            name: ({"attn_softmax": "softmax", "rotary_scaling_factor": 1.0} | dict.fromkeys(ROTARY)).get(name, False)
            for name in model.config.later_switches
        }
    )
    assert model.config.later_switches and not plain.later_switches


def test_a_switch_that_is_off_is_not_stored() -> None:
    stored = TransformerConfig(**SHAPE).to_dict()
    assert "use_qk_norm" not in stored and "attn_bias" not in stored
    assert TransformerConfig(**SHAPE, use_qk_norm=True).to_dict()["use_qk_norm"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"final_gain": True},
        {"rotary_scaling_factor": 0.0},
        *(
            {"positional_embedding_type": "rotary"} | bad
            for bad in ({"rotary_dim": 3}, {"rotary_dim": 40}, {"rotary_frequencies": (1.0, float("nan"))})
        ),
    ],
)
def test_switches_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        TransformerConfig(**SHAPE, **options)


def test_hidden_keys_and_a_mix_are_seen_by_hooks_and_refused_by_sums() -> None:
    model = built(attn_bias=True, layer_mix=True, act_fn="relu")
    weights = dict(model.effective_weights())
    bias = weights["blocks.0.attn.bias"].detach().clone()
    bias[:, :, 3] = float("-inf")
    tokens = TASK.encode([(1, 2)])
    _, cache = model.run_with_cache(tokens, weights=weights | {"blocks.0.attn.bias": bias})
    pattern = cache["blocks.0.attn.hook_pattern"]
    assert (pattern[:, :, 4:, 3] == 0).all() and torch.allclose(
        pattern[:, :, 4:].sum(-1), torch.ones((), dtype=torch.float64)
    )
    with pytest.raises(UserError):
        cache.decompose_resid()


def test_query_key_norms_are_those_of_a_hooked_transformer() -> None:
    model = built(use_qk_norm=True, positional_embedding_type="rotary", rotary_base=3.0, act_fn="silu", gated_mlp=True)
    tokens = TASK.encode([(57, 48)])
    if int(version("transformer_lens").split(".")[0]) >= 4:
        with pytest.raises(UserError):
            model.to_hooked_transformer()
        return
    hooked = model.to_hooked_transformer()
    assert torch.allclose(hooked(tokens), model(tokens), rtol=1e-6, atol=1e-6)
    _, theirs = hooked.run_with_cache(tokens)
    _, ours = model.run_with_cache(tokens)
    name = "blocks.1.attn.hook_pattern"
    assert torch.allclose(theirs[name], ours[name], atol=1e-6)


def test_switches_that_a_stock_model_lacks_are_refused() -> None:
    for options in ({"attn_bias": True}, {"layer_mix": True}, {"attn_softmax": "softmax1"}):
        with pytest.raises(UserError):
            built(act_fn="relu", **options).to_hooked_transformer()


@pytest.mark.parametrize("down", [False, True])
def test_frames(down: bool) -> None:
    task = framed_addition(Frame((11,), (13,), (10,), down, down, "0123456789=^$+"))
    pair = (8146025397, 2075931864)
    tokens, targets = task.encode([pair])[0], task.targets([pair])
    written = f"{pair[0]:010d}" if down else f"{pair[0]:010d}"[::-1]
    assert task.token_text(tokens[1:11]) == written and tokens[0] == 11 and tokens[11] == 13 and tokens[22] == 10
    assert task.decode(targets) == [sum(pair)]
    for target, query in enumerate(task.query_positions):
        column = 10 - target if down else target
        assert task.target_roles[target].column == column
        assert int(targets[0, target]) == sum(pair) // 10**column % 10
        groups = task.relative_roles(target)
        assert sorted(place for places in groups.values() for place in places) == list(range(query + 1))
        for place in groups["own operands"]:
            role = task.roles[place]
            assert role.column == column and int(tokens[place]) == pair[role.index or 0] // 10**column % 10
    with pytest.raises(UserError):
        Frame((), (), (0,))


def test_a_fixed_bias_may_mask_keys_and_no_other_weight_may_be_infinite() -> None:
    model = built(act_fn="relu", attn_bias=True)
    bias, *_ = (x for name, x in model.weight_map.named_parameters() if name.endswith(("attn.bias", "attn/bias")))
    with torch.no_grad():
        bias[..., 1] = -math.inf  # a key that no query sees
    assert models.score(model, [(1, 2), (3, 4)]).n == 2
    for value in (math.inf, math.nan):
        with torch.no_grad():
            bias[..., 1] = value
        with pytest.raises(UserError, match="not finite"):
            models.score(model, [(1, 2)])
