"""What attention writes, as one number: does it weigh the own column ten times as much as the previous one?

At the query of an answer digit, what all attention layers write to the residual stream has a first principal direction;
``s`` is the coordinate along it. With digit sum t of the own column, digit sum t' of the previous column and the
written digit w (the query's own token), least squares gives

    s = own t + previous t' + token w + constant      ratio = own / previous, written = token / previous

In base B, column addition suggests ratio = B: s is then the number that two columns spell. Without the own column's
part, in units of ``previous``,

    implied_sum = (s - own t - constant) / previous       t' + written w

Where the answer starts with the units, t' is w or w - 1 without a carry and B more with one, so the carry can be read
off the implied sum with the digit w that the query reads from its own token, whatever attention itself writes of that
digit. Where it starts with the highest digit, w is the digit of the column above, and a t' of B - 1 does not tell: the
implied sum can separate carries only if attention writes what lies further below, too. ``explained`` is the
share of the variance of s that the fit explains, ``variance_explained`` the share of the variance of what attention
writes that lies in that direction. The control is the same for an untrained copy.

Where the fit explains less than :data:`~interp.core.thresholds.EXPLAINS` of the variance of s, what is written is not
one number. Where the data do not tell ``previous`` from 0, or the previous column moves s by less than
:data:`~interp.core.thresholds.FAINT` of its standard deviation, the number has no such weight. There is no ratio then:
its numbers are NaN.

Limits. This fits one direction and one line: what attention writes in other directions, or not additively, is in
1 - variance_explained and 1 - explained. Columns of one problem are not independent: the intervals resample problems.
``carry_gap`` is the extreme of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from interp.core.controls import NO_CONTROL, untrained_copy
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.probe import Summary, columns, probe
from interp.core.runs import passes, require_finite
from interp.core.samples import N_PROBLEMS, Sample, prepare
from interp.core.stats import TAILS, percentile_interval
from interp.core.table_result import Measure, TableResult, at
from interp.core.thresholds import EXPLAINS, FAINT
from interp.core.views import Picture, Points, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import number
from models.tasks import RIPPLE, TaskLike, column_places
from models.transformer import HookedModel, in_block, model_name

RESAMPLES, SHOWN = 400, 3_000
_UNKNOWN = float("nan"), float("nan"), float("nan")


RATIO, WRITTEN = "own over previous column", "written digit over previous column"
EXPLAINED, ALONG, CARRY_GAP = "variance of s explained", "variance along the direction", "carry gap"
MEASURES = (Measure("value", controls=("untrained",)),)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionReadout(TableResult):
    """``value`` by ``quantity``: :data:`RATIO` and :data:`WRITTEN`, NaN where there is no such number or the previous
    column has no weight; :data:`EXPLAINED` and :data:`ALONG` as in the module, those of an untrained copy in
    ``value_untrained`` (NaN where there is nothing to draw, or the copy writes the same everywhere); and
    :data:`CARRY_GAP`, the least distance, over written digits, between the implied sums without and with a carry,
    negative where they overlap.

    ``points``: written, implied_sum and carry_in of up to 3,000 columns.
    """

    points: pd.DataFrame
    base: int

    def value(self, quantity: str) -> float:
        return self.cell("value", quantity=quantity).value


def _finding(found: AttentionReadout, fresh: HookedModel | None) -> str:
    explained, ratio = found.cell("value", quantity=EXPLAINED), found.cell("value", quantity=RATIO)
    control = explained.control
    beside = NO_CONTROL if fresh is None else "an untrained copy writes the same at every column"
    beside = beside if control is None else f"an untrained copy: {Estimate(control, unit=SHARE)}"
    share = f"{replace(explained, unit=SHARE)} of the variance along the main direction ({beside})"
    if explained.value < EXPLAINS:
        return f"What attention writes is not one number: a weighted sum of the digits of two columns explains {share}."
    if np.isnan(ratio.value):
        return (
            "In what attention writes, no weight of the previous column's digits could be told from 0; a weighted sum "
            f"of the digits of two columns explains {share}."
        )
    return (
        f"In what attention writes, a digit of the own column counts {ratio} times one of the previous column; a "
        f"weighted sum of both explains {share}."
    )


@probe(
    "Is what attention writes one number, with the base as its weight?",
    needs=[columns(3, adds=True)],
    least=8,  # for a fit to columns
    summary=Summary(
        "own over previous column, written",
        "ratio",
        at("value", quantity=RATIO),
        0.1,
        asked_by=("compare_models",),
    ),
)
def attention_readout(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> AttentionReadout:
    """What attention writes at the queries of inner columns; see the module.

    Args:
        task: what the tokens mean; default the model's own.
        problems: problems to look at; by default ``n`` are drawn with ``seed``, half of them rich in carries.

    Cost: a forward pass of the problems, and one of an untrained copy.

    Raises:
        UserError: a task without columns, fewer than 8 problems, or a model that writes the same everywhere.
    """
    sample = prepare(model, task, problems, n, seed, carry_heavy=0.5)
    own = ReadoutFit.of(model, sample.task, sample)
    if own is None:
        raise UserError(
            f"Attention of {model_name(model)} writes the same at every column: there is no number to read."
        )
    fresh = untrained_copy(model, 1_000 + seed)
    fit = None if fresh is None else ReadoutFit.of(fresh, sample.task, sample)
    untrained = (np.nan, np.nan) if fit is None else (fit.explained, fit.variance_explained)
    ratio, written = own.ratios(seed) if own.explained >= EXPLAINS else (_UNKNOWN, _UNKNOWN)
    rows = [
        (RATIO, *ratio, np.nan),
        (WRITTEN, *written, np.nan),
        (EXPLAINED, own.explained, np.nan, np.nan, untrained[0]),
        (ALONG, own.variance_explained, np.nan, np.nan, untrained[1]),
        (CARRY_GAP, np.nan if np.isnan(ratio[0]) else own.carry_gap(), np.nan, np.nan, np.nan),
    ]
    table = pd.DataFrame(rows, columns=["quantity", "value", "value_low", "value_high", "value_untrained"])
    base = column_places(sample.task).base
    found = AttentionReadout("", table, sample.provenance, ("quantity",), MEASURES, points=own.points(seed), base=base)
    return found.saying(_finding(found, fresh))


@dataclass(frozen=True, eq=False)
class ReadoutFit:
    """The least-squares fit of s [n, column] = own t + previous t' + token w + constant, which are the columns of
    ``design`` and the ``weights`` in this order; ``variance_explained``: by the direction along which s is read."""

    s: Float[np.ndarray, "n column"]
    design: Float[np.ndarray, "n column 4"]
    written: Int[np.ndarray, "n column"]
    carry: Int[np.ndarray, "n column"]
    weights: Float[np.ndarray, "4"]
    variance_explained: float

    @classmethod
    def of(cls, model: HookedModel, task: Any, sample: Sample) -> ReadoutFit | None:
        """Fit a model; None where attention writes the same everywhere."""
        layout = column_places(task)
        variables = {name: value.numpy() for name, value in layout.run(RIPPLE, sample.tokens).items()}
        total = variables["digit_sum"]
        inner = [k for k in layout.after_outputs if k and layout.operands[k] and total[:, k].max() > 0]
        queries = [layout.queries[k] for k in inner]
        out = _attention_out(model, sample.tokens, queries)
        centred = out - out.mean((0, 1))
        flat = centred.reshape(-1, centred.shape[-1])
        _, sizes, directions = np.linalg.svd(flat, full_matrices=False)
        if sizes[0] <= 1e-6 * max(1.0, float(np.abs(out).max())) * np.sqrt(len(flat)):
            return None
        s = centred @ directions[0]
        written = task.digit_values(sample.tokens[:, queries]).cpu().numpy()
        below = total[:, [k - 1 for k in inner]]
        design = np.stack((total[:, inner], below, written, np.ones_like(below)), -1).astype(float)
        weights, *_ = np.linalg.lstsq(design.reshape(-1, 4), s.ravel(), rcond=None)
        carry = variables["carry_in"][:, inner]
        return cls(s, design, written, carry, weights, float(sizes[0] ** 2 / (sizes**2).sum()))

    @property
    def explained(self) -> float:
        return float(1 - (self.s - self.design @ self.weights).var() / self.s.var())

    @property
    def implied_sum(self) -> Float[np.ndarray, "n column"]:
        """What remains without the constant and the column's own digits, in units of the previous column's: t' + the
        written digit's share."""
        own, previous, _, constant = self.weights
        return (self.s - constant - own * self.design[..., 0]) / previous

    def carry_gap(self) -> float:
        """The least distance, over written digits, between the implied sums without and with a carry."""
        found = []
        for digit in np.unique(self.written):
            with_carry, without = (self.implied_sum[(self.written == digit) & (self.carry == one)] for one in (1, 0))
            if len(with_carry) and len(without):
                found.append(with_carry.min() - without.max())
        return float(min(found)) if found else float("nan")

    def points(self, seed: int) -> pd.DataFrame:
        rows = np.random.default_rng(seed).permutation(self.s.size)[:SHOWN]
        columns = {"written": self.written, "implied_sum": self.implied_sum, "carry_in": self.carry}
        return pd.DataFrame({name: value.ravel()[rows] for name, value in columns.items()})

    def ratios(self, seed: int) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """(value, low, high) of own / previous and of token / previous; NaN where ``previous`` may be 0.

        Problems are resampled, each with its share of the normal equations.
        """
        squares = np.einsum("ncx,ncy->nxy", self.design, self.design)
        products = np.einsum("ncx,nc->nx", self.design, self.s)
        n = len(self.s)
        times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
        shape = self.design.shape[-1]
        equations = (times @ squares.reshape(n, -1)).reshape(-1, shape, shape)
        drawn = np.einsum("rxy,ry->rx", np.linalg.pinv(equations, hermitian=True), times @ products)
        below = drawn[:, 1]
        moved = abs(self.weights[1]) * self.design[..., 1].std()
        if moved <= FAINT * self.s.std() or min((below > 0).mean(), (below < 0).mean()) > TAILS[0]:
            return (_UNKNOWN, _UNKNOWN)
        ends = []
        for place in (0, 2):
            value = float(self.weights[place] / self.weights[1])
            low, high = percentile_interval(value, drawn[:, place] / below, n)
            ends.append((value, float(low), float(high)))
        return ends[0], ends[1]


