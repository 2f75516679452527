"""Do counterexamples help? The rules of counting and of correcting, on planted seeds and on those that are stored."""

import json
from typing import Any

import pytest

from studies.comparison.counterexamples import AGAIN, FIFTY_SEVEN, TEN, compared, counted
from studies.papers import DATA


def _rows(experiment: str, arm: str, certified: int, judged: int, seeds: int) -> list[dict[str, Any]]:
    """The first seeds are certified, the next ones were turned down twice, and the last were never judged."""
    return [
        {
            "experiment": experiment,
            "arm": arm,
            "seed": seed,
            "certified": seed < certified,
            "rounds": 2 if certified <= seed < judged else 0,
        }
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("more", [0, 3, 6, 9])
def test_a_second_look_costs_a_factor_of_two(more: int):
    planted = [(TEN, 4, 4), (FIFTY_SEVEN, 4 + more, 4), (AGAIN, 4 + more, 4)]
    rows = [
        row
        for experiment, own, random in planted
        for arm, n in (("counterexamples", own), ("random", random))
        for row in _rows(experiment, arm, n, 13, 20)
    ]
    found = {one["experiment"]: one for one in compared(rows)}
    assert found[AGAIN]["only counterexamples"] == more and found[AGAIN]["only random"] == 0
    assert found[AGAIN]["p"] == pytest.approx(min(1, 2 * 0.5**more))
    for name in (FIFTY_SEVEN, AGAIN):  # of two planned comparisons, and of two looks
        assert found[name]["p corrected"] == pytest.approx(min(1, 2 * found[name]["p"]))
    assert all(one["judged"] == 13 and one["seeds"] == 20 for one in counted(rows))


def test_every_stored_seed_that_was_judged_is_certified_with_counterexamples():
    rows = json.loads((DATA / "comparison-counterexamples.json").read_text(encoding="utf-8"))["rows"]
    found = {(one["experiment"], one["arm"]): (one["certified"], one["judged"], one["seeds"]) for one in counted(rows)}
    assert found[FIFTY_SEVEN, "counterexamples"] == (13, 13, 32) and found[FIFTY_SEVEN, "random"] == (7, 13, 32)
    assert found[AGAIN, "counterexamples"] == (29, 29, 64) and found[AGAIN, "random"] == (22, 29, 64)
    looks = {one["experiment"]: one["p corrected"] for one in compared(rows)}
    assert looks[FIFTY_SEVEN] == 0.0625 and looks[AGAIN] == 0.03125
