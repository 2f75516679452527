"""Linear probes of the residual stream for carries, digit sums and nines, tested on pairs of digits they never saw.

A probe is a ridge regression (:mod:`interp.probes.lens.ridge_probe`) from the activations at a position that has a
fixed meaning for a column. Each column has its own, fitted to labels +1 and -1 (cut at zero) or to the digit sum
(rounded). Five folds hold out the unordered pairs of digits that decide the label
(:mod:`interp.probes.lens.probe_labels`), so a test row shares neither its problem nor its deciding pair with any
training row. *Not* held out are the other columns' digits, which are independent of the label, and for ``carry_in`` the
pair of the probed column itself.

    accuracy      on pairs never seen; intervals clustered by problem (``low``, ``high``), by pair (``pair_low``, ...)
    control       the same with labels dealt to types at random (Hewitt and Liang 2019), the mean of eight. Nothing can
                  be known about an unseen pair: anything above the commonest label's share has leaked
    selectivity   accuracy - control
    memorised     the control's accuracy with folds of rows, where every pair was seen: how many pairs a probe of this
                  size memorises, and would use if the pairs were not held out
    untrained     the same probe on the same architecture with freshly drawn weights (:func:`untrained_twin`): what can
                  be read from random features, which can be nearly everything
    score         AUROC for yes or no, R^2 for the digit sum; accuracy says little where one label is rare (nines)

A control score falls a little below 1/2 (AUROC) or 0 (R^2), since a fold with more of one label leaves less of it to
the other folds. Limits. "Can be read" is not "is used". A carry is a threshold on a sum: where both digits are encoded
linearly, a probe finds it in a trained and in an untrained model. A nine is not a threshold, so reading it linearly
says more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from interp.core.batches import distinct
from interp.core.controls import untrained_copy, untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.key_roles import target_labels
from interp.core.named_places import positions_for, stream_points
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, draw
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
from models.number_format import in_percent, in_percent_with
from models.tasks import Role, Task, TaskLike, domain_of
from models.transformer import HookedModel, model_name

ALL = "all"  # the rows of all columns together


@dataclass(frozen=True, eq=False)
class LinearProbes(Result):
    """``table``: one row per ``site``, ``signal`` and ``column`` (a digit's label, or "all") with ``n``, ``accuracy``,
    ``low``, ``high``, ``pair_low``, ``pair_high``, ``control``, ``selectivity``, ``memorised``, ``untrained``,
    ``score``, ``control_score`` and ``untrained_score``; see the module. The untrained columns are NaN without such a
    control. ``at``: the position that was read. ``left_out``: by signal, the columns with too few pairs of digits to
    hold some out."""

    name: str
    table: pd.DataFrame
    at: str
    provenance: Provenance
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

    def sentence(self) -> str:
        texts = []
        for signal in dict.fromkeys(self.table.signal):
            rows = self.overall(signal)
            best = rows.loc[rows.score.idxmax()]
            measure = "R2" if bool(best.counted) else "AUROC"
            blank = rows.loc[rows.untrained_score.idxmax()] if rows.untrained_score.notna().any() else None
            accuracy, score = (
                ("", "") if blank is None else (in_percent(blank.untrained), f"{blank.untrained_score:.3f}")
            )
            told = "no untrained copy" if blank is None else f"untrained copy {accuracy}, at {blank.site}"
            texts.append(
                f"{SIGNALS.get(signal, signal)} best at {best.site}, with an accuracy of "
                f"{in_percent_with(best.accuracy, best.pair_low, best.pair_high)} ({told}; shuffled labels "
                f"{in_percent(best.control)}; {measure} {best.score:.3f}{score and f', untrained {score}'}, shuffled "
                f"{best.control_score:.3f})"
            )
        return (
            f"{self.name}, read linearly at {self.place} on pairs of digits never seen: {'; '.join(texts)}. On "
            f"pairs that it was fitted to, the probe memorises random labels up to "
            f"{in_percent(float(self.table.memorised.max()))}."
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
            blank = None if untrained is None else untrained[site][:, i].astype(np.float64)
            one = probed(values[:, i].astype(np.float64), found, fold, rng, blank)
            done[found.signal].append(one | {"column": columns[i]})
        for signal, each in done.items():
            if not each:
                continue
            rows += [{"site": site, "signal": signal} | summary([one], one["column"]) for one in each]
            rows.append({"site": site, "signal": signal} | summary(each, ALL))
    if not rows:
        raise UserError("No column has enough different pairs of digits to keep some of them for the test.")
    return LinearProbes(
        name, pd.DataFrame(rows), at, provenance, {signal: tuple(each) for signal, each in left_out.items()}
    )


def _best_read(found: LinearProbes) -> Estimate:
    """The signal that is read best, with the best site of each signal as parts."""
    parts = []
    for signal in found.table.signal.unique():
        rows = found.overall(signal)
        best = rows.loc[rows.score.idxmax()]
        blank = None if np.isnan(best.untrained) else float(best.untrained)
        name = str(SIGNALS.get(signal, signal))
        parts.append(
            Estimate(best.accuracy, best.pair_low, best.pair_high, control=blank, note=f"at {best.site}", name=name)
        )
    worst = min(parts, key=lambda part: part.value)
    note = f"{worst.name} {worst.note}"
    return Estimate(worst.value, worst.low, worst.high, control=worst.control, note=note, parts=tuple(parts))


@probe(
    "What can be read from a stream, and where?",
    scalar=Scalar("hardest signal to read linearly", "share", _best_read, 0.01, asked_by=()),
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
    found, blank = (
        None if one is None else _read_all(one, task.encode(chosen), named, [places[target] for target in targets])
        for one in (model, _untrained(model, task, seed))
    )
    assert found is not None
    source = f"{sample.provenance.source}, {folds} folds of digit pairs"
    provenance = Provenance(len(chosen), seed, source, sample.provenance.strength)
    labelled_columns = target_labels(task, targets)
    return compute_linear_probes(found, labels, labelled_columns, model_name(model), at, provenance, folds, blank)


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
    signals = list(dict.fromkeys(result.table.signal))
    for signal in signals:
        table = result.overall(signal)
        series = [
            Series.of(table, "site", "accuracy", "accuracy, pairs never seen", ("pair_low", "pair_high")),
            Series.of(table, "site", "score", "AUROC, or R² for numbers", said=("control_score",)),
            Series.of(table, "site", "control", "labels shuffled", control=True),
            Series.of(table, "site", "memorised", "labels shuffled, fitted pairs: memorised", control=True),
            Series.of(table, "site", "untrained", "untrained copy", control=True),
        ]
        views.append(Points("", "", str(SIGNALS.get(signal, signal)), series, "share"))
    told = []
    for signal in signals:
        best = result.overall(signal).loc[result.overall(signal).score.idxmax()]
        told.append(f"{_SHORT.get(signal, signal)} at {best.site} ({best.accuracy:.3f} right)")
    note = f"Read at {result.place}, on pairs of digits never seen. Intervals: pairs of digits are clusters"
    return Picture(views, min(2, len(views)), f"{result.name}: read best are {', '.join(told)}", note)


_SHORT = {"carry_in": "carry in", "carry_out": "carry out", "nine": "sums of 9", "digit_sum": "the digit sum"}
