"""Induction in two layers of attention without MLPs: the smallest models in which heads of two layers work together.

One head a layer, 32 wide, no norms and no biases, learned positions, as the attention-only models of Elhage et al. ("A
Mathematical Framework for Transformer Circuits", 2021). The task is :func:`models.tasks.induction` with 16 tokens.

    interp train induction-6 --seeds 8

With the same recipe 8 of 8 seeds of length 8 and 8 of 8 of length 12 answered all of 4,096 validation problems as well;
models of these lengths, also with two heads of 16, are among the ordinary models of ``benchmarks/provability``.
"""

from __future__ import annotations

from functools import partial

import torch

from models.registry import ModelSpec, register
from models.tasks.named.induction import induction
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import normal_

TOKENS, WIDTH = 16, 32
DEVIATION = WIDTH**-0.5


def induction_config(length: int, n_heads: int = 1, tokens: int = TOKENS) -> TransformerConfig:
    return TransformerConfig(
        n_layers=2,
        d_model=WIDTH,
        n_heads=n_heads,
        d_head=WIDTH // n_heads,
        d_mlp=0,
        d_vocab=tokens,
        n_ctx=length,
        normalization_type=None,
    )


class InductionWeights(DenseWeights):
    """All weights free, without biases."""

    def __init__(self, length: int, n_heads: int = 1):
        super().__init__(induction_config(length, n_heads), biases=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every matrix from N(0, 1 / d_model)."""
        for parameter in self.parameters():
            normal_(parameter, DEVIATION, generator)


RECIPE = add_recipe(
    "induction",
    Recipe(
        steps=3_000,
        batch_size=256,
        lr=4e-3,
        min_lr_ratio=0.02,
        warmup_steps=200,
        weight_decay=0.02,
        betas=(0.9, 0.98),
        problems=TaskProblems(),
        eval_every=250,
        validation_size=4_096,
        stop_after_perfect=None,
        snapshots=24,
    ),
)

register(
    ModelSpec(
        name="induction-6",
        weight_map=partial(InductionWeights, 6),
        task=partial(induction, 6, TOKENS),
        recipe=RECIPE,
        source="Elhage et al. (2021), trained on the repeated token alone",
    )
)
