"""Alignment of two models of one architecture: b is moved towards a along its exact symmetries.

Models with different parameters may be the same: units and heads have no order, a factor can be moved from one matrix
to the next, the residual stream may rotate. :func:`align` removes these differences as far as a search finds them, and
neither model's logits change; :mod:`studies.population.symmetries` says which moves are exact for which weight map.

    distance of a component = sqrt(mean over its tensors of |a - b|^2 / (|a|^2 + |b|^2))

is 0 if they are equal, 1 if orthogonal, sqrt 2 if opposite. Untrained copies may lie nearer than 1 once aligned, by
how much depends on the architecture.

Limits. The result is an upper bound on the distance between the two orbits: coordinate descent ends in a local optimum.
It compares weights, not activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.task_checks import resolve_task
from interp.core.views import Bars, Picture, Series
from models import ArithmeticTransformer
from models.calls import checked
from models.errors import UserError
from models.importers import from_transformer_lens
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, model_name
from studies.population.symmetries import Parameters, symmetries_of
from studies.population.symmetries.base import tensor_weight

#: Component -> how its parameters' names begin, after "blocks/LAYER/".
_COMPONENTS = {
    "W_E": ("embed/", "W_E", "arc_", "tok_table"),
    "W_pos": ("pos", "spiral_"),
    "QK": ("attn/W_Q", "attn/W_K", "attn/b_Q", "attn/b_K", "W_q", "q_angle"),
    "QKV": ("qkv.",),
    "OV": ("attn/W_V", "attn/W_O", "attn/b_V", "attn/b_O", "W_v", "out_", "W_out"),
    "W_O": ("out.",),
    "MLP": ("mlp", "W_fc", "b_fc"),
    "norms": ("ln", "norm"),
    "W_U": ("unembed/", "W_head"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Alignment(Result):
    """``stored``: both models' parameters as they are. ``aligned``: a's in canonical form and b's moved close to them.

    Both forms compute the models' own functions, in float64. ``symmetries`` are those that were used, in words.
    """

    names: tuple[str, str]
    symmetries: tuple[str, ...]
    stored: tuple[Parameters, Parameters]
    aligned: tuple[Parameters, Parameters]

    @property
    def provenance(self) -> Provenance:
        numbers = sum(value.numel() for value in self.stored[0].values())
        return Provenance(numbers, None, "parameters of each model", strength="exhaustive")

    def __repr__(self) -> str:
        return f"<Alignment of {' and '.join(self.names)}, {self.provenance.n:,} parameters each>"

    def sentence(self) -> str:
        rows = self.distances().set_index("component")
        whole, parts = rows.loc["all"], rows["after"].drop("all").dropna()
        text = (
            f"The parameters of {self.names[0]} and {self.names[1]} are {whole.before:.3f} apart as stored and "
            f"{whole.after:.3f} once aligned (0: equal, 1: orthogonal; untrained copies can be "
            "nearer than 1)"
        )
        if len(parts) > 1 and parts.max() >= 0.0005:  # not 0.000 as printed
            text += f"; closest {parts.idxmin()} ({parts.min():.3f}), farthest {parts.idxmax()} ({parts.max():.3f})"
        return f"{text}. Taken out: {', '.join(self.symmetries)}."

    def to_dataframe(self) -> pd.DataFrame:
        """:meth:`distances`."""
        return self.distances()

    def distances(self) -> pd.DataFrame:
        """One row per component ("all" for everything): component, numbers (how many), distance before and after."""
        before, after = component_distances(*self.stored), component_distances(*self.aligned)
        counts: dict[str, int] = {"all": 0}
        for name, value in self.stored[0].items():
            for key in (component_of(name), "all"):
                counts[key] = counts.get(key, 0) + value.numel()
        rows = [(name, counts[name], before[name], after[name]) for name in before]
        return pd.DataFrame(rows, columns=["component", "numbers", "before", "after"])


def parametrised(model: HookedModel, task: Task | None = None) -> Any:
    """The model, or, for a stock TransformerLens model, a copy whose parameters are its weights.

    Raises:
        UserError: a stock model without a task, or one that cannot be copied.
    """
    if isinstance(model, ArithmeticTransformer) or not hasattr(model, "hook_dict"):
        return model
    return from_transformer_lens(model, resolve_task(model, task))


@partial(checked, ready=True)
def align(a: HookedModel, b: HookedModel, *, task: TaskLike | None = None) -> Alignment:
    """Move b close to a along the symmetries of their weight map.

    ``task`` is for stock TransformerLens models, which do not name their own.

    Cost: a few seconds for some hundred parameters; for a million (d_model 128, four layers), up to half a minute.

    Raises:
        UserError: models of different architectures, or of one whose symmetries are not known.
    """
    a, b = parametrised(a, task), parametrised(b, task)
    require_one_architecture(a, b)
    symmetries = symmetries_of(a)
    stored = tuple(_parameters(model) for model in (a, b))
    first, second = (symmetries.canonical(parameters) for parameters in stored)
    return Alignment(_names(a, b), symmetries.words, (stored[0], stored[1]), (first, symmetries.align(second, first)))


def aligned_distances(models: Sequence[HookedModel], task: Task | None = None) -> Float[np.ndarray, " pair"]:
    """The distance of all parameters after :func:`align`, for every pair in the order of ``itertools.combinations``.

    Raises:
        UserError: as :func:`align`.
    """
    models = [parametrised(model, task) for model in models]
    for other in models[1:]:
        require_one_architecture(models[0], other)
    if len(models) < 2:
        return np.zeros(0)
    symmetries = symmetries_of(models[0])
    own = [symmetries.canonical(_parameters(model)) for model in models]
    return np.array([component_distances(a, symmetries.align(b, a))["all"] for a, b in combinations(own, 2)])


def require_one_architecture(a: HookedModel, b: HookedModel) -> None:
    """Raise UserError unless both have parameters of the same names and shapes, and the same configuration."""
    first, second = (getattr(model, "weight_map", None) for model in (a, b))
    if first is None or second is None or _architecture(first) != _architecture(second):
        raise UserError(
            f"{model_name(a)} and {model_name(b)} are not two models of one architecture, so that their parameters "
            "have no common space; interp.compare looks at them without one."
        )


def _architecture(weight_map: Any) -> tuple[Any, ...]:
    shapes = [(name, tuple(p.shape)) for name, p in weight_map.named_parameters()]
    return shapes, weight_map.config, getattr(weight_map, "options", None)


def _parameters(model: HookedModel) -> Parameters:
    return {name: value.detach().cpu().double().clone() for name, value in model.weight_map.named_parameters()}


def _names(a: HookedModel, b: HookedModel) -> tuple[str, str]:
    first, second = model_name(a), model_name(b)
    return (f"{first} (a)", f"{second} (b)") if first == second else (first, second)


def component_of(name: str) -> str:
    """The component that a parameter belongs to."""
    own = name.split("/", 2)[2] if name.startswith("blocks/") else name
    if own == "W_E":
        return own
    return next((part for part, starts in _COMPONENTS.items() if own.startswith(starts)), "other")


def component_distances(a: Parameters, b: Parameters) -> dict[str, float]:
    """The distance of each component and of "all"; NaN if all of a component's tensors are zero in both."""
    squares: dict[str, list[float]] = {"all": []}
    for name in a:
        found = squares.setdefault(component_of(name), [])
        weight = tensor_weight(a[name], b[name])
        if weight:
            value = weight * float((a[name] - b[name]).square().sum())
            found.append(value)
            squares["all"].append(value)
    return {name: math.sqrt(sum(found) / len(found)) if found else math.nan for name, found in squares.items()}


def flat(parameters: Parameters, model: HookedModel) -> Float[Tensor, " parameter"]:
    """Parameters as one vector, in the order and precision of the model's parameters."""
    named = dict(model.weight_map.named_parameters())
    return torch.cat([parameters[name].to(value.dtype).reshape(-1) for name, value in named.items()])


@drawing(Alignment)
def alignment_view(result: Alignment) -> Picture:
    """The two models' distance by component, as stored and aligned."""
    table = result.distances()
    series = [
        Series.of(table, "component", column, name, said=("numbers",))
        for column, name in (("before", "as stored"), ("after", "aligned"))
    ]
    bars = Bars("component", "distance of the parameters", series=series)
    return Picture([bars], note="Distance: 0 equal, 1 orthogonal")
