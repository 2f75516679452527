"""Intervals that resample families and then models, comparisons that were stated before the run, and rank correlations.

A method's score is the mean over families of its mean over the family's subjects, so that no family outweighs another.
Intervals (95%) draw families with replacement, and subjects with replacement within each. Two methods are compared on
the subjects that both were run on: by the same interval of the difference, and by a p-value from all changes of sign of
the families' mean differences, corrected for the comparisons of :data:`PLANNED` (Holm). All else is exploratory.

What an interval says is one rule, :func:`side`, for claims and for comparisons with a control: it lies above a line, or
it excludes a relevant distance above it, or it leaves both open. Then the difference is told that would have been seen
in 80% of such runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import ConstantInputWarning, norm, spearmanr

from benchmarks.circuits.circuit_methods import CONTROL, METHODS
from benchmarks.circuits.subjects import FAMILIES, PLANTED
from benchmarks.circuits.truth import CORRUPTED, sides_of
from interp.core.significance import holm

DRAWS, POOL, SEED = 4_000, 1_000, 0
RANKED = 500  # draws of rank correlations
BLIND, BOTH = "blind prior", "prior and weights"
SIDES = ABOVE, NOT_ABOVE, UNDECIDED = "above", "not above", "undecided"
RELEVANT = 0.05  # in AUROC: of twenty pairs of an edge inside and one outside, one more is in the right order
POWER = 0.8
FEW_OUTSIDE = 3  # with fewer edges outside, an AUROC says where one or two edges stand
WORST = 2  # methods without which a rank correlation is told too

#: (one, other, what is asked) in AUROC of minimal circuits under corrupted ablation.
PLANNED = (
    ("eap", BLIND, "does the cheapest estimate beat a rule that never sees the model?"),
    ("eap-ig-5", BLIND, "do five steps of integrated gradients?"),
    ("gim", BLIND, "do modified gradients?"),
    ("atp-qk", "eap", "does it help to take queries and keys through the softmax?"),
    ("eap-ig", "eap-ig-5", "does it help to integrate until the estimates are complete?"),
)


@dataclass(frozen=True)
class Claim:
    """What was claimed before the final run, and in which words it was said then what refutes it.

    ``line`` and ``relevant`` are those of :func:`side`, and ``above`` is whether the claim says that its number lies
    above the line.
    """

    claim: str
    refuted: str
    above: bool
    line: float = 0.0
    relevant: float = RELEVANT

    def verdict(self, found: Mapping[str, float]) -> str:
        """ "stands", "refuted" or "undecided"."""
        where = side(found, self.line, self.relevant)
        if where == UNDECIDED:
            return UNDECIDED
        return "stands" if (where == ABOVE) == self.above else "refuted"


CLAIMS = (
    Claim(
        "EAP does not beat the blind prior on edges that can matter.",
        "the interval of AUROC(eap) - AUROC(blind prior) lies above zero",
        above=False,
    ),
    Claim(
        "Taking queries and keys through the softmax exactly (atp-qk) finds more of the circuit than EAP.",
        "the interval of AUROC(atp-qk) - AUROC(eap) does not lie above zero",
        above=True,
    ),
    Claim(
        "How methods rank on planted models predicts how they rank on trained ones.",
        "the rank correlation is below 0.5, or its interval holds zero",
        above=True,
        line=0.5,
        relevant=0.0,
    ),
)


def side(found: Mapping[str, float], line: float = 0.0, relevant: float = RELEVANT) -> str:
    """Where an interval lies: ``above`` the line; ``not above`` it, if it ends below ``line + relevant``; or neither,
    ``undecided``."""
    if found["low"] > line:
        return ABOVE
    return NOT_ABOVE if found["high"] < line + relevant else UNDECIDED


def seen_in_most(se: float) -> float:
    """The distance from a line that a two-sided 95% interval with this standard error excludes in 80% of runs."""
    return float(se * (norm.ppf(0.975) + norm.ppf(POWER)))


def wide(
    rows: pd.DataFrame, truths: Mapping[str, Mapping[str, Any]], score: str, ablation: str = CORRUPTED
) -> pd.DataFrame:
    """The score of each method (columns) on each subject; rows are (family, subject), without empty ones."""
    chosen = rows[rows["ablation"] == ablation] if ablation else rows
    table = chosen.pivot_table(score, "subject", "method", "mean", sort=False).dropna(how="all")
    family = [truths[name]["family"] for name in table.index]
    return table.set_index(pd.MultiIndex.from_arrays([family, table.index], names=["family", "subject"]))


def among(table: pd.DataFrame, families: Sequence[str]) -> pd.DataFrame:
    """The rows of these families."""
    return table[table.index.get_level_values("family").isin(families)]


def with_edges_outside(
    table: pd.DataFrame, truths: Mapping[str, Mapping[str, Any]], least: int = FEW_OUTSIDE
) -> pd.DataFrame:
    """The rows of subjects that have at least so many edges outside all minimal circuits under corrupted ablation."""
    return table[[edges_outside(truths[name]) >= least for name in table.index.get_level_values("subject")]]


def edges_outside(entry: Mapping[str, Any]) -> int:
    """How many edges that can matter are in no minimal circuit; 0 where not all circuits are known."""
    known = entry["ablations"][CORRUPTED]
    sides = sides_of(known, known.get("live_edges", ()))
    return 0 if sides is None else len(sides[1])


def family_mean(table: pd.DataFrame) -> pd.Series:
    return table.groupby(level="family").mean().mean()


def resampled_means(table: pd.DataFrame, seed: int = SEED) -> Float[np.ndarray, "draw column"]:
    """The means of draws of families, and of subjects within each."""
    rng = np.random.default_rng(seed)
    pools = []
    for _, part in table.groupby(level="family", sort=False):
        values = part.to_numpy(dtype=float)
        drawn = values[rng.integers(len(values), size=(POOL, len(values)))]
        pools.append(_mean(drawn))
    stack = np.stack(pools)  # [family, pool, column]
    families = rng.integers(len(stack), size=(DRAWS, len(stack)))
    return _mean(stack[families, rng.integers(POOL, size=families.shape)])


def _mean(values: Float[np.ndarray, "draw row column"]) -> Float[np.ndarray, "draw column"]:
    """Over the rows that are not NaN; NaN where all are."""
    with np.errstate(invalid="ignore"):
        return np.nansum(values, 1) / (~np.isnan(values)).sum(1)


def scored(table: pd.DataFrame) -> pd.DataFrame:
    """One row per method: ``value``, ``low``, ``high``, how many ``subjects`` and ``families``."""
    low, high = np.nanquantile(resampled_means(table), (0.025, 0.975), axis=0)
    families = table.notna().groupby(level="family").any().sum()
    frame = pd.DataFrame({"value": family_mean(table), "low": low, "high": high, "subjects": table.notna().sum()})
    return frame.assign(families=families).rename_axis("method").reset_index()


def compared(table: pd.DataFrame, one: str, other: str) -> dict[str, float]:
    """The mean difference of two methods, with its interval, its p-value over families, and the difference that would
    have been ``seen`` in 80% of such runs."""
    change = (table[one] - table[other]).dropna().to_frame("change")
    drawn = resampled_means(change)[:, 0]
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    families = change.groupby(level="family")["change"].mean().to_numpy()
    sums = np.zeros(1)
    for family in families:  # all changes of sign
        sums = np.concatenate((sums + family, sums - family))
    p = float((np.abs(sums) >= abs(families.sum()) - 1e-12).mean())
    return {
        "difference": float(families.mean()),
        "low": float(low),
        "high": float(high),
        "p": p,
        "seen": seen_in_most(drawn.std()),
        "subjects": len(change),
        "families": len(families),
    }


def all_compared(table: pd.DataFrame, comparisons: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """One row for each (one, other), with ``p_corrected`` for their number (Holm)."""
    frame = pd.DataFrame([{"one": one, "other": other} | compared(table, one, other) for one, other in comparisons])
    return frame.assign(p_corrected=holm(frame["p"].tolist()))


def planned(table: pd.DataFrame) -> pd.DataFrame:
    """The comparisons stated in advance, corrected for their number."""
    return all_compared(table, [(one, other) for one, other, _ in PLANNED])


def against(table: pd.DataFrame, control: str) -> pd.DataFrame:
    """Every method that is no control compared with one that is, corrected for their number."""
    names = [name for name in table if name in METHODS and METHODS[name].kind != CONTROL]
    return all_compared(table, [(name, control) for name in names])


def ranked(table: pd.DataFrame) -> list[str]:
    """Methods that are no control and were run on every subject."""
    return [name for name in table if name in METHODS and METHODS[name].kind != CONTROL and table[name].notna().all()]


def rank_correlation(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """Spearman's correlation of the methods' means on two sets of subjects, with an interval that resamples both and
    the methods, and one of these ``methods`` alone, ``fixed``; and ``without`` the :data:`WORST` of them, by the mean
    of both sets."""
    names = [name for name in ranked(one) if name in ranked(other)]
    first, second = (resampled_means(table[names], seed)[:RANKED] for table, seed in ((one, 1), (other, 2)))
    chosen = np.random.default_rng(SEED).integers(len(names), size=first.shape)
    low, high, se = _spread(np.take_along_axis(first, chosen, 1), np.take_along_axis(second, chosen, 1))
    worst = (family_mean(one[names]) + family_mean(other[names])).nsmallest(WORST).index.tolist()
    return {
        "value": _ranks(one, other, names),
        "low": low,
        "high": high,
        "seen": seen_in_most(se),
        "fixed": _spread(first, second)[:2],
        "methods": len(names),
        "worst": worst,
        "without": _ranks(one, other, [name for name in names if name not in worst]),
    }


def _spread(
    one: Float[np.ndarray, "draw method"], other: Float[np.ndarray, "draw method"]
) -> tuple[float, float, float]:
    """(ends of the 95% interval, standard error) of the rank correlation of each draw; one whose methods are all equal
    has none, and is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        drawn = np.array([spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)])
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return float(low), float(high), float(np.nanstd(drawn))


def _ranks(one: pd.DataFrame, other: pd.DataFrame, names: list[str]) -> float:
    return float(spearmanr(family_mean(one[names]), family_mean(other[names])).statistic)


def between_families(table: pd.DataFrame) -> pd.Series:
    """The same correlation for every two families, on the methods that were run on all of their subjects."""
    families = list(dict.fromkeys(table.index.get_level_values("family")))
    names, parts = ranked(table), {name: table.xs(name, level="family", drop_level=False) for name in families}
    return pd.Series({pair: _ranks(parts[pair[0]], parts[pair[1]], names) for pair in combinations(families, 2)})


def halves(
    rows: pd.DataFrame, truths: Mapping[str, Mapping[str, Any]], families: Sequence[str] = FAMILIES
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(the trained subjects of these families by their minimal circuits under corrupted ablation, the planted ones by
    what was planted, under the ablation for which it was)."""
    trained = among(wide(rows, truths, "auroc"), [family for family in families if family != PLANTED])
    return trained, wide(rows, truths, "planted", "")
