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

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int

from interp.core.controls import NO_CONTROL, untrained_copy
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, columns, probe
from interp.core.results import Provenance, Result
from interp.core.runs import passes, require_finite
from interp.core.samples import N_PROBLEMS, Sample, draw
from interp.core.stats import TAILS, percentile_interval
from interp.core.task_checks import resolve_task
from interp.core.thresholds import EXPLAINS, FAINT
from interp.core.views import Picture, Points, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import in_percent
from models.tasks import RIPPLE, TaskLike, column_places
from models.transformer import HookedModel, in_block, model_name

RESAMPLES, SHOWN = 400, 3_000
_UNKNOWN = float("nan"), float("nan"), float("nan")


@dataclass(frozen=True, eq=False)
class AttentionReadout(Result):
    """``ratio`` and ``written`` with their 95% intervals (``low``, ``high``; ``written_low``, ``written_high``), NaN
    where there is no such number (``one_number``) or the previous column has no weight; ``explained`` and
    ``variance_explained`` as in the module, and those of an untrained copy in ``untrained`` (None where there is
    nothing to draw, NaN where the copy writes the same everywhere).

    ``points``: written, implied_sum and carry_in of up to 3,000 columns. ``carry_gap``: the least distance, over
    written digits, between the implied sums without and with a carry; negative where they overlap.
    """

    model: str
    base: int
    ratio: float
    low: float
    high: float
    written: float
    written_low: float
    written_high: float
    explained: float
    variance_explained: float
    untrained: tuple[float, float] | None
    points: xr.Dataset
    carry_gap: float
    provenance: Provenance

    @property
    def one_number(self) -> bool:
        """Whether the fit explains most of what is written along the main direction."""
        return self.explained >= EXPLAINS

    def headline(self) -> str:
        """The finding in one short clause."""
        if not self.one_number:
            return f"What attention writes is not one number (explained {in_percent(self.explained)})"
        if np.isnan(self.ratio):
            return "The previous column's weight in what attention writes could not be told from 0"
        said = f"The own column counts {self.ratio:.2f} times the previous one (explained {in_percent(self.explained)})"
        if np.isnan(self.carry_gap):
            return said
        apart = f"are at least {self.carry_gap:.1f} apart in this sample" if self.carry_gap > 0 else "overlap"
        return f"{said}; carry and no carry {apart}"

    def sentence(self) -> str:
        text = (
            "Along the main direction of what attention writes, no weight of the previous column's digits could be told"
        )
        text += " from 0"
        if not self.one_number:
            text = "What attention writes is not one number, with weights for the digits of two columns"
        elif not np.isnan(self.ratio):
            text = (
                f"In what attention writes, a digit of the own column counts {self.ratio:.2f} [{self.low:.2f}, "
                f"{self.high:.2f}] times one of the previous column, and the digit written before {self.written:.2f} "
                f"[{self.written_low:.2f}, {self.written_high:.2f}] times"
            )
        text += (
            f". A weighted sum of these explains {in_percent(self.explained)} of the variance along the main "
            f"direction, which holds {in_percent(self.variance_explained)} of all variance"
        )
        control = NO_CONTROL
        if self.untrained is not None:
            explained, along = self.untrained
            control = f"untrained {in_percent(explained)} and {in_percent(along)}"
            control = "an untrained copy writes the same at every column" if np.isnan(along) else control
        text += f" ({control})"
        if np.isnan(self.carry_gap):
            return f"{text}."
        between = "overlap in this sample"
        if self.carry_gap > 0:
            between = f"are at least {self.carry_gap:.1f} apart in this sample (n = {self.provenance.n:,} problems)"
        return (
            f"{text}. Relative to the digit written before, the numbers of columns with and without a carry {between}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per quantity: value, low, high, control."""
        explained, along = self.untrained or (np.nan, np.nan)
        rows = [
            ("own over previous column", self.ratio, self.low, self.high, np.nan),
            ("written digit over previous column", self.written, self.written_low, self.written_high, np.nan),
            ("variance of s explained", self.explained, np.nan, np.nan, explained),
            ("variance along the direction", self.variance_explained, np.nan, np.nan, along),
            ("carry apart", self.carry_gap, np.nan, np.nan, np.nan),
        ]
        table = pd.DataFrame(rows, columns=["quantity", "value", "low", "high", "untrained"])
        return table.assign(n=self.provenance.n)


@probe(
    "Is what attention writes one number, with the base as its weight?",
    needs=[columns(3, adds=True)],
    least=8,  # for a fit to columns
    scalar=Scalar(
        "own over previous column, written",
        "ratio",
        lambda found: Estimate(found.ratio, found.low, found.high),
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
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed, carry_heavy=0.5)
    own = ReadoutFit.of(model, task, sample)
    if own is None:
        raise UserError(
            f"Attention of {model_name(model)} writes the same at every column: there is no number to read."
        )
    fresh = untrained_copy(model, 1_000 + seed)
    blank = None if fresh is None else (float("nan"), float("nan"))
    if fresh is not None and (fit := ReadoutFit.of(fresh, task, sample)) is not None:
        blank = fit.explained, fit.variance_explained
    ratio, written = own.ratios(seed) if own.explained >= EXPLAINS else (_UNKNOWN, _UNKNOWN)
    return AttentionReadout(
        model=model_name(model),
        base=column_places(task).base,
        ratio=ratio[0],
        low=ratio[1],
        high=ratio[2],
        written=written[0],
        written_low=written[1],
        written_high=written[2],
        explained=own.explained,
        variance_explained=own.variance_explained,
        untrained=blank,
        points=own.points(seed),
        carry_gap=float("nan") if np.isnan(ratio[0]) else own.carry_gap(),
        provenance=sample.provenance,
    )


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

    def points(self, seed: int) -> xr.Dataset:
        rows = np.random.default_rng(seed).permutation(self.s.size)[:SHOWN]
        columns = {"written": self.written, "implied_sum": self.implied_sum, "carry_in": self.carry}
        return xr.Dataset({name: ("point", value.ravel()[rows]) for name, value in columns.items()})

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
    x = found.written.values + np.random.default_rng(0).uniform(-0.25, 0.25, found.sizes["point"])
    series = []
    for carry in (0, 1):
        rows = found.carry_in.values == carry
        said = {"digit": found.written.values[rows]}
        series.append(Series(f"carry {carry}", x[rows], found.implied_sum.values[rows], said=said))
    y = "number written, less the own column's part<br>(digits of the previous column)"
    points = Points("digit written before (the query's own token)", y, series=series)
    note = f"{len(x):,} columns, with horizontal jitter; exact sums lie {result.base - 1} apart"
    return Picture([points], title=result.headline(), note=note)
