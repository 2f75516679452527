"""Scores of several models over the same problem sizes, in one figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Curves, Grid, Line, Picture, Points, Series
from interp.probes.score_result import Scores, error_bound, evidence_of, policy
from models.errors import UserError
from models.files import read_json
from models.number_format import in_percent


@dataclass(frozen=True, eq=False)
class GridPanel:
    """One model of a figure: its scores over the same strata, one result per seed.

    ``chosen_among``: among how many seeds the one shown was chosen on problems of such sizes, which flatters the model.
    """

    label: str
    grids: tuple[Scores, ...]
    chosen_among: int = 1

    def __post_init__(self) -> None:
        if not self.grids:
            raise UserError(f"Panel {self.label!r} has no grid.")
        first = self.grids[0]
        for other in self.grids[1:]:
            same = all(np.array_equal(first.table[axis], other.table[axis]) for axis in first.table.dims)
            if not same or other.about.get("offsets") != first.about.get("offsets"):
                raise UserError(f"The grids of panel {self.label!r} have different sizes or offsets.")

    def median(self, what: str = "correct") -> xr.DataArray:
        """Median over seeds of one share; NaN where no model was evaluated."""
        return xr.concat([grid.share(what) for grid in self.grids], "seed").median("seed")

    def means(self) -> tuple[float, float]:
        """Mean of the median in and outside the training range."""
        median, inside = self.median(), self.grids[0].in_training_range
        return float(median.where(inside).mean()), float(median.where(~inside).mean())

    @property
    def seeds_text(self) -> str:
        return self.said_of("median")

    def said_of(self, statistic: str) -> str:
        """What a number of this panel is, if it is that statistic over the seeds."""
        if self.chosen_among > 1:
            return f"1 seed, chosen among {self.chosen_among}"
        return "1 seed" if len(self.grids) == 1 else f"{statistic} of {len(self.grids)} seeds"


@dataclass(frozen=True, eq=False)
class GridPanels(Result):
    """Scores of several models in one figure; ``planned``: how many panels there will be, if some are missing."""

    title: str
    panels: tuple[GridPanel, ...]
    planned: int | None = None

    @property
    def provenance(self) -> Provenance:  # type: ignore[override]
        grids = [grid for panel in self.panels for grid in panel.grids]
        if len(grids) == 1:
            return grids[0].provenance
        policies = sorted({policy(grid.about) for grid in grids})
        seeds = sorted({grid.about["seed"] for grid in grids})
        seed = seeds[0] if len(seeds) == 1 else None
        return Provenance(sum(grid.provenance.n for grid in grids), seed, f"problems, {'; '.join(policies)}")

    @property
    def is_lines(self) -> bool:
        """Whether there is only one size; lines then show more than colours."""
        return len(self.panels[0].grids[0].table.dims) == 1

    def means(self) -> list[tuple[float, float]]:
        """(mean inside, mean outside the training range) of every panel's median."""
        return [panel.means() for panel in self.panels]

    def sentence(self) -> str:
        outside = {panel.label: mean for panel, (_, mean) in zip(self.panels, self.means(), strict=True)}
        if all(np.isnan(mean) for mean in outside.values()):
            return f"{self.title}: no size lies outside the training range."
        order = sorted(outside, key=lambda label: -np.nan_to_num(outside[label]))
        said = [f"{in_percent(outside[label])} with {label}" for label in order]
        least = f"; least {said[-1]}" if len(said) > 2 else ""
        following = f"; next {said[1]}" if len(said) > 1 else ""
        return f"{self.title}: mean exact match outside the training range {said[0]}{following}{least}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per panel, seed and size: n, correct, accuracy, low, high (Clopper-Pearson, 95%)."""
        tables = [
            grid.to_dataframe().assign(panel=panel.label, grid=number)
            for panel in self.panels
            for number, grid in enumerate(panel.grids)
        ]
        return pd.concat(tables, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        panels = [
            {"label": p.label, "chosen_among": p.chosen_among, "grids": [grid.to_grid() for grid in p.grids]}
            for p in self.panels
        ]
        return {"kind": "exact-match-panels", "title": self.title, "planned": self.planned, "panels": panels}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> GridPanels:
        """The panels that :meth:`to_dict` wrote. Raises UserError for anything else."""
        if value.get("kind") != "exact-match-panels":
            raise UserError("These are not panels of exact-match grids.")
        try:
            panels = tuple(
                GridPanel(p["label"], tuple(Scores.from_grid(grid) for grid in p["grids"]), p["chosen_among"])
                for p in value["panels"]
            )
            return cls(value["title"], panels, value["planned"])
        except (KeyError, TypeError) as error:
            raise UserError(f"These panels are incomplete ({error}).") from None

    @classmethod
    def load(cls, path: str | Path) -> GridPanels:
        return cls.from_dict(read_json(path))


# ---- what it shows

_AXES = {
    "digits": "digits of each operand",
    "first digits": "digits of the first factor",
    "second digits": "digits of the second factor",
}


@drawing(GridPanels)
def panels_view(result: GridPanels, title: str = "") -> Picture:
    """Lines if one size varies; if two do, heat maps like Position Coupling's, in which a red box is the training
    range, grey is beyond the model's position tables, and white was not asked."""
    view = _by_length(result) if result.is_lines else _heat_maps(result)
    return Picture(view.views, view.columns, title or result.sentence(), view.note, view.shared)


def _seeds(result: GridPanels) -> str:
    return "; " + " or ".join(sorted({panel.seeds_text for panel in result.panels}))


def _heat_maps(result: GridPanels) -> Picture:
    views = []
    columns = min(len(result.panels), 3)
    for i, panel in enumerate(result.panels):
        grid, median = panel.grids[0], panel.median()
        y, x = (str(axis) for axis in median.dims)
        tried = np.stack([each.table.n.values for each in panel.grids], -1).max(-1)
        beyond = grid.out_of_reach.values
        view = Grid(
            _AXES.get(x, x), "" if i % columns else _AXES.get(y, y), panel.label, values=median, unit="exact match",
            said={"problems": tried}, grey=beyond if beyond.any() else None,
            box=(*grid.trained[x], *grid.trained[y]) if {x, y} <= set(grid.trained) else None,
            upwards=median[y].dtype.kind in "iuf",
        )  # fmt: skip
        views.append(view)
    of_format = "format" in result.panels[0].grids[0].about
    notes = [f"Whole responses, scratchpad and EOS included{_seeds(result)}"] if of_format else []
    notes += ["Red box: training range"] if any(view.box for view in views) else []
    notes += ["Grey: beyond the position tables"] if any(view.grey is not None for view in views) else []
    if result.planned is not None and result.planned > len(views):
        notes.append(f"{len(views)} of {result.planned} panels so far")
    return Picture(views, columns, note=". ".join(notes))


def _by_length(result: GridPanels) -> Picture:
    """Final answers by greedy decoding, and whole responses, over the size, in its training range and beyond.

    Bands are the exact 95% interval of one seed's problems, or the range over seeds around their median.
    """
    first = result.panels[0].grids[0]
    (axis,) = (str(name) for name in first.table.n.dims)
    measures = {"correct": "whole response"}
    if all("answer" in grid.table for panel in result.panels for grid in panel.grids):
        measures = {"answer": "final answer (greedy decoding)"} | measures
    views = []
    for what, words in measures.items():
        series = [_line(panel, what, axis) for panel in result.panels]
        lines = [Line(0.5, "a guess")] if what == "answer" else []
        y = "" if views else "right"
        view = Curves(
            f"{axis} of the query", y, words, series=series, scale="share", lines=lines, bands=True,
            shaded=first.trained.get(axis),
        )  # fmt: skip
        views.append(view)
    over = "range over seeds" if any(len(panel.grids) > 1 for panel in result.panels) else "95% interval"
    return Picture(views, note=f"Band: {over}{_seeds(result)}. Grey: training range", shared="y")


def _line(panel: GridPanel, what: str, axis: str) -> Series:
    median = panel.median(what)
    if len(panel.grids) > 1:
        shares = np.stack([grid.share(what).values for grid in panel.grids])
        low, high = shares.min(0), shares.max(0)
    else:
        frame = next(iter(panel.grids)).to_dataframe().set_index(axis).reindex(list(median[axis].values))
        prefix = "" if what == "correct" else f"{what}_"
        low, high = frame[f"{prefix}low"].to_numpy(), frame[f"{prefix}high"].to_numpy()
    return Series(panel.label, median[axis].values, median.values, low, high)


@drawing(Scores)
def scores_view(result: Scores) -> Picture:
    """Intervals over one kind of strata; a heat map over two, and lines for sizes of one kind."""
    if len(result.strata) == 1 and not result.trained:
        return _intervals(result)
    return panels_view(GridPanels(result.model, (GridPanel(result.model, (result,)),)), result.sentence())


def _intervals(result: Scores) -> Picture:
    """Shares right with their 95% intervals, one series per group; or error rates on a logarithmic axis, where an open
    mark is the 95% upper bound of a stratum without an error."""
    (stratum,) = result.strata
    frame = result.to_dataframe().query("n > 0")
    chosen = result.about.get("chosen")
    series = []
    for name, rows in frame.groupby(result.series, sort=False) if result.series else [(result.counted, frame)]:
        title = str(name) if isinstance(name, str) else f"{result.series} {name}{', in the zoo' * (name == chosen)}"
        evidence = np.array(evidence_of(rows))
        ends = np.stack((rows.accuracy, rows.low, rows.high))
        none = (ends[0] == 1) & (evidence == "sampled") & result.errors
        if result.errors:
            ends = np.where(none, [error_bound(int(n)) for n in rows.n], 1 - ends[[0, 2, 1]])
        said = {result.counted: rows.correct.to_numpy(), "of": rows.n.to_numpy(), "evidence": evidence}
        grey = chosen is not None and name != chosen
        filled = ~none if none.any() else None
        series.append(Series(title, rows[stratum].to_numpy(), *ends, control=grey, filled=filled, said=said))
    x, y = stratum.replace("_", " "), "error rate" if result.errors else f"answers {result.counted}"
    note = "Bars: 95% intervals"
    if result.errors:
        note += ". Open: nothing wrong, 95% upper bound; no mark: right on every problem that there is"
    if result.errors or frame[stratum].dtype.kind == "O":
        many = frame[stratum].nunique() > 12
        return Picture([Points(x, y, series=series, scale="log" if result.errors else "share", across=many)], note=note)
    return Picture([Curves(x, y, series=series, scale="share")], note=note)
