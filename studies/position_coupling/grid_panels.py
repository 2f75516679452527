"""Exact match over problem sizes: the result of one model, and those of several models in one figure."""

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
from interp.core.stats import clopper_pearson
from interp.core.views import Curves, Grid, Line, Picture, Series
from interp.probes.score_result import Scores, intervals_view
from models.errors import UserError
from models.files import read_json, write_json_atomic
from models.number_format import in_percent

FORMAT = 1
ANSWERS = ("answer", "answer_forced")  # counts of right final answers


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactMatchGrid(Scores):
    """Scores over problem sizes. In its ``table``, ``n`` is 0 for sizes beyond the model's position tables and -1 for
    those that were not asked. A grid of parity also has ``answer``, final answers right by greedy decoding, and
    ``answer_forced``, given the true scratchpad.

    ``about``: what is stored of how it was made, with ``offsets``, ``requested`` problems a size, ``early_exit`` and
    ``trained``, the training range of each size.
    """

    about: Mapping[str, Any]

    @classmethod
    def made(cls, model: str, table: xr.Dataset, about: Mapping[str, Any]) -> ExactMatchGrid:
        """The result of counts over sizes."""
        trained = {axis: (int(low), int(high)) for axis, (low, high) in (about["trained"] or {}).items()} or None
        provenance = Provenance(int(table.n.clip(min=0).sum()), about["seed"], f"problems, {policy(about)}")
        return cls.of(model, table, provenance, about=dict(about) | {"trained": trained})

    @property
    def out_of_reach(self) -> xr.DataArray:
        """Whether a size was asked for but needs position ids that the model's tables do not have."""
        return self.table.n == 0

    @property
    def trained(self) -> Mapping[str, tuple[int, int]]:
        """The training range of each size, (least, most), if known."""
        return self.about.get("trained") or {}

    @property
    def in_training_range(self) -> xr.DataArray:
        inside = xr.ones_like(self.reached)
        for axis, (low, high) in self.trained.items():
            inside = inside & (self.table[axis] >= low) & (self.table[axis] <= high)
        return inside & bool(self.trained)

    def share(self, what: str = "correct") -> xr.DataArray:
        """The share of one of the counts. Raises UserError if it was not measured."""
        if what not in self.table:
            raise UserError(f"These scores have no {what!r}; evaluate with final_answer=True.")
        return (self.table[what] / self.table.n.where(self.reached)).rename(what)

    def sentence(self) -> str:
        if not bool(self.reached.any()):
            return f"The position tables of {self.model} reach none of these sizes."
        beyond = int(self.out_of_reach.sum())
        parts = [", ".join(self._means()), self.worst()]
        parts += [f"{beyond} of {self.table.n.size} sizes are beyond its position tables"] if beyond else []
        return f"{self.model}: {'; '.join(parts)} ({self.about['offsets']})."

    def _means(self) -> list[str]:
        """Mean shares in and outside the training range, if it is known; else the counts."""
        inside = self.in_training_range & self.reached
        if not bool(inside.any()):
            return [self.total()]
        said, outside = [], self.reached & ~inside
        for where, sizes in (("in the training range", inside), ("outside it", outside)):
            if bool(sizes.any()):
                said.append(f"{in_percent(float(self.accuracy.where(sizes).mean()))} {where}")
        return [f"exact match {said[0]}", *said[1:]]

    def to_dataframe(self) -> pd.DataFrame:
        """One row per size that was asked for, as of all scores; for a grid of parity with the shares of right answers
        and their intervals, too."""
        frame = super().to_dataframe()
        for what in ANSWERS:
            if what in frame:
                ends = [(k / n, *clopper_pearson(k, n)) if n else (np.nan,) * 3 for k, n in frame[[what, "n"]].values]
                frame[[f"{what}_accuracy", f"{what}_low", f"{what}_high"]] = ends
        return frame

    def to_dict(self) -> dict[str, Any]:
        axes = {str(axis): self.table[axis].values.tolist() for axis in self.table.dims}
        counts = {str(name): array.values.tolist() for name, array in self.table.data_vars.items()}
        trained = {axis: list(bounds) for axis, bounds in self.trained.items()} or None
        stated = {"model": self.model} | dict(self.about) | {"trained": trained, "strength": "sampled"}
        return {"kind": "exact-match-grid", "version": FORMAT, **stated, "axes": axes, "counts": counts}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ExactMatchGrid:
        """The grid that :meth:`to_dict` wrote. Raises UserError for anything else."""
        if value.get("kind") != "exact-match-grid" or value.get("version") != FORMAT:
            raise UserError(f"This is not an exact-match grid of format {FORMAT}.")
        try:
            axes = value["axes"]
            table = xr.Dataset({name: (list(axes), np.array(v)) for name, v in value["counts"].items()}, axes)
            fields = ("task", "format", "offsets", "requested", "seed", "early_exit", "method", "trained")
            return cls.made(value["model"], table, {name: value[name] for name in fields})
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(f"This exact-match grid is incomplete ({error}).") from None

    def save(self, path: str | Path) -> None:
        write_json_atomic(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> ExactMatchGrid:
        return cls.from_dict(read_json(path))


def policy(about: Mapping[str, Any]) -> str:
    """The problems per size, the sequential rule and the offset policy, in words."""
    early = f" ({about['early_exit']} where those were all wrong)" if about["early_exit"] else ""
    return f"{about['requested']:,} a size{early}, {about['offsets']}"


@dataclass(frozen=True, eq=False)
class GridPanel:
    """One model of a figure: its scores over the same sizes, one result per seed.

    ``chosen_among``: among how many seeds the one shown was chosen on problems of such sizes, which flatters the model.
    """

    label: str
    grids: tuple[ExactMatchGrid, ...]
    chosen_among: int = 1

    def __post_init__(self) -> None:
        if not self.grids:
            raise UserError(f"Panel {self.label!r} has no grid.")
        first = self.grids[0]
        for other in self.grids[1:]:
            same = all(np.array_equal(first.table[axis], other.table[axis]) for axis in first.table.dims)
            if not same or other.about["offsets"] != first.about["offsets"]:
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
            {"label": p.label, "chosen_among": p.chosen_among, "grids": [grid.to_dict() for grid in p.grids]}
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
                GridPanel(p["label"], tuple(ExactMatchGrid.from_dict(grid) for grid in p["grids"]), p["chosen_among"])
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
            upwards=True,
        )  # fmt: skip
        views.append(view)
    notes = [f"Whole responses, scratchpad and EOS included{_seeds(result)}"]
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
        prefix = "accuracy_" if what == "correct" else f"{what}_"
        low, high = frame[f"{prefix}low"].to_numpy(), frame[f"{prefix}high"].to_numpy()
    return Series(panel.label, median[axis].values, median.values, low, high)


@drawing(ExactMatchGrid)
def grid_view(result: ExactMatchGrid) -> Picture:
    """The one panel of a model; intervals where sizes of one kind have no training range."""
    if len(result.strata) == 1 and not result.trained:
        return intervals_view(result)
    return panels_view(GridPanels(result.model, (GridPanel(result.model, (result,)),)), result.sentence())