def _attention_out(
    model: HookedModel, tokens: Int[torch.Tensor, "n pos"], queries: list[int]
) -> Float[np.ndarray, "n column d_model"]:
    """What all attention layers together write at the queries."""
    names = [in_block(layer, "hook_attn_out") for layer in range(model.cfg.n_layers)]
    found = []
    for _, _, kept in passes(model, tokens, keep=names):
        require_finite(kept)
        found.append(torch.stack([kept[name][:, queries].double().cpu() for name in names]).sum(0))
    return torch.cat(found).numpy()


@drawing(AttentionReadout)
def written_view(result: AttentionReadout) -> Picture:
    """The written number less the own column's part, over the written digit, for each carry."""
    found = result.points
    x = found["written"] + np.random.default_rng(0).uniform(-0.25, 0.25, len(found))
    shown = found.rename(columns={"written": "digit"}).assign(x=x)
    series = [
        Series.of(shown[shown["carry_in"] == carry], "x", "implied_sum", f"carry {carry}", said=("digit",))
        for carry in (0, 1)
    ]
    y = "number written, less the own column's part<br>(digits of the previous column)"
    points = Points("digit written before (the query's own token)", y, series=series)
    gap = result.value(CARRY_GAP)
    apart = (
        "" if np.isnan(gap) else f"; here they are {number(gap, 2)} or more apart" if gap > 0 else "; here they overlap"
    )
    note = f"{len(found):,} columns, with horizontal jitter; exact sums lie {result.base - 1} apart{apart}"
    return Picture([points], note=note)
