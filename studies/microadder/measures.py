"""What the claims of MicroAdder's paper measure: trained weights, behaviour, curves, seeds of sweeps."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from interp.probes.learning_curves import LearningCurves
from models.families.microadder_ladder import LADDER, rung
from models.families.microadder_options import MicroAdderOptions
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.claims.ours import NotStored, Ours, answered, measure, number, share

SAMPLE = 256


@measure
def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine similarity of two arrays of one shape, as flat vectors."""
    first, second = a.ravel().tolist(), b.ravel().tolist()
    size = math.sqrt(sum(x * x for x in first) * sum(x * x for x in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / size


@measure
def carry_out_switches(model: ArithmeticTransformer) -> Ours:
    """The share of columns whose carry out a threshold on one neuron tells, for the worse of the two neurons."""
    from interp.probes.carry_units import carry_units

    result = carry_units(model, n=SAMPLE)
    right = result.table.accuracy
    remark = f"the carry out of a digit's own column; its carry in {float(right.sel(signal='carry_in').max()):.1%}"
    worse = float(right.sel(signal="carry_out").min())
    return Ours(worse, result.provenance, model=str(model.name_or_path), remark=remark)


@measure
def without_z_hi(model: Any) -> Ours:
    """The share of AdderBoard whose eleven digits are right with the learned place of z_hi at zero."""
    from models.evaluation import predict

    model = copy.deepcopy(model)
    with torch.no_grad():
        model.weight_map.pos_z_hi.zero_()
    what, problems = model.task.held_out.name, model.task.held_out.problems
    right = predict(model, problems) == model.task.targets(problems)
    remark = f"EOS right in {int(right[:, -1].sum()):,}"
    name = str(model.name_or_path)
    return share(int(right[:, :-1].all(1).sum()), len(right), f"problems of {what}", model=name, remark=remark)


@measure
def rise(curve: xr.DataArray) -> tuple[int, int]:
    """The step of the last validation below 1% right and that of the first at 90% or above."""
    step, exact = curve.step.values, curve.values
    end = int((exact >= 0.9).argmax())
    return int(step[np.nonzero(exact[:end] < 0.01)[0].max()]), int(step[end])


@measure
def least_between(curves: LearningCurves, model: str, first: int, last: int) -> Ours:
    """The lowest exact match between two steps, for seeds that had 90% right before."""
    seeds = [seed for seed, step in curves.onset(model, 0.9).items() if step < first]
    if not seeds:
        raise NotStored(f"No stored seed of {model} has 90% right before step {first:,}.")
    lowest = curves.of(model).sel(seed=seeds, step=slice(first, last)).min("step").values
    remark = "by seed " + ", ".join(f"{value:.1%}" for value in lowest)
    return number(lowest.min(), len(seeds), f"seeds of {model} with 90% right before", remark=remark)


@measure
def rungs() -> list[str]:
    """The models of the ladder above 57."""
    return [each.name for each in LADDER[:-1]]


#: The constraints of section 4.3, and whether a model has them.
CONSTRAINTS: dict[str, Callable[[MicroAdderOptions], bool]] = {
    "shared norm": lambda options: options.norm == "shared",
    "rank-1 output": lambda options: options.out_rank == 1,
    "no MLP bias": lambda options: not options.mlp_bias,
    "tied V/output": lambda options: options.values == "head",
    "frozen spiral": lambda options: options.freeze_spiral,
    "qk_dim 4": lambda options: options.qk_dim == 4,
    "tied fc2": lambda options: options.tie_fc2,
}


@measure
def constrained() -> list[int]:
    """The parameters of those of 74, 67 and 57 that have one of the constraints of the paper's table."""
    return sorted({n for has in CONSTRAINTS.values() for n in (74, 67, 57) if has(rung(n).options)})


@measure
def fewest_certified(found: Mapping[str, Any]) -> Ours:
    """The fewest parameters of a seed that was trained from its own start and is certified on all pairs."""
    proved = Counter(each["recipe"] for each in found["verdicts"] if each["verdict"] == "certified")
    if not proved:
        raise NotStored("No seed of microadder:smallest is certified.")
    rows = {row["label"]: row for row in found["sweeps"]}
    least = min(proved, key=lambda label: rows[label]["parameters"])
    n = len(rows[least]["seeds"])
    remark = f"{least}: {proved[least]} of {n} seeds are proved right on all 10^20 pairs; constants of the scheme are "
    return number(rows[least]["parameters"], n, f"seeds of {least}", remark=f"{remark}not counted")


@measure
def fewest_norm_weights(sweeps: Sequence[Mapping[str, Any]]) -> Ours:
    """The fewest norm weights of a variant of 57 with a seed that answers all of AdderBoard from a random start."""
    rates = {row["label"]: answered(row) for row in sweeps}
    of = {row["label"]: _norm_weights(row["label"]) for row in sweeps if rates[row["label"]].value}
    if not of:
        raise NotStored("No stored variant below 57 has a seed that answers all of AdderBoard.")
    least = min(of.values())
    said = [(label, rates[label].counts or (0, 0)) for label, n in of.items() if n == least]
    remark = "; ".join(f"{label}: {k} of {n} seeds answer all 10,010" for label, (k, n) in said)
    return number(least, len(sweeps), "variants of 57, none begun at a trained model", remark=remark)


def _norm_weights(variant: str) -> int:
    """The norm weights of a variant of 57 that was stored: one shared vector, or one number."""
    return 1 if variant.startswith(("scalar norm", "mirrored")) else 5
