"""One-layer transformers of arithmetic modulo a prime, as the papers on grokking train them.

``a b =`` is three tokens, and the answer is read at ``=``: one layer, four heads, ReLU, learned positions, neither
norms nor biases (Nanda et al., "Progress measures for grokking via mechanistic interpretability", 2023; Zhong et al.,
"The Clock and the Pizza", 2023). Zhong et al. compare attention that is learned with attention that is uniform: the
latter is the same model with ``W_Q = W_K = 0``, so that ``=`` reads both numbers and itself with a third each.

The models here are narrower than the papers' (d_model 48 and 192 neurons, not 128 and 512), their batches are drawn
with replacement and not full, and a tenth of all pairs is a test set that neither training nor the choice of a
checkpoint sees.
"""

from __future__ import annotations

from functools import partial

import torch

from models.config import TransformerConfig
from models.parts.weights import Weights
from models.registry import ModelSpec, register
from models.tasks.groups import modular_task
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import normal_

HELD_OUT = 0.1


def modular_config(p: int) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        d_model=48,
        n_heads=4,
        d_head=12,
        d_mlp=192,
        d_vocab=p + 1,
        n_ctx=3,
        act_fn="relu",
        normalization_type=None,
    )


class ModularWeights(DenseWeights):
    """All weights free, without biases; with ``uniform`` attention, W_Q and W_K are zero and no parameters."""

    def __init__(self, p: int, uniform: bool = False):
        super().__init__(modular_config(p), biases=False)
        self.fixed = ("blocks.0.attn.W_Q", "blocks.0.attn.W_K") if uniform else ()
        for key in self.fixed:
            delattr(self, key.replace(".", "/"))

    def forward(self) -> Weights:
        weights = self.own()
        zero = torch.zeros_like(weights["blocks.0.attn.W_V"])
        return weights | dict.fromkeys(self.fixed, zero)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every matrix from N(0, 1 / d_model), as the papers' code."""
        for parameter in self.parameters():
            normal_(parameter, self.config.d_model**-0.5, generator)

    def decay_mask(self) -> dict[str, bool]:
        """Everything decays, as in the papers."""
        return {name: True for name, _ in self.named_parameters()}


def _recipe(share: float, weight_decay: float, p: int, steps: int) -> Recipe:
    """``share`` of all pairs is trained on; validation is on all pairs outside the test set, trained on or not."""
    size = p * p - round(HELD_OUT * p * p)
    return Recipe(
        steps=steps,
        batch_size=1_024,
        lr=5e-3,
        min_lr_ratio=0.02,
        warmup_steps=10,
        weight_decay=weight_decay,
        betas=(0.9, 0.98),
        grad_clip=100.0,  # the papers do not clip
        problems=TaskProblems(share=share / (1 - HELD_OUT)),
        eval_every=50,
        validation_size=size,
        snapshots=0,
    )


#: By p: 30% of the pairs and decay 1 as Nanda et al., 80% and decay 2 as Zhong et al.
RECIPES = {
    113: add_recipe("modular-113", _recipe(0.3, 1.0, 113, 4_000)),
    59: add_recipe("modular-59", _recipe(0.8, 2.0, 59, 6_000)),
}
_MODELS = (
    ("addition", 113, False),
    ("addition", 113, True),
    ("addition", 59, False),
    ("addition", 59, True),
    ("subtraction", 113, False),
    ("multiplication", 113, False),
)
for _operation, _p, _uniform in _MODELS:
    register(
        ModelSpec(
            name=f"modular-{_operation}-{_p}" + "-uniform" * _uniform,
            weight_map=partial(ModularWeights, _p, _uniform),
            task=partial(modular_task, _p, _operation, HELD_OUT),
            recipe=RECIPES[_p],
            source="Nanda et al. (2023) and Zhong et al. (2023), narrower",
        )
    )
