"""What many adders have in common is counted from readings in which it is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.causal.edges.paths import route_table
from interp.compare.classes import SolutionClasses
from interp.compare.population import Population, decided, route_readings, same_heads
from interp.core.controls import untrained_models
from interp.core.results import Provenance
from interp.papers.studies.comparison_population import STORED, ZOO, Candidate, candidates, judged
from models.checkpoint import read_json
from models.errors import UserError
from models.tasks import problem_pairs
from models.training.objective import ParameterLayout

PROVENANCE = Provenance(10, 0, "problems")
PLAIN: dict[str, Any] = {
    "off": 1.0, "worst off": 1.0, "least off": 1.0, "gap": 1.0, "lowest gap": 1.0, "heads": 1.0, "neurons": 2.0,
    "switches on carry out": 0.0,
    "neurons of carry out": 0.0, "neurons of carry in": 0.0, "chained": 0.0,
    **{f"{kind} carry {way}": 0.0 for kind in ("made", "passed") for way in ("by values", "past the heads", "by both")},
    "circuit of a made carry": "", "circuit of a passed carry": "",
}  # fmt: skip


def members(*changes: dict[str, Any], architecture: str = "a") -> pd.DataFrame:
    rows = [PLAIN | change | {"name": f"{i}", "architecture": architecture} for i, change in enumerate(changes)]
    return pd.DataFrame(rows)


def test_a_finding_that_holds_for_all_is_said_of_this_population_and_counted_for_others():
    always, often, once = {"chained": 1.0}, {"off": 0.05}, {"switches on carry out": 1.0}
    own = members(always | often | once, always | often, always | {"off": 0.0501})
    found = decided(own, members({}, {}, {}), PROVENANCE)
    names = ("chained", "base ten", "switch on carry out", "carry in")
    assert [found.verdict(name) for name in names] == ["all 3 of this population", "2 of 3", "1 of 3", "none of 3"]
    assert found.shared() == ["chained"]
    assert found.share("base ten").correct == 2 and found.share("base ten", kind="untrained").correct == 0


def test_a_finding_that_makes_no_sense_for_a_model_is_not_counted():
    own = members({"off": float("nan")}, {"off": 0.0})
    found = decided(own, members({"off": float("nan")}, {"off": float("nan")}), PROVENANCE)
    assert (found.share("base ten").correct, found.share("base ten").n) == (1, 1)
    assert found.share("base ten", kind="untrained").n == 0
    assert found.verdict("base ten") == "all 1 for which it makes sense" and "base ten" not in found.shared()
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
        assert found.verdict(name) == "all 2 of this population"
        assert found.share(name, kind="untrained").correct == 0
    assert found.share("passed carry by both").correct == 2 and "1 microadder-67" in found.sentence()
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
    with pytest.raises(UserError):
        interp.population([models.load("microadder-57")])


def planted(untrained: list[float]) -> SolutionClasses:
    """a, b and c in a chain, d apart: ab, ac, ad, bc, bd, cd."""
    apart = np.array([0.1, 0.3, 0.5, 0.1, 0.5, 0.5])
    return SolutionClasses("m", ("d", "a", "b", "c"), apart[[2, 4, 5, 0, 1, 3]], np.array(untrained), PROVENANCE)


def test_members_of_one_class_are_connected_by_short_distances():
    found = planted([0.4, 0.6])
    assert found.limit == 0.2 and found.classes() == [["a", "b", "c"], ["d"]] and found.labels.tolist() == [1, 0, 0, 0]
    nearest = found.to_dataframe().set_index("model")
    assert nearest.nearest[["a", "b"]].tolist() == ["b", "a"] and nearest.distance["d"] == 0.5
    assert found.summary() | {"closest pair": 0.1, "classes": 2, "largest": 3} == found.summary()


def test_without_a_control_no_two_are_one_class_and_far_ones_never_are():
    assert len(planted([]).classes()) == len(planted([0.1]).classes()) == 4
    assert len(planted([1.1]).classes()) == 1


def test_classes_can_be_stored_read_and_drawn():
    found = planted([0.4])
    again = SolutionClasses.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.classes() == found.classes() and np.array_equal(again.matrix, found.matrix)
    heat = found.figure().data[0]
    assert heat.z[0, 1] == heat.z[1, 0] == 0.1 and heat.z[0, 3] == 0.5  # the largest class comes first


def test_moved_models_are_one_solution_and_untrained_ones_are_not():
    adder, other = models.load("microadder-57"), models.load("microadder-57")
    weights = other.weight_map
    with torch.no_grad():  # one of its symmetries: a value of the head's output moves to the factor before it
        weights.out_A.mul_(2.0), weights.out_B.div_(2.0)
    found = interp.solution_classes([adder, other, *untrained_models(adder, None, 1, 5)])
    assert found.classes() == [["0", "1"], ["2"]] and found.distances[0] < 1e-6 < 0.5 < found.distances[1]


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_classes_want_two_models_with_a_name_each(names: list[str]):
    with pytest.raises(UserError):
        interp.solution_classes([models.load("microadder-57")] * 2, names=names)
    with pytest.raises(UserError):
        interp.solution_classes([models.load("microadder-57"), models.load("adder-456")])


def test_circuits_that_differ_in_the_order_of_heads_are_one():
    one = ["embed->L0H0.v", "L0H0->L0.mlp", "embed->L0H1.q"]
    other = ["embed->L0H1.v", "embed->L0H0.q", "L0H1->L0.mlp"]
    assert same_heads(one) == same_heads(other) == "embed->head a.q, embed->head b.v, head b->MLP"
    assert same_heads(["L0H1->logits"]) == "head->logits" != same_heads(["L0H0->logits", "L0H1->logits"])


def test_distinct_circuits_are_counted():
    through = "MLP->logits, embed->head.v, head->MLP"
    two = "MLP->logits, embed->head a.v, embed->head b.v, head a->MLP, head b->logits"
    own = members(*({"circuit of a made carry": edges} for edges in (through, f"{through}, head->logits", two, "")))
    found = decided(own, members({}), PROVENANCE)
    assert sorted(found.circuits()[["edges", "members"]].values.tolist()) == [[3, 1], [4, 1], [5, 1]]


def test_a_route_is_one_that_changes_most_answers_alone():
    past, both = {"passed carry past the heads": 0.9, "passed carry by both": 1.0}, {"passed carry by both": 1.0}
    unable = {name: float("nan") for name in PLAIN if name.startswith("passed carry")}
    found = decided(members(past, both, {}, unable), members(unable), PROVENANCE)
    assert found.verdict("passed carry past the heads") == found.verdict("passed carry by both") == "1 of 3"
    assert found.control("passed carry by both") == "no control for which it makes sense"


def test_microadder_needs_both_routes_of_a_passed_carry_and_the_low_rank_adder_one():
    """The logit difference comes back in full past the heads in both, the answers in one."""
    shares = {}
    for name in ("microadder-57", "adder-456"):
        model = models.load(name)
        found = route_readings(model, model.task, 0)
        shares[name] = [found[f"passed carry {route}"] for route in ("by values", "past the heads", "by both")]
        assert found["made carry by values"] == 1.0 and found["made carry past the heads"] == 0.0
        pairs = problem_pairs(model.task, "passed carry", column=4, n=64)
        table = route_table(model, pairs, {"past": ["embed->L0.mlp", "embed->logits"], "all": ["embed->L0.mlp"]})
        assert table.recovered[0] > 0.95 and (table.answers_low <= table.answers).all()
    assert shares["microadder-57"] == [0.0, pytest.approx(0.0, abs=0.05), 1.0] and shares["adder-456"] == [
        0.0,
        1.0,
        1.0,
    ]


def test_a_trained_control_may_fail_a_finding_or_not():
    own = members({"chained": 1.0}, {"chained": 1.0, "off": 0.0})
    found = decided(own, members({}), PROVENANCE, members({"chained": 1.0}, {}, architecture="b"))
    assert found.control("chained") == "untrained 0 of 1, trained control 1 of 2"
    again = Population.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.otherwise.equals(found.otherwise) and len(found.figure().data) == 3


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
