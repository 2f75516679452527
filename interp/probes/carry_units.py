"""Which MLP neurons detect a carry: the carry in or the carry out.

For every unit and every candidate signal of a column (carry in, carry out, digit sum >= 10, digit sum 9, parity and
value of the answer digit, shuffled labels), these are measured at the query that predicts the column's digit:

    auroc                chance that the unit's input (``mlp.hook_pre``) is larger with the signal than without
    auroc_given_rivals   the same with each *rival* signal held fixed, the worst case over rivals, oriented by ``auroc``
    accuracy             accuracy of the best single threshold, chosen on one half of the problems, scored on the other;
                         the signal lies on the side of it that ``auroc`` says
    ranges               smallest and largest activation with and without the signal
    ablation             token accuracy with the unit set to zero, on columns with and without the signal
    effect_given_rivals  difference of the two drops with each rival held fixed, the smallest over rivals

Carry in, carry out and digit sum >= 10 coincide in most columns, so a marginal number proves little: a unit that
switches on carry *out* also predicts carry *in* above chance. Holding a rival fixed leaves only the columns where the
two differ. A unit is said to carry the signal that wins on ``auroc_given_rivals``, if that one also wins on
``effect_given_rivals`` among the rivals and the unit is needed for it alone: :meth:`CarryUnits.verdict` has the rules.

For a task that does not add column by column, the signals are its variables with two values and those that ``signals``
names; each is a rival of every other.

Limits. Everything is *sampled* (ranges too: they are the extremes seen, not bounds). Units are tested one at a time, so
signals spread over several units are missed, and so is a unit that another one can stand in for. The columns of a
problem are dependent; intervals allow for it (see :mod:`interp.core.stats`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int

from interp.core import runs
from interp.core.answer_columns import column_variables, signal_columns
from interp.core.batches import right_tokens
from interp.core.estimate import Estimate
from interp.core.probe import Summary, neurons, probe, two_valued
from interp.core.results import Provenance
from interp.core.samples import N_PROBLEMS, Sample, prepare
from interp.probes import neuron_selectivity as measures
from interp.probes.carry_units_result import KEYS, MEASURES, CarryUnits
from interp.probes.neuron_signals import candidate_signals, signal_name
from models.calls import Count, GivenProblems, Index, Seed
from models.errors import UserError
from models.run import has_run
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, in_block, neuron_name

#: From the AUROC of every unit for every rival signal, to whether digits are right [n, column] without (layer, unit).
Ablate = Callable[[Float[np.ndarray, "layer unit rival"]], Mapping[tuple[int, int], Bool[np.ndarray, "n column"]]]


def compute_carry_units(
    pre: Float[np.ndarray, "n column layer unit"],
    post: Float[np.ndarray, "n column layer unit"],
    variables: Mapping[str, Int[np.ndarray, "n column"]],
    clean: Bool[np.ndarray, "n column"],
    ablated: Mapping[tuple[int, int], Bool[np.ndarray, "n column"]] | Ablate,
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
        ablated: the same with (layer, unit) set to zero, or what gives it, from the AUROC of every unit for every
            rival signal; units left out get NaN.
        provenance: what the problems are; its seed also draws the shuffled control.
        base: base of the digits.
        wanted: more signals, as in :func:`interp.probes.neuron_signals.candidate_signals`.

    Raises:
        UserError: no variable with two values, or an unknown signal.
    """
    n, columns, layers, units = pre.shape
    seed = provenance.resampling_seed
    signals, rivals = candidate_signals(variables, seed, base, wanted)
    if not rivals:
        common = {name: int(np.bincount(values.ravel()).argmax()) for name, values in [*variables.items()][-1:]}
        raise UserError(
            f"None of the variables {', '.join(variables) or '(there is none)'} has two values in these problems"
            + "".join(f"; name a signal, as in signals='{name}={value}'" for name, value in common.items())
            + "."
        )
    labels = np.stack([values.ravel() for values in signals.values()], 1)
    problem = np.repeat(np.arange(n), columns)
    x, y = (part.reshape(n * columns, layers * units).astype(np.float64) for part in (pre, post))
    parts = measures.separation(x, labels, list(signals), problem, rivals)
    if not isinstance(ablated, Mapping):
        areas = parts["auroc"][:, [[*signals].index(name) for name in rivals]]
        ablated = ablated(areas.reshape(layers, units, -1))
    outcomes = {layer * units + unit: value.ravel() for (layer, unit), value in ablated.items()}
    parts |= measures.thresholds(x, labels, problem, parts["auroc"] >= 0.5)
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
    found = CarryUnits(
        "",
        xr.Dataset(data, coords=main | {"present": coords["present"]}),
        provenance,
        KEYS,
        MEASURES,
        agreement=xr.Dataset(agreement | {"n": (rivals[2:], differ)}, coords=main | {"rival": coords["rival"]}),
        by_sum=by_sum,
    )
    return found.saying(found.finding())


