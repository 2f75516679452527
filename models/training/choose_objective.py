"""Choose the objective that trains a model."""

from __future__ import annotations

from typing import Any

import torch

from models.errors import UserError
from models.training.distillation import TaughtObjective
from models.training.one_layer_kernel import OneLayerObjective
from models.training.recipes import Recipe
from models.training.sequence_objective import SequenceObjective
from models.training.sequence_problems import SequenceSource
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import GeneralObjective
from models.training.unstacked_objective import UnstackedObjective
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.zoo import load


def objective_for(model: ArithmeticTransformer) -> GeneralObjective:
    """The fastest objective that is exact for this model; without a compiler the last two serve everything."""
    for objective in (PositionOnlyObjective, OneLayerObjective, UnstackedObjective):
        if objective.applies_to(model):
            return objective(model)
    return GeneralObjective(model)


def make_objective(model: ArithmeticTransformer, recipe: Recipe) -> Any:
    """The objective that computes the losses of stacked seeds.

    Raises:
        UserError: the recipe's teacher is not stored, has another vocabulary, or teaches sequences of many lengths.
    """
    if recipe.teacher is None:
        return SequenceObjective(model) if isinstance(recipe.problems, SequenceSource) else objective_for(model)
    if isinstance(recipe.problems, SequenceSource):
        raise UserError("A teacher teaches problems of one length, and this recipe's have many; leave the teacher out.")
    teacher = load(recipe.teacher.name).to(next(model.parameters()).device)
    return TaughtObjective(objective_for(model), objective_for(teacher), recipe.teacher)


def even_group_size(objective: Any, n: int, device: torch.device) -> int:
    """How many of ``n`` seeds are stepped together: groups of nearly equal size, with few spare places."""
    largest = objective.group_size if device.type == "cpu" else objective.cuda_group_size
    return -(-n // -(-n // largest))
