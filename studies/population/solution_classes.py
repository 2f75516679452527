"""Classes of solutions: seeds of one architecture, grouped by their distance with exact symmetries taken out.

    solution_classes([models.load("microadder-57"), other_seed, ...]).figure()

Two seeds can be the same function with its parameters rotated, mirrored or reordered. The distance of all their
parameters after alignment (:mod:`studies.population.alignment`) ignores that. Two models are in one class if a chain of
models connects them whose successive distances are below :data:`ONE_CLASS` times that of the closest untrained pair.

Limits. Alignment ends in a local optimum, so a distance is an upper bound and two classes may be one. Two classes can
compute the same answers by the same algorithm: :func:`interp.compare` and :func:`interp.seed_distances` compare what
models do.
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
from jaxtyping import Float, Int

from interp.core.controls import NO_CONTROL, untrained_models
from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Bars, Grid, Line, Picture, Series
from models.calls.argument_kinds import Index, Seed
from models.calls.checked_calls import checked
from models.errors import UserError
from models.tasks.task_definitions import TaskLike
from models.transformer import model_name
from models.transformer.hooked import HookedModel
from studies.population.alignment import aligned_distances

#: Models of one architecture are in one class if their aligned parameters lie closer than this share of the distance
#: of the closest untrained pair.
ONE_CLASS = 0.5

CONTROLS = 3


@dataclass(frozen=True, eq=False)
class SolutionClasses(Result):
    """How far apart models of one architecture are.

    Attributes:
        distances: distance of every pair, in the order of ``itertools.combinations`` of ``names``; 0 equal, 1
            orthogonal.
        untrained: the same for every pair of untrained copies.
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
        """The class of each model, 0 for the largest. Without a control only equal models are in one class."""
        from scipy.cluster.hierarchy import fcluster, linkage

        found = fcluster(linkage(self.distances, "single"), self.limit, "distance")
        largest = pd.Series(found).value_counts(sort=True).index.tolist()
        return np.array([largest.index(label) for label in found])

    @property
    def limit(self) -> float:
        """Distance below which two models are in one class; 0 without a control."""
        return ONE_CLASS * float(self.untrained.min()) if len(self.untrained) else 0.0

    def classes(self) -> list[list[str]]:
        """The names in each class, the largest class first."""
        labels = self.labels
        return [
            [name for name, own in zip(self.names, labels, strict=True) if own == label]
            for label in range(labels.max() + 1)
        ]

    def sentence(self) -> str:
        groups = self.classes()
        known = len(self.untrained) > 0
        null = f"the closest untrained pair is {self.untrained.min():.3f} apart" if known else NO_CONTROL
        return (
            f"{len(self.names)} models of {self.architecture} are in {len(groups)} "
            f"class{'es' if len(groups) > 1 else ''}, the largest of {len(groups[0])}: their parameters are "
            f"{self.distances.min():.3f} to {self.distances.max():.3f} apart with exact symmetries taken out; {null}."
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
        """One row per model: its class (0 is the largest), the nearest other model and the distance to it."""
        apart = self.matrix + np.diag(np.full(len(self.names), np.inf))
        nearest = [self.names[i] for i in apart.argmin(1)]
        return pd.DataFrame({"model": self.names, "class": self.labels, "nearest": nearest, "distance": apart.min(1)})


@partial(checked, ready=True)
def solution_classes(
    models: Sequence[HookedModel],
    *,
    names: Sequence[str] | None = None,
    task: TaskLike | None = None,
    seed: Seed = 0,
    untrained: Index = CONTROLS,
) -> SolutionClasses:
    """Group models of one architecture into classes of one solution each; see the module.

    Args:
        models: two or more models whose parameters have the same names and shapes.
        names: what to call them; default numbers from 0.
        task: for stock TransformerLens models, which do not name their own.
        seed, untrained: seed and number of untrained copies of the first model; each pair of copies is a control.

    Cost: one alignment per pair, some 0.1 s for 57 parameters and 1 s for 500.

    Raises:
        UserError: fewer than two models, names that do not fit, models of different architectures or of one whose
            symmetries are not known.
    """
    models = list(models)
    called = tuple(f"{i}" for i in range(len(models))) if names is None else tuple(str(name) for name in names)
    if len(models) < 2 or len(set(called)) < len(called) or len(called) != len(models):
        raise UserError(f"{len(models)} models and {len(set(called))} names: give at least two, with a name for each.")
    distances = aligned_distances(models, task)
    null = aligned_distances(untrained_models(models[0], untrained, seed), task)
    pairs = len(list(combinations(models, 2)))
    return SolutionClasses(model_name(models[0]), called, distances, null, Provenance(pairs, seed, "pairs of models"))


@drawing(SolutionClasses)
def classes_view(result: SolutionClasses) -> Picture:
    """Distances of all pairs, ordered by class, and how often each distance occurs."""
    order = np.argsort(result.labels, kind="stable")
    names = [f"{result.names[i]} · class {result.labels[i]}" for i in order]
    matrix = Grid(title="every pair", values=result.matrix[np.ix_(order, order)], rows=names, columns=names)
    counts, edges = np.histogram(result.distances, bins=40, range=(0.0, max(1.0, float(result.distances.max()))))
    how_often = Bars(
        "distance with symmetries taken out", "pairs",
        series=[Series("pairs", (edges[:-1] + edges[1:]) / 2, counts)],
        lines=[Line(result.limit, "one class", "x")] if len(result.untrained) else [],
    )  # fmt: skip
    groups = result.classes()
    many = f"{len(groups)} classes, the largest of {len(groups[0])}" if len(groups) > 1 else "one class"
    title = f"{len(names)} seeds of {result.architecture}: {many}"
    return Picture([matrix, how_often], columns=2, title=title, note="Distance: 0 equal, 1 orthogonal")
