"""The decision function of one query: each token's lead as a function of what attention writes, and what occurs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Curves, Line, Picture, Series
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.column_windows import WindowBounds
from interp.proofs.columns.ratio_attention import read_ratio_attention
from interp.proofs.columns.small_margins import lead_of, logits_after
from interp.proofs.numbers.rounded_operations import REAL
from models import UserError
from models.tasks import Task
from models.transformer import HookedModel, model_name

POINTS = 801


@dataclass(frozen=True, eq=False)
class DecisionCurves(Result):
    """``F(d, s)``: the lead of token d over the best other one, in float64, for one query token at one position.

    Attributes:
        target: the answer digit asked for, and label: its name. token: the query's own token, which is the answer digit
            before.
        lead: [digit, s], in logits.
        reached: one row per class: the right digit, and the range of s over all its inputs.
    """

    model: str
    target: int
    label: str
    token: int
    lead: xr.DataArray
    reached: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        wide = (self.reached.high - self.reached.low).max()
        return (
            f"{self.model} asks for {self.label} after a {self.token}: {len(self.reached)} classes of inputs reach "
            f"attention scalars in ranges of at most {wide:.3g}, and {self.inside} of them lie where their own digit "
            "leads (on a grid)"
        )

    @property
    def inside(self) -> int:
        """How many classes have the right digit in the lead at every grid point of their range, ends included."""
        found = 0
        for row in self.reached.itertuples():
            s = np.concatenate(([row.low, row.high], self.lead.s.values))
            lead = np.interp(s[(s >= row.low) & (s <= row.high)], self.lead.s.values, self.lead.sel(digit=row.answer))
            found += bool((lead > 0).all())
        return found

    def to_dataframe(self) -> pd.DataFrame:
        return self.reached


def decision_curves(model: HookedModel, target: int, token: int, task: Task | None = None) -> DecisionCurves:
    """The decision function of the query with this token, and the range of s that all problems reach.

    Attention must write along one direction (``basis[0]``), whatever it looks at; s is how much it writes.

    Raises:
        UserError: a model that the certifier cannot read, or a token that never stands at the query.
    """
    adder = read_adder(model, task)
    attention = read_ratio_attention(adder, REAL)
    found = len(attention.basis)
    if attention.obstacle is not None or found > 1:
        reason = attention.obstacle or f"attention writes along {found} directions"
        raise UserError(f"{model_name(model)} has no decision function of one number: {reason}.")
    if (target, token) not in attention.queries:
        raise UserError(f"No problem asks for target {target} after token {token}.")
    query = WindowBounds(attention, adder.layout, target, token)
    windows = query.unsplit_windows()
    carry, total = query.class_of(windows)
    low, high = query.box(windows)
    rows = {"answer": query.answer(windows), "carry": carry, "total": total, "low": low[:, 0], "high": high[:, 0]}
    ends = {"low": "min", "high": "max"}
    reached = pd.DataFrame(rows).groupby(["carry", "total"], as_index=False).agg({"answer": "first"} | ends)
    start, end = reached.low.min(), reached.high.max()
    margin = (end - start) / 50
    s = np.linspace(start - margin, end + margin, POINTS)
    x = adder.W_E[token] + adder.W_pos[adder.layout.queries[target]] + adder.b_O
    logits = logits_after(adder, x + s[:, None] * attention.basis[0])
    lead = xr.DataArray(
        np.stack([lead_of(logits, np.full(len(s), digit)) for digit in range(10)]),
        dims=("digit", "s"),
        coords={"digit": range(10), "s": s},
    )
    provenance = Provenance(len(reached), None, "classes of inputs, with their ranges", "certified in floats")
    label = adder.layout.rule.label(target)
    return DecisionCurves(model_name(model), target, label, token, lead, reached, provenance)


@drawing(DecisionCurves)
def decision_view(result: DecisionCurves) -> Picture:
    """Each digit's lead as a function of the attention scalar, and where classes reach for which it is right; a lead
    below zero there would be a wrong answer."""
    s, reached = result.lead.s.values, [result.reached[result.reached.answer == digit] for digit in range(10)]
    series = []
    for digit, rows in enumerate(reached):
        values = result.lead.sel(digit=digit).values
        series.append(Series("a digit's lead", s, np.maximum(values, -0.1 * float(result.lead.max())), control=True))
        for row in rows.itertuples():
            x = np.unique(np.concatenate(([row.low, row.high], s[(s > row.low) & (s < row.high)])))
            y = np.interp(x, s, values)
            labels = np.where(np.arange(len(x)) == y.argmax(), str(digit), "")
            series.append(Series("where it is right", x, y, labels=labels, said={"digit": np.full(len(x), digit)}))
    x, y = "attention scalar s (stream units)", "lead over the best other digit (logits)"
    note = "A digit stands above the ranges that classes reach for which it is right; leads are cut far below zero"
    return Picture([Curves(x, y, series=series, lines=(Line(0),))], note=note)
