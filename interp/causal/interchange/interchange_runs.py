"""The runs of an interchange intervention: subspaces fitted on training pairs, and answers with a site interchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.interchange.aligned_subspaces import (
    NoDirections,
    TrainingPairs,
    control_basis,
    das_basis,
    das_starts,
    least_squares_basis,
    mask_basis,
    matched_move,
    means_basis,
    orthonormal,
    project,
    random_basis,
)
from interp.causal.interchange.interchange_pairs import InterchangePairs
from interp.core import runs
from interp.core.places import Place
from models.errors import UserError
from models.transformer import HookedModel

HYPOTHESIS = "hypothesis"
CONTROLS = ("shuffled", "untrained", "random")


@dataclass(frozen=True, eq=False)
class InterchangeRuns:
    """One model in which a variable of one column is interchanged: fits on training pairs, and answers to test pairs.

    Attributes:
        queries: the positions that predict the columns ``read``.
        algorithm: the causal model.
        subspace: None for whole sites, a number of directions that are fitted by ``method``, or directions.
        steps: gradient steps of fits that descend.
    """

    model: HookedModel
    queries: Sequence[int]
    read: Sequence[int]
    algorithm: Any
    variable: str
    column: int
    subspace: Any
    method: str
    steps: int

    def held(self, tokens: Int[Tensor, "n pos"], places: Sequence[Place]) -> list[Float[Tensor, "n width"]]:
        """What each place holds, as one vector per example."""
        return [activation.flatten(1) for activation in runs.read(self.model, tokens, places, self.queries)[0]]

    def answers(self, pairs: InterchangePairs, values: Int[Tensor, " n"]) -> Int[Tensor, "n read"]:
        """The causal model's answers to the bases with the variable set to these values."""
        return pairs.counterfactual(self.algorithm, self.variable, self.column, values, self.read)

    def basis(self, place: Place, pairs: InterchangePairs, values: Int[Tensor, " n"], seed: int) -> Tensor | None:
        """The subspace fitted to these values of the training sources, or the given one; None for the whole site."""
        if self.subspace is None:
            return None
        if not isinstance(self.subspace, int):
            given = torch.as_tensor(self.subspace)
            return orthonormal(given if given.is_floating_point() else given.float())
        (source,) = self.held(pairs.source, [place])
        width, k, generator = source.shape[1], self.subspace, torch.Generator().manual_seed(seed)
        if not 1 <= k <= width:
            raise UserError(f"The site holds {width} numbers; a subspace of {k} directions does not fit.")
        if self.method in ("das", "dbm"):
            to = TrainingPairs(self.model, place, pairs.base, source, self.answers(pairs, values), self.queries)
            if self.method == "dbm":
                return mask_basis(to, k, generator, self.steps)
            return das_basis(to, das_starts(source, values, k, generator), generator, self.steps)
        if self.method == "least squares":
            return least_squares_basis(source, values, k)
        return means_basis(source, values, k) if self.method == "means" else random_basis(width, k, generator)

    def control_basis(
        self, place: Place, pairs: InterchangePairs, values: Int[Tensor, " n"], seed: int
    ) -> Tensor | None:
        """As :meth:`basis`, for a control: random directions if nothing at the site varies."""
        try:
            return self.basis(place, pairs, values, seed)
        except NoDirections:
            return replace(self, method="random").basis(place, pairs, values, seed)

    def predict(
        self,
        place: Place,
        pairs: InterchangePairs,
        source: Float[Tensor, "n width"],
        basis: Tensor | None,
        other: Tensor | None = None,
    ) -> tuple[Int[np.ndarray, "n read"], bool]:
        """The model's answers with the place taken from what the sources hold there, and whether that changed anything.

        With ``other`` the activation is moved as far along these directions instead, as a control.
        """
        if basis is not None and len(basis) != source.shape[1]:
            raise UserError(f"The site holds {source.shape[1]} numbers and the directions have {len(basis)}.")
        basis = None if basis is None else basis.to(source)
        other = None if other is None else other.to(source)
        moved = False

        def change(value: Tensor, rows: slice) -> Tensor:
            nonlocal moved
            value = value.flatten(1)
            new = project(value, source[rows], basis)
            moved = moved or bool((new != value).any())
            return new if other is None else matched_move(value, source[rows], basis, other)

        logits = runs.run(self.model, pairs.base, [place.put(change)], self.queries)
        return logits.argmax(-1).cpu().numpy(), moved


