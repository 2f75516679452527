from .constant import ConstantWeights as ConstantWeights
from .dense import DenseWeights as DenseWeights
from .geometry import spiral as spiral
from .tied_decoder import TiedDecoderWeights as TiedDecoderWeights
from .weight_map import WeightMap as WeightMap
