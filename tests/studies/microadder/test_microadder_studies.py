"""What the studies of MicroAdder say of its ladder."""

from __future__ import annotations

import itertools

import pytest

import interp
import models
from models.families.microadder_ladder import LADDER, rung
from models.tasks import problem_pairs
from studies.microadder.studies import differences, slug


def test_every_step_changes_something_and_the_options_say_what() -> None:
    for a, b in itertools.pairwise(LADDER):
        assert differences(a.options, b.options)
    assert differences(rung(67).options, rung(57).options) == {"tie_fc2": (False, True)}


def test_words_are_part_of_a_path() -> None:
    assert slug("tied V/output") == "tied-v-output"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least", "most"), [("made carry", 0.82, 0.82), ("passed carry", 0.33, 0.62)])
def test_gradients_rank_edges_as_the_paper_s_page_says(kind: str, least: float, most: float) -> None:
    """The command that stands there, over its four draws of pairs and both directions."""
    adder = models.load("microadder-57")
    found = []
    for seed, direction in itertools.product(range(4), ("noise", "denoise")):
        pairs = problem_pairs(adder.task, kind, column=4, n=256, seed=seed, side="mixed")
        result = interp.edge_attribution(adder, pairs, method="eap", direction=direction)
        found.append(result.agreements["logit_diff", "edges"].spearman)
    assert (min(found), max(found)) == pytest.approx((least, most), abs=0.01)
