"""What entries of models of many lengths store of their seeds: scores by shape."""

from __future__ import annotations

import re

import pytest

from interp.site.chapters import shape_scores
from models.errors import UserError
from models.zoo import entry_file

COUPLED = "position-coupling-1l4h-small"


def test_scores_by_shape_are_those_of_the_card():
    found = shape_scores(COUPLED)
    card = entry_file(COUPLED, "card.md").decode()
    shares = found.pivot("accuracy")
    assert shares.index.tolist() == list(range(8)) and "seed, 7," in found.sentence()
    for shape in shares.columns:
        (line,) = re.findall(rf"^\| {shape.replace(' x', ',')} \| (.*) \|$", card, flags=re.MULTILINE)
        printed = [float(cell.split()[0]) for cell in line.split(" | ")]
        assert printed == shares[shape].round(3).tolist()


def test_entries_without_such_scores_are_refused():
    with pytest.raises(UserError):
        shape_scores("microadder-57")
