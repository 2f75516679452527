"""Small decoders for sums of many lengths, one for each kind of positions."""

from __future__ import annotations

import models
from models.position_coupling import KIND_NAMES, SMALL, DecoderSize, register_variant
from models.transformer import ArithmeticTransformer
from tests.conformance.table import randomised

CODERS = ("", "-nope", "-fire", "-rope")


def coder(kind: str, layers: int = 1) -> ArithmeticTransformer:
    """A small decoder of the paper for sums of many lengths, with the given positions."""
    positions = next(name for name, suffix in KIND_NAMES.items() if suffix == kind)
    base = SMALL["addition"]
    variant = base.replace(size=DecoderSize(layers, 2, 16, 24), positions=positions, limits=(40, 40))
    return randomised(models.build(register_variant(variant), seed=layers), 1)
