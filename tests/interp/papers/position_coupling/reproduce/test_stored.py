"""The stored reproductions: figures that redraw from data alone, and what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

import interp
from interp.probes.scored import GridPanels

STORED = sorted((Path(interp.__file__).parent / "data" / "reproduced").glob("*.json"))


#: Figures that compare methods by sums or parities.
COMPARED = [path for path in STORED if path.stem in ("position-coupling-fig1-small", "position-coupling-fig3-small")]


@pytest.fixture(params=COMPARED, ids=lambda path: path.stem)
def compared(request) -> GridPanels:
    return GridPanels.load(request.param)


def test_position_coupling_with_the_scratchpad_generalises_furthest(compared: GridPanels) -> None:
    """The paper's Figures 1 and 3, at the small size and budget."""
    panels = compared
    outside = {panel.label: mean for panel, (_, mean) in zip(panels.panels, panels.means(), strict=True)}
    best = outside.pop("Position Coupling, scratchpad")
    assert len(outside) == len(panels.panels) - 1 >= 5
    assert best > max(outside.values()) + 0.2


def test_a_chosen_seed_is_said_to_be_one(compared: GridPanels) -> None:
    text = {panel.label: panel.seeds_text for panel in compared.panels}
    assert "chosen among" in text["Position Coupling, scratchpad"]


def test_one_layer_trained_on_ten_numbers_of_ten_digits_adds_more_and_longer_ones() -> None:
    """Short of the paper's 30 x 30 (one layer of width 128 instead of 1,024), and far outside the training range."""
    (path,) = (path for path in STORED if path.stem.endswith("-grid-small"))
    grid = GridPanels.load(path).panels[0].grids[0]
    assert grid.rate(operands=10, digits=10).accuracy == 1.0
    assert grid.rate(operands=15, digits=10).interval[0] > 0.8
    assert grid.rate(operands=9, digits=14).interval[0] > 0.8
    assert grid.rate(operands=30, digits=30).correct == 0


def test_two_layers_trained_on_five_digits_multiply_longer_factors_on_both_sides() -> None:
    (path,) = (path for path in STORED if path.stem.endswith("-grid-multiplication-small"))
    grid = GridPanels.load(path).panels[0].grids[0]
    assert grid.rate(first_digits=5, second_digits=5).interval[0] > 0.95
    assert grid.rate(first_digits=6, second_digits=7).interval[0] > 0.7
    assert grid.rate(first_digits=11, second_digits=11).correct == 0
