"""ToyGPT's nine models are minGPT's decoder with the paper's changes: counts, logits against torch's own modules."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import models
from models.errors import UserError
from models.families.toygpt import VARIANTS, ToyGPTVariant
from models.training.named_recipes import get_recipe
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import ParameterLayout
from models.training.unstacked_objective import UnstackedObjective

NAMES = [variant.name for variant in VARIANTS]


def rotated(x: Tensor) -> Tensor:
    """The paper's ``rotate``: x [batch, head, pos, 32], interleaved pairs, base 10000."""
    theta = 10000.0 ** (-torch.arange(0, 32, 2, dtype=x.dtype) / 32)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * theta
    x1, x2 = x[..., ::2], x[..., 1::2]
    out = torch.zeros_like(x)
    out[..., ::2] = x1 * angle.cos() - x2 * angle.sin()
    out[..., 1::2] = x1 * angle.sin() + x2 * angle.cos()
    return out


class MinGPT(nn.Module):
    """The decoder of minGPT at size gpt-micro, written with torch's modules; the paper's two switches."""

    def __init__(self, positions: str, placement: str):
        super().__init__()
        self.positions, self.placement = positions, placement
        self.wte = nn.Embedding(10, 128)
        if positions == "learned":
            self.wpe = nn.Embedding(6, 128)
        self.h = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(128),
                    "c_attn": nn.Linear(128, 384),
                    "c_proj": nn.Linear(128, 128),
                    "ln_2": nn.LayerNorm(128),
                    "c_fc": nn.Linear(128, 512),
                    "c_out": nn.Linear(512, 128),
                }
            )
            for _ in range(4)
        )
        self.ln_f = nn.LayerNorm(128)
        self.lm_head = nn.Linear(128, 10, bias=False)

    def attention(self, block: nn.ModuleDict, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 4, 32).transpose(1, 2) for y in block["c_attn"](x).split(128, 2))
        if self.positions == "rotary":
            q, k = rotated(q), rotated(k)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(32)
        scores = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf"))
        return block["c_proj"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, 128))

    @staticmethod
    def mlp(block: nn.ModuleDict, x: Tensor) -> Tensor:
        return block["c_out"](F.gelu(block["c_fc"](x), approximate="tanh"))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens)
        if self.positions == "learned":
            x = x + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            assert isinstance(block, nn.ModuleDict)
            if self.placement == "pre":
                x = x + self.attention(block, block["ln_1"](x))
                x = x + self.mlp(block, block["ln_2"](x))
            elif self.placement == "post":
                x = block["ln_1"](x + self.attention(block, x))
                x = block["ln_2"](x + self.mlp(block, x))
            else:
                x = x + self.attention(block, x)
                x = x + self.mlp(block, x)
        return self.lm_head(self.ln_f(x))


@torch.no_grad()
def as_min_gpt(model: models.ArithmeticTransformer, variant: ToyGPTVariant) -> MinGPT:
    """The same weights in minGPT's layout, in float64."""
    weights = {name: value.double() for name, value in model.effective_weights().items()}
    twin = MinGPT(variant.positions, variant.layer_norm).double()
    twin.wte.weight.copy_(weights["embed.W_E"])
    if variant.positions == "learned":
        twin.wpe.weight.copy_(weights["pos_embed.W_pos"])
    suffix = "_post" if variant.layer_norm == "post" else ""
    for i, block in enumerate(twin.h):
        assert isinstance(block, nn.ModuleDict)
        at = f"blocks.{i}"
        joined = [weights[f"{at}.attn.W_{x}"].permute(0, 2, 1).flatten(0, 1) for x in "QKV"]
        block["c_attn"].weight.copy_(torch.cat(joined))
        block["c_attn"].bias.copy_(torch.cat([weights[f"{at}.attn.b_{x}"].flatten() for x in "QKV"]))
        block["c_proj"].weight.copy_(weights[f"{at}.attn.W_O"].flatten(0, 1).T)
        block["c_proj"].bias.copy_(weights[f"{at}.attn.b_O"])
        block["c_fc"].weight.copy_(weights[f"{at}.mlp.W_in"].T)
        block["c_fc"].bias.copy_(weights[f"{at}.mlp.b_in"])
        block["c_out"].weight.copy_(weights[f"{at}.mlp.W_out"].T)
        block["c_out"].bias.copy_(weights[f"{at}.mlp.b_out"])
        if variant.layer_norm != "none":
            for n in (1, 2):
                block[f"ln_{n}"].weight.copy_(weights[f"{at}.ln{n}{suffix}.w"])
                block[f"ln_{n}"].bias.copy_(weights[f"{at}.ln{n}{suffix}.b"])
    twin.ln_f.weight.copy_(weights["ln_final.w"])
    twin.ln_f.bias.copy_(weights["ln_final.b"])
    twin.lm_head.weight.copy_(weights["unembed.W_U"].T)
    return twin.eval()


