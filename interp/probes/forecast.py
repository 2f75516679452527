"""How early one can tell which seeds will grok, and what stopping the others early would save.

    interp.grokking_forecast(["microadder-57", "microadder-67"])            from the stored curves of all their seeds
    interp.grokking_forecast("runs/mine").halved([(0.1, 0.5), (0.2, 0.25)])  if the worst half ended after a tenth

The forecast ranks the seeds of one model by one measure at one step. It is judged on the seeds that had not reached the
level by then, since the others need no forecast. Models are pooled by pairs of seeds of the same model, so an easy
model does not count as a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float, Int

from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.core.stats import percentile_interval
from interp.probes.curves import Curves, learning_curves
from models.errors import UserError
from models.evaluation import Rate

_ALL = "all models"


@dataclass(frozen=True, eq=False)
class Forecast(Result):
    """Forecasts of grokking.

    Attributes:
        curves: the seeds' curves: ``exact`` decides which seeds grok, ``measure`` forecasts it.
        measure: the measure by which seeds are ranked.
        level: the exact match that counts as grokked, at any evaluation.
        table: a Dataset over (model, share of the run's steps), with all models pooled in the last row. ``auroc`` is
            the chance that a seed that will grok has a larger value than one that will not, with its 95% bootstrap
            interval over seeds (``low``, ``high``), NaN where one kind is empty; ``will`` and ``never`` are the numbers
            of seeds of either kind.
    """

    curves: Curves
    measure: str
    level: float
    table: xr.Dataset
    provenance: Provenance

    def sentence(self) -> str:
        known = self.table.sel(model=_ALL).dropna("share", subset=["auroc"])
        n = sum(self.curves.rate(model, self.level).correct for model in self.curves.models)
        text = f"{n} of {self.provenance.n} seeds grok"
        if not known.sizes["share"]:
            return f"{text}; there is nothing to tell apart."
        said = [
            f"{float(row.share):.0%} of the steps {float(row.auroc):.2f} [{float(row.low):.2f}, {float(row.high):.2f}]"
            for row in (known.isel(share=i) for i in range(known.sizes["share"]))
        ]
        name = self.measure.replace("_", " ") + (" accuracy" if self.measure == "token" else "")
        return f"{text}; {name} tells them from the others of their model with AUROC after {', '.join(said)}."

    @cached_property
    def _seeds(self) -> dict[str, _Seeds]:
        """Each model's seeds, computed once."""
        return {model: _Seeds.of(self.curves, model, self.measure, self.level) for model in self.curves.models}

    def ranked(self, share: float, parts: int = 4) -> pd.DataFrame:
        """How many seeds grok of each ``1/parts`` by rank within their model, with Clopper-Pearson intervals.

        The first row has the best seeds. Seeds that had grokked by then are left out.
        """
        counts = np.zeros((parts, 2), dtype=int)
        for model in self.curves.models:
            values, will, open_ = self._seeds[model].at(share)
            values, will = values[open_], will[open_]
            rank = np.argsort(np.argsort(-values, kind="stable"), kind="stable")
            for part, groks in zip(rank * parts // max(1, len(rank)), will, strict=True):
                counts[part] += (1, groks)
        rates = [Rate(int(n), int(k)) for n, k in counts]
        ends = [rate.interval if rate.n else (math.nan, math.nan) for rate in rates]
        return pd.DataFrame(
            {
                "part": np.arange(parts) + 1,
                "seeds": [rate.n for rate in rates],
                "grok": [rate.correct for rate in rates],
                "low": [low for low, _ in ends],
                "high": [high for _, high in ends],
            }
        )

    def halved(self, rule: Sequence[tuple[float, float]]) -> pd.DataFrame:
        """What successive halving would have kept and saved: one row per model and one for all.

        Args:
            rule: pairs (share of the steps, share of all seeds that goes on), in order. At each of these steps the best
                seeds by the measure go on and the others end.

        ``gain`` is grokked seeds per step with the rule, divided by the same without it. A seed counts with the steps
        that it was trained for, also if it grokked and ended early.

        Raises:
            UserError: shares that are not between 0 and 1, or not in order.
        """
        at, keep = [pair[0] for pair in rule], [pair[1] for pair in rule]
        if sorted(at) != at or sorted(keep, reverse=True) != keep or not all(0 < x <= 1 for x in (*at, *keep)):
            raise UserError(
                "A rule is pairs (share of the steps, share of the seeds that goes on), the first growing and the "
                f"second not, all above 0 and at most 1, not {list(rule)}."
            )
        named = ["seeds", "grok", "grok with the rule", "runs", "runs with the rule"]
        counts = [self._seeds[model].halved(rule) for model in self.curves.models]
        frame = pd.DataFrame([*counts, np.sum(counts, 0)], columns=named)
        frame = frame.astype({"seeds": int, "grok": int, "grok with the rule": int})
        frame.insert(0, "model", [*self.curves.models, _ALL])
        per_run = frame["grok with the rule"] / frame["runs with the rule"]
        return frame.assign(gain=per_run / (frame["grok"] / frame["runs"]).where(frame["grok"] > 0))


@probe("How early can one tell which seeds will grok?")
def grokking_forecast(
    sources: str | Path | Sequence[str | Path],
    *,
    measure: str = "token",
    level: float = 1.0,
    shares: Sequence[float] = (0.05, 0.1, 0.15, 0.25, 0.5),
    resamples: int = 1000,
    seed: int = 0,
) -> Forecast:
    """How well a measure of unfinished training tells the seeds that will grok from those that will not.

    Args:
        sources: zoo entries or run folders with the curves of all their seeds.
        measure: ``token`` accuracy, ``loss`` (seeds of lower loss rank higher), or another measure of the curves.
        level: the exact match on validation problems that counts as grokked.
        shares: shares of a run's steps at which to look.
        resamples: draws of the bootstrap over the seeds of each model.

    A control is built in: AUROC is 0.5 for an uninformative measure.

    Raises:
        UserError: no such entry, run or measure, or a share that is not between 0 and 1.
    """
    curves = learning_curves(sources, what="exact")
    if measure not in curves.table:
        raise UserError(f"The curves do not hold {measure!r}; they hold {', '.join(map(str, curves.table.data_vars))}.")
    if not shares or not all(0 < share <= 1 for share in shares):
        raise UserError(f"Shares of the steps lie above 0 and at most at 1, not {list(shares)}.")
    rng, cells = np.random.default_rng(seed), []
    seeds = [_Seeds.of(curves, model, measure, level) for model in curves.models]
    for share in shares:
        pairs = [_wins(*one.at(share)) for one in seeds]
        draws = [_drawn(one, rng, resamples) for one in pairs]
        cells += [_cell([one], [draw]) for one, draw in zip(pairs, draws, strict=True)] + [_cell(pairs, draws)]
    grid = np.array(cells).reshape(len(shares), len(curves.models) + 1, 5).transpose(2, 1, 0)
    names = ("auroc", "low", "high", "will", "never")
    table = xr.Dataset(
        {name: (("model", "share"), part) for name, part in zip(names, grid, strict=True)},
        {"model": [*curves.models, _ALL], "share": list(shares)},
    )
    n = sum(curves.of(model).sizes["seed"] for model in curves.models)
    return Forecast(curves, measure, level, table, Provenance(n, seed, f"seeds of {len(curves.models)} models"))


@dataclass(frozen=True)
class _Seeds:
    """One model's seeds; a seed that has ended keeps its last values.

    Attributes:
        steps: steps of the evaluations.
        grok: whether a seed is at the level.
        values: the measure, with the sign that makes larger better.
        ends: the step of each seed's last evaluation.
    """

    steps: Int[np.ndarray, " step"]
    grok: Bool[np.ndarray, "seed step"]
    values: Float[np.ndarray, "seed step"]
    ends: Int[np.ndarray, " seed"]

    @classmethod
    def of(cls, curves: Curves, model: str, measure: str, level: float) -> _Seeds:
        exact = curves.of(model)
        measured = curves.table[measure].sel(model=model, seed=exact.seed, step=exact.step)
        reached, values = (pd.DataFrame(each.values).ffill(axis=1).to_numpy() for each in (exact, measured))
        known = ~np.isnan(exact.values)
        ends = exact.step.values[known.shape[1] - 1 - known[:, ::-1].argmax(1)]
        return cls(exact.step.values, reached >= level, values * (-1 if measure.endswith("loss") else 1), ends)

    def index(self, share: float) -> int:
        """Index of the last evaluation up to this share of the steps (the first evaluation if there is none)."""
        return max(0, int(np.searchsorted(self.steps, share * self.steps[-1], "right")) - 1)

    def at(
        self, share: float
    ) -> tuple[Float[np.ndarray, " seed"], Bool[np.ndarray, " seed"], Bool[np.ndarray, " seed"]]:
        """Each seed's value at this share of the steps, whether it ever groks, and whether it had not by then."""
        i = self.index(share)
        ever, by_then = (np.asarray(part.any(1)) for part in (self.grok, self.grok[:, : i + 1]))
        return self.values[:, i], ever, ~by_then

    def halved(self, rule: Sequence[tuple[float, float]]) -> tuple[int, int, int, float, float]:
        """(seeds, seeds that grok, those that still do with the rule, steps in whole runs, the same with the rule)."""
        n, last = len(self.ends), int(self.steps[-1])
        kept, ruled = np.arange(n), self.ends.copy()
        for share, most in rule:
            i = self.index(share)
            best = kept[np.argsort(-self.values[kept, i], kind="stable")]
            kept, dropped = np.split(best, [max(1, math.ceil(most * n))])
            ruled[dropped] = np.minimum(ruled[dropped], self.steps[i])
        in_time = (self.grok & (self.steps <= ruled[:, None])).any(1)
        return n, int(self.grok.any(1).sum()), int(in_time.sum()), self.ends.sum() / last, ruled.sum() / last


def _wins(values: np.ndarray, will: np.ndarray, open_: np.ndarray) -> Float[np.ndarray, "will never"]:
    """All pairs of one model's seeds: 1 where seed i, which will grok, ranks above seed j, which never does; 1/2 for a
    tie."""
    one, other = values[will & open_][:, None], values[~will][None]
    return (one > other) + 0.5 * (one == other)


def _drawn(
    wins: Float[np.ndarray, "will never"], rng: np.random.Generator, resamples: int
) -> Float[np.ndarray, "resample 2"]:
    """Bootstrap over the seeds: the number of won pairs and of all pairs in each draw."""
    will, never = wins.shape
    if not will + never:
        return np.zeros((resamples, 2))
    counts = rng.multinomial(will + never, np.full(will + never, 1 / (will + never)), size=resamples)
    a, b = counts[:, :will], counts[:, will:]
    return np.stack((((a @ wins) * b).sum(1), a.sum(1) * b.sum(1)), 1)


def _cell(pairs: Sequence[np.ndarray], draws: Sequence[np.ndarray]) -> tuple[float, float, float, int, int]:
    """(AUROC, low, high, seeds that will grok, seeds that never do) of models together."""
    will, never = (sum(one.shape[axis] for one in pairs) for axis in (0, 1))
    compared = sum(one.size for one in pairs)
    if not compared:
        return math.nan, math.nan, math.nan, will, never
    value = sum(float(one.sum()) for one in pairs) / compared
    won, all_ = sum(draws).T  # pyright: ignore[reportAttributeAccessIssue]
    low, high = percentile_interval(value, won / np.where(all_ > 0, all_, math.nan), will + never)
    return value, max(0.0, float(low)), min(1.0, float(high)), will, never
