from .hand_built import Construction as Construction
from .hand_built import (
    HandBuiltMultiplicationOptions as HandBuiltMultiplicationOptions,
)
from .hand_built import (
    HandBuiltMultiplicationWeights as HandBuiltMultiplicationWeights,
)
from .hand_built import HandBuiltOptions as HandBuiltOptions
from .hand_built import HandBuiltParityOptions as HandBuiltParityOptions
from .hand_built import HandBuiltParityWeights as HandBuiltParityWeights
from .hand_built import HandBuiltWeights as HandBuiltWeights
from .hand_built import hand_built_task as hand_built_task
from .hand_built import multiplication_task as multiplication_task
from .hand_built import parity_task as parity_task
from .low_rank_adder import LowRankAdderWeights as LowRankAdderWeights
from .microadder import MicroAdderWeights as MicroAdderWeights
from .position_coupling import TWO_BY_TWO as TWO_BY_TWO
