"""Our measured numbers, and the statistics that make them; claims call these by name (:mod:`studies.claims.read`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtrit

from interp.core.results import Provenance, Strength
from interp.core.significance import holm
from interp.core.stats import UPPER, clopper_pearson, mean_interval
from models.errors import UserError
from studies.claims.differences import mean_difference, rate_difference

_F = TypeVar("_F", bound=Callable[..., Any])
#: What claims may call: the statistics here, and each paper's own functions (its module ``measures``).
MEASURES: dict[str, Callable[..., Any]] = {}


class NotStored(UserError):
    """Raised for a number that was not measured yet, or whose result is not stored."""


@dataclass(frozen=True)
class Ours:
    """A number of this project with its interval, sample size and evidence.

    ``low`` and ``high`` are the ends of a 95% interval, if there is one. ``counts`` are the successes and trials of a
    share, ``p`` is that of a test with effect ``value``. ``able`` is False if what it is compared with did not succeed
    either, so that a difference could not have shown.
    """

    value: float
    provenance: Provenance
    low: float | None = None
    high: float | None = None
    counts: tuple[int, int] | None = None
    p: float | None = None
    able: bool = True
    model: str = ""  # the model whose number it is, if the paper's row does not say
    remark: str = ""  # what the number alone does not say

    @property
    def ends(self) -> tuple[float, float]:
        """The interval, or the number itself twice."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


def measure(function: _F) -> _F:
    """Let claims call a function by its name. Raises UserError if the name is taken."""
    if MEASURES.setdefault(function.__name__, function) is not function:
        raise UserError(f"A measure named {function.__name__!r} is registered already.")
    return function


