"""Adders in AddLM's algebra: ternary matrices, scores that are negative L1 distances, the best keys only, ReLU.

This is the decoder of :mod:`models.families.addlm`, trained on addition: two digits (ToyGPT's tokens, all 10,000
problems can be tried) and ten (MicroAdder's tokens). Its matrix products and scores need no multiplication. What still
multiplies is norms, softmax, mixing values by the pattern, one scale per matrix, and the head (``python -m studies
reproduce addlm:adder``). The float twin ("-float") has the same shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models.families.addlm import ADDLM, FLOAT, AddLMVariant, Shape
from models.registry import ModelSpec, register
from models.tasks.named.addition import TenDigitAddition, TwoDigitAddition
from models.tasks.task import Task
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.training.ten_digit_problems import AdditionProblems, CarryMix
from models.transformer.config import TransformerConfig
from models.weight_maps.ternary import TernaryWeights


@dataclass(frozen=True)
class AdderSize(Shape):
    """The shape of an adder and what it is trained on. ``top_k`` is below the number of keys, to have an effect."""

    task: Callable[[], Task]
    n_ctx: int
    top_k: int
    recipe: Recipe

    def config(self, variant: AddLMVariant) -> TransformerConfig:
        if variant.top_k is not None:
            variant = variant.replace(top_k=self.top_k)
        return variant.config(self, d_vocab=10, n_ctx=self.n_ctx)


RECIPE = Recipe(
    steps=5_000,
    batch_size=256,
    lr=2e-3,
    min_lr_ratio=0.05,
    warmup_steps=200,
    weight_decay=0.01,
    betas=(0.9, 0.98),
    problems=TaskProblems(),
    eval_every=250,
    validation_size=256,
    stop_after_perfect=None,
    snapshots=24,
)
TWO_DIGIT = add_recipe("addlm-adder-two-digit", RECIPE)
TEN_DIGIT = add_recipe(
    "addlm-adder-ten-digit",
    RECIPE.replace(
        steps=12_000,
        batch_size=128,
        min_lr_ratio=0.02,
        problems=AdditionProblems(digit_curriculum=((500, 3), (1_500, 6)), carry_mix=CarryMix(0.5, 3_000, 9_000)),
        eval_every=500,
        validation_size=2_048,
    ),
)

ADDERS = {
    "two-digit": AdderSize(2, 64, 4, TwoDigitAddition, n_ctx=6, top_k=3, recipe=TWO_DIGIT),
    "ten-digit": AdderSize(2, 64, 4, TenDigitAddition, n_ctx=34, top_k=8, recipe=TEN_DIGIT),
}


for _what, _size in ADDERS.items():
    for _suffix, _variant in (("", ADDLM), ("-float", FLOAT)):
        register(
            ModelSpec(
                name=f"addlm-adder-{_what}{_suffix}",
                weight_map=partial(TernaryWeights, _size.config(_variant), _variant.ternary),
                task=_size.task,
                recipe=_size.recipe,
                source="AddLM's algebra (kader-xai) on addition; ours",
                sweep=not _variant.ternary,
            )
        )
