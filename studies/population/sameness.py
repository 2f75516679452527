"""Whether two models are the same, up to what: one sentence of three comparisons that can disagree.

* :func:`studies.population.align`: how far apart the parameters are once the symmetries of their architecture are taken
  out. At a distance of at most ``EQUAL`` the models are the same up to these symmetries.
* :func:`interp.compare`: how alike heads, neurons, tables and logits read. They read alike where every matched head,
  neuron and the logits are within ``ALIKE`` and closer than all untrained copies.
* :func:`interp.swap_components`: which parts of one still answer in the other, mapped by a linear fit. A part survives
  where at least 95% of the whole model's exact answers are kept.

    the same        parameters equal up to symmetries, or: all read alike and every part survives
    not the same    some head, neuron or the logits read no closer than those of an untrained copy
    undecided       anything else, such as models that read alike and whose parts do not survive an exchange

The bounds were set before any pair of models was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pandas as pd

from interp.compare.compare import compare
from interp.compare.comparison_result import Comparison
from interp.compare.swap_components import swap_components
from interp.compare.swap_result import Swaps
from interp.compare.weight_circuits import NAMES
from interp.core.results import Provenance, Result
from models.calls import Count, Index, Seed, checked
from models.errors import UserError
from models.number_format import in_percent
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel
from studies.population.alignment import Alignment, align

EQUAL = 0.01  # distance of aligned parameters, from 0 to 1 (orthogonal)
ALIKE = 0.1  # distance of readings, from 0 to 1
CLOSER = 0.05  # the largest p-value of "closer than untrained copies"


@dataclass(frozen=True, eq=False)
class Sameness(Result):
    """``verdict`` and the three comparisons that it is made of; ``alignment`` is None between two architectures."""

    verdict: Literal["the same", "not the same", "undecided"]
    comparison: Comparison
    alignment: Alignment | None
    swaps: Swaps
    provenance: Provenance

    @property
    def distance(self) -> float:
        """That of all aligned parameters; NaN between two architectures."""
        return _distance(self.alignment)

    def sentence(self) -> str:
        a, b = self.comparison.names
        readings = _readings(self.comparison)
        unlike = readings[~readings["alike"]]
        parts = f"all {len(readings)} matched heads, neurons and logits read alike"
        if len(unlike):
            worst = unlike.loc[unlike["distance"].idxmax()]
            parts = (
                f"{len(unlike)} of {len(readings)} matched heads, neurons and logits do not read alike (the farthest, "
            )
            parts += f"{worst['quantity']}, {worst['distance']:.3f})"
        weights = "their architectures differ"
        if self.alignment is not None:
            taken = ", ".join(self.alignment.symmetries)
            weights = f"their parameters are {self.distance:.3f} apart once {taken} are taken out"
        kept, count = self.swaps.kept(), len(self.swaps.components)
        survive = f"of {b}'s parts put into {a}, {len(kept)} of {count} keep its answers"
        more = f" and {len(kept) - 4} more" if len(kept) > 4 else ""
        survive += f" ({', '.join(kept[:4])}{more})" if kept else ""
        if (most := self.swaps.most()) is not None and most not in kept:
            row = self.swaps.swapped(most)
            answers = self.swaps.cell("exact", component=most, source="swapped")
            answers = self.swaps.cell("exact", component=most, source="swapped")
            tokens = in_percent(float(row["tokens"]))
            survive += f"; with {most} exchanged, {answers} of the answers and {tokens} of the tokens are right"
        return f"{a} and {b}: {self.verdict}. {parts[0].upper()}{parts[1:]}; {weights}; {survive}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per matched head, neuron and logits, and per exchanged part: distance or share, and what it says."""
        readings = _readings(self.comparison)
        rows = [("reading", row.quantity, row.distance, row.alike) for row in readings.itertuples()]
        kept = self.swaps.kept()
        rows += [
            ("exchanged", name, float(self.swaps.swapped(name)["exact"]), name in kept)
            for name in self.swaps.components
        ]
        if self.alignment is not None:
            rows.append(("parameters", "all, aligned", self.distance, self.distance <= EQUAL))
        return pd.DataFrame(rows, columns=["comparison", "part", "value", "same"]).assign(n=self.provenance.n)


@partial(checked, ready=True)
def sameness(
    a: HookedModel,
    b: HookedModel,
    *,
    task: TaskLike | None = None,
    n: Count = 256,
    seed: Seed = 0,
    untrained: Index = 9,
) -> Sameness:
    """Whether two models are the same, not the same, or neither is known; see the module.

    Args:
        n: problems to compare and to exchange parts on, half of them rich in carries; by default 256, as every part is
            exchanged in every copy. untrained: copies of the control of exchanged parts.

    Cost: that of :func:`interp.compare`, :func:`studies.population.align` and :func:`interp.swap_components` together.

    Raises:
        UserError: as these three raise it; a model ``a`` that cannot do its task, of which no part could survive.
    """
    comparison = compare(a, b, task=task, n=n, seed=seed)
    swaps = swap_components(a, b, task=task, n=n, n_fit=n, seed=seed, untrained=untrained)
    if not swaps.able:
        raise UserError(swaps.sentence().rstrip(".") + ": whether two such models are the same is not asked.")
    try:
        alignment = align(a, b, task=task)
    except UserError:  # two architectures, or one whose symmetries are not known
        alignment = None
    verdict = _verdict(_readings(comparison), _distance(alignment), swaps)
    return Sameness(verdict, comparison, alignment, swaps, swaps.provenance)


def _distance(alignment: Alignment | None) -> float:
    if alignment is None:
        return float("nan")
    return float(alignment.distances().set_index("component").loc["all", "after"])


def _verdict(readings: pd.DataFrame, distance: float, swaps: Swaps) -> Any:
    if distance <= EQUAL:
        return "the same"
    if readings["alike"].all() and len(swaps.kept()) == len(swaps.components):
        return "the same"
    return "not the same" if readings["as_untrained"].any() else "undecided"


def _readings(comparison: Comparison) -> pd.DataFrame:
    """The matched heads, neurons and the logits, with ``alike`` and ``as_untrained``: no closer than a copy is.

    Without a control, nothing is closer than it.
    """
    table = comparison.table
    rows = table[table["part"].isin(["heads", "units"]) | (table["quantity"] == NAMES["logits"])]
    rows = rows[["quantity", "a", "b", "distance", "p_untrained"]].reset_index(drop=True)
    closer = rows["p_untrained"] <= CLOSER
    known = rows["p_untrained"].notna()
    return rows.assign(alike=(rows["distance"] <= ALIKE) & closer, as_untrained=known & ~closer)
