"""The decision function of one query: each token's lead as a function of the attention scalar, and what is reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int

from interp.core.model import HookedModel
from interp.core.results import Provenance, Result
from interp.core.sites import model_name
from interp.proofs.balls import REAL
from interp.proofs.columns import all_classes
from interp.proofs.constant_attention import BITS, obstacle, read_attention
from interp.proofs.decision import float_margins
from interp.proofs.one_layer import read_adder
from models.errors import UserError

POINTS = 801


@dataclass(frozen=True, eq=False)
class DecisionCurves(Result):
    """``F(d, s)``: the lead of token d over the best other one, in float64, for one query token at one position.

    Attributes:
        target: the answer digit asked for (11: EOS). token: the query's own token, the answer digit before.
        lead: [digit, s], logits.
        reached: a row a class: the right digit, and the exact range of s over all its inputs.
    """

    model: str
    target: int
    token: int
    lead: xr.DataArray
    reached: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        name = f"s{self.target}" if self.target < 11 else "EOS"
        wide = (self.reached.high - self.reached.low).max()
        return (
            f"{self.model} asks for {name} behind a {self.token}: {len(self.reached)} classes of inputs reach "
            f"attention scalars in ranges of at most {wide:.3g}, and {self.inside} of them lie where their own digit "
            "leads (on a grid)"
        )

    @property
    def inside(self) -> int:
        """Classes whose digit leads at every grid point of their range, ends included."""
        found = 0
        for row in self.reached.itertuples():
            s = np.concatenate(([row.low, row.high], self.lead.s.values))
            lead = np.interp(s[(s >= row.low) & (s <= row.high)], self.lead.s.values, self.lead.sel(digit=row.answer))
            found += bool((lead > 0).all())
        return found

    def to_dataframe(self) -> pd.DataFrame:
        return self.reached


def decision_curves(model: HookedModel, target: int, token: int, task: Any = None) -> DecisionCurves:
    """The decision function behind a query's token, and what all 10^20 problems reach of it.

    Raises:
        UserError: a model that the certifier cannot read, or a token that never stands at the query.
    """
    adder = read_adder(model, task)
    if adder.centred:
        raise UserError(f"Decision curves are drawn for RMS norms, and {model_name(model)} has LayerNorms.")
    attention = read_attention(adder, REAL)
    if (reason := obstacle(attention)) is not None:
        raise UserError(f"{model_name(model)} has no decision function of one number: {reason}.")
    classes = all_classes(adder.layout, attention.terms)
    rows = np.flatnonzero((classes.target == target) & (classes.token == token))
    if not len(rows):
        raise UserError(f"No problem asks for target {target} behind token {token}.")
    low, high = _span(classes.ends[rows])
    curves = []
    for digit in range(10):  # the margin of each digit, were it the right one, over the whole span
        asked = {name: getattr(classes, name)[rows[:1]] for name in ("target", "previous", "carry", "total", "token")}
        one = replace(
            classes, **asked, answer=np.array([digit]), ends=np.array([[low, high]]), witnesses=classes.witnesses[:1]
        )
        curves.append(float_margins(adder, attention, one, POINTS)[0])
    s = np.linspace(low, high, POINTS) * 2.0**-BITS
    ends = classes.ends[rows] * 2.0**-BITS
    reached = pd.DataFrame(
        {
            "answer": classes.answer[rows],
            "carry": classes.carry[rows],
            "total": classes.total[rows],
            "low": ends[:, 0],
            "high": ends[:, 1],
        }
    )
    lead = xr.DataArray(np.stack(curves), dims=("digit", "s"), coords={"digit": range(10), "s": s})
    provenance = Provenance(len(rows), None, "classes of inputs, with exact ranges", "certified in floats")
    return DecisionCurves(model_name(model), target, token, lead, reached, provenance)


def _span(ends: Int[np.ndarray, "n 2"]) -> tuple[int, int]:
    """A little more than what is reached."""
    low, high = int(ends.min()), int(ends.max())
    margin = max((high - low) // 50, 1)
    return low - margin, high + margin
