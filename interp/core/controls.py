"""Control models: the same architecture with fresh parameters, which have learned nothing.

A copy shows what training adds. A twin shows what the method finds in any network, and exists for every model, even one
whose numbers were set by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from models import ArithmeticTransformer
from models.importers import from_transformer_lens
from models.tasks import Task
from models.transformer import HookedModel, weight_shapes
from models.weight_maps import ConstantWeights

#: What a result says where :func:`untrained_copy` has nothing to draw.
NO_CONTROL = "no untrained control"
_SPREAD = 0.02  # standard deviation of a fresh weight, GPT-2's


def untrained_copy(model: HookedModel, seed: int) -> Any | None:
    """The same architecture with fresh parameters; None where nothing is drawn at random.

    A model of this project is drawn as its recipe draws it: None for a construction without parameters, and for numbers
    set by hand, which would be the same in every copy. Any other model is copied with weights drawn from N(0, 0.02),
    gains of norms one and biases zero.
    """
    weight_map = getattr(model, "weight_map", None)
    if weight_map is None:
        return _redrawn(model, seed)
    if not hasattr(weight_map, "initialise") or not list(weight_map.parameters()):
        return None
    fresh, other = (_drawn(weight_map, torch.Generator().manual_seed(one)) for one in (seed, seed + 1))
    of_class: Any = type(model)
    return of_class(fresh, model.task, name="untrained") if _differ(fresh, other) else None


def untrained_models(model: HookedModel, count: int, seed: int) -> list[Any]:
    """``count`` untrained copies; an empty list where nothing is drawn at random."""
    copies = [untrained_copy(model, 1_000 + seed + i) for i in range(count)]
    return [copied for copied in copies if copied is not None]


def copies_to_draw(candidates: Sequence[Any], count: int, seed: int) -> tuple[list[Any], int | None]:
    """``count`` untrained copies of the first model that has any, and that model's index; ([], None) if none has."""
    for index, model in enumerate(candidates):
        if copies := untrained_models(model, count, seed):
            return copies, index
    return [], None


def untrained_twin(model: HookedModel, task: Task, seed: int) -> ArithmeticTransformer:
    """The same architecture with fresh parameters, drawn as its recipe draws them.

    A model with nothing to draw (without parameters, or with numbers set by hand) gets Gaussian weights instead, with
    the root mean square of each matrix. A stock TransformerLens model is copied first
    (:func:`models.importers.stock.from_transformer_lens`).

    Raises:
        UserError: a stock model that cannot be copied.
    """
    own = from_transformer_lens(model, task)
    generator = torch.Generator().manual_seed(seed)
    on_cpu = copy.deepcopy(own.weight_map).cpu()  # where the generator draws
    weight_map = _drawn(on_cpu, generator)
    if not _differ(weight_map, _drawn(on_cpu, torch.Generator().manual_seed(seed + 1))):
        weights = own.all_weights()
        drawn = {
            key: torch.randn(shape, generator=generator, dtype=torch.float64)
            * weights[key].detach().double().cpu().square().mean().sqrt()
            for key, shape in weight_shapes(own.config).items()
            if key in weights
        }
        weight_map = ConstantWeights(own.config, drawn)
        weight_map.position_limits = own.weight_map.position_limits
    twin = ArithmeticTransformer(weight_map, task, name="untrained twin")
    return twin.to(own.device) if hasattr(own, "device") else twin


def _drawn(weight_map: Any, generator: torch.Generator) -> Any:
    """A copy of a weight map with fresh parameters."""
    fresh = copy.deepcopy(weight_map)
    fresh.initialise(generator)
    return fresh


@torch.no_grad()
def _redrawn(model: HookedModel, seed: int) -> Any | None:
    """A copy of a stock model whose parameters are fresh; None without a matrix, since matrices alone are drawn."""
    fresh: Any = copy.deepcopy(model)
    if not any(parameter.ndim > 1 for parameter in fresh.parameters()):
        return None
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in fresh.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind.startswith("b"):  # b, b_Q, bias
            parameter.zero_()
        elif parameter.ndim == 1:
            parameter.fill_(1.0)
        else:
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * _SPREAD
            parameter.copy_(drawn)
    return fresh


def _differ(first: Any, second: Any) -> bool:
    return any(not torch.equal(x, y) for x, y in zip(first.parameters(), second.parameters(), strict=True))
