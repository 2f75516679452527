"""The MLP neuron that best separates a signal of its column, measured on problems that it was not chosen on.

:func:`interp.carry_units` measures more, with ablations; here the same ``auroc_apart``
(:mod:`interp.core.signal_measures`) is measured for every format, only at the inner columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.compare.subject import Subject
from interp.core.answers import Answer, Part
from interp.core.signal_measures import RIVALS, separation, signal_name
from interp.core.stats import percentile_interval
from models.errors import UserError
from models.part_names import neuron_name

SHOWN, RESAMPLES = 6, 100  # number of units in the table, and of bootstrap draws of problems


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Units ordered by ``auroc_apart`` on one half of the problems, with their values on the other: [signal][rank]."""

    order: np.ndarray  # [signal, shown]
    value: np.ndarray  # [signal, shown]
    rival: np.ndarray  # [signal, shown]


def unit_signals(subject: Subject, signal: str) -> Answer:
    """The answer for ``signal``, one of :data:`interp.core.signal_measures.RIVALS`, with the best units as parts.

    Raises:
        UserError: a model without MLP, or activations that are not finite.
    """
    units = subject.readings.units
    if not units.shape[-1]:
        raise UserError("The model has no MLP, so it has no neurons to ask about.")
    at, width = RIVALS.index(signal), units.shape[-1]
    if "units" not in subject.found:
        labels = _labels(subject)
        shuffled = labels[np.random.default_rng(subject.seed).permutation(len(labels))]
        blank = subject.untrained_readings.units
        subject.found["units"] = (_choose(units, labels), _choose(blank, labels), _choose(units, shuffled))
    own, blank, shuffled = subject.found["units"]
    control, name = max((blank.value[at, 0], "an untrained twin"), (shuffled.value[at, 0], "shuffled problems"))
    count = len(units) - len(units) // 2
    parts = tuple(
        Part(
            neuron_name(index // width, index % width),
            float(value),
            note="" if rival == "none" else f"worst with {signal_name(str(rival))} held fixed",
        )
        for index, value, rival in zip(own.order[at], own.value[at], own.rival[at], strict=True)
    )
    low, high = _interval(subject, int(own.order[at, 0]), at, parts[0].value)
    return Answer(
        parts[0].value,
        low,
        high,
        count,
        "sampled",
        float(control),
        name,
        f"{parts[0].name} {parts[0].note}".strip(),
        parts,
    )


def _labels(subject: Subject) -> Bool[np.ndarray, "n column signal"]:
    values = {name: value[:, subject.inner].numpy() for name, value in subject.variables.items()}
    found = {"carry_in": values["carry_in"], "carry_out": values["carry_out"]}
    found |= {
        "generate": values["digit_sum"] >= subject.layout.base,
        "propagate": values["digit_sum"] == subject.layout.base - 1,
    }
    return np.stack([found[name].astype(bool) for name in RIVALS], -1)


def _halves(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of even and odd problems: both halves hold uniform problems and problems rich in carries."""
    return np.arange(0, n, 2), np.arange(1, n, 2)


def _flat(units: np.ndarray, rows: np.ndarray, chosen: np.ndarray | None = None) -> Float[np.ndarray, "row unit"]:
    flat = units[rows].reshape(len(rows) * units.shape[1], -1).astype(np.float64)
    return flat if chosen is None else flat[:, chosen]


def _choose(units: Float[np.ndarray, "n column layer unit"], labels: Bool[np.ndarray, "n column signal"]) -> _Chosen:
    if not np.isfinite(units).all():
        raise UserError("A neuron's activation is not a finite number: the model has diverged.")
    fit, held = _halves(len(units))
    flat = lambda rows: labels[rows].reshape(-1, len(RIVALS))  # noqa: E731
    apart = np.nan_to_num(separation(_flat(units, fit), flat(fit), RIVALS)["auroc_apart"], nan=0.5)
    order = np.argsort(-apart, axis=0, kind="stable")[:SHOWN].T
    seen = np.unique(order)
    found = separation(_flat(units, held, seen), flat(held), RIVALS)
    index = np.searchsorted(seen, order)
    pick = lambda table: np.stack([table[index[at], at] for at in range(len(RIVALS))])  # noqa: E731
    return _Chosen(order, pick(found["auroc_apart"]), pick(found["rival"]))


def _interval(subject: Subject, unit: int, at: int, value: float) -> tuple[float, float]:
    """Bootstrap interval over the problems that the unit was not chosen on, clipped to the range of an AUROC."""
    units, labels = subject.readings.units, _labels(subject)
    _, held = _halves(len(units))
    x, rng = _flat(units, held, np.array([unit])).reshape(len(held), -1), np.random.default_rng(subject.seed)
    drawn = []
    for _ in range(RESAMPLES):
        rows = rng.integers(len(held), size=len(held))
        values = separation(x[rows].reshape(-1, 1), labels[held[rows]].reshape(-1, len(RIVALS)), RIVALS)
        drawn.append(values["auroc_apart"][0, at])
    low, high = percentile_interval(value, np.array(drawn), len(held))
    return max(0.0, float(low)), min(1.0, float(high))
