"""Functions that find MicroAdder's headline numbers: seeds of sweeps, trained weights, behaviour.

Rows in ``headlines.toml`` name these functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, SupportsFloat

import numpy as np
import torch

import models
from interp.core.results import Provenance
from interp.core.stats import rate_difference
from models.evaluation import Rate
from models.families.microadder_ladder import LADDER, rung
from models.families.microadder_options import MicroAdderOptions
from studies.claims.rules import Ours, counted, over_seeds, share
from studies.claims.store import NotStored, Store, pick
from studies.runs.seed_sweeps import sweep_curves

MODEL = "microadder-57"
SAMPLE = 256


# ---- seeds of sweeps


def _sweep(store: Store, experiment: str, label: str) -> tuple[dict[str, Any], Rate]:
    """A variant's row, and the rate of its seeds that answer all of AdderBoard."""
    sweeps = store.experiment(f"microadder-{experiment}")["sweeps"]
    row = pick(sweeps, f"No sweep {label!r} of microadder:{experiment} is stored.", label=label)
    return row, sweep_curves([row]).grokked(label)


def rate(store: Store, experiment: str, label: str) -> Ours:
    """The share of a variant's seeds that answer all of AdderBoard."""
    row, found = _sweep(store, experiment, label)
    return share(found.correct, found.n, f"seeds of {row['model']}, {row['steps']:,} steps", model=row["model"])


def teacher_adds(store: Store, student: str, teacher: str) -> Ours:
    """The share of a student's seeds that grok with a teacher minus that without, with Newcombe's interval."""
    row, taught = _sweep(store, "distillation", f"{student}, {teacher}")
    _, alone = _sweep(store, "distillation", f"{student}, no teacher")
    value, low, high = rate_difference(taught.correct, taught.n, alone.correct, alone.n)
    source = Provenance(taught.n + alone.n, None, f"seeds of {row['model']}, {row['steps']:,} steps")
    remark = f"{taught.correct} of {taught.n} seeds {teacher}, {alone.correct} of {alone.n} without"
    return Ours(value, source, low, high, model=row["model"], remark=remark)


def least_error(store: Store, label: str) -> Ours:
    """The share of AdderBoard that the best seed of a constrained model of 170 parameters gets wrong."""
    row, found = _sweep(store, "constraints", label)
    right = [n for n in row["on_test"] if n is not None]
    if not right:
        raise NotStored(f"No seed of {label!r} came far enough to be tested.")
    n = row["n_test"]
    return share(n - max(right), n, f"problems, the best of {found.n} seeds", model=row["model"])


def best_token(store: Store, label: str) -> Ours:
    """The highest final token accuracy of any seed of a dead end."""
    row, found = _sweep(store, "dead-ends", label)
    remark = f"{found.correct} of {found.n} seeds grok"
    return counted(found.n, f"seeds, the best of them; {row['steps']:,} steps").with_value(max(row["token"]), remark)


def fewest_certified(store: Store) -> Ours:
    """The fewest parameters of a seed that was trained from its own start and is certified on all pairs."""
    stored = store.experiment("microadder-smallest")
    proved = Counter(found["recipe"] for found in stored["verdicts"] if found["verdict"] == "certified")
    if not proved:
        raise NotStored("No seed of microadder:smallest is certified.")
    rows = {row["label"]: row for row in stored["sweeps"]}
    least = min(proved, key=lambda label: rows[label]["parameters"])
    n = len(rows[least]["seeds"])
    remark = (
        f"{least}: {proved[least]} of {n} seeds are proved right on all 10^20 pairs; constants of the scheme are not "
        "counted"
    )
    return counted(n, f"seeds of {least}").with_value(rows[least]["parameters"], remark)


def fewest_norm_weights(store: Store) -> Ours:
    """The fewest norm weights of a variant of 57 with a seed that answers all of AdderBoard from a random start."""
    rows = store.experiment("microadder-below-57")["sweeps"]
    sweep, of = sweep_curves(rows), {row["label"]: _norm_weights(row["model"]) for row in rows}
    perfect = [label for label in sweep.models if sweep.grokked(label).correct]
    if not perfect:
        raise NotStored("No stored variant below 57 has a seed that answers all of AdderBoard.")
    least = min(of[label] for label in perfect)
    said = ((label, sweep.grokked(label)) for label in perfect if of[label] == least)
    remark = "; ".join(f"{label}: {found.correct} of {found.n} seeds answer all 10,010" for label, found in said)
    return counted(len(sweep.models), "variants of 57, none begun at a trained model").with_value(least, remark)


