"""One solution or many: seeds of one architecture in classes, by their distance with exact symmetries taken out.

    interp.solution_classes([models.load("microadder-57"), other_seed, ...]).figure()

Two seeds can be the same function with its parameters turned, mirrored or in another order. The distance of all their
parameters after alignment (:mod:`interp.compare.alignment`) leaves that out. Models that a chain of distances below
:data:`ONE_CLASS` times that of the closest untrained pair connects are of one class.

Limits. Alignment ends in a local optimum, so that a distance is an upper bound and two classes may be one. Two classes
can compute the same answers by the same algorithm: :func:`interp.compare_heads` and :func:`interp.seed_distances`
compare what models do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from interp.compare.alignment import aligned_distances
from interp.core.controls import untrained_models
from interp.core.model import HookedModel
from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.core.sites import model_name, require_evaluation_mode
from interp.core.thresholds import ONE_CLASS
from models.errors import UserError

CONTROLS = 3


@dataclass(frozen=True, eq=False)
class SolutionClasses(Result):
    """How far apart models of one architecture are.

    Attributes:
        distances: of every pair, in the order of ``itertools.combinations`` of ``names``; 0 equal, 1 orthogonal.
        untrained: the same of every pair of untrained copies.
    """

    architecture: str
    names: tuple[str, ...]
    distances: Float[np.ndarray, " pair"]
    untrained: Float[np.ndarray, " control"]
    provenance: Provenance

    @property
    def matrix(self) -> Float[np.ndarray, "model model"]:
        from scipy.spatial.distance import squareform

        return squareform(self.distances)

    @property
    def labels(self) -> Int[np.ndarray, " model"]:
        """The class of each model, 0 the largest. Without a control only equal models are of one class."""
        from scipy.cluster.hierarchy import fcluster, linkage

        found = fcluster(linkage(self.distances, "single"), self.limit, "distance")
        largest = pd.Series(found).value_counts(sort=True).index.tolist()
        return np.array([largest.index(label) for label in found])

    @property
    def limit(self) -> float:
        """Distance below which two models are of one class; 0 without a control."""
        return ONE_CLASS * float(self.untrained.min()) if len(self.untrained) else 0.0

    def classes(self) -> list[list[str]]:
        """The names in each class, the largest first."""
        labels = self.labels
        return [
            [name for name, own in zip(self.names, labels, strict=True) if own == label]
            for label in range(labels.max() + 1)
        ]

    def sentence(self) -> str:
        groups = self.classes()
        null = f"; the closest untrained pair is {self.untrained.min():.3f} apart" if len(self.untrained) else ""
        return (
            f"{len(self.names)} models of {self.architecture} are in {len(groups)} "
            f"class{'es' if len(groups) > 1 else ''}, the largest of {len(groups[0])}: their parameters are "
            f"{self.distances.min():.3f} to {self.distances.max():.3f} apart with exact symmetries taken out{null}."
        )

    def summary(self) -> dict[str, Any]:
        """The architecture's row of a table."""
        groups = self.classes()
        return {
            "architecture": self.architecture,
            "members": len(self.names),
            "classes": len(groups),
            "largest": len(groups[0]),
            "closest pair": float(self.distances.min()),
            "farthest pair": float(self.distances.max()),
            "closest untrained": float(self.untrained.min()) if len(self.untrained) else math.nan,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """A row per model: its class (0 the largest), the nearest other model and how far that is."""
        apart = self.matrix + np.diag(np.full(len(self.names), np.inf))
        nearest = [self.names[i] for i in apart.argmin(1)]
        return pd.DataFrame({"model": self.names, "class": self.labels, "nearest": nearest, "distance": apart.min(1)})


@probe("Did seeds find one solution or many?")
def solution_classes(
    models: Sequence[HookedModel],
    *,
    names: Sequence[str] | None = None,
    task: Any = None,
    seed: int = 0,
    untrained: int = CONTROLS,
) -> SolutionClasses:
    """Put models of one architecture into classes of one solution each; see the module.

    Args:
        models: two or more, each with the same parameters' names and shapes.
        names: what to call them; numbers from 0 unless given.
        task: for stock TransformerLens models, which do not say what theirs is.
        seed, untrained: draw the untrained copies of the first model, every pair of which is a control.

    Cost: one alignment per pair, some 0.1 s for 57 parameters and 1 s for 500.

    Raises:
        UserError: fewer than two models, names that do not fit, models of different architectures or of one whose
            symmetries are not known.
    """
    models = list(models)
    called = tuple(f"{i}" for i in range(len(models))) if names is None else tuple(str(name) for name in names)
    if len(models) < 2 or len(set(called)) < len(called) or len(called) != len(models):
        raise UserError(f"{len(models)} models and {len(set(called))} names: give at least two, with a name for each.")
    for model in models:
        require_evaluation_mode(model)
    distances = aligned_distances(models, task)
    null = aligned_distances(untrained_models(models[0], None, untrained, seed), task)
    pairs = len(list(combinations(models, 2)))
    return SolutionClasses(model_name(models[0]), called, distances, null, Provenance(pairs, seed, "pairs of models"))
