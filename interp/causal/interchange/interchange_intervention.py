"""Interchange interventions on held-out problems: does a variable of an algorithm live at a site?

The base's run is repeated with the site's activation (or the part of it in a subspace) taken from the source's run. The
model's answer is compared with the causal model's: the algorithm run on the base with the variable set to its value in
the source. A pair is right if the answer digits of the columns read agree (by default the variable's own column; what a
variable does in later columns shows only if they are read). Only pairs whose answer the intervention changes *in the
causal model* are informative (a model that never reacts has all others right); both counts are kept. Three controls run
on the same pairs, the first two with a freshly fitted subspace:

    random labels      the variable's values are dealt at random among the sources (in training and in test)
    untrained model    the same architecture with fresh parameters
    random subspace    the activation is moved as far (pair by pair) along other directions; if the whole site is
                       taken, its change is rotated

Bases and sources are drawn at random and share no problem with each other or with training pairs; intervals are
Clopper-Pearson. ``stayed`` is the share that keeps the base's answer. A high accuracy says that the site (or subspace)
carries the variable *to the answer*. With the whole site other variables come along, so a low accuracy may mean that it
carries too much: take a subspace, or a later variable.

Source: interchange interventions, Geiger et al. (2021), arXiv 2106.02997; subspaces: Geiger et al. (2024), arXiv
2303.02536.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.interchange.aligned_subspaces import (
    METHODS,
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
from interp.causal.interchange.interchange_pairs import InterchangePairs, draw_pairs
from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.model_checks import require_evaluation_mode, with_writable_stream
from interp.core.named_places import find_place
from interp.core.places import Place
from interp.core.results import Provenance, Result
from interp.core.stats import Proportion, proportion
from interp.core.task_checks import resolve_task
from interp.core.views import ENDS, Points, Series
from models.errors import UserError, known_name
from models.number_format import counted, in_percent
from models.tasks import Algorithm, Task, TaskVariables, causal_model
from models.transformer import HookedModel, model_name

HYPOTHESIS = "hypothesis"
WHOLE = "the whole site"  # a hypothesis that names no subspace takes this
CONTROLS = ("random labels", "untrained model", "random subspace")


@dataclass(frozen=True, eq=False)
class InterchangeAccuracy(Result):
    """``outcomes``: Dataset over (run, pair) of ``changed`` (whether the causal model's answer changes), ``right`` and
    ``stayed``. Runs are "hypothesis" and the controls. ``clean``: bases that the model answers right without an
    intervention, in the columns read. ``basis`` [width, k] spans the subspace; None if the whole site was taken."""

    model: str
    algorithm: str
    variable: str
    column: int
    site: str
    subspace: str
    outcomes: xr.Dataset
    clean: Proportion
    basis: Float[np.ndarray, "width k"] | None
    provenance: Provenance

    def accuracy(self, run: str = HYPOTHESIS) -> Proportion:
        """Share right among the pairs whose answer the intervention changes. Raises UserError for an unknown run."""
        chosen = self._run(run)
        return proportion(chosen.right.values[chosen.changed.values])

    def accuracy_all(self, run: str = HYPOTHESIS) -> Proportion:
        """Share right among all pairs, including those whose answer should stay."""
        return proportion(self._run(run).right.values)

    def stayed(self, run: str = HYPOTHESIS) -> Proportion:
        """Share of the changed pairs where the model keeps the base's answer."""
        chosen = self._run(run)
        return proportion(chosen.stayed.values[chosen.changed.values])

    def _run(self, run: str) -> xr.Dataset:
        known_name("run", run, self.outcomes.run.values)
        return self.outcomes.sel(run=run)

    def sentence(self) -> str:
        found = self.accuracy()
        controls = [f"{run} {self.accuracy(run)}" for run in self.outcomes.run.values.tolist() if run != HYPOTHESIS]
        listed = f"; {', '.join(controls)}" if controls else ""
        variable = self.variable.replace("_", " ")
        return (
            f"{self.model}, {variable} of column {self.column} ({self.algorithm}) in {self.site}, {self.subspace}"
            f": interchange accuracy {found} on the {found.n:,} of {counted(len(self.outcomes.pair), 'pair')} whose "
            f"answer it changes ({in_percent(self.accuracy_all().value)} on all pairs; "
            f"{in_percent(self.clean.value)} right without intervention){listed}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per run: pairs whose answer changes, the share right among them with its interval, the share that
        stayed, and the share right among all pairs."""
        rows = []
        for run in self.outcomes.run.values.tolist():
            found, everything, stayed = self.accuracy(run), self.accuracy_all(run), self.stayed(run)
            rows.append(
                {"run": run, "n_changed": found.n, "right": found.successes, "accuracy": found.value, "low": found.low}
                | {"high": found.high, "stayed": stayed.value, "n": everything.n, "accuracy_all": everything.value}
                | {"low_all": everything.low, "high_all": everything.high}
            )
        return pd.DataFrame(rows)


def compute_interchange(
    predicted: Mapping[str, Int[np.ndarray, "n read"]],
    counterfactual: Mapping[str, Int[np.ndarray, "n read"]],
    base_answers: Int[np.ndarray, "n read"],
) -> xr.Dataset:
    """``changed``, ``right`` and ``stayed`` over (run, pair), from answer digits.

    Args:
        predicted: run -> the model's digits under the intervention.
        counterfactual: run -> the causal model's digits under the intervention.
        base_answers: the causal model's digits without an intervention.

    Raises:
        UserError: a run's intervention changes no answer of the causal model.
    """
    data: dict[str, list[np.ndarray]] = {"changed": [], "right": [], "stayed": []}
    for run, digits in predicted.items():
        changed = (counterfactual[run] != base_answers).any(1)
        if not changed.any():
            raise UserError(
                f"Setting the variable changes the causal model's answer in none of {len(changed):,} pairs ({run}), so "
                "that there is nothing to compare; choose another variable, column or more pairs."
            )
        data["changed"].append(changed)
        data["right"].append((digits == counterfactual[run]).all(1))
        data["stayed"].append((digits == base_answers).all(1))
    return xr.Dataset(
        {name: (("run", "pair"), np.stack(rows)) for name, rows in data.items()}, coords={"run": list(predicted)}
    )


@dataclass(frozen=True, eq=False)
class _Experiment:
    """One hypothesis about one model: fits on training pairs and interchanges on test pairs."""

    model: HookedModel
    place: Place
    queries: Sequence[int]
    read: Sequence[int]
    algorithm: Any
    variable: str
    column: int
    subspace: Any  # None, a number of directions, or directions
    method: str
    steps: int

    def held(self, tokens: Int[Tensor, "n pos"]) -> Float[Tensor, "n width"]:
        """The site's activation as one vector per example."""
        return runs.read(self.model, tokens, [self.place])[0][0].flatten(1)

    def answers(self, pairs: InterchangePairs, values: Int[Tensor, " n"]) -> Int[Tensor, "n read"]:
        return pairs.counterfactual(self.algorithm, self.variable, self.column, values, self.read)

    def control_basis(self, pairs: InterchangePairs, values: Int[Tensor, " n"], seed: int) -> Tensor | None:
        """As :meth:`basis`, for a control: random directions if nothing at the site varies."""
        try:
            return self.basis(pairs, values, seed)
        except NoDirections:
            return replace(self, method="random").basis(pairs, values, seed)

    def basis(self, pairs: InterchangePairs, values: Int[Tensor, " n"], seed: int) -> Tensor | None:
        """The subspace fitted to these values of the training sources, or the given one."""
        if self.subspace is None:
            return None
        if not isinstance(self.subspace, int):
            given = torch.as_tensor(self.subspace)
            return orthonormal(given if given.is_floating_point() else given.float())
        source = self.held(pairs.source)
        width, k, generator = source.shape[1], self.subspace, torch.Generator().manual_seed(seed)
        if not 1 <= k <= width:
            raise UserError(f"The site holds {width} numbers; a subspace of {k} directions does not fit.")
        if self.method in ("das", "dbm"):
            fit = self.model, self.place, pairs.base, source, self.answers(pairs, values), self.queries
            to = TrainingPairs(*fit)
            if self.method == "dbm":
                return mask_basis(to, k, generator, self.steps)
            return das_basis(to, das_starts(source, values, k, generator), generator, self.steps)
        if self.method == "least squares":
            return least_squares_basis(source, values, k)
        return means_basis(source, values, k) if self.method == "means" else random_basis(width, k, generator)

    def predict(self, pairs: InterchangePairs, basis: Tensor | None, other: Tensor | None, strict: bool) -> np.ndarray:
        """The model's digits under the intervention or, with ``other``, under the norm-matched control."""
        source = self.held(pairs.source)
        if basis is not None and len(basis) != source.shape[1]:
            raise UserError(f"The site holds {source.shape[1]} numbers and the directions have {len(basis)}.")
        basis = None if basis is None else basis.to(source)
        other = None if other is None else other.to(source)
        moved = [0.0]

        def change(value: Tensor, rows: slice) -> Tensor:
            value = value.flatten(1)
            new = project(value, source[rows], basis)
            moved[0] = max(moved[0], float((new - value).abs().max()))
            return new if other is None else matched_move(value, source[rows], basis, other)

        logits = runs.run(self.model, pairs.base, [self.place.put(change)], self.queries)
        if strict and not moved[0]:
            raise UserError(
                f"Taking {self.place.hook} from the source changes nothing in any of {len(pairs):,} pairs: every base "
                "holds there what its source holds."
            )
        return logits.argmax(-1).cpu().numpy()


def interchange(
    model: HookedModel,
    variable: str,
    site: Place | str,
    column: int,
    algorithm: str | Algorithm | TaskVariables | None = None,
    subspace: Any = None,
    method: str = "das",
    n: int = 500,
    n_train: int = 1000,
    seed: int = 0,
    read: int | Sequence[int] | None = None,
    step: int | None = None,
    controls: bool = True,
    das_steps: int = 200,
    task: Task | None = None,
) -> InterchangeAccuracy:
    """Interchange accuracy of "``variable`` of ``column`` lives at ``site``", with its controls.

    Args:
        model: any model with TransformerLens hooks, in evaluation mode.
        algorithm: the causal model: "chained", "ripple", "look-ahead", an
        :class:`~models.tasks.columns.addition_algorithms.Algorithm`,
            or :class:`~models.tasks.columns.variable_hypotheses.TaskVariables`, which any task has. Default "chained"
            if the task adds column by column, else the task's variables.
        site: a :class:`Place`, or the name of a hook point, read at the query.
        subspace: None for the whole site; directions [width, k], orthonormalised; or a number of directions k to be
            found on ``n_train`` training pairs by ``method`` ("das", "dbm", "least squares", "means") or drawn
            ("random").
        n: number of held-out pairs.
        read: answer columns that must agree, default ``column``.
        step: for additions of many operands, which running sum, default the last.
        controls: run the three controls as well.
        das_steps: gradient steps of DAS and of masks.

    Cost: three runs over the pairs, the same for each control, and ``das_steps`` runs with gradients per fit.

    Raises:
        UserError: a variable, site or column that does not exist, an intervention that changes nothing in the model or
            in the causal model, a task that the algorithms do not fit, or a model in training mode.
    """
    task = resolve_task(model, task)
    require_evaluation_mode(model)
    causal, layout = causal_model(task, algorithm, step)
    layout.require_variable(causal, variable, layout.require_column(column))
    asked = column if read is None else read
    columns = tuple(layout.require_column(k) for k in ([asked] if isinstance(asked, int) else asked))
    if not columns:
        raise UserError("Give at least one answer column to read.")
    known_name("method", method, METHODS)
    site = Place(site) if isinstance(site, str) else site
    name, model = model_name(model), with_writable_stream(model, task, [site.hook])
    place = find_place(model, layout, site, column)
    queries = [layout.queries[k] for k in columns]
    experiment = partial(
        _Experiment, place=place, queries=queries, read=columns, algorithm=causal, variable=variable, column=column,
        subspace=subspace, method=method, steps=das_steps,
    )  # fmt: skip
    fitted = isinstance(subspace, int)
    train, test = draw_pairs(layout, (n_train if fitted else 1, n), seed)
    labels = [pairs.source_values(causal, variable, column) for pairs in (train, test)]
    generator = torch.Generator().manual_seed(seed)
    dealt = [values[torch.randperm(len(values), generator=generator)] for values in labels]

    own = experiment(model)
    basis = own.basis(train, labels[0], seed)
    wanted = own.answers(test, labels[1]).numpy()
    predicted = {HYPOTHESIS: own.predict(test, basis, None, True)}
    counterfactual = {HYPOTHESIS: wanted}
    if controls:
        refitted = own.control_basis(train, dealt[0], seed + 1) if fitted else basis
        predicted["random labels"] = own.predict(test, refitted, None, False) if fitted else predicted[HYPOTHESIS]
        counterfactual["random labels"] = own.answers(test, dealt[1]).numpy()
        blank = experiment(untrained_twin(model, task, seed))
        predicted["untrained model"] = blank.predict(test, blank.control_basis(train, labels[0], seed), None, False)
        other = control_basis(own.held(test.source[:2]).shape[1], basis, generator)
        predicted["random subspace"] = own.predict(test, basis, other, False)
        counterfactual |= dict.fromkeys(("untrained model", "random subspace"), wanted)
    base_answers = test.base_answers(causal)[:, list(columns)].numpy()
    logits = runs.run(model, test.base, (), queries)
    clean = (logits.argmax(-1).cpu().numpy() == base_answers).all(1)
    return InterchangeAccuracy(
        model=name,
        algorithm=causal.name,
        variable=variable,
        column=column,
        site=str(site),
        subspace=_described(subspace, basis, method),
        outcomes=compute_interchange(predicted, counterfactual, base_answers),
        clean=proportion(clean),
        basis=None if basis is None else basis.detach().cpu().numpy(),
        provenance=Provenance(n, seed, f"held-out pairs of problems{f', {n_train:,} for training' if fitted else ''}"),
    )


def _described(subspace: Any, basis: Tensor | None, method: str) -> str:
    if basis is None:
        return WHOLE
    k = basis.shape[1]
    directions = f"{k} direction{'s' if k > 1 else ''}"
    return f"{directions} {f'by {method}' if isinstance(subspace, int) else 'given'}"


@drawing(InterchangeAccuracy)
def interchange_view(result: InterchangeAccuracy) -> Points:
    """The hypothesis next to its controls."""
    table = result.to_dataframe()
    own = table["run"] == HYPOTHESIS
    said = ("right", "n_changed", "stayed")
    return Points(
        "intervention", "share of pairs with the causal model's answer, where it changes", scale="share", across=True,
        series=[
            Series.of(table[rows], "run", "accuracy", name, ENDS, said, control=name == "controls")
            for name, rows in (("hypothesis", own), ("controls", ~own))
        ],
    )  # fmt: skip