class InterchangeExperiment:
    """The hypothesis and its controls at every site: ``own`` runs of the model, and ``untrained`` ones if controls are
    asked for."""

    def __init__(self, own: InterchangeRuns, untrained: InterchangeRuns | None, train: InterchangePairs, seed: int):
        self.own, self.untrained, self.train, self.seed = own, untrained, train, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.labels = self._values(train)
        self.dealt = self._dealt(self.labels)

    def _values(self, pairs: InterchangePairs) -> Int[Tensor, " n"]:
        return pairs.source_values(self.own.algorithm, self.own.variable, self.own.column)

    def _dealt(self, values: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        return values[torch.randperm(len(values), generator=self.generator)]

    def informative(
        self, pairs: InterchangePairs, base_answers: Int[Tensor, "n read"]
    ) -> tuple[InterchangePairs, Mapping[str, Int[np.ndarray, "pair read"]], np.ndarray]:
        """The pairs whose answer changes in the causal model in some run, that answer by run, and [run, pair] where it
        changes.

        Raises:
            UserError: a run's intervention changes no answer of the causal model.
        """
        values = self._values(pairs)
        wanted = {HYPOTHESIS: self.own.answers(pairs, values)}
        if self.untrained is not None:
            dealt = self.own.answers(pairs, self._dealt(values))
            wanted |= {run: dealt if run == CONTROLS[0] else wanted[HYPOTHESIS] for run in CONTROLS}
        changed = torch.stack([(answers != base_answers).any(1) for answers in wanted.values()])
        for run, of_run in zip(wanted, changed, strict=True):
            if not of_run.any():
                raise UserError(
                    f"Setting the variable changes the causal model's answer in none of {len(pairs):,} pairs ({run}), "
                    "so that there is nothing to compare; choose another variable, column or more pairs."
                )
        kept = changed.any(0)
        answers = {run: found[kept].numpy() for run, found in wanted.items()}
        return pairs[kept], answers, changed[:, kept].numpy()

    def at_sites(
        self, places: Sequence[Place], test: InterchangePairs, wanted: Mapping[str, Int[np.ndarray, "pair read"]]
    ) -> tuple[np.ndarray, list[bool], list[Tensor | None]]:
        """[site, run, pair] right, which sites are live, and their subspaces. Sites of one hook point are read in one
        run."""
        right, live, bases = [], [], []
        for _, group in groupby(places, key=lambda place: place.hook):
            here = list(group)
            for place, source in zip(here, self.own.held(test.source, here), strict=True):
                basis = self.own.basis(place, self.train, self.labels, self.seed)
                predicted, moved = self.own.predict(place, test, source, basis)
                found = [predicted]
                if self.untrained is not None:
                    found += self._controls(place, test, source, basis, predicted)
                right.append([(digits == wanted[run]).all(1) for run, digits in zip(wanted, found, strict=True)])
                live.append(moved)
                bases.append(basis)
        return np.array(right), live, bases

    def _controls(
        self, place: Place, test: InterchangePairs, source: Tensor, basis: Tensor | None, predicted: np.ndarray
    ) -> list[np.ndarray]:
        """The answers in each control: to random labels, of the untrained model, and moved along other directions."""
        own, untrained, seed = self.own, self.untrained, self.seed
        assert untrained is not None
        if isinstance(own.subspace, int):
            refitted = own.control_basis(place, self.train, self.dealt, seed + 1)
            predicted = own.predict(place, test, source, refitted)[0]
        (theirs,) = untrained.held(test.source, [place])
        fresh = untrained.control_basis(place, self.train, self.labels, seed)
        other = control_basis(source.shape[1], basis, self.generator)
        return [
            predicted,
            untrained.predict(place, test, theirs, fresh)[0],
            own.predict(place, test, source, basis, other)[0],
        ]
