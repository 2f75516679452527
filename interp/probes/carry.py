"""Which MLP neurons detect a carry: the carry in or the carry out.

For every unit and every candidate signal of a column (carry in, carry out, digit sum >= 10, digit sum 9, parity and
value of the answer digit, shuffled labels), these are measured at the query that predicts the column's digit:

    auroc            chance that the unit's input (``mlp.hook_pre``) is larger with the signal than without
    auroc_apart      the same with each *rival* signal held fixed, the worst case over rivals, oriented by ``auroc``
    accuracy         accuracy of the best single threshold, chosen on one half of the problems, scored on the other
    ranges           smallest and largest activation with and without the signal
    ablation         token accuracy with the unit set to zero, on columns with and without the signal
    effect_apart     difference of the two drops with each rival held fixed, the smallest over rivals

Carry in, carry out and digit sum >= 10 coincide in most columns, so a marginal number proves little: a unit that
switches on carry *out* also predicts carry *in* above chance. Holding a rival fixed leaves only the columns where the
two differ. A unit is said to carry the signal that wins on ``auroc_apart``, if the same one wins on ``effect_apart``.

For a task that does not add column by column, the signals are its variables with two values and those that ``signals``
names; each is a rival of every other.

Limits. Everything is *sampled* (ranges too: they are the extremes seen, not bounds). Units are tested one at a time,
so signals spread over several units are missed. The columns of a problem are dependent; intervals allow for it (see
:mod:`interp.core.stats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int

from interp.core import runs
from interp.core import signal_measures as measures
from interp.core.components import Neuron
from interp.core.frames import as_frame, select
from interp.core.model import HookedModel
from interp.core.probe import OnPage, neurons, probe
from interp.core.problems import Sample, draw, resolve_task, right_tokens
from interp.core.results import Provenance, Result
from interp.core.strata import column_variables, signal_columns
from interp.core.thresholds import CAUSAL, SEPARATES
from models.errors import UserError, known_name
from models.tasks.domain import base_of


@dataclass(frozen=True, eq=False)
class CarryUnits(Result):
    """The signals that each MLP neuron detects. ``table`` is a Dataset over (layer, unit, signal):

    * ``auroc``, ``auroc_apart`` and the ``rival`` that lowers it most
    * ``threshold``, ``above`` (the signal lies above it); ``accuracy``, ``accuracy_low``, ``accuracy_high`` on the
      other half of the problems; ``majority``: accuracy of always giving the commoner answer
    * ``pre_min``, ``pre_max``, ``post_min``, ``post_max`` [..., present]: activation ranges, present in (False, True);
      ``gap`` between the two ranges of the input, positive where they do not overlap; ``flat``, ``band`` and
      ``squashed`` describe two states of the output (:func:`interp.core.signal_measures.ranges`)
    * ``ablated``, ``ablated_low``, ``ablated_high`` [..., present]: token accuracy with the unit at zero, or NaN
    * ``clean``, ``clean_low``, ``clean_high`` [signal, present]: token accuracy of the whole model; ``n``: columns
    * ``effect``, ``effect_low``, ``effect_high``: drop with the signal minus drop without it
    * ``effect_apart``: the smallest effect with a rival held fixed, positive if in the direction of ``effect``

    ``agreement``, over (layer, unit, signal, rival): ``n`` [signal, rival] is the number of columns where the two
    differ; ``share`` (``low``, ``high``) of them have the unit's on/off state, at the signal's threshold, follow the
    signal.

    ``by_sum`` [layer, unit, digit_sum, carry_in, stat]: smallest, mean and largest input, and the count; its attribute
    ``base`` is the base of the digits. None for a task without digit sums; without carries in, all have carry in 0.
    """

    table: xr.Dataset
    agreement: xr.Dataset
    by_sum: xr.DataArray | None
    provenance: Provenance

    def verdict(self, layer: int, unit: int) -> dict[str, Any]:
        """The ``signal`` that one unit carries (None if none passes), and its ``kind``.

        The kind is "switch" (its ranges with and without the signal do not overlap in the sample, and one state is
        saturated: :func:`interp.core.signal_measures.is_switch`), "detector", "correlate" (it separates the signal, but
        ablation shows no effect on it), "not ablated", or "none".
        """
        if (layer, unit) not in self._verdicts:
            select(self.table, layer=layer, unit=unit)  # raises, and says which units exist
        return dict(self._verdicts[layer, unit])

    @cached_property
    def _verdicts(self) -> dict[tuple[int, int], dict[str, Any]]:
        """All verdicts, by (layer, unit)."""
        candidates = [s for s in self.table.signal.values.tolist() if s != "shuffled"]
        names = ("auroc_apart", "accuracy", "effect", "effect_apart")
        over = self.table.sel(signal=candidates).transpose("layer", "unit", "signal", ...)
        values = {name: over[name].values for name in (*names, "gap", "flat", "band", "squashed")}
        strongest = np.nan_to_num(values["auroc_apart"], nan=0.5).argmax(-1)
        causal = np.nan_to_num(values["effect_apart"], nan=0.0).argmax(-1)
        ablated = np.atleast_1d(~np.isnan(values["effect_apart"]).all(-1))
        found = {}
        for i, layer in enumerate(over.layer.values.tolist()):
            for u, unit in enumerate(over.unit.values.tolist()):
                best = strongest[i, u]
                row = {name: float(value[i, u, best]) for name, value in values.items()}
                kind = "none"
                if row["auroc_apart"] >= SEPARATES:
                    kind = "correlate" if ablated[i, u] else "not ablated"
                    if ablated[i, u] and causal[i, u] == best and row["effect_apart"] >= CAUSAL:
                        ranges = {name: row[name] for name in ("gap", "flat", "band", "squashed")}
                        kind = "switch" if measures.is_switch(**ranges) else "detector"
                signal = None if kind == "none" else candidates[best]
                start = {"layer": layer, "unit": unit, "signal": signal, "kind": kind}
                found[layer, unit] = start | {name: row[name] for name in names}
        return found

    def verdicts(self) -> pd.DataFrame:
        """:meth:`verdict` of every unit, one row each."""
        return pd.DataFrame(self._verdicts.values())

    def count_kinds(self, signal: str) -> dict[str, int]:
        """How many units carry a signal, by kind in words, strongest kind first; kinds without a unit are left out."""
        verdicts = self.verdicts()
        kinds = verdicts[verdicts["signal"] == signal]["kind"].tolist()
        named = {
            "switch": ("exact switch", "exact switches"),
            "detector": ("detector", "detectors"),
            "correlate": ("correlated only",) * 2,
            "not ablated": ("not ablated",) * 2,
        }
        counts = {kind: kinds.count(kind) for kind in named if kind in kinds}
        return {named[kind][n > 1]: n for kind, n in counts.items()}

    def describe(self, layer: int, unit: int) -> str:
        """One unit's verdict as a sentence."""
        found, table = self.verdict(layer, unit), select(self.table, layer=layer, unit=unit)
        name = f"L{layer} neuron {unit}"
        if found["signal"] is None:
            best = table.accuracy - table.majority
            return (
                f"{name} detects no single signal (best classifier {float(best.max()):+.3f} over the commoner answer)"
            )
        row = table.sel(signal=found["signal"])
        signal = measures.signal_name(found["signal"])
        lows, highs = row.pre_min.values, row.pre_max.values
        state = "on with" if bool(row.above) else "off with"
        kind = {"switch": "an exact switch in this sample", "detector": "a detector", "correlate": "correlated only"}
        text = (
            f"{name} is {state} {signal} ({kind.get(found['kind'], found['kind'])}): input in "
            f"[{lows[0]:.2f}, {highs[0]:.2f}] without and [{lows[1]:.2f}, {highs[1]:.2f}] with it"
        )
        if not math.isnan(float(row.effect)):
            without, with_ = row.ablated.values
            text += f"; set to zero, {without:.3f} of the digits without and {with_:.3f} with it stay right"
        return text

    def sentence(self) -> str:
        verdicts = self.verdicts()
        found = verdicts[verdicts["signal"].notna()]
        if found.empty:
            text = f"None of {len(verdicts)} MLP neurons separates a signal from its rivals (best AUROC with rivals"
            return f"{text} held fixed {verdicts['auroc_apart'].max():.3f}, asked for {SEPARATES})."
        texts = [self.describe(int(row.layer), int(row.unit)) for row in found.head(4).itertuples()]
        if len(found) > 4:
            texts.append(f"{len(found) - 4} more in .verdicts()")
        if "carry_in" in self.table.signal.values and "carry_in" not in set(found["signal"]):
            texts.append(self._as_carry_in(found.iloc[0]))
        return "; ".join(texts) + "."

    def _as_carry_in(self, found: pd.Series) -> str:
        """How badly a unit that carries another signal does as a detector of the carry in."""
        at = {"layer": found["layer"], "unit": found["unit"]}
        row, signal = self.table.sel(at).sel(signal="carry_in"), measures.signal_name(found["signal"])
        apart = self.agreement.sel(at).sel(signal=found["signal"], rival="carry_in")
        share, low, high = (float(apart[name]) for name in ("share", "low", "high"))
        return (
            f"carry in and {signal} differ on {int(apart.n):,} columns, where neuron {found['unit']} follows "
            f"{signal} on {share:.3f} [{low:.3f}, {high:.3f}]; its best threshold for carry in is right on "
            f"{float(row.accuracy):.3f} of all columns, always giving the commoner answer on {float(row.majority):.3f}"
        )

    def double_dissociation(self, signal: str) -> pd.DataFrame:
        """One row per ablated unit and presence of a signal: accuracy, interval and drop from the whole model."""
        table = self.table.sel(signal=known_name("signal", signal, self.table.signal.values))
        frame = (
            table[["ablated", "ablated_low", "ablated_high", "clean", "clean_low", "clean_high", "n"]]
            .to_dataframe()
            .reset_index()
        )
        frame["drop"] = frame["clean"] - frame["ablated"]
        return frame.drop(columns="signal")

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, unit and signal; ranges and ablation accuracies in ``_with`` and ``_without`` columns."""
        return as_frame(self.table, ("layer", "unit", "signal"))


def compute_carry_units(
    pre: Float[np.ndarray, "n column layer unit"],
    post: Float[np.ndarray, "n column layer unit"],
    variables: Mapping[str, Int[np.ndarray, "n column"]],
    clean: Bool[np.ndarray, "n column"],
    ablated: Mapping[tuple[int, int], Bool[np.ndarray, "n column"]],
    provenance: Provenance,
    base: int = 10,
    wanted: Sequence[str] = (),
) -> CarryUnits:
    """Compare units with signals, given the activations at the query of each answer column.

    Args:
        pre, post: the units before and after their nonlinearity.
        variables: variables of each column; ``carry_in``, ``carry_out``, ``digit_sum`` and ``s`` where columns are
            added.
        clean: whether the whole model predicts the column's digit.
        ablated: the same with (layer, unit) set to zero; units left out get NaN.
        provenance: what the problems are; its seed also draws the shuffled control.
        base: base of the digits.
        wanted: more signals, as in :func:`interp.core.signal_measures.candidate_signals`.

    Raises:
        UserError: NaN activations, no variable with two values, or an unknown signal.
    """
    if np.isnan(pre).any():
        raise UserError("A neuron's activation is NaN: the model has diverged.")
    n, columns, layers, units = pre.shape
    seed = provenance.seed or 0
    signals, rivals = measures.candidate_signals(variables, seed, base, wanted)
    if not rivals:
        raise UserError(
            f"None of the variables {', '.join(variables) or '(there is none)'} has two values in these problems; name "
            "a signal such as signals='s=0'."
        )
    labels = np.stack([values.ravel() for values in signals.values()], 1)
    problem = np.repeat(np.arange(n), columns)
    x, y = (part.reshape(n * columns, layers * units).astype(np.float64) for part in (pre, post))
    outcomes = {layer * units + unit: value.ravel() for (layer, unit), value in ablated.items()}

    parts = measures.separation(x, labels, list(signals), rivals)
    parts |= measures.thresholds(x, labels, problem)
    parts |= measures.ranges(x, y, labels)
    parts |= measures.ablations(clean.ravel(), outcomes, labels, list(signals), problem, layers * units, rivals)
    share, differ = measures.agreement(x, labels, list(signals), problem, parts["threshold"], parts["above"], rivals)

    coords: dict[str, Any] = {"layer": np.arange(layers), "unit": np.arange(units), "signal": list(signals)}
    coords |= {"present": [False, True], "rival": list(rivals)}

    def unfold(array: np.ndarray) -> np.ndarray:
        return array.reshape(layers, units, *array.shape[1:])

    axes = ("layer", "unit", "signal", "present")
    data = {name: (axes[: array.ndim + 1], unfold(array)) for name, array in parts.items()}
    data |= {name: (axes[2:], array) for name, array in measures.whole_model(clean.ravel(), labels, problem).items()}
    by_sum = None
    if "digit_sum" in variables:
        carried = signals["carry_in"] if "carry_in" in signals else np.zeros((n, columns), dtype=bool)
        cells, sums = measures.activation_by_sum(x, variables["digit_sum"].ravel(), carried.ravel())
        by_sum = xr.DataArray(
            unfold(cells),
            dims=("layer", "unit", "digit_sum", "carry_in", "stat"),
            coords={axis: coords[axis] for axis in axes[:2]}
            | {"digit_sum": sums, "carry_in": [0, 1], "stat": ["min", "mean", "max", "n"]},
            attrs={"base": base},
        )
    main = {axis: coords[axis] for axis in axes[:3]}
    rivals = (*axes[:3], "rival")
    agreement = {name: (rivals, unfold(share[..., i])) for i, name in enumerate(("share", "low", "high"))}
    return CarryUnits(
        xr.Dataset(data, coords=main | {"present": coords["present"]}),
        xr.Dataset(agreement | {"n": (rivals[2:], differ)}, coords=main | {"rival": coords["rival"]}),
        by_sum,
        provenance,
    )


@probe(
    "Which neurons detect the carry, and which carry it?",
    needs=[neurons],
    page=OnPage(pictures=("", "ablation"), control=True, most=1_000),
)
def carry_units(
    model: HookedModel,
    *,
    task: Any = None,
    problems: Any = None,
    n: int = 4096,
    seed: int = 0,
    carry_heavy: float = 0.5,
    max_ablated: int = 32,
    signals: str | Sequence[str] = (),
) -> CarryUnits:
    """Which signals every MLP neuron of a hooked model detects, and what breaks without it.

    Args:
        model: any model with TransformerLens hooks; ``mlp.hook_pre`` and ``mlp.hook_post`` are read, the latter is set.
        task: what its tokens mean; default ``model.task``. Signals are made from its ``variables``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``, a share ``carry_heavy`` of them rich in
            carry chains (:func:`interp.core.problems.carry_rich`), the rest uniform.
        max_ablated: ablate at most this many units, those that separate some signal best.
        signals: more signals to ask about, such as "s=0": present where that variable of the task has that value.

    The right answer is in place (teacher forcing); a column counts if operands have a digit there. Ablation sets the
    unit's output to zero at every position.

    Raises:
        UserError: a model without MLP or for another task, a task whose answers have no columns or whose variables
            never have two values, an unknown signal, or fewer than 2 problems.
    """
    task = resolve_task(model, task)
    if not model.cfg.d_mlp:
        raise UserError("This model has no MLP, so it has no neurons to ask about.")
    sample = draw(task, problems, n, seed, carry_heavy)
    places = signal_columns(task)
    wanted = [signals] if isinstance(signals, str) else list(signals)
    variables, queries = column_variables(task, sample.problems, places.columns), places.queries
    right = task.targets(sample.problems)[:, places.targets]

    pre, post, clean = _activations(model, sample, queries, right)
    base = base_of(task)
    chosen = _most_separating(pre, *measures.candidate_signals(variables, seed, base, wanted), max_ablated)
    ablated = {unit: _right_without(model, sample, queries, right, unit) for unit in chosen}
    return compute_carry_units(pre, post, variables, clean, ablated, sample.provenance, base, wanted)


def _activations(
    model: HookedModel, sample: Sample, queries: list[int], right: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Units before and after the nonlinearity [n, column, layer, unit], and which digits are right [n, column]."""
    names = [[f"blocks.{layer}.mlp.hook_{part}" for layer in range(model.cfg.n_layers)] for part in ("pre", "post")]
    units: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    clean = []
    for rows, logits, kept in runs.passes(model, sample.tokens, keep=[*names[0], *names[1]]):
        for into, hooks in zip(units, names, strict=True):
            into.append(np.stack([kept[name][:, queries].float().cpu().numpy() for name in hooks], 2))
        clean.append(right_tokens(logits[:, queries], right[rows]).numpy())
    return np.concatenate(units[0]), np.concatenate(units[1]), np.concatenate(clean)


def _right_without(
    model: HookedModel, sample: Sample, queries: list[int], right: torch.Tensor, unit: tuple[int, int]
) -> np.ndarray:
    """Whether each answer digit is right [n, column] with one (layer, unit) set to zero."""
    edits = [Neuron(*unit).site.put(0.0)]
    found = [
        right_tokens(logits[:, queries], right[rows]) for rows, logits, _ in runs.passes(model, sample.tokens, edits)
    ]
    return torch.cat(found).numpy()


def _most_separating(
    pre: np.ndarray, signals: Mapping[str, np.ndarray], rivals: Sequence[str], count: int
) -> list[tuple[int, int]]:
    """The (layer, unit) pairs that separate some rival signal best, at most ``count``."""
    layers, units = pre.shape[2:]
    pairs = [(layer, unit) for layer in range(layers) for unit in range(units)]
    if len(pairs) <= count or not rivals:
        return pairs[:count]
    labels = np.stack([signals[name].ravel() for name in rivals], 1)
    areas = measures.auroc(pre.reshape(-1, layers * units), labels)
    return [pairs[i] for i in np.argsort(-np.nanmax(np.abs(areas - 0.5), 1))[:count]]
