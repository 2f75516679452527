"""What the studies of MicroAdder say of its ladder."""

from __future__ import annotations

import itertools

from models.families.microadder_ladder import LADDER, rung
from studies.microadder.studies import differences, slug


def test_every_step_changes_something_and_the_options_say_what() -> None:
    for a, b in itertools.pairwise(LADDER):
        assert differences(a.options, b.options)
    assert differences(rung(67).options, rung(57).options) == {"tie_fc2": (False, True)}


def test_words_are_part_of_a_path() -> None:
    assert slug("tied V/output") == "tied-v-output"
