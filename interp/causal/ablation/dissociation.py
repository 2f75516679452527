"""Double dissociation: which unit is needed for which signal.

Units are whatever can be ablated: heads, neurons, directions, edges, or several at once. Signals are properties of a
column (carry in, carry out, digit sum >= 10, digit sum 9, the control signals of :mod:`interp.core.signal_measures`):

    drop[unit, signal, present]   accuracy of the whole model minus accuracy without the unit, on columns with the
                                  signal or without it
    effect[unit, signal]          drop with the signal minus drop without it
    effect_apart                  the smallest effect with a rival signal held fixed
    contrast[unit, other, signal] effect of one unit minus effect of the other

If one unit breaks columns with a signal more than others, that shows little: those columns may be harder. If a second
unit breaks the columns without the signal, difficulty cannot explain both. A *double dissociation* has effects of
opposite sign, both different from zero (95% interval and permutation test) and both at least 0.1 with every rival held
fixed, so it is about this signal and not about one that is correlated with it.

Control: the signals of whole problems are dealt to other problems, which keeps how signals are correlated and how often
each column has them, and leaves only effects of chance. ``p_value`` is two-sided, never below 1 / (draws + 1).
Intervals take problems as the independent units. The evidence is sampled.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from interp.causal.ablation.runs import check_replacement, run_ablations
from interp.causal.ablation.sweep import VERB, default_components
from interp.core import signal_measures as measures
from interp.core.components import Component, check_components, hooks_of
from interp.core.frames import as_frame
from interp.core.model import HookedModel
from interp.core.probe import probe
from interp.core.problems import draw, resolve_task, right_tokens
from interp.core.results import Provenance, Result
from interp.core.sites import model_name, with_writable_stream
from interp.core.stats import permutation_p
from interp.core.strata import column_variables, signal_columns
from interp.core.thresholds import CAUSAL, SIGNIFICANT
from models.errors import UserError
from models.tasks.domain import base_of

#: The default signals of a table: the four about carries, and two controls.
SIGNALS = (*measures.RIVALS, "odd", "shuffled")


@dataclass(frozen=True, eq=False)
class DoubleDissociation(Result):
    """Which unit is needed for which signal. ``table`` is a Dataset over (unit, signal):

    * ``ablated``, ``ablated_low``, ``ablated_high`` [..., present]: share of answer digits right without the unit
    * ``drop`` [..., present]; ``effect``, ``effect_low``, ``effect_high``; ``effect_apart``
    * ``p_value`` of the effect and ``chance``, the 95% quantile of its absolute value under the control
    * ``clean``, ``clean_low``, ``clean_high``, ``n`` [signal, present]: accuracy of the whole model, number of columns

    ``contrast`` [unit, other, signal]: ``value``, ``low``, ``high``.
    """

    model: str
    replacement: str
    table: xr.Dataset
    contrast: xr.Dataset
    draws: int
    provenance: Provenance

    def dissociations(self) -> pd.DataFrame:
        """Double dissociations, the largest contrast first: one row per signal and pair of units.

        Columns with the signal need ``unit``, columns without it need ``other``. Both effects differ from zero by
        interval and by permutation; ``apart`` is the smaller effect with rivals held fixed.
        """
        rows = []
        table, units = self.table, self.table.unit.values.tolist()
        effect, p_value, apart = (table[name].values for name in ("effect", "p_value", "effect_apart"))
        contrast = np.stack([self.contrast[name].values for name in ("value", "low", "high")], -1)
        strong = (p_value <= SIGNIFICANT) & (apart >= CAUSAL)
        for s, signal in enumerate(table.signal.values.tolist()):
            if signal == "shuffled":
                continue
            needs = np.flatnonzero(strong[:, s] & (table.effect_low.values[:, s] > 0))
            needs_none = np.flatnonzero(strong[:, s] & (table.effect_high.values[:, s] < 0))
            for a, b in itertools.product(needs.tolist(), needs_none.tolist()):
                value, low, high = contrast[a, b, s].tolist()
                row = {"signal": signal, "unit": units[a], "other": units[b], "contrast": value}
                row |= {"low": low, "high": high, "p_value": float(max(p_value[a, s], p_value[b, s]))}
                row |= {"effect": float(effect[a, s]), "other_effect": float(effect[b, s])}
                rows.append(row | {"apart": float(min(apart[a, s], apart[b, s]))})
        columns = ["signal", "unit", "other", "contrast", "low", "high", "p_value", "effect", "other_effect", "apart"]
        return pd.DataFrame(rows, columns=columns).sort_values("contrast", ascending=False, ignore_index=True)

    def sentence(self) -> str:
        found = self.dissociations()
        if found.empty:
            units, signals = self.table.sizes["unit"], [s for s in self.table.signal.values if s != "shuffled"]
            return (
                f"{self.model}: no double dissociation among {units} units, {VERB[self.replacement]}, on "
                f"{len(signals)} signals (opposite effects of at least {CAUSAL} with rivals held fixed)."
            )
        row = found.iloc[0]
        a, b = (self.table.sel(unit=unit, signal=row.signal).ablated.values for unit in (row.unit, row.other))
        name = measures.signal_name(str(row.signal))
        return (
            f"{self.model}: on columns without / with {name}, {a[0]:.3f} / {a[1]:.3f} of the digits stay right with "
            f"{row.unit} {VERB[self.replacement]} and {b[0]:.3f} / {b[1]:.3f} with {row.other}: a double dissociation "
            f"(contrast {row.contrast:.3f} [{row.low:.3f}, {row.high:.3f}], permutation p <= {row.p_value:.3f}); "
            f"{_others(len(found) - 1)}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per unit and signal, with accuracies and drops in ``_without`` and ``_with`` columns."""
        return as_frame(self.table, ("unit", "signal"))