def _best_units(found: CarryUnits) -> Estimate:
    """``auroc_given_rivals`` of the neuron that is best at the carry out, with that of the best at each carry as parts.

    Raises:
        UserError: the task has no carry out.
    """
    if not {"carry_in", "carry_out"} <= set(found.table.signal.values.tolist()):
        raise UserError("The task has no carry into and out of every column.")
    parts = []
    for signal in ("carry_in", "carry_out"):
        apart = found.table.auroc_given_rivals.sel(signal=signal)
        layer, unit = np.unravel_index(int(np.nan_to_num(apart.values, nan=-1.0).argmax()), apart.shape)
        name = signal_name(signal)
        parts.append(Estimate(float(apart[layer, unit]), note=neuron_name(int(layer), int(unit)), name=name))
    return Estimate(parts[1].value, note=parts[1].note, parts=tuple(parts))


def _few_and_whole(model: HookedModel, task: Any, n: int, seed: int) -> dict[str, int]:
    return {"n": min(n, 256), "max_ablated": 0}


@probe(
    "Which neurons detect the carry, and which carry it?",
    needs=[neurons],
    by_default=[two_valued],
    control=True,
    summary=Summary("best carry neuron (carry out)", "AUROC", _best_units, 0.1, _few_and_whole),
)
def carry_units(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
    max_ablated: Index = 32,
    signals: str | Sequence[str] = (),
) -> CarryUnits:
    """Which signals every MLP neuron of a hooked model detects, and what breaks without it.

    Args:
        model: any model with TransformerLens hooks; ``mlp.hook_pre`` and ``mlp.hook_post`` are read, the latter is set.
        task: what its tokens mean; default ``model.task``. Signals are made from its ``variables``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``, half of them rich in
            carry chains (:func:`models.tasks.columns.long_carries.carry_rich`), the rest uniform.
        max_ablated: ablate at most this many units, those that separate some signal best.
        signals: more signals to ask about, such as "s=0": present where that variable of the task has that value.

    The right answer is in place (teacher forcing); a column counts if operands have a digit there. Ablation sets the
    unit's output to zero at every position.

    Raises:
        UserError: a model without MLP or for another task, a task whose answers have no columns or whose variables
            never have two values, an unknown signal, or fewer than 2 different problems.
    """
    sample = prepare(model, task, problems, n, seed, carry_heavy=0.5)
    if len(sample.tokens.unique(dim=0)) < 2:
        raise UserError("All problems are the same one: their columns say nothing about signals in general.")
    task, places = sample.task, signal_columns(sample.task)
    wanted = [signals] if isinstance(signals, str) else list(signals)
    variables, queries = column_variables(task, sample.problems, places.columns), places.queries
    right = sample.right[:, places.targets]

    pre, post, clean = _activations(model, sample, queries, right)
    base = task.domain.base

    def ablate(areas: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        return _right_without(model, sample, queries, right, _most_separating(areas, max_ablated))

    return compute_carry_units(pre, post, variables, clean, ablate, sample.provenance, base, wanted)


def _activations(
    model: HookedModel, sample: Sample, queries: list[int], right: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Units before and after the nonlinearity [n, column, layer, unit], and which digits are right [n, column]."""
    names = [[in_block(layer, f"mlp.hook_{part}") for layer in range(model.cfg.n_layers)] for part in ("pre", "post")]
    units: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    clean = []
    for rows, logits, kept in runs.passes(model, sample.tokens, keep=[*names[0], *names[1]]):
        runs.require_finite(kept)
        for into, hooks in zip(units, names, strict=True):
            into.append(np.stack([kept[name][:, queries].float().cpu().numpy() for name in hooks], 2))
        clean.append(right_tokens(logits[:, queries], right[rows]).numpy())
    return np.concatenate(units[0]), np.concatenate(units[1]), np.concatenate(clean)


def _right_without(
    model: HookedModel, sample: Sample, queries: list[int], right: torch.Tensor, units: list[tuple[int, int]]
) -> dict[tuple[int, int], np.ndarray]:
    """Whether each answer digit is right [n, column] with one (layer, unit) at a time set to zero.

    Problems that are there more than once are run once, and tokens after the last query change nothing before it.
    """
    read = sample.tokens[:, : max(queries) + 1] if has_run(model) else sample.tokens
    once, again = read.unique(dim=0, return_inverse=True)
    first = torch.empty(len(once), dtype=torch.long)
    first[again] = torch.arange(len(again))
    found: dict[tuple[int, int], list[torch.Tensor]] = {unit: [] for unit in units}
    for base in runs.base_runs(model, once, min(queries)):
        for layer in dict.fromkeys(layer for layer, _ in units):
            hook, chosen = in_block(layer, "mlp.hook_post"), [unit for i, unit in units if i == layer]
            removed = torch.zeros(1, once.shape[1], model.cfg.d_mlp)
            for unit, logits in base.each(hook, chosen, removed):
                found[layer, unit].append(right_tokens(logits[:, queries], right[first[base.rows]]))
    return {unit: torch.cat(parts)[again].numpy() for unit, parts in found.items()}


def _most_separating(areas: Float[np.ndarray, "layer unit rival"], count: int) -> list[tuple[int, int]]:
    """The (layer, unit) pairs that separate some rival signal best, at most ``count``."""
    pairs = list(np.ndindex(areas.shape[:2]))
    if len(pairs) <= count:
        return pairs
    best = np.nanmax(np.abs(areas - 0.5), -1).ravel()
    return [pairs[i] for i in np.argsort(-best)[:count]]
