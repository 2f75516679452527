"""What many adders have in common is counted from readings in which it is planted."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

import interp
import models
from interp.compare.population import Population, decided
from interp.compare.seeds import SeedDistances
from interp.core.results import Provenance
from interp.papers.studies.comparison_population import STORED, ZOO, Candidate, candidates, classes, judged
from models.checkpoint import read_json
from models.errors import UserError
from models.training.objective import ParameterLayout

PROVENANCE = Provenance(10, 0, "problems")
PLAIN = {
    "off": 1.0, "worst off": 1.0, "least off": 1.0, "gap": 1.0, "lowest gap": 1.0, "heads": 1.0, "neurons": 2.0,
    "switches on carry out": 0.0,
    "neurons of carry out": 0.0, "neurons of carry in": 0.0, "chained": 0.0,
}  # fmt: skip


def members(*changes: dict[str, float], architecture: str = "a") -> pd.DataFrame:
    rows = [PLAIN | change | {"name": f"{i}", "architecture": architecture} for i, change in enumerate(changes)]
    return pd.DataFrame(rows)


def test_a_law_holds_for_all_a_majority_for_more_than_half_and_a_quirk_for_others():
    always, often, once = {"chained": 1.0}, {"off": 0.05}, {"switches on carry out": 1.0}
    own = members(always | often | once, always | often, always | {"off": 0.0501})
    found = decided(own, members({}, {}, {}), PROVENANCE)
    names = ("chained", "base ten", "switch on carry out", "carry in")
    assert [found.verdict(name) for name in names] == ["law", "majority", "quirk", "absent"]
    assert found.share("base ten").correct == 2 and found.share("base ten", kind="untrained").correct == 0


def test_a_finding_that_makes_no_sense_for_a_model_is_not_counted():
    own = members({"off": float("nan")}, {"off": 0.0})
    found = decided(own, members({"off": float("nan")}, {"off": float("nan")}), PROVENANCE)
    assert (found.share("base ten").correct, found.share("base ten").n) == (1, 1)
    assert found.share("base ten", kind="untrained").n == 0 and found.verdict("base ten") == "law"
    none = decided(members({"off": float("nan")}), members({}), PROVENANCE)
    assert none.verdict("base ten") == "untested"


def test_only_switches_on_the_carry_out_are_counted_as_such():
    found = decided(members({"switches on carry out": 1.0}, {"switches on carry out": 2.0}), members({}), PROVENANCE)
    assert found.share("only switches").correct == 1 and found.share("switch on carry out").correct == 2


def test_two_heads_may_share_the_columns_between_them_and_one_cannot():
    apart = {"heads": 2.0, "gap": 4.7, "lowest gap": -4.7}
    own = members(apart, apart | {"lowest gap": -4.5}, apart | {"gap": 4.5}, apart | {"heads": 1.0})
    share = decided(own, own, PROVENANCE).share("a head for each column")
    assert (share.correct, share.n) == (1, 3)


def test_architectures_are_counted_apart():
    own = pd.concat((members({"chained": 1.0}, {"chained": 1.0}), members({}, architecture="b")))
    found = decided(own, own, PROVENANCE)
    assert [found.share("chained", name).correct for name in ("all", "a", "b")] == [2, 2, 0]
    with pytest.raises(UserError):
        found.share("chained", "c")


def test_trained_adders_look_base_ten_and_untrained_ones_do_not():
    found = interp.population([models.load("microadder-57"), models.load("microadder-67")], n=200)
    for name in ("base ten", "switch on carry out", "carry out", "chained"):
        assert found.verdict(name) == "law" and found.share(name, kind="untrained").correct == 0
    again = Population.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.table.equals(found.table) and len(found.figure().data) == 2


def test_every_member_has_an_untrained_copy_of_its_own():
    found = interp.population([models.load("microadder-57")] * 3, n=50)
    assert found.members["gap"].nunique() == 1 and found.controls["gap"].nunique() == 3


def test_a_model_of_another_task_is_refused():
    with pytest.raises(UserError):
        interp.population([models.load("toygpt-learned-pre")])
    with pytest.raises(UserError):
        interp.population([])


def test_members_of_one_class_are_connected_by_short_distances():
    pairs = [("a", "b", 0.1), ("b", "c", 0.1), ("a", "c", 0.3), ("a", "d", 0.5), ("b", "d", 0.5), ("c", "d", 0.5)]
    table = pd.DataFrame(
        {"a": a, "b": b, "component": "all", "after": after, "untrained_low": 0.4} for a, b, after in pairs
    )
    found = SeedDistances(("a", "b", "c", "d"), table, pd.DataFrame(), pd.DataFrame(), (), PROVENANCE)
    assert classes(found) == [["a", "b", "c"], ["d"]]


def test_seeds_that_were_perfect_on_validation_are_candidates_and_the_zoos_are(tmp_path: Path):
    found = list(candidates(tmp_path))
    names = {candidate.model for candidate in found if candidate.origin == ZOO}
    assert {"microadder-57", "adder-456"} <= names and "addlm-adder-ten-digit" not in names
    own = next(candidate for candidate in found if candidate.model == "microadder-57")
    again = Candidate(own.model, own.seed, "a run", own.theta.clone())
    assert again.key == own.key != Candidate(own.model, own.seed, ZOO, own.theta + 1).key
    theta = ParameterLayout(models.load("microadder-57")).flatten(models.load("microadder-57"))
    assert torch.equal(own.theta, theta)


def test_a_candidate_that_is_wrong_is_no_member():
    zoo = models.load("microadder-57")
    theta = ParameterLayout(zoo).flatten(zoo).detach().clone()
    theta[0] *= 1.2
    row = judged(Candidate("microadder-57", 0, "planted", theta))
    assert row["status"] == "refuted" and "bound" not in row


def test_seeds_that_were_turned_down_are_kept_too_and_tried_again(tmp_path: Path):
    kept = read_json(STORED)
    known = {candidate.key for candidate in candidates(tmp_path)}
    assert {row["key"] for row in (*kept["members"], *kept["others"])} <= known