def moved(name: str) -> models.ArithmeticTransformer:
    """The model with every parameter moved off its initial value, so that no bias is zero and no gain one."""
    model = models.build(name, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_logits_are_those_of_min_gpt(variant: ToyGPTVariant):
    model = moved(variant.name)
    tokens = model.task.encode([(42, 47), (77, 99), (17, 3), (0, 0)])
    expected = as_min_gpt(model, variant)(tokens)
    torch.testing.assert_close(model.double()(tokens), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_free_parameters_are_min_gpts(variant: ToyGPTVariant):
    twin = MinGPT(variant.positions, variant.layer_norm)
    if variant.layer_norm == "none":  # there its modules would stay unused
        for block in twin.h:
            assert isinstance(block, nn.ModuleDict)
            del block["ln_1"], block["ln_2"]
    expected = sum(p.numel() for p in twin.parameters())
    model = models.build(variant.name)
    assert sum(p.numel() for p in model.parameters()) == expected
    assert count_without_head(variant.name) == expected - 1280


def count_without_head(name: str) -> int:
    """Free parameters as minGPT counts them."""
    return sum(p.numel() for key, p in models.build(name).weight_map.named_parameters() if key != "unembed/W_U")


def test_the_counts_without_the_head_are_the_papers():
    count = {name: count_without_head(name) for name in NAMES}
    assert count["toygpt-learned-pre"] == count["toygpt-learned-post"] == 795_392
    assert {count[f"toygpt-{p}-{n}"] for p, n in product(("rotary", "none"), ("pre", "post"))} == {794_624}


def test_weight_decay_is_for_matmul_weights_and_initial_values_are_gpt_2s():
    model = models.build("toygpt-learned-pre", seed=0)
    mask, named = model.weight_map.decay_mask(), dict(model.weight_map.named_parameters())
    assert {name.rsplit("/", 1)[1] for name, decays in mask.items() if decays} == {
        "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_U",
    }  # fmt: skip
    for name, parameter in named.items():
        kind = name.rsplit("/", 1)[1]
        if kind.startswith("W_"):
            expected = 0.02 / math.sqrt(8) if kind in ("W_O", "W_out") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.12), name
        else:
            assert (parameter == (1.0 if kind == "w" else 0.0)).all(), name


def test_the_recipe_is_the_papers():
    recipe = get_recipe("toygpt")
    assert (recipe.steps, recipe.batch_size, recipe.weight_decay, recipe.grad_clip) == (1_000, 64, 0.1, 1.0)
    assert recipe.betas == (0.9, 0.95)
    assert {recipe.lr_at(step) for step in (0, 1, 500, 999)} == {5e-4}
    config = models.build("toygpt-rotary-post").config
    assert (config.n_layers, config.n_heads, config.d_model, config.d_mlp, config.n_ctx) == (4, 4, 128, 512, 6)
    assert config.dropout == 0.1


def test_dropout_is_for_training_alone():
    model = models.build("toygpt-learned-pre", seed=0)
    tokens = model.task.encode([(42, 47)])
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("name", NAMES)
def test_training_takes_seeds_one_by_one_and_its_loss_is_that_of_the_three_digits(name: str):
    model = moved(name)
    assert UnstackedObjective.applies_to(model) and not PositionOnlyObjective.applies_to(model)
    layout = ParameterLayout(model)
    theta = layout.flatten(model)[None]
    tokens, targets = model.task.encode_rows(model.task.sample(32, torch.Generator().manual_seed(0)))
    loss = UnstackedObjective(model).loss(layout.unflatten(theta), tokens[None], targets[None])
    logits = model(tokens.T.long())[:, 3:]
    torch.testing.assert_close(loss[0], F.cross_entropy(logits.flatten(0, 1), targets.T.flatten().long()))


def test_an_unknown_variant_brings_the_closest_match():
    with pytest.raises(UserError, match=r"Did you mean 'toygpt-learned-pre'\?"):
        models.build("toygpt-learnt-pre")