def _said(value: float) -> str:
    """A number in a remark."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@measure
def number(
    value: float, n: int, what: str, *, strength: Strength = "exhaustive", seed: int | None = None, model: str = "",
    remark: str = "",
) -> Ours:  # fmt: skip
    """A number without an interval; by default it is counted and not sampled."""
    return Ours(float(value), Provenance(n, seed, what, strength), model=model, remark=remark)


@measure
def share(
    successes: int, n: int, what: str, strength: Strength = "sampled", seed: int | None = None, model: str = "",
    remark: str = "",
) -> Ours:  # fmt: skip
    """A proportion with its Clopper-Pearson interval, or without one if every input was tried."""
    low, high = (None, None) if strength != "sampled" else clopper_pearson(successes, n)
    found = Ours(successes / n, Provenance(n, seed, what, strength), low, high, counts=(successes, n), model=model)
    return replace(found, remark=remark)


@measure
def rest(of: Ours) -> Ours:
    """The share that is left: errors, of right answers."""
    assert of.counts is not None
    right, n = of.counts
    source = of.provenance
    return share(n - right, n, source.source, source.strength, source.seed, of.model)


@measure
def one_more(values: Sequence[float], what: str, lowest: float = -math.inf, highest: float = math.inf) -> Ours:
    """The mean over seeds, with the 95% interval in which one further seed is expected (Student's t).

    It is ``mean ± t sqrt(1 + 1/n) s``, as a paper's single run is one further seed. With fewer than three seeds it is
    unbounded, as no interval would be useful.
    """
    mean, n = float(np.mean(values)), len(values)
    half = math.inf if n < 3 else float(stdtrit(n - 1, UPPER) * np.std(values, ddof=1) * math.sqrt(1 + 1 / n))
    remark = f"seeds from {_said(min(values))} to {_said(max(values))}" if n > 1 else "one seed"
    return Ours(mean, Provenance(n, None, what), max(lowest, mean - half), min(highest, mean + half), remark=remark)


@measure
def average(values: Sequence[float], what: str, model: str = "") -> Ours:
    """The mean over seeds alone, with every seed's number."""
    remark = "by seed " + ", ".join(f"{value:.3f}" for value in values)
    return number(sum(values) / len(values), len(values), what, model=model, remark=remark)


@measure
def paired(first: Mapping[Any, float], second: Mapping[Any, float], what: str) -> Ours:
    """The mean difference over the seeds that both have, with its interval."""
    values = np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    mean, low, high = mean_interval(values)
    remark = f"holds in {int((values > 0).sum())} of {len(values)} seeds: "
    remark += ", ".join(f"{value:+.3f}" for value in values)
    return Ours(mean, Provenance(len(values), None, f"seeds that both have, {what}"), low, high, remark=remark)


@measure
def difference(
    first: Sequence[float], second: Sequence[float], what: str, bounds: tuple[float, float] | None = None,
    model: str = "",
) -> Ours:  # fmt: skip
    """The difference of two means over seeds, with its interval, which is infinite where one has a single seed."""
    one, other = np.array(first, float), np.array(second, float)
    value, low, high = mean_difference(one, other, bounds=bounds)
    remark = " against ".join(f"{_said(x.mean())} ({len(x)} seed{'s' if len(x) > 1 else ''})" for x in (one, other))
    return Ours(value, Provenance(min(len(one), len(other)), None, what), low, high, model=model, remark=remark)


@measure
def rates(first: Ours, second: Ours) -> Ours:
    """The difference of two shares, with Newcombe's interval."""
    assert first.counts is not None and second.counts is not None
    (k, n), (k2, n2) = first.counts, second.counts
    value, low, high = rate_difference(k, n, k2, n2)
    whats = [one.provenance.source for one in (first, second)]
    remark = f"{k} of {n} {whats[0]} and {k2} of {n2} {whats[1]}"
    model = first.model if first.model == second.model else ""
    return Ours(value, Provenance(n + n2, None, " and ".join(whats)), low, high, model=model, remark=remark)


@measure
def together(found: Sequence[Ours], what: str) -> Ours:
    """Several shares as one."""
    counts = [one.counts for one in found if one.counts is not None]
    remark = ", ".join(f"{k} of {n} {one.provenance.source}" for (k, n), one in zip(counts, found, strict=True))
    return share(sum(k for k, _ in counts), sum(n for _, n in counts), what, remark=remark)


@measure
def least(found: Sequence[Ours], most: bool = False) -> Ours:
    """The least of several numbers, or the largest. Its interval runs from the least lower to the least upper end.

    That all are positive is confirmed if all intervals lie above zero, and refuted if one lies below.
    """
    chosen = (max if most else min)(found, key=lambda one: one.value)
    low, high = ((max if most else min)(one.ends[i] for one in found) for i in (0, 1))
    several = ", ".join(f"{_said(one.value)} of {one.model}" for one in found)
    remark = several if len({one.model for one in found}) > 1 else chosen.remark
    return replace(chosen, low=low, high=high, remark=remark)


@measure
def fact(row: Mapping[str, Any], what: str, model: str = "") -> Ours:
    """A stored share with its interval: ``value``, ``low``, ``high``, ``n`` and ``seed``."""
    counts = (round(row["value"] * row["n"]), row["n"])
    source = Provenance(row["n"], row["seed"], what)
    return Ours(row["value"], source, row["low"], row["high"], counts=counts, model=model)


@measure
def where(rows: Iterable[Mapping[str, Any]], **values: Any) -> list[Mapping[str, Any]]:
    """The rows of a stored table with these values. Raises NotStored if there is none."""
    found = [row for row in rows if all(row[key] == value for key, value in values.items())]
    if not found:
        raise NotStored(f"No row with {', '.join(f'{key} {value!r}' for key, value in values.items())} is stored.")
    return found


@measure
def answered(row: Mapping[str, Any]) -> Ours:
    """The share of the seeds of a sweep's variant that answer its whole test set."""
    right = sum(n == row["n_test"] for n in row["on_test"])
    what = f"seeds of {row['label']}, {row['steps']:,} steps"
    return share(right, len(row["seeds"]), what, model=row["model"])


@measure
def ranked(sweep: Mapping[str, Any], base: str, *labels: str) -> Ours:
    """The chance that a seed of a sweep's variant gets further than a seed of the model that it changes, by rank.

    The p-value is corrected for all variants that were compared with the same seeds of that model. Of several labels,
    the one that gets furthest counts: a claim that all of them fail is as strong as its weakest part.
    """
    compared = where(sweep["comparisons"], a=base)
    own = max((where(compared, b=one)[0] for one in labels), key=lambda row: row["superiority"])
    corrected = holm([row["p_rank"] for row in compared])[compared.index(own)]
    variant, model = (where(sweep["sweeps"], label=one)[0] for one in (own["b"], base))
    n, of = len(variant["seeds"]), len(model["seeds"])
    succeeded = sum(step is not None for step in model.get("first_perfect", ()))
    remark = f"the smallest of {len(compared)} comparisons counts {len(compared)} times"
    remark += f"; {succeeded} of {of} without succeed"
    what = f"seeds of {own['b']}, against {'as many' if n == of else of} without"
    return replace(number(own["superiority"], n, what, remark=remark), p=corrected, able=succeeded > 0)
