"""What an activation patching sweep found: shares that are recovered, with the answers next to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.causal.metrics import spoken
from interp.core.drawings import drawing
from interp.core.estimate import SHARE
from interp.core.stats import bootstrap_interval, difference_bounds, ratio_interval
from interp.core.table_result import ENDS, Measure, TableResult, table_view
from interp.core.thresholds import LEAST_SAID
from interp.core.views import Grid, Line, Picture
from models.number_format import in_percent, number
from models.transformer import head_name, neuron_name

_DOES = {"denoise": "restores", "noise": "breaks"}
_WORDS = {"pos": "position", "dest": "destination", "src": "source"}
COMPONENT = "component"  # the axis of a table of nodes
_NO_SPAN = 1e-6  # if the two runs' means differ by less, relative to 1 or to them, there is nothing to recover
_SHARE = ("recovered", "recovered_low", "recovered_high")
MEASURES = (Measure("recovered", SHARE), Measure("answers", SHARE, ("unpatched",), "clean answers"), Measure("mean"))


@dataclass(frozen=True, eq=False, kw_only=True)
class PatchingSweep(TableResult):
    """``table`` over (direction, metric, layer, head or neuron, position...): ``mean`` of the metric with its interval
    and ``spread`` (standard deviation over pairs); ``recovered`` (see the module; NaN where the runs do not differ
    beyond the interval of their difference) and ``answers``, the share of clean answers, with intervals; the same of
    the unpatched run, ``answers_unpatched`` and ``mean_unpatched``, and of the other run, ``mean_other``.

    ``values`` (direction, metric, layer, head or neuron, position..., pair): the metric of every patched run.
    ``unpatched`` and ``other`` (direction, metric, pair): the metric of the run that is patched, and of the run that
    activations are taken from.
    """

    values: xr.DataArray
    unpatched: xr.DataArray
    other: xr.DataArray
    fast: bool

    def strongest(self, direction: str | None = None, metric: str | None = None) -> tuple[str, float]:
        """The cell that recovers most, in words, and its share; NaN where there is nothing to recover.

        Raises:
            UserError: the sweep does not have this direction or metric.
        """
        row = self._strongest(direction, metric)
        return self._where(row), float(row["recovered"])

    def _strongest(self, direction: str | None, metric: str | None) -> pd.Series:
        """The row of the table that recovers most."""
        given = {"direction": direction, "metric": metric}
        rows = self.rows_at(**{axis: each or str(self.table[axis].values[0]) for axis, each in given.items()})
        if COMPONENT in rows and len(rows) > 1:  # the whole input is no finding
            rows = rows[rows[COMPONENT] != "embed"]
        return rows.loc[rows["recovered"].fillna(-np.inf).idxmax()]

    def _where(self, row: pd.Series) -> str:
        named = {key: "" if key == COMPONENT else f"{_WORDS.get(key, key)} " for key in self.keys}
        return ", ".join(f"{word}{row[key]}" for key, word in named.items() if key not in ("direction", "metric"))

    def _finding(self, subject: str, site: str) -> str:
        row = self._strongest(None, None).to_dict()
        metric, does = spoken(row["metric"]), _DOES[row["direction"]]
        runs = f"{number(row['mean_unpatched'], 3)} unpatched, {number(row['mean_other'], 3)} in the other run"
        recovered, answers = (each.estimate(row) for each in self.measures[:2])
        cells = self.values.isel(direction=0, metric=0, pair=0).size
        if COMPONENT in self.keys and "embed" in self.table[COMPONENT].values:
            cells -= 1  # which is the whole input
        if math.isnan(recovered.value):
            return f"{subject}: no difference of the {metric} between the runs is shown ({runs})."
        patch = f"no patch of {site or 'a component'} {does} {LEAST_SAID:.0%} of the {metric}"
        if recovered.value < LEAST_SAID:
            return f"{subject}: {patch} ({runs})."
        if self.values.sizes["pair"] > 1 and not (recovered.low is not None and recovered.low > 0):
            return f"{subject}: {patch} by more than chance; the most is {recovered} ({runs})."
        most = f", the most of {cells:,} patches" if cells > 1 else ""
        where = f"{site} at {self._where(pd.Series(row))}" if site else self._where(pd.Series(row))
        before = in_percent(row["answers_unpatched"])
        return (
            f"{subject}: patching {where} {does} {recovered} of the {metric} ({runs})"
            f"{most}. {answers} of the answers are then the clean ones ({before} unpatched)."
        )


def tabulate(values: xr.DataArray, runs: xr.Dataset, seed: int) -> xr.Dataset:
    """The table of a :class:`PatchingSweep` from the metrics of every patched run (direction, metric, ..., pair) and
    ``runs``, with ``unpatched`` and ``other``, those of the two runs, and of whether the answer is the clean one
    ``answers`` (direction, ..., pair) and ``unpatched_answers`` (direction, pair)."""
    mean, n = values.mean("pair"), values.sizes["pair"]
    ends = np.stack([bootstrap_interval(one.values, seed) for one in values.transpose("metric", ...)], 1)
    low, high = (np.moveaxis(end, 0, mean.dims.index("metric")) for end in ends)
    shares = [mean.copy(data=np.full(mean.shape, np.nan)) for _ in _SHARE]
    for direction in values.direction.values.tolist():
        for metric in values.metric.values.tolist():
            at = {"direction": direction, "metric": metric}
            base, other = runs.unpatched.sel(at), runs.other.sel(at)
            if not runs_differ(base.values, other.values, seed):
                continue
            above = (values.sel(at) - base).transpose(..., "pair").values
            found = ratio_interval(above, (other - base).values, seed)
            for share, one in zip(shares, found, strict=True):
                share.loc[at] = one
    right = runs.answers.mean("pair")
    of_answers = bootstrap_interval(runs.answers.values.astype(float), seed)
    return xr.Dataset(
        {
            "mean": mean,
            "mean_low": mean.copy(data=low),
            "mean_high": mean.copy(data=high),
            "spread": values.std("pair", ddof=1 if n > 1 else 0),
            **dict(zip(_SHARE, shares, strict=True)),
            "answers": right,
            **{f"answers_{end}": right.copy(data=of) for end, of in zip(ENDS, of_answers, strict=True)},
            "answers_unpatched": runs.unpatched_answers.mean("pair"),
            "mean_unpatched": runs.unpatched.mean("pair"),
            "mean_other": runs.other.mean("pair"),
        }
    )


def runs_differ(base: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"], seed: int) -> bool:
    """Whether the means of a metric in two runs differ by more than rounding, and either beyond the 95% interval of the
    difference or in the same direction for every pair."""
    apart = other - base
    if not abs(float(apart.mean())) > _NO_SPAN * max(abs(float(base.mean())), abs(float(other.mean())), 1.0):
        return False
    low, high = bootstrap_interval(apart, seed, bounds=difference_bounds(base, other))
    return bool((apart > 0).all() or (apart < 0).all()) or not float(low) <= 0 <= float(high)


_AXES = {"pos": "position patched", "role": "role patched", "dest": "destination", "src": "source attended to"}


@drawing(PatchingSweep)
def patching_view(result: PatchingSweep, metric: str | None = None) -> Picture:
    """Share recovered: rows are layers (with heads or neurons), columns positions or roles; one panel per direction,
    and per head of a pattern that is swept by destination and source. A table of nodes has a row per component, with
    the interval of its share."""
    first = str(result.table.metric.values[0])
    rows = result.rows_at(metric=first if metric is None else metric).rename(columns=_AXES)
    keys = [_AXES.get(key, key) for key in result.keys if key != "metric"]
    for part, name in (("head", head_name), ("neuron", neuron_name)):
        if part in keys:
            rows[part] = [name(layer, each) for layer, each in zip(rows["layer"], rows[part], strict=True)]
            keys.remove("layer")
    picture = table_view(replace(result, table=rows, keys=tuple(keys), measures=result.measures[:1]))
    limit, views = max(1.0, float(rows["recovered"].abs().fillna(0.0).max())), []
    for view in picture.views:
        if isinstance(view, Grid):
            views.append(replace(view, colours="signed", limit=limit))
        else:
            views.append(replace(view, lines=(Line(0), Line(1)), across=COMPONENT in keys))
    note = f"Recovered: (patched - unpatched) / (other run - unpatched), of the mean {spoken(metric or first)}"
    title = "" if metric in (None, first) else f"Share of the {spoken(str(metric))} that one patch recovers"
    return Picture(views, 1, title, "; ".join(filter(None, (note, picture.note))))
