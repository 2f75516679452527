"""Models whose numbers are set by hand: constructions from papers and of this project."""

from models.families.hand_built.construction import Construction
from models.families.hand_built.position_coupling_addition import HandBuiltOptions, HandBuiltWeights, hand_built_task
from models.families.hand_built.position_coupling_multiplication import (
    HandBuiltMultiplicationOptions,
    HandBuiltMultiplicationWeights,
    multiplication_task,
)
from models.families.hand_built.position_coupling_parity import (
    HandBuiltParityOptions,
    HandBuiltParityWeights,
    parity_task,
)

__all__ = [
    "Construction",
    "HandBuiltMultiplicationOptions",
    "HandBuiltMultiplicationWeights",
    "HandBuiltOptions",
    "HandBuiltParityOptions",
    "HandBuiltParityWeights",
    "HandBuiltWeights",
    "hand_built_task",
    "multiplication_task",
    "parity_task",
]
