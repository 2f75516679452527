"""What entries of models of many lengths store of their seeds: scores by shape."""

from __future__ import annotations

import re

import pytest

from interp.site.shape_scores import shape_scores
from models.errors import UserError
from models.zoo import entry_file

COUPLED = "position-coupling-1l4h-small"


def test_scores_by_shape_are_those_of_the_card():
    found = shape_scores(COUPLED)
    card = entry_file(COUPLED, "card.md").decode()
    assert found.table.seed.values.tolist() == list(range(8)) and found.about["chosen"] == 7
    for shape in found.table["shape"].values:
        (line,) = re.findall(rf"^\| {shape.replace(' x', ',')} \| (.*) \|$", card, flags=re.MULTILINE)
        printed = [float(cell.split()[0]) for cell in line.split(" | ")]
        assert printed == found.accuracy.sel(shape=shape).round(3).values.tolist()


def test_the_figure_shows_every_seed_and_the_stored_one_with_its_interval():
    found = shape_scores(COUPLED)
    figure = found.figure()
    assert len(figure.data) == 8 and figure.data[-1].name == "seed 7, in the zoo"
    assert len(figure.data[-1].error_y.array) == found.table.sizes["shape"]
    assert len(found.to_dataframe()) == 8 * found.table.sizes["shape"]


def test_entries_without_such_scores_are_refused():
    with pytest.raises(UserError):
        shape_scores("microadder-57")
