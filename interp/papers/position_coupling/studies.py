"""Figures of Position Coupling that compare trained models, each a study of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from interp.core.sections import Page, Section
from interp.figures.hand_built import certified_margins
from interp.papers.position_coupling.hand_built_grid import load_grid
from interp.papers.position_coupling.hand_built_large import load_large
from interp.papers.position_coupling.reproduce.page import figure_page
from interp.papers.position_coupling.reproduce.reproduction import PAPER, Reproduction
from interp.papers.studies import Settings, Study, register_study, shows, study
from interp.probes.heatmaps.panels import GridPanels
from interp.proofs.coupled_grid import load_certified_grids
from models.errors import unknown_name
from models.position_coupling_figures import FIGURES

SIZES = ("small", "paper")


def reproduce(name: str, settings: Settings) -> Page | None:
    """One figure, from nothing; one seed a model unless asked for more. Raises UserError for another size."""
    if settings.size not in SIZES:
        raise unknown_name("size", settings.size, SIZES)
    return Reproduction(
        name,
        settings.size,  # type: ignore[arg-type]
        1 if settings.seeds is None else settings.seeds,
        settings.problems,
        settings.offsets,
        settings.out,
        settings.device,
        settings.minutes,
        settings.yes,
        settings.say,
        settings.progress,
    ).run()


@shows("position-coupling:hand-built")
def show_hand_built(data: Any) -> list[Section]:
    grids = load_certified_grids()
    large = pd.DataFrame([vars(size) for size in load_large()])
    sentences = [grid.sentence() for grid in grids.values()] + [load_grid().sentence()]
    return [
        Section("The proof, shape by shape", "\n\n".join(sentences), (), (certified_margins(grids["float32"]),), 3),
        Section("Far larger problems", "Run, not proved: three problems a size.", (large,), level=3),
    ]


def show_panels(data: Any) -> list[Section]:
    return list(figure_page(GridPanels.from_dict(data), "").sections)


for _name, _figure in FIGURES.items():
    study(f"{PAPER}:{_name}", _figure.title)(partial(reproduce, _name))
    shows(f"{PAPER}:{_name}")(show_panels)
register_study(
    Study(
        f"{PAPER}:hand-built",
        "The constructed transformer on its whole grid",
        None,
        "hand_built_grid.json",
        "python -m interp.papers.position_coupling.hand_built_grid",
    )
)
