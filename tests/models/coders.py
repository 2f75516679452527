"""Small decoders for sums of many lengths, one for each kind of positions."""

from __future__ import annotations

import models
from models.families.position_coupling import KIND_NAMES, SMALL, TWO_BY_TWO, DecoderSize, register_variant
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import randomised

CODERS = ("", "-nope", "-fire", "-rope", "-window1", "-window-2x2")
WINDOWS = {"-window1": 1, "-window-2x2": TWO_BY_TWO}


def coder(kind: str, layers: int = 1) -> ArithmeticTransformer:
    """A small decoder for sums of many lengths, with the given positions."""
    window = WINDOWS.get(kind)
    positions = next(name for name, suffix in KIND_NAMES.items() if suffix == ("" if window else kind))
    size = DecoderSize(layers, 2, 16, 24)
    variant = SMALL["addition"].replace(size=size, positions=positions, limits=(40, 40), window=window)
    return randomised(models.build(register_variant(variant), seed=layers), 1)
