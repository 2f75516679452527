"""All input classes of a one-layer adder with, for each, its hardest found problem and a bound."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.columns.ratio_attention import read_ratio_attention
from interp.proofs.columns.small_margins import hunt
from interp.proofs.columns.window_search import MOST_WINDOWS, ClassProof, Search, prove_query
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.numbers.rounding_errors import LARGEST_WEIGHT
from interp.proofs.verdict.subject import CannotJudge
from interp.proofs.verdict.time_limit import watched
from interp.proofs.verdict.verdict import ARITHMETICS, ArithmeticName
from models.errors import UserError, unknown_name
from models.transformer import HookedModel

STORED = 1 - 1e-9  # factor of a stored lower bound, as another order of summation in float64 may find it lower
FEW_WINDOWS = 300  # of one query, where the model cannot be certified anyhow
UNPROVED = ClassProof(float("nan"), 0, 0, 0, ())


class ClassProver:
    """Proofs of classes, query by query, as all classes of a query are proved at once.

    Attributes:
        classes: the classes, each with one problem that was hunted for a small margin.
        hunted: the margins of these problems in float64, which are not bounds.
        obstacle: why no class can be proved in this arithmetic, or None if they can.

    Raises:
        CannotJudge: attention that cannot be read even over the reals.
    """

    def __init__(self, adder: AdderWeights, arithmetic: Rounding):
        out_of_range = weights_out_of_range(adder) if arithmetic.unit32 else None
        # Where there are no bounds with rounding, the terms over the reals do, which the hunt can read as well.
        enclosed = read_ratio_attention(adder, REAL if out_of_range else arithmetic)
        terms = read_ratio_attention(adder, REAL) if enclosed.obstacle is not None and arithmetic.unit32 else enclosed
        if terms.obstacle is not None:
            raise CannotJudge(adder.model, terms.obstacle)
        self.obstacle = (out_of_range or enclosed.obstacle) if arithmetic.unit32 else None
        self.classes, self.hunted = hunt(adder, terms)
        self.numbers = self.classes.numbers
        self.search = Search(adder, arithmetic, enclosed)
        self._terms = terms if terms is not enclosed or out_of_range or not arithmetic.unit32 else None
        self._proofs: dict[tuple[int, int], dict[tuple[int, int], ClassProof]] = {}

    def over_the_reals(self) -> ClassProver:
        """The same classes and hunted problems, to be proved over the reals."""
        found, adder = copy(self), self.search.adder
        found.search = Search(adder, REAL, self._terms or read_ratio_attention(adder, REAL))
        found.obstacle, found._proofs = None, {}
        found.__dict__.pop("beyond_rounding", None)
        return found

    def _keys(self, index: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """((target, token), (carry, total)) of a class."""
        c = self.classes
        return (int(c.target[index]), int(c.token[index])), (int(c.carry[index]), int(c.total[index]))

    @cached_property
    def beyond_rounding(self) -> Bool[np.ndarray, " n"]:
        """The classes whose hunted problem alone cannot be proved right or wrong, as rounding may reach its margin.

        No split of their windows decides them. Where there are some, the model cannot be certified, and other classes
        are only tried with ``FEW_WINDOWS``.
        """
        found = np.zeros(len(self.classes), dtype=bool)
        if not self.search.downstream.unit or self.obstacle:
            return found
        c, adder = self.classes, self.search.adder
        for target, token in sorted({self._keys(index)[0] for index in range(len(c))}):
            query = self.search.query(target, token)
            rows = np.flatnonzero((c.target == target) & (c.token == token))
            tokens = adder.model.task.encode(torch.from_numpy(c.witnesses[rows, 0].copy())).numpy()
            tokens = tokens[:, : adder.layout.queries[target] + 1]
            at = np.arange(tokens.shape[1])
            weights, coords = query.weights[:, at, tokens], query.coords[:, at, tokens]  # [head, problem, pos, (r)]
            point = ((weights[..., None] * coords).sum(2) / weights.sum(2)[..., None]).sum(0)
            lower, upper = self.search.bounds_without_halving(query, c.answer[rows], point, point)
            found[rows] = ~((lower > 0) | (upper < 0))
        return found

    def prove_class(self, index: int, target_margin: float) -> ClassProof:
        """A proof of one class. The first ``target_margin`` asked for serves all classes of its query."""
        query, own = self._keys(index)
        if query not in self._proofs:
            most = FEW_WINDOWS if self.beyond_rounding.any() else MOST_WINDOWS
            self._proofs[query] = prove_query(
                self.search, self.search.query(*query), target_margin=target_margin, most=most
            )
        return self._of_class(self._proofs[query][own], index, STORED)

    def verify(
        self, cuts: Sequence[tuple[int, ...]], levels: Sequence[float], chosen: Bool[np.ndarray, " n"]
    ) -> list[ClassProof]:
        """Proofs of the chosen classes by the windows that ``cuts`` says were split, without a search.

        ``levels`` are the bounds to reach; a NaN is for a class whose problems are only counted.
        """
        by_query: dict[tuple[int, int], list[int]] = {}
        for index in np.flatnonzero(chosen).tolist():
            by_query.setdefault(self._keys(index)[0], []).append(index)
        proofs = [UNPROVED] * len(self.classes)
        for query, indices in watched(by_query.items(), "checking", "query", len(by_query)):
            splits = np.array([code for index in indices for code in cuts[index]], dtype=np.int64)
            aims = {self._keys(index)[1]: max(0.0, np.nan_to_num(levels[index])) for index in indices}
            found = prove_query(self.search, self.search.query(*query), splits, aims)
            for index in indices:
                if (own := found.get(self._keys(index)[1])) is not None:
                    proofs[index] = self._of_class(own, index, 1.0)
        return proofs

    def _of_class(self, found: ClassProof, index: int, share: float) -> ClassProof:
        """The proof with its bound, which is kept only if every problem of the class was certified."""
        return replace(found, lowest=found.lowest * share if found.certified == self.numbers[index] else float("nan"))


def weights_out_of_range(adder: AdderWeights) -> str | None:
    """Why the bounds on float32 do not apply: they are for weights of moderate size
    (:mod:`interp.proofs.numbers.rounding_errors`)."""
    weights = [value.abs().max() for value in adder.stored.values() if value.numel()]
    if float(max(weights)) >= LARGEST_WEIGHT:
        return f"a weight is larger than {LARGEST_WEIGHT:g}, beyond what the bounds on rounding are stated for"
    return None


def rounding_of(name: ArithmeticName, model: HookedModel, adder: AdderWeights) -> Rounding:
    """The arithmetic with this name, if ``model``, read as ``adder``, can be judged in it.

    Raises:
        UserError: an unknown arithmetic, or float32 for a model that is not this project's or not in float32.
    """
    if name not in ARITHMETICS:
        raise unknown_name("arithmetic", name, ARITHMETICS)
    if name != "float32":
        return REAL
    if adder.model is not model:
        raise UserError(
            f"float32 rounding is bounded for this project's own forward pass; a {type(model).__name__} can be "
            "judged in 'interval' arithmetic."
        )
    if adder.model.config.dtype != "float32" or adder.model.dtype != torch.float32:
        raise UserError(f"float32 rounding is bounded for float32 models, and this one is in {adder.model.dtype}.")
    return FLOAT32
