"""AddLM: a character language model with ternary projections and scores that are negative L1 distances.

    h  = x + attn(LN(x)),  y = h + relu(LN(h) W_in) W_out;  W = scale * {-1, 0, 1} for W_Q W_K W_V W_O W_in W_out
    score(i, j) = -sum_c |q_ic - k_jc| / s,  j <= i;  softmax over the 16 best keys of each query

The paper compares four variants, each of which is a config here: the float baseline (an ordinary decoder: GELU, scaled
dot products, all keys), tropical attention only, ternary weights only, and both. There are three sizes. The paper's
parameter counts determine layers and widths; the numbers of heads (4, 8 and 8) are ours.

What the paper leaves open is a variant too. Its formula has no scale s. s = sqrt(d_head) reproduces the public results,
and no scale gives better losses, so both are here ("-scaled"). Its -L1 is not the inner product of tropical algebra;
``max_c (q_c + k_c)`` is, and "-max-plus" trains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import partial
from typing import Any

from models.registry import ModelSpec, register
from models.tasks.named.shakespeare import CHARACTERS, N_CTX, CharacterLanguage
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.transformer.config import Activation, ScoreKind, TransformerConfig
from models.weight_maps.ternary import TernaryWeights

TOP_K = 16
VALIDATION_WINDOWS = 871  # the whole validation part


@dataclass(frozen=True)
class Shape:
    """Depth, width and heads of a decoder. The heads share the width, and the MLP is four times as wide."""

    n_layers: int
    d_model: int
    n_heads: int


@dataclass(frozen=True)
class AddLMSize(Shape):
    """One row of the paper's first table, and its training budget."""

    parameters: int
    steps: int


SIZES = {
    "0.8m": AddLMSize(4, 128, 4, 821_760, 2_000),
    "5m": AddLMSize(6, 256, 8, 4_791_296, 5_000),
    "25m": AddLMSize(8, 512, 8, 25_315_328, 4_000),
}


@dataclass(frozen=True)
class AddLMVariant:
    """What AddLM changes in a decoder, one switch per line."""

    ternary: bool = True
    scores: ScoreKind = "neg_l1"
    scaled: bool = False  # divide scores by sqrt(d_head)
    top_k: int | None = TOP_K  # None: softmax over all earlier keys
    activation: Activation = "relu"

    def replace(self, **changes: Any) -> AddLMVariant:
        return replace_fields(self, **changes)

    def config(self, size: Shape, d_vocab: int = len(CHARACTERS), n_ctx: int = N_CTX) -> TransformerConfig:
        """The config of a decoder of that shape, by default for characters."""
        return TransformerConfig(
            n_layers=size.n_layers,
            d_model=size.d_model,
            n_heads=size.n_heads,
            d_head=size.d_model // size.n_heads,
            d_mlp=4 * size.d_model,
            d_vocab=d_vocab,
            n_ctx=n_ctx,
            act_fn=self.activation,
            normalization_type="LN",
            attn_scores=self.scores,
            attn_scale=None if self.scaled else 1.0,
            attn_top_k=self.top_k,
        )


ADDLM = AddLMVariant()
FLOAT = AddLMVariant(ternary=False, scores="dot", scaled=True, top_k=None, activation="gelu")

#: The four rows of the paper's ablation, by the suffix of the model's name.
ABLATION = {
    "-float": FLOAT,
    "-l1": ADDLM.replace(ternary=False),
    "-ternary": FLOAT.replace(ternary=True, activation="relu"),
    "": ADDLM,
}

#: The size and the steps of the paper's ablation.
OF_PAPER, PAPER_STEPS = "5m", 2_500

#: Further variants that are compared at the smallest size.
FURTHER = {
    "-float-relu": FLOAT.replace(activation="relu"),  # so that the ablation changes one thing at a time
    "-l1-scaled": ADDLM.replace(ternary=False, scaled=True),
    "-max-plus": ADDLM.replace(scores="max_plus"),
    "-max-plus-scaled": ADDLM.replace(scores="max_plus", scaled=True),
    **{f"-top-{k}": ADDLM.replace(top_k=k) for k in (1, 2, 4, 8)},
    "-top-all": ADDLM.replace(top_k=None),
}

VARIANTS = {size: {**ABLATION, "-scaled": ADDLM.replace(scaled=True)} for size in SIZES}
VARIANTS["0.8m"] |= FURTHER


def recipe_for(size: AddLMSize) -> Recipe:
    """AdamW at a constant 3e-4 with decay 0.01 on everything, batches of 32 windows, no clipping.

    Matrix products are in bfloat16 (latent weights, distances, softmax, norms, loss and optimiser in float32), which
    the paper does not say; the validation loss is that of float32 products.
    """
    return Recipe(
        steps=size.steps,
        batch_size=32,
        lr=3e-4,
        min_lr_ratio=1.0,
        warmup_steps=0,
        weight_decay=0.01,
        grad_clip=1e9,  # no clipping
        problems=TaskProblems(),
        eval_every=250,
        validation_size=VALIDATION_WINDOWS,
        stop_after_perfect=None,
        snapshots=8,
        autocast=True,
    )


def model_name(size: str, suffix: str = "") -> str:
    return f"addlm-{size}{suffix}"


for _size, _variants in VARIANTS.items():
    _recipe = add_recipe(f"addlm-{_size}", recipe_for(SIZES[_size]))
    for _suffix, _variant in _variants.items():
        register(
            ModelSpec(
                name=model_name(_size, _suffix),
                weight_map=partial(TernaryWeights, _variant.config(SIZES[_size]), _variant.ternary),
                task=CharacterLanguage,
                recipe=_recipe,
                source="AddLM (kader-xai), key result, architecture and ablation",
                sweep=(_size, _suffix) not in {("0.8m", ""), ("0.8m", "-float")},
            )
        )