def _others(n: int) -> str:
    return f"{n} more pair{'' if n == 1 else 's'} of units and signals" if n else "no other"


def compute_double_dissociation(
    clean: Bool[np.ndarray, "n column"],
    ablated: Mapping[str, Bool[np.ndarray, "n column"]],
    variables: Mapping[str, Int[np.ndarray, "n column"]],
    provenance: Provenance,
    signals: str | Sequence[str] | None = None,
    draws: int = 199,
    model: str = "the model",
    replacement: str = "zero",
    base: int = 10,
) -> DoubleDissociation:
    """The result, from which columns are right with and without each unit.

    Args:
        variables: variables of each column; ``carry_in``, ``carry_out``, ``digit_sum`` and ``s`` where columns are
            added.
        signals: names of :func:`interp.core.signal_measures.candidate_signals`; default :data:`SIGNALS` where columns
            are added, and all of them for any other task.
        base: base of the digits.
        provenance: its seed draws the shuffled signal and the permutations.

    Raises:
        UserError: an unknown signal (with the closest), no unit, or fewer than 19 draws.
    """
    if draws < 19:
        raise UserError(f"A permutation test at p = {SIGNIFICANT} needs at least 19 draws, not {draws}.")
    if not ablated:
        raise UserError("There is no unit to compare.")
    seed = provenance.seed or 0
    wanted = [signals] if isinstance(signals, str) else list(signals or ())
    everything, rivals = measures.candidate_signals(variables, seed, base, wanted)
    by_column = rivals == measures.RIVALS
    signals = wanted if signals is not None else list(SIGNALS if by_column else everything)
    if not signals:
        raise UserError(
            "There is no signal to compare units by: no variable of the task has one value per column, of two in all."
        )
    names, units = list(everything), list(ablated)
    labels = np.stack([everything[name].ravel() for name in names], 1)
    problem = np.repeat(np.arange(len(clean)), clean.shape[1])
    outcomes = {i: right.ravel() for i, right in enumerate(ablated.values())}
    parts = measures.ablations(clean.ravel(), outcomes, labels, names, problem, len(units), rivals)
    whole = measures.whole_model(clean.ravel(), labels, problem)
    drops = np.stack([clean.astype(float) - right for right in ablated.values()])  # [unit, n, column]
    chance, p_value = _permutations(drops, np.stack(list(everything.values())), parts["effect"], draws, seed)
    three, two = ("unit", "signal", "present"), ("unit", "signal")
    data: dict[str, Any] = {k: (three[: v.ndim], v) for k, v in parts.items()}
    data |= {k: (three[1:], v) for k, v in whole.items()} | {"p_value": (two, p_value), "chance": (two, chance)}
    data["drop"] = (three, whole["clean"] - parts["ablated"])
    coords = {"unit": units, "signal": names}
    table = xr.Dataset(data, coords=coords | {"present": [False, True]}).sel(signal=list(signals))
    contrast = np.stack(
        [[measures.effect_interval((a - b).ravel(), labels, problem) for b in drops] for a in drops]
    )  # [unit, other, 3, signal]
    apart = {k: (("unit", "other", "signal"), contrast[:, :, i]) for i, k in enumerate(("value", "low", "high"))}
    found = xr.Dataset(apart, coords=coords | {"other": units}).sel(signal=list(signals))
    return DoubleDissociation(model, replacement, table, found, draws, provenance)


