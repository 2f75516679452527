"""What entries of models of many lengths, and of text, store of their seeds: scores by shape and learning curves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from interp.probes.dynamics import run_curves
from interp.probes.shape_scores import shape_scores
from models.errors import UserError
from models.zoo import entry_file

COUPLED, TEXT = "position-coupling-1l4h-small", "addlm-0.8m"


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


def test_curves_of_several_runs_are_put_together_by_seed():
    found = run_curves(COUPLED)
    assert found.table.sizes == {"seed": 8, "step": 25} and not np.isnan(found.table.exact.values).any()
    assert not found.by_loss and "8 of 8 seeds" in found.sentence()
    assert len(found.figure().data) == 2 * 8


def test_models_of_text_are_followed_by_their_validation_loss():
    found = run_curves(TEXT)
    assert found.by_loss and found.table.sizes["seed"] == 2
    assert found.table.validation_loss.values[0, -1] == pytest.approx(2.0315, abs=1e-4)
    assert "validation loss (nats" in found.figure().layout.yaxis.title.text


def test_entries_without_such_scores_or_lines_are_refused():
    with pytest.raises(UserError, match="no scores by shape"):
        shape_scores("microadder-57")
    with pytest.raises(UserError, match="one of its seeds alone"):
        run_curves("microadder-57")
    with pytest.raises(UserError, match="stores no lines"):
        run_curves("toygpt-learned-pre")
