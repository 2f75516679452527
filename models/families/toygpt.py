"""ToyGPT: minGPT's adder project at size gpt-micro, two-digit addition (Kapoor, sections 1 to 4).

It is a GPT-2 decoder in which every weight is free: 4 layers, 4 heads, d_model 128, tanh GELU, biases everywhere but in
the unembedding, which is untied. The paper compares where positions come from (a learned table, rotation of queries and
keys, nowhere) and where LayerNorm stands (before each sublayer, after each sum, only before the unembedding), which
makes nine models. Counted without the unembedding, as minGPT prints it, they have 795,392 parameters with the table and
pre- or post-norm, and 794,624 without the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

from models.registry import ModelSpec, register
from models.tasks.named.addition import TwoDigitAddition
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.transformer.config import PositionKind, TransformerConfig
from models.weight_maps.dense import DenseWeights

Positions = Literal["learned", "rotary", "none"]
Placement = Literal["pre", "post", "none"]

_KINDS: dict[Positions, PositionKind] = {"learned": "standard", "rotary": "rotary", "none": "none"}


@dataclass(frozen=True)
class ToyGPTVariant:
    """One of the nine models: where positions come from, and where LayerNorm stands ("none": only before the head)."""

    positions: Positions
    layer_norm: Placement

    @property
    def name(self) -> str:
        return f"toygpt-{self.positions}-{self.layer_norm}"

    def config(self) -> TransformerConfig:
        return TransformerConfig(
            n_layers=4,
            d_model=128,
            n_heads=4,
            d_head=32,
            d_mlp=512,
            d_vocab=10,
            n_ctx=6,
            act_fn="gelu_new",
            normalization_type="LN",
            norm_placement=self.layer_norm,
            positional_embedding_type=_KINDS[self.positions],
            dropout=0.1,
        )


class ToyGPTWeights(DenseWeights):
    """minGPT's parameters: all biases but the head's. Initialisation and decay are :class:`DenseWeights`'."""

    def __init__(self, variant: ToyGPTVariant):
        super().__init__(variant.config())
        delattr(self, "unembed/b_U")


#: All nine variants, the paper's own first.
VARIANTS = tuple(ToyGPTVariant(p, n) for p, n in product(_KINDS, ("pre", "post", "none")))

RECIPE = add_recipe(
    "toygpt",
    Recipe(
        steps=1_000,
        batch_size=64,
        lr=5e-4,
        min_lr_ratio=1.0,
        warmup_steps=0,
        weight_decay=0.1,
        betas=(0.9, 0.95),
        grad_clip=1.0,
        problems=TaskProblems(),
        eval_every=25,
        validation_size=256,
        stop_after_perfect=None,
        snapshots=16,
    ),
)

#: Four times the steps, batches twice as large, ten times the decay, and a learning rate that ends low.
LONG_RECIPE = add_recipe(
    "toygpt-long",
    replace(
        RECIPE,
        steps=4_000,
        batch_size=128,
        min_lr_ratio=0.01,
        warmup_steps=100,
        weight_decay=1.0,
        eval_every=250,
    ),
)

for _variant in VARIANTS:
    register(
        ModelSpec(
            name=_variant.name,
            weight_map=partial(ToyGPTWeights, _variant),
            task=TwoDigitAddition,
            recipe=RECIPE,
            source="ToyGPT (Kapoor), sections 1 to 3; minGPT's adder project, gpt-micro",
        )
    )

register(
    ModelSpec(
        name="toygpt-long",
        weight_map=partial(ToyGPTWeights, VARIANTS[0]),
        task=TwoDigitAddition,
        recipe=LONG_RECIPE,
        source="ToyGPT (Kapoor), sections 1 to 3, trained for longer than there",
    )
)
