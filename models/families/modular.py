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
from typing import Any

import torch

from models.errors import known_name
from models.registry import ModelSpec, register
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.training.recipes import Recipe, add_recipe
from models.training.task_problems import TaskProblems
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights
from models.weight_maps.dense import DenseWeights
from models.weight_maps.weight_map import normal_

HELD_OUT = 0.1
SWEPT, WIDTHS = 31, (24, 32)  # modulus and widths of the sweep over operation, width, depth and attention


OPERATIONS = {"addition": "a + b", "subtraction": "a - b", "multiplication": "a * b"}


def modular_task(p: int, operation: str = "addition", held_out: float | None = None) -> FormattedTask:
    """``a b =`` and the sum, difference or product modulo p, each number a token.

    Raises:
        UserError: another operation.
    """
    answer = f"({OPERATIONS[known_name('operation', operation, OPERATIONS)]}) % {p}"
    variables = "addition" if operation == "addition" else None
    name = f"{operation} modulo {p}"
    return formatted("{a}{b}=", answer, base=p, variables=variables, held_out=held_out, name=name)


def modular_config(p: int, d_model: int = 48, n_layers: int = 1) -> TransformerConfig:
    return TransformerConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=4,
        d_head=d_model // 4,
        d_mlp=4 * d_model,
        d_vocab=p + 1,
        n_ctx=3,
        act_fn="relu",
        normalization_type=None,
    )


class ModularWeights(DenseWeights):
    """All weights free, without biases; with ``uniform`` attention, W_Q and W_K are zero and no parameters."""

    def __init__(self, p: int, uniform: bool = False, d_model: int = 48, n_layers: int = 1):
        super().__init__(modular_config(p, d_model, n_layers), biases=False)
        layers = range(n_layers) if uniform else ()
        self.fixed = tuple(f"blocks.{layer}.attn.{name}" for layer in layers for name in ("W_Q", "W_K"))
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


def shuffled_task(p: int, name: str = "shuffled", held_out: float = HELD_OUT) -> FormattedTask:
    """``a b =`` and the sum modulo p of another pair, by one permutation of all pairs: it can only be memorised."""
    a, b = torch.cartesian_prod(torch.arange(p), torch.arange(p))[
        torch.randperm(p * p, generator=torch.Generator().manual_seed(0))
    ].T
    table = ((a + b) % p).view(p, p)
    return formatted(
        "{a}{b}=", lambda a, b: table.to(a.device)[a, b], base=p, held_out=held_out, name=f"{name} sums modulo {p}"
    )


def _recipe(share: float, weight_decay: float, p: int, steps: int, **changes: Any) -> Recipe:
    """``share`` of all pairs is trained on; validation is on all pairs outside the test set, trained on or not."""
    size = p * p - round(HELD_OUT * p * p)
    recipe = Recipe(
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
    return recipe.replace(**changes)


#: By p: 30% of the pairs and decay 1 as Nanda et al., 80% and decay 2 as Zhong et al.; a short one for the sweep.
RECIPES = {
    113: add_recipe("modular-113", _recipe(0.3, 1.0, 113, 4_000)),
    59: add_recipe("modular-59", _recipe(0.8, 2.0, 59, 6_000)),
    SWEPT: add_recipe(
        f"modular-{SWEPT}", _recipe(0.8, 1.0, SWEPT, 1_500, lr=1e-2, batch_size=256, stop_after_perfect=3)
    ),
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


#: The cells of the stored study ``comparison:algorithms``: (operation, uniform, d_model, n_layers) by name. The answers
#: of "shuffled" are those of addition in another order, which no group explains.
CELLS = {
    f"modular-{operation}-{SWEPT}-d{width}-l{layers}" + "-uniform" * uniform: (operation, uniform, width, layers)
    for operation in (*OPERATIONS, "shuffled")
    for width in WIDTHS
    for layers in (1, 2)
    for uniform in (False, True)
    if operation != "shuffled" or (width, layers, uniform) == (WIDTHS[-1], 1, False)
}
for _name, (_operation, _uniform, _width, _layers) in CELLS.items():
    register(
        ModelSpec(
            name=_name,
            weight_map=partial(ModularWeights, SWEPT, _uniform, _width, _layers),
            task=partial(shuffled_task if _operation == "shuffled" else modular_task, SWEPT, _operation, HELD_OUT),
            recipe=RECIPES[SWEPT],
            source="Zhong et al. (2023), narrower and deeper",
            sweep=True,
        )
    )
