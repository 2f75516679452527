"""The decoder of the hand-built addition with every weight free: does training stay at the construction?

The architecture is that of :mod:`models.hand_built.position_coupling_addition` for sums up to 30 x 30 (one layer, four
heads, no norms, 44 ReLUs), in a residual stream of at least its 41 dimensions. :func:`at_construction` gives the
parameters that compute the construction. The further dimensions are written to at random and not read, so they change
no logit, but gradients reach them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from models.hand_built.position_coupling_addition import (
    HandBuiltOptions,
    HandBuiltWeights,
    hand_built_config,
    hand_built_task,
)
from models.position_coupling import SMALL
from models.registry import ModelSpec, build, register
from models.tasks.multi_addition import MultiOperandAddition
from models.training.recipes import add_recipe
from models.transformer import ArithmeticTransformer
from models.weight_maps.base import normal_
from models.weight_maps.dense import DenseWeights

WIDTHS = (41, 64, 128)
OPTIONS = HandBuiltOptions(bos_tie="split")  # two exact factors, since the text's roots are rounded
#: The highest ids of both levels.
LIMITS = tuple(2**n_bits for n_bits in OPTIONS.position_bits)
#: Weights that write to the residual stream, in their last dimension.
_WRITING = ("W_E", "W_pos", "W_O", "W_out", "b_O", "b_out")
_TRAINED = SMALL["addition"]


class FreeConstruction(DenseWeights):
    """All weights of the construction's decoder, ``width`` dimensions wide; random ones are GPT-2's."""

    def __init__(self, width: int):
        super().__init__(hand_built_config(OPTIONS).replace(d_model=width))
        self.position_limits = LIMITS


def at_construction(width: int, seed: int = 0) -> FreeConstruction:
    """The map whose parameters compute the construction; ``seed`` draws what is written and never read, N(0, 0.02)."""
    dense, built = FreeConstruction(width), HandBuiltWeights(OPTIONS)()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in dense.own().items():
            parameter.zero_()
            if key.rsplit(".", 1)[1] in _WRITING:
                normal_(parameter, 0.02, generator)
                parameter[..., : built["embed.W_E"].shape[1]] = 0.0
            if (value := built.get(key)) is not None:
                parameter[tuple(slice(n) for n in value.shape)] = value.to(parameter.dtype)
    return dense


def name_of(width: int) -> str:
    """The registered name of the decoder of this width."""
    return f"position-coupling-hand-built-free-d{width}-small"


def constructed(width: int) -> ArithmeticTransformer:
    """The registered decoder of this width, at the construction's weights."""
    model = build(name_of(width))
    model.weight_map.load_state_dict(at_construction(width).state_dict())
    return model


def _task(width: int) -> MultiOperandAddition:
    return hand_built_task().at(_TRAINED.most, _TRAINED.longest)


def _register(width: int) -> None:
    # In float32: bfloat16 would round the codes' scores, which are larger here than in models trained from random.
    recipe = _TRAINED.recipe().replace(problems=replace(_TRAINED.training_set, position_limits=LIMITS))
    name = name_of(width)
    register(
        ModelSpec(
            name=name,
            weight_map=FreeConstruction,
            task=_task,
            recipe=add_recipe(name, recipe.replace(autocast=False)),
            source="Position Coupling (ICLR 2025), the architecture of Theorem 4.1 with free weights",
            options={"width": width},
            sweep=True,
        )
    )


for _width in WIDTHS:
    _register(_width)
