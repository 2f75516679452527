"""Which objective trains a model."""

from __future__ import annotations

from models.training.objective import GeneralObjective
from models.training.one_layer import OneLayerObjective
from models.training.position_only import PositionOnlyObjective
from models.training.unstacked import UnstackedObjective
from models.transformer import ArithmeticTransformer


def objective_for(model: ArithmeticTransformer) -> GeneralObjective:
    """The fastest objective that is exact for this model; without a compiler the last two serve everything."""
    for objective in (PositionOnlyObjective, OneLayerObjective, UnstackedObjective):
        if objective.applies_to(model):
            return objective(model)
    return GeneralObjective(model)