def _permutations(
    drops: Float[np.ndarray, "unit n column"],
    labels: Bool[np.ndarray, "signal n column"],
    effect: Float[np.ndarray, "unit signal"],
    draws: int,
    seed: int,
) -> tuple[Float[np.ndarray, "unit signal"], Float[np.ndarray, "unit signal"]]:
    """(95% quantile of |effect| when every problem's signals are dealt to another problem, p-value), [unit, signal]."""
    rng = np.random.default_rng(seed)
    present = labels.reshape(len(labels), -1).T.astype(float)  # [row, signal]
    count, rows = present.sum(0), present.shape[0]
    null = np.empty((draws, *effect.shape))
    total = drops.sum((1, 2))[:, None]
    for i in range(draws):
        with_sum = drops[:, rng.permutation(drops.shape[1])].reshape(len(drops), -1) @ present
        with np.errstate(invalid="ignore", divide="ignore"):  # the effect of a signal always or never there is NaN
            null[i] = np.abs(with_sum / count - (total - with_sum) / (rows - count))
    p_value = np.full(effect.shape, np.nan)
    for unit, signal in np.argwhere(~np.isnan(effect)):
        p_value[unit, signal] = permutation_p(float(abs(effect[unit, signal])), null[:, unit, signal])
    return np.quantile(null, 0.95, axis=0), p_value


@probe("Which neuron is needed for which signal?")
def double_dissociation(
    model: HookedModel,
    *,
    units: Component | Sequence[Component] | None = None,
    signals: str | Sequence[str] | None = None,
    replacement: str = "zero",
    task: Any = None,
    problems: Any = None,
    n: int = 4096,
    seed: int = 0,
    carry_heavy: float = 0.5,
    draws: int = 199,
    unchanged: str = "error",
) -> DoubleDissociation:
    """Ablate units one by one and compare columns with and without each signal.

    Args:
        units: components (:mod:`interp.core.components`); default sublayers, heads and up to 64 neurons.
        signals: for a task that adds column by column, names of :func:`interp.core.signal_measures.column_signals`,
            default :data:`SIGNALS`; else of :func:`interp.core.signal_measures.variable_signals` (variables with two
            values, or "name=value"), default all.
        replacement: "zero", "mean" or "resample".
        draws: permutations of the control.
        task, problems, n, seed, carry_heavy, unchanged: as in :func:`interp.causal.ablation.component_ablation`.

    Only columns in which an operand has a digit count, as in :func:`interp.carry_units`.

    Raises:
        UserError: a task without a variable of two values; units, signals or a replacement that do not exist; or an
            ablation that changes nothing.
    """
    task = resolve_task(model, task)
    if not isinstance(replacement, str):
        raise UserError("Units are compared under one replacement; give its name.")
    replacement = check_replacement(replacement)[0]
    sample = draw(task, problems, n, seed, carry_heavy)
    chosen = check_components(model, default_components(model) if units is None else units, sample.tokens.shape[1])
    places = signal_columns(task)
    right = task.targets(sample.problems)[:, places.targets]
    clean = np.zeros(right.shape, dtype=bool)
    ablated = {component.label: np.zeros_like(clean) for component in chosen}

    def receive(component: int | None, kind: int, control: bool, rows: slice, logits: Any) -> None:
        found = right_tokens(logits[:, places.queries], right[rows]).numpy()
        (clean if component is None else ablated[chosen[component].label])[rows] = found

    runner = with_writable_stream(model, task, hooks_of(chosen))
    run_ablations(runner, sample.tokens, chosen, [replacement], seed, receive, unchanged)
    return compute_double_dissociation(
        clean,
        ablated,
        column_variables(task, sample.problems, places.columns),
        sample.provenance.with_seed(seed),
        signals,
        draws,
        model_name(model),
        replacement,
        base_of(task),
    )
