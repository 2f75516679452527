"""What an activation patching sweep found: shares that are recovered, with the answers next to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float

from interp.causal.metrics import spoken
from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.stats import bootstrap_interval, difference_bounds, ratio_interval
from interp.core.thresholds import LEAST_SAID
from interp.core.views import Grid, Line, Picture, Points, Series
from models.errors import known_name
from models.number_format import in_percent, in_percent_with
from models.transformer import head_name, neuron_name

_DOES = {"denoise": "restores", "noise": "breaks"}
_WORDS = {"pos": "position", "dest": "destination", "src": "source"}
COMPONENT = "component"  # the axis of a table of nodes
_NO_SPAN = 1e-6  # if the two runs' means differ by less, relative to 1 or to them, there is nothing to recover
_SHARE = ("recovered", "recovered_low", "recovered_high")


@dataclass(frozen=True, eq=False)
class PatchingSweep(Result):
    """``values`` (direction, metric, layer, head or neuron, position..., pair): the metric of every patched run.

    ``unpatched`` and ``other`` (direction, metric, pair): the metric of the run that is patched, and of the run that
    activations are taken from. ``answers`` (direction, layer, head or neuron, position..., pair) says whether the
    patched run gives the clean answer, and ``unpatched_answers`` (direction, pair) whether the unpatched run does.
    """

    model: str
    site: str
    what: str  # what the pairs differ in
    values: xr.DataArray
    unpatched: xr.DataArray
    other: xr.DataArray
    answers: xr.DataArray
    unpatched_answers: xr.DataArray
    fast: bool
    provenance: Provenance

    @cached_property
    def table(self) -> xr.Dataset:
        """``mean``, ``spread`` (standard deviation over pairs), ``low`` and ``high`` (95% interval of the mean),
        ``recovered`` with ``recovered_low`` and ``recovered_high`` (see the module; NaN where the runs do not differ
        beyond the interval of their difference), and ``answers`` with ``answers_low`` and ``answers_high``."""
        values, seed = self.values, self.provenance.resampling_seed
        mean, n = values.mean("pair"), values.sizes["pair"]
        ends = np.stack([bootstrap_interval(one.values, seed) for one in values.transpose("metric", ...)], 1)
        metric_axis = mean.dims.index("metric")
        low, high = (np.moveaxis(end, 0, metric_axis) for end in ends)
        shares = [mean.copy(data=np.full(mean.shape, np.nan)) for _ in _SHARE]
        for direction in values.direction.values.tolist():
            for metric in values.metric.values.tolist():
                at = {"direction": direction, "metric": metric}
                base, other = self.unpatched.sel(at), self.other.sel(at)
                if not runs_differ(base.values, other.values, seed):
                    continue
                above = (values.sel(at) - base).transpose(..., "pair").values
                found = ratio_interval(above, (other - base).values, seed)
                for share, one in zip(shares, found, strict=True):
                    share.loc[at] = one
        right = self.answers.mean("pair")
        return xr.Dataset(
            {
                "mean": mean,
                "spread": values.std("pair", ddof=1 if n > 1 else 0),
                "low": mean.copy(data=low),
                "high": mean.copy(data=high),
                **dict(zip(_SHARE, shares, strict=True)),
                "answers": right,
            }
            | {
                name: right.copy(data=end)
                for name, end in zip(
                    ("answers_low", "answers_high"),
                    bootstrap_interval(self.answers.values.astype(float), seed),
                    strict=True,
                )
            }
        )

    def strongest(self, direction: str | None = None, metric: str | None = None) -> tuple[str, float]:
        """The cell that recovers most, in words, and its share; NaN where there is nothing to recover.

        Raises:
            UserError: the sweep does not have this direction or metric.
        """
        cell = self._strongest(direction, metric)
        return self._where(cell), float(cell.recovered)

    def _strongest(self, direction: str | None, metric: str | None) -> xr.Dataset:
        """The row of the table that recovers most."""
        directions, metrics = self.values.direction.values.tolist(), self.values.metric.values.tolist()
        direction, metric = direction or directions[0], metric or metrics[0]
        known_name("direction of this sweep", direction, directions)
        known_name("metric of this sweep", metric, metrics)
        chosen = self.table.sel(direction=direction, metric=metric)
        if chosen.sizes.get(COMPONENT, 1) > 1:  # the whole input is no finding
            chosen = chosen.sel({COMPONENT: [name for name in chosen[COMPONENT].values if name != "embed"]})
        share = chosen.recovered
        index = np.unravel_index(int(np.nanargmax(np.nan_to_num(share.values, nan=-np.inf))), share.shape)
        return chosen.isel(dict(zip(share.dims, map(int, index), strict=True)))

    def _where(self, cell: xr.Dataset) -> str:
        dims = [str(dim) for dim in self.values.dims if dim in cell.coords and dim not in ("direction", "metric")]
        named = lambda dim: "" if dim == COMPONENT else f"{_WORDS.get(dim, dim)} "  # noqa: E731
        return ", ".join(f"{named(dim)}{cell[dim].item()}" for dim in dims)

    def sentence(self) -> str:
        metric = self.values.metric.values.tolist()[0]
        cells = self.values.isel(direction=0, metric=0, pair=0).size
        parts = []
        for direction in self.values.direction.values.tolist():
            cell = self._strongest(direction, metric)
            share = float(cell.recovered)
            base, other = (
                float(x.sel(direction=direction, metric=metric).mean()) for x in (self.unpatched, self.other)
            )
            if np.isnan(share):
                parts.append(
                    f"the {spoken(metric)} does not differ between the runs ({base:.3g} unpatched, {other:.3g} in the "
                    "other run), so that no share can be recovered"
                )
                continue
            ends = f"the {spoken(metric)} ({base:.3g} unpatched, {other:.3g} in the other run)"
            if share < LEAST_SAID:
                parts.append(f"no patch of {self.site} {_DOES[direction]} {LEAST_SAID:.0%} of {ends}")
                continue
            alone = "; each interval is this patch's alone" if self.values.sizes["pair"] > 1 else ""
            before = float(self.unpatched_answers.sel(direction=direction).mean())
            parts.append(
                f"the strongest of {cells:,} patches of {self.site}, at {self._where(cell)}, {_DOES[direction]} "
                f"{_interval(cell, 'recovered')} of {ends}, and the clean answer is given in "
                f"{_interval(cell, 'answers')} of the pairs ({in_percent(before)} unpatched){alone}"
            )
        return f"{self.model}, pairs that differ in {self.what}: {'; '.join(parts)}."

    def found(self, metric: str | None = None) -> str:
        """What the strongest patches do, in a few words, with the share of clean answers."""
        parts: dict[str, list[str]] = {}
        for direction in self.values.direction.values.tolist():
            cell = self._strongest(direction, metric)
            nothing = not float(cell.recovered) >= LEAST_SAID  # or NaN
            does = f"{_DOES[direction]} nothing"
            if not nothing:
                recovered, answers = (in_percent(float(share), 0) for share in (cell.recovered, cell.answers))
                does = f"{_DOES[direction]} {recovered} (answers {answers})"
            parts.setdefault("" if nothing else f" at {self._where(cell)}", []).append(does)
        return " and ".join(" and ".join(does) + where for where, does in parts.items())


def _interval(cell: xr.Dataset, name: str) -> str:
    """A share of a cell with its interval; that of a single pair is all there is, and has none.

    The interval is this cell's alone: it is not corrected for having chosen the cell among others.
    """
    value, low, high = (float(cell[key]) for key in (name, f"{name}_low", f"{name}_high"))
    return in_percent_with(value, low, high)


def runs_differ(base: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"], seed: int) -> bool:
    """Whether the means of a metric in two runs differ by more than rounding, and either beyond the 95% interval of the
    difference or in the same direction for every pair."""
    apart = other - base
    if not abs(float(apart.mean())) > _NO_SPAN * max(abs(float(base.mean())), abs(float(other.mean())), 1.0):
        return False
    low, high = bootstrap_interval(apart, seed, bounds=difference_bounds(base, other))
    return bool((apart > 0).all() or (apart < 0).all()) or not float(low) <= 0 <= float(high)


MOST_ROWS = 40  # components that are shown
MOST_PANELS, LEAST_SHOWN = 6, 0.01  # heads whose patterns are shown: those that recover most, and at least 1%
_RUNS = {"denoise": "clean into corrupted", "noise": "corrupted into clean"}
_AXES = {
    "layer": "layer", "pos": "position patched", "role": "role patched", "dest": "destination",
    "src": "source attended to", "all": "",
}  # fmt: skip


@drawing(PatchingSweep)
def patching_view(result: PatchingSweep, metric: str | None = None) -> Picture:
    """Share recovered: rows are layers (with heads or neurons), columns positions or roles; one panel per direction.

    A pattern swept by destination and source has one panel per head instead, for the heads that recover most, and a
    table of nodes has a row per component, with the interval of its share.
    """
    metric = metric or str(result.values.metric.values[0])
    result.strongest(metric=metric)  # refuses a metric that the sweep does not have
    share = result.table.recovered.sel(metric=metric)
    note = f"Recovered: (patched - unpatched) / (other run - unpatched), of the mean {spoken(metric)}"
    title = f"{result.model}, {result.what}: patching {result.site} {result.found(metric)}"
    if COMPONENT in share.dims:
        return Picture([_by_component(result.table.sel(metric=metric))], 1, title, note)
    by_source = "src" in share.dims
    panels = _by_source(share) if by_source else _by_layer(share)
    answers = {} if by_source else _by_layer(result.table.answers)
    limit = max(1.0, *(float(np.nanmax(np.abs(np.nan_to_num(panel.values)))) for panel in panels.values()))
    views = []
    for name, panel in panels.items():
        down, across = (str(dim) for dim in panel.dims)
        part = next((each for each in ("head", "neuron") if down == "row" and each in share.dims), down)
        said = {"clean answers": answers[name].values} if name in answers else {}
        rows, columns = ([str(value) for value in panel[dim].values] for dim in (down, across))
        at = _AXES.get(across, across), _AXES.get(part, part), name
        views.append(Grid(*at, panel.values, rows, columns, "recovered", "signed", limit, said=said))
    return Picture(views, 1, title, note)


def _by_component(table: xr.Dataset) -> Points:
    """Shares with their intervals, of the components that recover most, in the order in which they write."""
    size = np.nan_to_num(np.abs(table.recovered.transpose(COMPONENT, "direction").values)).max(1)
    shown = table.isel({COMPONENT: np.sort(np.argsort(-size, kind="stable")[:MOST_ROWS])})
    series = [
        Series.of(
            shown.sel(direction=direction).to_dataframe().reset_index(), COMPONENT, "recovered",
            f"{direction}: {_RUNS[direction]}", ("recovered_low", "recovered_high"), ("answers",),
        )
        for direction in table.direction.values.tolist()
    ]  # fmt: skip
    title = "" if len(size) <= MOST_ROWS else f"the {MOST_ROWS} of {len(size)} components that recover most"
    return Points("", "recovered", title, series, lines=(Line(0), Line(1)), across=True)


def _by_layer(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """One panel per direction, with layers and their heads or neurons as rows."""
    panels = {}
    for direction in share.direction.values.tolist():
        panel = share.sel(direction=direction, drop=True)
        part = next((d for d in ("head", "neuron") if d in panel.dims), None)
        if part is not None:
            name = head_name if part == "head" else neuron_name
            labels = [name(i, j) for i in panel.layer.values for j in panel[part].values]
            panel = panel.stack(row=("layer", part)).drop_vars(("row", "layer", part)).assign_coords(row=labels)
        rest = [d for d in panel.dims if d not in ("row", "layer")]
        if not rest:
            panel, rest = panel.expand_dims({"all": ["all positions"]}), ["all"]
        first = "row" if part is not None else "layer"
        panels[f"{direction}: {_RUNS[direction]}"] = panel.transpose(first, *rest)
    return panels


def _by_source(share: xr.DataArray) -> dict[str, xr.DataArray]:
    """One panel per head and direction, destination by source, for those that recover most. Rows without effect are
    left out."""
    panels = {}
    for direction in share.direction.values.tolist():
        of_direction = share.sel(direction=direction, drop=True)
        for layer in of_direction["layer"].values.tolist():
            for head in of_direction["head"].values.tolist():
                panel = of_direction.sel(layer=layer, head=head, drop=True).transpose("dest", "src")
                panels[f"{head_name(layer, head)}, {direction}"] = panel
    largest = {name: np.abs(np.nan_to_num(panel.values)).max(1) for name, panel in panels.items()}
    ordered = sorted(panels, key=lambda name: -float(largest[name].max()))
    chosen = [name for name in ordered[:MOST_PANELS] if largest[name].max() >= LEAST_SHOWN] or ordered[:1]
    keep = lambda rows: rows >= min(1e-3, rows.max())  # noqa: E731
    return {name: panels[name][keep(largest[name])] for name in chosen}
