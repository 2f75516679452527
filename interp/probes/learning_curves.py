"""Learning curves of every seed of one or several models, read from zoo entries or run folders.

    interp.learning_curves("adder-456")                     exact match on validation problems, all seeds of an entry
    interp.learning_curves(["adder-512", "adder-456"], what="uniform")      several models, one panel per model
    interp.learning_curves("runs/mine")                     a run folder

A seed's onset is the first evaluation that reaches a level, so its step is known up to the distance between
evaluations. The share of seeds that reach it has a Clopper-Pearson interval; seeds are the independent units.

Source: "A 456-Parameter Transformer Solves 10-Digit Addition", section 1.3 and Figure 1, which shows five seeds of 456
and one chosen seed each of 582 and 512.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core import views
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.probe import probe
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult
from interp.core.wording import listed
from interp.probes.stored_curves import read_curves
from models.errors import UserError
from models.number_format import in_percent
from models.rates import Rate

KEYS = ("model", "seed", "step")


@dataclass(frozen=True, eq=False, kw_only=True)
class LearningCurves(TableResult):
    """Learning curves.

    Attributes:
        table: a Dataset over (model, seed, step), NaN where nothing was measured. Stored runs have the shares
            ``exact``, ``token`` and ``uniform`` (exact match on uniform problems only), and ``loss`` and
            ``validation_loss`` in nats; other sources have their own measures.
        what: the measure in which seeds are compared.
        chosen: model -> the seed that is stored.
        on_test: model -> seed -> whether it answers the whole test set, where that is known.
        starts: model -> the model near which all its seeds began; other models' seeds began at random.
        labels: model -> its name in figures.
        budget: the step at which a paper stops, if figures are to show it.
    """

    what: str
    chosen: Mapping[str, int] = field(default_factory=dict)
    on_test: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    budget: int | None = None

    @classmethod
    def compared(cls, table: xr.Dataset, what: str, provenance: Provenance, **more: Any) -> LearningCurves:
        """The result of curves whose seeds are compared in one measure, with what they say."""
        measures = tuple(Measure(str(name)) for name in table.data_vars)
        found = cls("", table, provenance, KEYS, measures, what=what, **more)
        return found.saying(f"{listed(map(found._said, found.models), most=3)}.")

    @property
    def models(self) -> list[str]:
        return self.table.model.values.tolist()

    @property
    def by_loss(self) -> bool:
        return self.what.endswith("loss")

    def of(self, model: str, what: str = "") -> xr.DataArray:
        """One model's curves over (seed, step), without seeds and steps at which nothing was measured.

        Raises:
            UserError: no such model or measure.
        """
        if model not in self.models or (what or self.what) not in self.table:
            raise UserError(f"There are no curves of {what or self.what} of {model!r}.")
        return self.table[what or self.what].sel(model=model).dropna("seed", how="all").dropna("step", how="all")

    def onset(self, model: str, level: float = 1.0) -> dict[int, int]:
        """Seed -> the first step at which it reached the level; seeds that never did are left out."""
        curves = self.of(model)
        reached = (curves >= level).values
        steps = curves.step.values
        seeds = zip(curves.seed.values.tolist(), reached, strict=True)
        return {seed: int(steps[row.argmax()]) for seed, row in seeds if row.any()}

    def rate(self, model: str, level: float = 1.0) -> Rate:
        """How many of all seeds ever reached the level."""
        return Rate(self.of(model).sizes["seed"], len(self.onset(model, level)))

    def grokked(self, model: str) -> Rate:
        """How many of all seeds answer the whole test set, or, without a test score, were ever perfect."""
        known = self.on_test.get(model)
        return self.rate(model) if known is None else Rate(len(known), sum(known.values()))

    def _said(self, model: str) -> str:
        curves, name = self.of(model), self.labels.get(model, model)
        n, last = curves.sizes["seed"], int(curves.step.values[-1])
        if self.by_loss:
            seeds = f"{n} seeds" if n > 1 else "one seed"
            return f"{name}: {self.what.replace('_', ' ')} {_span(curves)} nats after {last:,} steps ({seeds})"
        rate, steps, near = self.grokked(model), list(self.onset(model).values()), self.starts.get(model)
        share = f"all started near {near}" if near else str(Estimate(rate.accuracy, *rate.interval, unit=SHARE))
        where, one = "on validation" if self.what in ("exact", "uniform") else f"({self.what})", rate.correct == 1
        does = f"answer{'s' * one} the whole test set"
        if model not in self.on_test:
            does = f"{'is' if one else 'are'} once perfect {where}"
        text = f"{rate.correct} of {rate.n} seeds of {name} {does} ({share})"
        if len(self.models) > 1:
            return text
        if not steps:
            return f"{text}; none is ever perfect {where}; the best reaches {in_percent(float(curves.max()))}"
        when = f"at step {min(steps):,}" + f", the median seed at {int(np.median(steps)):,}" * (len(steps) > 1)
        return f"{text}; the first is perfect {where} {when}"

    def summary(self) -> pd.DataFrame:
        """One row per model: seeds, how many were ever perfect, the share with its 95% interval, and at which steps."""
        rows = []
        for model in self.models:
            rate, steps = self.rate(model), list(self.onset(model).values())
            low, high = rate.interval
            row = {"model": model, "seeds": rate.n, "grokked": rate.correct, "share": rate.accuracy}
            spread = (min(steps), int(np.median(steps)), max(steps)) if steps else ("–",) * 3
            row |= {"low": low, "high": high, "last step of training": int(self.of(model).step.max())}
            rows.append(row | dict(zip(("first step", "median step", "latest step"), spread, strict=True)))
        return pd.DataFrame(rows)

    def to_dataframe(self) -> pd.DataFrame:
        """One row per model, seed and evaluation."""
        frame = super().to_dataframe()
        return frame.dropna(subset=[each.name for each in self.measures], how="all").reset_index(drop=True)


def _span(curves: xr.DataArray) -> str:
    """The last value of each seed, from the least to the largest."""
    last = [row[~np.isnan(row)][-1] for row in curves.values if not np.isnan(row).all()]
    return f"{min(last):.3f}" if len(last) == 1 else f"{min(last):.3f} to {max(last):.3f}"


@probe("When did each seed learn it, and how many did?")
def learning_curves(sources: str | Path | Sequence[str | Path], *, what: str = "") -> LearningCurves:
    """The stored curves of zoo entries and run folders.

    Args:
        what: the measure in which to compare seeds; default exact match on validation problems, and for text the loss.

    Raises:
        UserError: no such entry or run, or one without this measure or without curves of all its seeds.
    """
    names = [sources] if isinstance(sources, (str, Path)) else list(sources)
    found = [read_curves(name) for name in names]
    if not found:
        raise UserError("There is nothing to read curves from.")
    tables = [one.table for one in found]
    if what and not all(what in table for table in tables):
        lacking = [str(name) for name, table in zip(names, tables, strict=True) if what not in table]
        raise UserError(f"The curves of {', '.join(lacking)} do not hold {what!r} apart.")
    chosen, on_test, starts = (
        {model: value for one in found for model, value in getattr(one, name).items()}
        for name in ("chosen", "on_test", "starts")
    )
    table = xr.concat(tables, "model", join="outer", data_vars="all")
    on_test = {} if what else on_test  # it is about exact match, which is then not what is compared
    more = {"chosen": chosen, "on_test": on_test, "starts": starts}
    return LearningCurves.compared(table, what or found[0].what, found[0].provenance, **more)


_AXES = {
    "exact": "exact match",
    "uniform": "right of uniform problems",
    "test": "right of the pairs held out",
    "loss": "training loss",
}
_DRAWN = 200  # about how many evaluations are drawn per seed; more only make the page large


@drawing(LearningCurves)
def curves_view(result: LearningCurves, what: str = "") -> views.Picture:
    """One panel per model: the stored seed, other seeds that were ever perfect, and the rest in grey; without a stored
    seed, perhaps the mean over seeds."""
    what = what or result.what
    is_loss, name = what.endswith("loss"), _AXES.get(what, what.replace("_", " "))
    panels, ends = [], []
    for model in result.models:
        table, stored = result.of(model, what), result.chosen.get(model)
        perfect = {} if is_loss else result.onset(model)
        seeds = [seed for seed in table.seed.values.tolist() if seed != stored]
        once, never = ([seed for seed in seeds if (seed in perfect) == ever] for ever in (True, False))
        # The panels of several models share a legend, which cannot have the numbers of each.
        alone = len(result.models) == 1
        named = lambda text, some, alone=alone: f"{text} ({len(some)})" if alone else text  # noqa: E731
        series = []
        if never:
            text = "seeds" if is_loss else "never perfect"
            series.append(_together(table, never, named(text, never), control=not is_loss))
        series += [_together(table, once, named("perfect at some point", once))] if once else []
        if stored is not None:
            series.append(_together(table, [stored], f"seed {stored}, in the zoo" if alone else "the one in the zoo"))
        if stored is None and what != result.what:
            mean = table.mean("seed")
            series.append(views.Series("mean over seeds", mean.step.values, mean.values))
        late = result.budget is not None and float(table.step.max()) > result.budget
        lines = [views.Line(float(result.budget or 0), "the paper stops", "x")] if late else []
        label = result.labels.get(model, model)
        title = label if len(result.models) > 1 else ""
        y, scale = "" if panels else name, "" if is_loss else "share"
        panels.append(views.Curves("training step", y, title, series=series, scale=scale, lines=lines))
        ends.append(f"{label} {_span(table)} after {int(table.step.max()):,} steps")
    title = "" if what == result.what else f"{name[:1].upper()}{name[1:]}: {'; '.join(ends)}"
    return views.Picture(panels, title=title)


def _together(table: xr.DataArray, seeds: list[int], name: str, control: bool = False) -> views.Series:
    """Several seeds as one series with gaps between them, since a hundred lines would be slow to draw."""
    x, y, of, every = [], [], [], max(1, table.sizes["step"] // _DRAWN)
    for seed in seeds:
        here = table.sel(seed=seed).dropna("step")
        keep = np.arange(here.sizes["step"])
        keep = keep[(keep % every == 0) | (keep == len(keep) - 1)]
        x.append([*here.step.values[keep], np.nan])
        y.append([*here.values[keep].round(4), np.nan])
        of.append(np.full(len(keep) + 1, seed))
    said = {"seed": np.concatenate(of)}
    return views.Series(name, np.concatenate(x), np.concatenate(y), control=control, said=said)


@drawing(LearningCurves, "seeds")
def seeds_view(
    result: LearningCurves, step: int | None = None, printed: Mapping[str, float] | None = None
) -> views.Picture:
    """Every seed's value at the last step that all models have, a row per model, next to the runs that a paper
    printed."""
    step = min(int(result.of(model).step.max()) for model in result.models) if step is None else step
    labels = [result.labels.get(model, model) for model in result.models]
    values = [result.of(model).sel(step=step).dropna("seed").to_series() for model in result.models]
    rows = np.repeat(labels, [len(each) for each in values])
    seeds = np.concatenate([each.index for each in values])
    series = [views.Series("seeds", rows, np.concatenate(values), said={"seed": seeds})]
    if printed:
        series.append(views.Series("the paper's run", labels, [printed[model] for model in result.models]))
    spans = [
        f"{label} {in_percent(each.min())}" + (f" to {in_percent(each.max())}" if len(each) > 1 else "")
        for label, each in zip(labels, values, strict=True)
    ]
    marks = views.Points("", f"right after {step:,} steps", series=series, scale="share", across=True)
    return views.Picture([marks], title=f"Right after {step:,} steps: {'; '.join(spans)}")
