"""Choose the objective that trains a model."""

from __future__ import annotations

from typing import Any

import torch

from models.training.one_layer_kernel import OneLayerObjective
from models.training.recipes import Recipe
from models.training.sequence_objective import SequenceObjective
from models.training.sequence_problems import SequenceSource
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import GeneralObjective
from models.training.unstacked_objective import UnstackedObjective
from models.transformer.arithmetic_transformer import ArithmeticTransformer


def objective_for(model: ArithmeticTransformer) -> GeneralObjective:
    """The fastest objective that is exact for this model; without a compiler the last two serve everything."""
    for objective in (PositionOnlyObjective, OneLayerObjective, UnstackedObjective):
        if objective.applies_to(model):
            return objective(model)
    return GeneralObjective(model)


def make_objective(model: ArithmeticTransformer, recipe: Recipe) -> Any:
    """The objective that computes the losses of stacked seeds on the recipe's problems."""
    return SequenceObjective(model) if isinstance(recipe.problems, SequenceSource) else objective_for(model)


def even_group_size(objective: Any, n: int, device: torch.device) -> int:
    """How many of ``n`` seeds are stepped together: groups of nearly equal size, with few spare places."""
    largest = objective.group_size if device.type == "cpu" else objective.cuda_group_size
    return -(-n // -(-n // largest))