def _norm_weights(model: str) -> int:
    named = models.build(model).weight_map.named_parameters()
    return sum(p.numel() for name, p in named if name.startswith("norm"))


def train(store: Store, experiment: str, labels: list[str]) -> Ours:
    """The share of the seeds of some variants together that answer all of AdderBoard."""
    found = {label: _sweep(store, experiment, label)[1] for label in labels}
    remark = ", ".join(f"{rate.correct} of {rate.n} with {label}" for label, rate in found.items())
    ours = share(sum(rate.correct for rate in found.values()), sum(rate.n for rate in found.values()), "seeds")
    return replace(ours, remark=remark)


#: The constraints of section 4.3, and whether a model's options have them.
CONSTRAINTS: dict[str, Callable[[MicroAdderOptions], bool]] = {
    "shared norm": lambda options: options.norm == "shared",
    "rank-1 output": lambda options: options.out_rank == 1,
    "no MLP bias": lambda options: not options.mlp_bias,
    "tied V/output": lambda options: options.values == "head",
    "frozen spiral": lambda options: options.freeze_spiral,
    "qk_dim 4": lambda options: options.qk_dim == 4,
    "tied fc2": lambda options: options.tie_fc2,
}


def works(store: Store) -> Ours:
    """The least share of all pairs that 74, 67 or 57 parameters are proved to add; each constraint of the table is met
    by one of them."""
    having = {name: [n for n in (74, 67, 57) if holds(rung(n).options)] for name, holds in CONSTRAINTS.items()}
    proved = [store.certified(f"microadder-{n}") for n in sorted({n for ns in having.values() for n in ns})]
    remark = "proved of " + ", ".join(f"{'/'.join(map(str, ns))} ({name})" for name, ns in having.items() if ns)
    return replace(min(proved, key=lambda one: one.value), model="", remark=remark)


def right_rungs(store: Store) -> Ours:
    """The share of the ladder's rungs above 57 whose stored seed answers all of AdderBoard."""
    names = [each.name for each in LADDER[:-1]]
    counts = {name: found for name in names if (found := store.score(name).counts) is not None}
    wrong = [f"{name} answers {k:,} of {n:,}" for name, (k, n) in counts.items() if k < n]
    proved = sum(is_certified(store, name) for name in names)
    found = share(len(names) - len(wrong), len(names), "rungs, the stored seed of each", "exhaustive")
    return replace(found, remark="; ".join([*wrong, f"{proved} are proved right on all 10^20 pairs"]))


def is_certified(store: Store, name: str) -> bool:
    try:
        return store.certified(name).value == 1
    except NotStored:
        return False


def more_often(store: Store, a: str, b: str) -> Ours:
    """The share of one entry's seeds that answer all of AdderBoard minus that of another, with Newcombe's interval."""
    (k, n), (k2, n2) = (store.grokked(name).counts or (0, 0) for name in (a, b))
    value, low, high = rate_difference(k, n, k2, n2)
    remark = f"{k} of {n} seeds of {a} grok and {k2} of {n2} of {b}"
    return Ours(value, Provenance(n + n2, None, f"seeds of {a} and {b}"), low, high, remark=remark)


# ---- what trained weights look like

