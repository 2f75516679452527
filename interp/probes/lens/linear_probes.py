"""Linear probes of the residual stream for carries, digit sums and nines, tested on pairs of digits they never saw.

A probe is a ridge regression (:mod:`interp.probes.lens.ridge_probe`) from the activations at a position that has a
fixed meaning for a column. Each column has its own, fitted to labels +1 and -1 (cut at zero) or to the digit sum
(rounded). Five folds hold out the unordered pairs of digits that decide the label
(:mod:`interp.probes.lens.probe_labels`), so a test row shares neither its problem nor its deciding pair with any
training row. *Not* held out are the other columns' digits, which are independent of the label, and for ``carry_in`` the
pair of the probed column itself.

    accuracy      on pairs never seen; intervals clustered by pair, and by problem (``problem_low``, ...)
    _shuffled     the same with labels shuffled over types (Hewitt and Liang 2019), the mean of eight. Nothing can be
                  known about an unseen pair: anything above the commonest label's share has leaked
    selectivity   accuracy - accuracy_shuffled
    _memorised    accuracy_shuffled with folds of rows, where every pair was seen: how many pairs a probe of this size
                  memorises, and would use if the pairs were not held out
    _untrained    the same probe on the same architecture with freshly drawn weights (:func:`untrained_twin`): what can
                  be read from random features, which can be nearly everything
    score         AUROC for yes or no, R^2 for the digit sum; accuracy says little where one label is rare (nines)

A shuffled score falls a little below 1/2 (AUROC) or 0 (R^2), since a fold with more of one label leaves less of it to
the other folds. Limits. "Can be read" is not "is used". A carry is a threshold on a sum: where both digits are encoded
linearly, a probe finds it in a trained and in an untrained model. A nine is not a threshold, so reading it linearly
says more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from interp.core.batches import distinct
from interp.core.controls import untrained_copy, untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.key_roles import target_labels
from interp.core.named_places import positions_for, stream_points
from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, draw
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.views import Picture, Points, Series
from interp.probes.lens.probe_labels import (
    SIGNALS,
    Labels,
    column_labels,
    probed_signals,
    variable_labels,
)
from interp.probes.lens.residual_points import digit_targets, read, variable_index
from interp.probes.lens.ridge_probe import FOLDS, answerable, probed, summary
from models.calls.argument_kinds import Count, GivenProblems, Seed, whole_within
from models.errors import UserError, known_name, unknown_name
from models.number_format import in_percent
from models.tasks import Role, Task, TaskLike, domain_of
from models.transformer import HookedModel, model_name

ALL = "all"  # the rows of all columns together
KEYS = ("signal", "site", "column")
MEASURES = (
    Measure("accuracy", SHARE, ("untrained", "shuffled", "memorised"), "accuracy, pairs never seen"),
    Measure("score", "", ("untrained", "shuffled"), "AUROC, or R² for numbers"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearProbes(TableResult):
    """``table``: one row per ``signal``, ``site`` and ``column`` (a digit's label, or "all") with ``n``, ``accuracy``
    and ``score`` with their controls, ``selectivity``, ``problem_low`` and ``problem_high``; see the module. The
    untrained columns are NaN without such a control. ``at``: the position that was read. ``left_out``: by signal, the
    columns with too few pairs of digits to hold some out."""

    at: str
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def overall(self, signal: str) -> pd.DataFrame:
        """A signal's rows over all columns, in the order of the sites.

        Raises:
            UserError: the signal was not probed for.
        """
        rows = self.table[(self.table.column == ALL) & (self.table.signal == signal)]
        if rows.empty:
            raise unknown_name("signal in this result", signal, self.table.signal.unique())
        return rows.reset_index(drop=True)

    @property
    def place(self) -> str:
        """``at`` in words."""
        return "the query" if self.at == "query" else self.at

    def best_site(self, signal: str) -> pd.Series:
        """The row of the site from which a signal is read with the best score."""
        rows = self.overall(signal)
        return rows.loc[rows.score.idxmax()]

    def hardest(self) -> Estimate:
        """The signal that is read worst at its best site, with those of all signals as parts."""
        parts = []
        for signal in self.table.signal.unique():
            best = self.best_site(signal).to_dict()
            name = str(SIGNALS.get(signal, signal))
            parts.append(replace(MEASURES[0].estimate(best, name), note=f"at {best['site']}"))
        worst = min(parts, key=lambda part: part.value)
        return replace(worst, note=f"{worst.name} {worst.note}", parts=tuple(parts))

    def finding(self, name: str) -> str:
        hardest = self.hardest()
        signal = next(each for each in self.table.signal if SIGNALS.get(each, each) == hardest.name)
        best, rows = self.best_site(signal), self.overall(signal)
        controls = [("shuffled labels", best.accuracy_shuffled, "")]
        if rows.score_untrained.notna().any():
            other = rows.loc[rows.score_untrained.idxmax()]
            controls.insert(0, ("an untrained copy", other.accuracy_untrained, f" at {other.site}"))
        beside = ", ".join(
            f"{'' if share < (hardest.low or 0.0) else 'no better than '}{control} {in_percent(share)}{where}"
            for control, share, where in controls
        )
        of = f", the hardest of {len(hardest.parts)} signals," if len(hardest.parts) > 1 else ""
        return (
            f"{name}: {hardest.name}{of} is read right in {hardest} at {best.site}, by a linear probe of {self.place} "
            f"on pairs of digits that it never saw ({beside})."
        )


def compute_linear_probes(
    activations: Mapping[str, Float[np.ndarray, "n column feature"]],
    labels: Sequence[Sequence[Labels]],
    columns: Sequence[str],
    name: str,
    at: str,
    provenance: Provenance,
    folds: int = FOLDS,
    untrained: Mapping[str, Float[np.ndarray, "n column feature"]] | None = None,
) -> LinearProbes:
    """Probes of every site for every column's labels.

    Args:
        activations: activations by site, at the position of each column.
        labels: for each column, one per signal; all are of the same problems.
        columns: the columns' names.
        provenance: what the problems are; its seed also deals folds and control labels.
        untrained: the same activations of an untrained copy.

    Raises:
        UserError: NaN activations, or no column with both answers to any question.
    """
    require_finite(activations)
    asked = [(i, found) for i, each in enumerate(labels) for found in each if len(np.unique(found.value)) > 1]
    if not asked:
        raise UserError("No column has both answers to any of these questions among the problems.")
    rows: list[dict[str, Any]] = []
    left_out: dict[str, list[str]] = {}
    for site, values in activations.items():
        left_out.clear()
        known = dict.fromkeys((*SIGNALS, *(found.signal for _, found in asked)))
        done: dict[str, list[dict[str, Any]]] = {signal: [] for signal in known}
        for i, found in asked:
            rng = np.random.default_rng(
                [provenance.resampling_seed, i, list(known).index(found.signal)]
            )  # alike at all sites
            fold = found.folds(folds, rng)
            if not answerable(found, fold):
                left_out.setdefault(found.signal, []).append(columns[i])
                continue
            own = None if untrained is None else untrained[site][:, i].astype(np.float64)
            one = probed(values[:, i].astype(np.float64), found, fold, rng, own)
            done[found.signal].append(one | {"column": columns[i]})
        for signal, each in done.items():
            if not each:
                continue
            rows += [{"signal": signal, "site": site} | summary([one], one["column"]) for one in each]
            rows.append({"signal": signal, "site": site} | summary(each, ALL))
    if not rows:
        raise UserError("No column has enough different pairs of digits to keep some of them for the test.")
    outside = {signal: tuple(each) for signal, each in left_out.items()}
    result = LinearProbes("", pd.DataFrame(rows), provenance, KEYS, MEASURES, at=at, left_out=outside)
    return result.saying(result.finding(name))


@probe(
    "What can be read from a stream, and where?",
    summary=Summary("hardest signal to read linearly", SHARE, LinearProbes.hardest, 0.01, asked_by=()),
)
def linear_probes(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    sites: str | Sequence[str] | None = None,
    at: str = "query",
    signals: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
    folds: Annotated[int, whole_within(2, 11)] = FOLDS,
) -> LinearProbes:
    """Linear probes for the intermediate values of a task; see the module.

    The control is a copy of the model with weights drawn by ``seed``, where one can be made.

    Args:
        model: any model with TransformerLens hooks.
        task: what its tokens mean; default ``model.task``. It must state its domain.
        sites: hook points with positions after the batch (heads and other axes are flattened), or labels of
            :func:`interp.core.named_places.stream_points` such as "L0 mid"; default every residual stream.
        at: "query" (the position that predicts the column's digit), a relative role such as "own operands" (several
            positions are read together), or another name of :func:`interp.core.named_places.positions_for`, as "b0".
        signals: names of :data:`interp.probes.lens.probe_labels.SIGNALS`, for column addition, or variables of the task
            with a value per column. Default all of the former if the task computes what they need, else every variable.
        columns: the digits whose values are labels, such as "s0"; default all that have these positions.
        problems: problems to probe on, each counted once; by default ``n`` uniform ones, drawn with ``seed``.
        folds: number of folds of pairs, 2 to 11.

    Cost: a pass over the problems and 2 ``folds`` solves of size [feature, feature] per site, column and signal; half
    as much again for the untrained copy.

    Raises:
        UserError: unknown sites, signals or positions (with the closest names), a signal whose variables the task does
            not compute, training mode, or too few problems.
    """
    task = resolve_task(model, task)
    if (signals is not None and not len(signals)) or (sites is not None and not len(sites)):
        raise UserError("There is nothing to probe: give at least one signal and one site, or leave them out for all.")
    signals, added = probed_signals(task, signals)
    sample = draw(task, problems, n, seed)
    chosen = distinct(torch.as_tensor(task.as_problems(sample.problems)))
    if len(chosen) < 20 * folds:
        raise UserError(f"Probes on {folds} folds need at least {20 * folds} different problems, not {len(chosen):,}.")
    variables = task.variables(chosen)
    places = {t: positions_for(task, t, at) for t in digit_targets(task, columns=True)}
    places = {target: found for target, found in places.items() if found}
    width = max((len(found) for found in places.values()), default=0)
    targets = [target for target, found in places.items() if len(found) == width]
    if columns is not None:
        by_label = dict(zip(target_labels(task, targets), targets, strict=True))
        for each in (asked := [columns] if isinstance(columns, str) else columns):
            known_name("column", each, by_label)
        targets = [by_label[each] for each in asked]
    roles, base = [task.target_roles[target] for target in targets], task.domain.base
    digits = _column_digits(task, chosen)
    _, number = torch.unique(chosen.flatten(1), dim=0, return_inverse=True)
    whole: torch.Tensor = number[:, None]  # where a column has too few digits to hold some out, problems are held out

    def labelled(role: Role, signal: str) -> Labels | None:
        if added and signal in SIGNALS:
            return column_labels(variables, role, signal, base)
        index = variable_index(role, variables[signal].shape)
        own = digits.get(role.column or 0, whole)
        own = own if len(torch.unique(own.sort(1).values, dim=0)) >= 2 * folds else whole
        return None if index is None else variable_labels(variables[signal][(slice(None), *index)], own, signal, base)

    labels = [[x for s in signals if (x := labelled(role, s)) is not None] for role in roles]
    points = stream_points(model)
    named = {site: points.get(site, site) for site in ([sites] if isinstance(sites, str) else sites or points)}
    found, untrained = (
        None if one is None else _read_all(one, task.encode(chosen), named, [places[target] for target in targets])
        for one in (model, _untrained(model, task, seed))
    )
    assert found is not None
    source = f"{sample.provenance.source}, {folds} folds of digit pairs"
    provenance = Provenance(len(chosen), seed, source, sample.provenance.strength)
    labelled_columns = target_labels(task, targets)
    return compute_linear_probes(found, labels, labelled_columns, model_name(model), at, provenance, folds, untrained)


def _untrained(model: HookedModel, task: Task, seed: int) -> Any | None:
    """An untrained twin, or an untrained copy of a stock model that this project's transformer cannot express."""
    try:
        return untrained_twin(model, task, seed)
    except UserError:
        return untrained_copy(model, seed)


def _column_digits(task: Task, problems: torch.Tensor) -> dict[int, Int[torch.Tensor, "n operand"]]:
    """The operands' digits by column."""
    domain = domain_of(task)
    digits = domain.digits_of(problems)
    return {k: digits[:, [i for i, at in enumerate(domain.column) if at == k]] for k in sorted(set(domain.column))}


def _read_all(
    model: HookedModel, tokens: torch.Tensor, sites: Mapping[str, str], places: Sequence[Sequence[int]]
) -> dict[str, Float[np.ndarray, "n column feature"]]:
    """Activations by site, with the positions of one column and all further axes flattened."""
    flat = [position for positions in places for position in positions]
    parts: dict[str, list[np.ndarray]] = {}
    for _, values in read(model, tokens, sites.values(), flat):
        for site, hook in sites.items():
            here = values[hook]
            parts.setdefault(site, []).append(here.reshape(len(here), len(places), -1).float().cpu().numpy())
    return {site: np.concatenate(each) for site, each in parts.items()}


@drawing(LinearProbes)
def probes_view(result: LinearProbes) -> Picture:
    """Accuracy with its interval, its controls and the score by site; one panel per signal, all columns together."""
    views = []
    for signal in result.table.signal.unique():
        table = result.overall(signal)
        ends = "accuracy_low", "accuracy_high"
        series = [
            Series.of(table, "site", "accuracy", "accuracy, pairs never seen", ends),
            Series.of(table, "site", "score", "AUROC, or R² for numbers", said=("score_shuffled",)),
            Series.of(table, "site", "accuracy_shuffled", "labels shuffled", control=True),
            Series.of(table, "site", "accuracy_memorised", "labels shuffled, fitted pairs: memorised", control=True),
            Series.of(table, "site", "accuracy_untrained", "untrained copy", control=True),
        ]
        views.append(Points("", "", str(SIGNALS.get(signal, signal)), series, "share"))
    note = f"Read at {result.place}. Intervals: pairs of digits are clusters"
    return Picture(views, min(2, len(views)), note=note)
