from .hand_built.construction import Construction as Construction
from .hand_built.position_coupling_addition import HandBuiltOptions as HandBuiltOptions
from .hand_built.position_coupling_addition import HandBuiltWeights as HandBuiltWeights
from .hand_built.position_coupling_addition import hand_built_task as hand_built_task
from .hand_built.position_coupling_multiplication import (
    HandBuiltMultiplicationOptions as HandBuiltMultiplicationOptions,
)
from .hand_built.position_coupling_multiplication import (
    HandBuiltMultiplicationWeights as HandBuiltMultiplicationWeights,
)
from .hand_built.position_coupling_multiplication import multiplication_task as multiplication_task
from .hand_built.position_coupling_parity import HandBuiltParityOptions as HandBuiltParityOptions
from .hand_built.position_coupling_parity import HandBuiltParityWeights as HandBuiltParityWeights
from .hand_built.position_coupling_parity import parity_task as parity_task
from .low_rank_adder import LowRankAdderWeights as LowRankAdderWeights
from .microadder import MicroAdderWeights as MicroAdderWeights
from .position_coupling import TWO_BY_TWO as TWO_BY_TWO