Numbers = dict[str, np.ndarray]  # free parameters by name


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine similarity of two arrays of one shape, as flat vectors."""
    first, second = a.ravel().tolist(), b.ravel().tolist()
    size = math.sqrt(sum(x * x for x in first) * sum(x * x for x in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / size


def arc_degrees(w: Numbers) -> float:
    """The angle of the arc from digit 0 to digit 9, in degrees."""
    return abs(math.degrees(9 * float(w["arc_stride"])))


def weakest_key_row(w: Numbers) -> float:
    """The length of the shortest row of the key matrix divided by that of the longest."""
    rows = np.linalg.norm(w["W_qk"], axis=1)
    return rows.min() / rows.max()


def share_in_tokens(w: Numbers) -> float:
    """The share of the squared length of what attention writes that lies in the two token dimensions."""
    squares = w["out_B"] ** 2
    return squares[:2].sum() / squares.sum()


def least_alike_norms(w: Numbers) -> float:
    """The smallest cosine similarity among the gains of the three norms."""
    gains = [w[name] for name in ("norm1_w", "norm2_w", "norm_f_w")]
    return min(cosine(gains[i], gains[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def energy_of_two(w: Numbers) -> float:
    """The share of the two largest singular values in the sum of squares, for the table of tokens."""
    squares = np.linalg.svd(w["tok_table"], compute_uv=False) ** 2
    return squares[:2].sum() / squares.sum()


def gain_ratio(w: Numbers) -> float:
    """The largest norm gain over the smallest."""
    return w["norm_w"].max() / w["norm_w"].min()


def arc_margin(w: Numbers) -> float:
    """The gap between the logits of a digit and of its neighbour, for a state in the digit's own direction, divided by
    that for ten digits on the full circle; both are radius^2 (1 - cos stride)."""
    return (1 - math.cos(float(w["arc_stride"]))) / (1 - math.cos(math.tau / 10))


def angles_alike(w: Numbers) -> float:
    """The smallest angle between two digits divided by the largest."""
    turned = [abs(float(w["arc_stride"])) * k % math.tau for k in range(1, 10)]
    apart = [min(angle, math.tau - angle) for angle in turned]
    return min(apart) / max(apart)


def in_output_space(w: Numbers) -> float:
    """The share of the squared length of what the MLP writes that lies in the space that the unembedding reads."""
    basis = np.linalg.qr(w["W_head"].T)[0]
    return float(np.sum((w["W_fc2"] @ basis) ** 2) / np.sum(w["W_fc2"] ** 2))


#: Numbers that are made of several parameters; others have the name of their parameter.
MEASURES: dict[str, Callable[[Numbers], SupportsFloat]] = {
    "radius": lambda w: abs(float(w["arc_A"])),
    "arc_degrees": arc_degrees,
    "axes_ratio": lambda w: w["arc_A"] / w["arc_B"],
    "weakest_key_row": weakest_key_row,
    "values_against_head": lambda w: cosine(w["W_v"], w["W_head"].T),
    "output_gain": lambda w: w["out_A"] @ w["out_B"],
    "share_in_tokens": share_in_tokens,
    "energy_of_two": energy_of_two,
    "gain_ratio": gain_ratio,
    "largest_gain": lambda w: w["norm_w"].argmax(),
    "arc_margin": arc_margin,
    "angles_alike": angles_alike,
    "in_output_space": in_output_space,
    "least_alike_norms": least_alike_norms,
}


def _measure(w: Numbers, of: str, degrees: bool) -> float:
    value = float(MEASURES[of](w) if of in MEASURES else w[of])
    return math.degrees(value) if degrees else value


def weights(store: Store, model: str, of: str, degrees: bool = False) -> Ours:
    """One of :data:`MEASURES`, or a free parameter by its name, for a stored model."""
    numbers = store.numbers(model)
    source = Provenance(sum(x.size for x in numbers.values()), None, "free numbers of the stored weights", "exhaustive")
    return Ours(_measure(numbers, of, degrees), source, model=model)


def untrained(store: Store, model: str, of: str, degrees: bool = False, copies: int = 20) -> list[Ours]:
    """The same number from freshly drawn models, seeds 0, 1, ...; if none of 20 passes, p < 0.05."""
    source = Provenance(copies, 0, f"untrained {model}")
    found = []
    for seed in range(copies):
        drawn = models.build(model, seed=seed).weight_map.named_parameters()
        with np.errstate(all="ignore"):
            value = _measure({key: p.detach().double().numpy() for key, p in drawn}, of, degrees)
        found.append(Ours(value, source, model=model))
    return found


# ---- what it does


def carry_out_switches(store: Store) -> Ours:
    """The share of columns whose carry out a threshold on one neuron tells, for the worse of the two neurons."""
    from interp.probes.carry import carry_units

    result = carry_units(store.model(MODEL), n=SAMPLE)
    right = result.table.accuracy
    remark = f"the carry out of a digit's own column; its carry in {float(right.sel(signal='carry_in').max()):.1%}"
    return Ours(float(right.sel(signal="carry_out").min()), result.provenance, model=MODEL, remark=remark)


def without_z_hi(store: Store) -> Ours:
    """The share of AdderBoard whose eleven digits are right with the learned place of z_hi at zero."""
    from models.evaluation import predict

    model = store.model(MODEL)
    with torch.no_grad():
        model.weight_map.pos_z_hi.zero_()
    what, problems = model.task.test_set()
    right = predict(model, problems) == model.task.targets(problems)
    remark = f"EOS right in {int(right[:, -1].sum()):,}"
    return replace(
        share(int(right[:, :-1].all(1).sum()), len(right), f"problems of {what}", model=MODEL), remark=remark
    )


def follows_chained(store: Store) -> Ours:
    """The share of answers that follow a plausible wrong digit before them, as in an adder chained through outputs."""
    quantity = f"{MODEL}: answers of the chained algorithm after a plausible wrong digit"
    missing = f"microadder-causal.json does not say how often {MODEL} follows its own outputs."
    fact = pick(store.experiment("microadder-causal")["facts"], missing, quantity=quantity)
    source = Provenance(fact["n"], fact["seed"], "problems with a plausible wrong digit written before")
    counts = (round(fact["value"] * fact["n"]), fact["n"])
    return Ours(fact["value"], source, fact["low"], fact["high"], counts=counts, model=MODEL)


# ---- training


def first_perfect(store: Store) -> Ours:
    step = float(store.entry(MODEL)["training"]["first_perfect_step"])
    return over_seeds([step], f"the seed of {MODEL} that grokked; validated every 500 steps", lowest=0.0)


def _chosen_curve(store: Store, model: str = MODEL, what: str = "exact") -> tuple[np.ndarray, np.ndarray, Ours]:
    """Steps, exact match or another measure, and what they rest on."""
    curves = store.curves(model)
    curve = curves.of(model, what).sel(seed=curves.chosen[model]).dropna("step")
    return curve.step.values, curve.values, counted(1, f"the seed of {model} that is stored")


def least_between(store: Store, model: str, first: int, last: int) -> Ours:
    """The lowest exact match between two steps, for seeds that had 90% right before."""
    curves = store.curves(model)
    seeds = [seed for seed, step in curves.onset(model, 0.9).items() if step < first]
    if not seeds:
        raise NotStored(f"No stored seed of {model} has 90% right before step {first:,}.")
    lowest = curves.of(model).sel(seed=seeds, step=slice(first, last)).min("step").values
    remark = "by seed " + ", ".join(f"{value:.1%}" for value in lowest)
    return counted(len(seeds), f"seeds of {model} with 90% right before").with_value(float(lowest.min()), remark)


def _rise(store: Store, model: str) -> tuple[int, int, Ours]:
    """The step of the last validation below 1% and that of the first at 90% or above."""
    step, exact, ours = _chosen_curve(store, model)
    end = int((exact >= 0.9).argmax())
    return int(step[np.nonzero(exact[:end] < 0.01)[0].max()]), int(step[end]), ours


def steps_to_ninety(store: Store) -> Ours:
    start, end, ours = _rise(store, MODEL)
    return ours.with_value(end - start)


def onset(store: Store, model: str) -> Ours:
    """The step of the last validation below 1% before exact match first reaches 90%."""
    start, end, ours = _rise(store, model)
    return ours.with_value(start, f"90% at step {end:,}")


def at_20k(store: Store, what: str, model: str = MODEL) -> Ours:
    """A measure, "exact" or "token", at step 20,000."""
    step, values, ours = _chosen_curve(store, model, what)
    return ours.with_value(float(values[np.searchsorted(step, 20_000)]))


# ---- by hand


def _certified_rows(store: Store) -> list[dict[str, Any]]:
    return [row for row in store.experiment("microadder-gap")["gap"] if row["rung"].startswith("certified")]


def fewest_by_hand(store: Store) -> Ours:
    """The fewest parameters of a certified adder that was set by hand."""
    rows = [row for row in _certified_rows(store) if row["made"] == "by hand"]
    if not rows:
        raise NotStored("No certified adder by hand is stored.")
    least = min(rows, key=lambda row: row["numbers"])
    source = Provenance(10**20, None, "pairs of ten-digit numbers", least["rung"])
    return Ours(float(least["numbers"]), source, model=least["model"])


def overhead(store: Store, trained: str) -> Ours:
    """The parameters of a trained model divided by those of the certified model by hand with the fewest."""
    by_hand = fewest_by_hand(store)
    own = pick(_certified_rows(store), f"No certificate of {trained} is stored.", model=trained)
    return by_hand.with_value(own["numbers"] / by_hand.value, f"by hand: {by_hand.value:g} ({by_hand.model})")
