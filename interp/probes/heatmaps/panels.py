"""Several grids in one figure: a panel for each model, its seeds summarised by their median."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance, Result
from interp.probes.heatmaps.grid import ExactMatchGrid
from models.checkpoint import read_json, write_json_atomic
from models.errors import UserError


@dataclass(frozen=True, eq=False)
class GridPanel:
    """One model of a figure: its grids, one a seed, over the same sizes.

    ``chosen_among`` says of how many seeds the one shown was chosen, on problems of such sizes: it flatters the model.
    """

    label: str
    grids: tuple[ExactMatchGrid, ...]
    chosen_among: int = 1

    def __post_init__(self) -> None:
        if not self.grids:
            raise UserError(f"Panel {self.label!r} has no grid.")
        first = self.grids[0].table
        for other in self.grids[1:]:
            same = all(np.array_equal(first[axis], other.table[axis]) for axis in first.dims)
            if not same or other.offsets != self.grids[0].offsets:
                raise UserError(f"The grids of panel {self.label!r} have different sizes or offsets.")

    def median(self, what: str = "correct") -> xr.DataArray:
        """Median over seeds of one share, NaN where no model was evaluated."""
        return xr.concat([grid.share(what) for grid in self.grids], "seed").median("seed")

    @property
    def seeds_text(self) -> str:
        if self.chosen_among > 1:
            return f"1 seed, chosen among {self.chosen_among}"
        return "1 seed" if len(self.grids) == 1 else f"median of {len(self.grids)} seeds"


@dataclass(frozen=True, eq=False)
class GridPanels(Result):
    """Panels of a figure; ``done`` of ``planned`` where some are still to come."""

    title: str
    panels: tuple[GridPanel, ...]
    planned: int | None = None

    @property
    def provenance(self) -> Provenance:  # type: ignore[override]
        grids = [grid for panel in self.panels for grid in panel.grids]
        policies = sorted({grid.policy for grid in grids})
        seeds = sorted({grid.seed for grid in grids})
        seed = seeds[0] if len(seeds) == 1 else None
        return Provenance(sum(grid.provenance.n for grid in grids), seed, f"problems, {'; '.join(policies)}")

    @property
    def is_lines(self) -> bool:
        """Whether there is one size, so that lines show more than colours."""
        return len(self.panels[0].grids[0].table.dims) == 1

    def means(self) -> list[tuple[float, float]]:
        """(mean inside, mean outside the training range) of every panel's median."""
        found = []
        for panel in self.panels:
            median, inside = panel.median(), panel.grids[0].in_training_range
            found.append((float(median.where(inside).mean()), float(median.where(~inside).mean())))
        return found

    def sentence(self) -> str:
        if len(self.panels) == 1 and len(self.panels[0].grids) == 1:
            return self.panels[0].grids[0].sentence()
        outside = [mean for _, mean in self.means()]
        if all(np.isnan(outside)):
            return f"{self.title}: no size outside the training range."
        order = sorted(range(len(outside)), key=lambda i: -np.nan_to_num(outside[i]))
        best, rest = order[0], order[1:]
        label = lambda i: f"{outside[i]:.3f} with {self.panels[i].label}"  # noqa: E731
        said = f"{self.title}: mean exact match outside the training range {label(best)}"
        if rest:
            said += f"; next {label(rest[0])}"
        if len(rest) > 1:
            said += f"; least {label(rest[-1])}"
        return said + "."

    def to_dataframe(self) -> pd.DataFrame:
        """A row per panel, seed and size: n, correct, accuracy, low, high (Clopper-Pearson, 95%)."""
        tables = [
            grid.to_dataframe().assign(panel=panel.label, grid=number)
            for panel in self.panels
            for number, grid in enumerate(panel.grids)
        ]
        return pd.concat(tables, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "exact-match-panels",
            "title": self.title,
            "planned": self.planned,
            "panels": [
                {"label": p.label, "chosen_among": p.chosen_among, "grids": [grid.to_dict() for grid in p.grids]}
                for p in self.panels
            ],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> GridPanels:
        """Raises UserError unless it came from :meth:`to_dict`."""
        if value.get("kind") != "exact-match-panels":
            raise UserError("These are no panels of exact-match grids.")
        try:
            panels = tuple(
                GridPanel(p["label"], tuple(ExactMatchGrid.from_dict(grid) for grid in p["grids"]), p["chosen_among"])
                for p in value["panels"]
            )
            return cls(value["title"], panels, value["planned"])
        except (KeyError, TypeError) as error:
            raise UserError(f"These panels are incomplete ({error}).") from None

    def save(self, path: str | Path) -> None:
        write_json_atomic(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> GridPanels:
        return cls.from_dict(read_json(path))
