"""The benchmark: its scores on rankings whose quality is known, and a run that resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.circuits import METHODS, Case, Subject, Truth, method, run_benchmark, score_ranking
from benchmarks.circuits.bench_runs import from_records, sign_flip_p
from benchmarks.circuits.cases import held_out, load, proved, subjects
from benchmarks.circuits.circuit_methods import Method
from benchmarks.circuits.scores import SHARES, areas, auroc, precision
from interp.causal.circuits.circuit_files import attribution_graph, circuit_json, edge_name
from models.errors import UserError
from studies.comparison.circuits import carry_neurons, stability
from studies.papers import DATA

STORED = DATA / "comparison-circuits.json"


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth.of(Subject("microadder-57", "made carry"), load("microadder-57"), n=48)


def test_the_circuit_itself_has_the_best_scores_and_its_opposite_the_worst(truth: Truth):
    assert truth.circuit is not None
    inside = truth.circuit.double().numpy()
    best, worst = score_ranking(truth, inside), score_ranking(truth, 1 - inside)
    assert best["auroc"] == best["precision"] == 1 and best["regret"] == 0
    outside = int(truth.live.sum()) - int(inside.sum())
    assert worst["auroc"] == 0 and worst["precision"] == max(0, 1 - outside / inside.sum()) and worst["regret"] > 0
    assert best["cmd"] < worst["cmd"] and best["cpr"] > worst["cpr"]


def test_exact_effects_agree_with_themselves(truth: Truth):
    assert score_ranking(truth, truth.exact)["rank"] == pytest.approx(1)
    assert score_ranking(truth, -truth.exact)["rank"] == pytest.approx(-1)
    assert score_ranking(truth, -truth.exact)["auroc"] == score_ranking(truth, truth.exact)["auroc"]


def test_what_was_stored_of_a_subject_judges_as_the_listing_did():
    subject, model = Subject("adder-3-by-hand", "made carry"), load("adder-3-by-hand")
    listed = Truth.of(subject, model)
    assert listed.found is not None
    known = {"minimal": listed.found.minimal, "unique": listed.found.unique, "smallest": listed.smallest}
    scores = np.random.default_rng(0).normal(size=len(listed.space))
    again = score_ranking(Truth.again(subject, model, known), scores)
    assert again == pytest.approx(score_ranking(listed, scores), abs=1e-6)


def test_equal_scores_are_chance(truth: Truth):
    assert truth.circuit is not None
    found = score_ranking(truth, np.ones(len(truth.space)))
    assert found["auroc"] == 0.5 and np.isnan(found["rank"])
    assert found["precision"] == pytest.approx(truth.circuit.sum() / truth.live.sum())


@pytest.mark.parametrize("bad", [np.zeros(3), np.full(13, np.nan), np.full(13, np.inf)])
def test_scores_that_are_none_are_refused(truth: Truth, bad: np.ndarray):
    with pytest.raises(UserError, match="one finite score"):
        score_ranking(truth, bad)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=20))
def test_auroc_is_the_chance_that_an_edge_inside_is_above_one_outside(pairs: list[tuple[int, bool]]):
    scores, inside = np.array([float(s) for s, _ in pairs]), np.array([i for _, i in pairs])
    if inside.all() or not inside.any():
        assert np.isnan(auroc(scores, inside))
    else:
        pairs_of = [(i > o) + (i == o) / 2 for i in scores[inside] for o in scores[~inside]]
        assert auroc(scores, inside) == pytest.approx(np.mean(pairs_of))


def test_precision_counts_ties_with_their_chance():
    assert precision(np.array([3.0, 1, 1, 0]), np.array([True, True, False, False])) == 0.75


def test_areas_are_mib_s():
    """The loop of MIB's evaluation, on a curve that overshoots."""
    curve = np.array([-0.1, 0, 0.1, 0.2, 0.5, 1.3, 1.1, 0.9, 1, 1])
    under = away = 0.0
    for i in range(len(SHARES) - 1):
        width = SHARES[i + 1] - SHARES[i]
        under += width * (curve[i] + curve[i + 1]) / 2
        away += width * (abs(1 - curve[i]) + abs(1 - curve[i + 1])) / 2
    assert areas(np.array(SHARES), curve) == pytest.approx((under, away))


def test_edges_have_mib_s_names(truth: Truth):
    assert edge_name("embed", "L0H1.q") == "input->a0.h1<q>" and edge_name("L0H1", "L0.mlp") == "a0.h1->m0"
    stored = circuit_json(truth.experiment, truth.unique or (), truth.exact)
    inside = {name for name, edge in stored["edges"].items() if edge["in_graph"]}
    assert inside == {"input->a0.h0<v>", "a0.h0->m0", "a0.h0->logits", "m0->logits"}
    assert all(node["in_graph"] for node in stored["nodes"].values())


def test_an_attribution_graph_has_the_circuit_s_nodes_and_links(truth: Truth):
    stored = attribution_graph(truth.experiment, truth.unique or (), truth.exact, "slug", "model")
    label = {node["node_id"]: node["clerp"] for node in stored["nodes"]}
    assert len(label) == len(stored["nodes"]) == 4
    links = {(label[link["source"]], label[link["target"]]): link["weight"] for link in stored["links"]}
    assert set(links) == {("embed", "L0H0"), ("L0H0", "L0.mlp"), ("L0H0", "logits"), ("L0.mlp", "logits")}
    edge = truth.space.labels.index("L0.mlp->logits")
    assert links["L0.mlp", "logits"] == pytest.approx(truth.exact[edge], abs=1e-5)
    assert len(stored["metadata"]["prompt_tokens"]) == len(truth.experiment.tokens[0])


def test_a_difference_that_chance_makes_has_a_large_p_and_one_that_it_cannot_a_small():
    assert sign_flip_p(np.ones(10)) == pytest.approx(2 / 2**10)
    assert sign_flip_p(np.array([1.0, -1.0, 2.0, -2.0])) == 1
    assert 1_000 * sign_flip_p(np.full(30, 0.1)) < 0.05  # many comparisons leave a difference that all models share


@pytest.mark.parametrize(
    "name", ["exact", "restore", "eap", "clean-corrupted", "atp-qk", "atp-star", "gim", "greedy", "random"]
)
def test_every_method_gives_each_edge_a_score_and_counts_its_passes(name: str):
    model = load("adder-456")
    case = Case(model, Subject("adder-456", "made carry").pairs(model.task, 8, 0), 0)
    scores = METHODS[name].function(case)
    assert scores.shape == (len(case.edges),) and scores.isfinite().all()
    forwards, backwards = case.passes
    assert (forwards > 0) == (name != "random")
    assert (backwards > 0) == (name in ("eap", "clean-corrupted", "atp-qk", "atp-star", "gim"))


def test_the_softmax_fix_changes_only_edges_into_queries_and_keys():
    model = load("microadder-57")
    case = Case(model, Subject("microadder-57", "made carry").pairs(model.task, 8, 0), 0)
    changed = (METHODS["eap"].function(case) - METHODS["atp-qk"].function(case)).abs() > 1e-6
    assert changed.any() and all(name.endswith((".q", ".k")) for name in np.array(case.edges)[changed.numpy()])


def test_a_run_resumes_and_a_new_method_alone_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def mine(case: Any) -> torch.Tensor:
        asked.append(case.seed)
        return torch.arange(len(case.edges)).double()

    monkeypatch.setitem(METHODS, "mine", Method("mine", "the order of the edges", mine))
    options: dict[str, Any] = {"only": ["adder-3-by-hand"], "draws": 1}
    first = run_benchmark(tmp_path, methods=["random"], **options)
    assert first is not None and set(first.rows["method"]) == {"random"} and not asked
    second = run_benchmark(tmp_path, methods=["random", "mine"], **options)
    assert second is not None and len(asked) == len(second.truths) == 3
    run_benchmark(tmp_path, methods=["random", "mine"], **options)
    assert len(asked) == 3
    assert second.table("cmd")["method"].tolist() == second.by_model("cmd").mean().sort_values().index.tolist()
    control = second.table("cmd").set_index("method").loc["random"]
    assert control["low"] <= control["value"] <= control["high"] and control["models"] == 1
    assert run_benchmark(tmp_path, methods=["mine"], **options, minutes=0.0) is None
    with pytest.raises(UserError, match="'random'"):
        run_benchmark(tmp_path, methods=["randon"])


def test_better_methods_stand_in_front_of_worse_ones_and_equals_share_a_place():
    rng = np.random.default_rng(0)
    rows = []
    for model in range(20):
        for name, level in (("good", 0.9), ("as good", 0.9), ("bad", 0.4)):
            value = level + 0.02 * rng.standard_normal()
            scores = dict.fromkeys(("auroc", "precision", "cpr", "rank"), value) | {
                "regret": 1 - value,
                "cmd": 1 - value,
            }
            rows.append({"method": name, "draw": 0, "forwards": 1, "backwards": 0, **scores, "model": str(model)})
    truth = {"model": "x", "kind": "y", "unique": True}
    records = [{"truth": truth | {"model": row["model"]}, "rows": [row], "others": []} for row in rows]
    found = from_records(records)
    for score in ("auroc", "cmd"):
        assert found.places[score] == {"good": 1, "as good": 1, "bad": 3}
    assert found.table("cmd")["method"].iloc[-1] == "bad"


def test_a_name_is_taken_once():
    with pytest.raises(UserError, match="registered already"):
        method("eap", "another")(lambda case: case.live.double())


def test_thirty_models_are_proved_and_others_held_out():
    assert len(proved()) >= 30 and len(held_out()) >= 4 and not set(held_out()) & set(proved())
    assert "microadder-75" not in proved()


def test_a_domain_whose_pairs_share_problems_is_no_subject():
    names = [subject.model for subject in subjects(["modular-table-hand-built", "modular-clock-hand-built"])]
    assert names == ["modular-clock-hand-built"]


def test_other_draws_and_seeds_are_compared_with_the_same_subjects_circuits():
    """Subjects whose circuits are not all listed are left out; a case with several minimal circuits has no overlap."""
    named = {"kind": "digit", "complete": True}
    known = [named | {"model": name, "minimal": text} for name, text in (("a", "x, y"), ("b", "x; y"))]
    known.append({"model": "c", "kind": "digit", "minimal": "x", "complete": False})
    draw = named | {"over": "draw", "replacement": "corrupted"}
    others = [draw | {"model": name, "minimal": text} for name, text in (("a", "x, y"), ("a", "x"), ("b", "x; y"))]
    others += [draw | {"model": "c", "minimal": "x"}, draw | {"model": "a", "minimal": "", "complete": False}]
    seeds = [{"model": "a-seed-7", "kind": "digit", "minimal": "x, z"}]
    found = stability({"truths": known, "others": others, "held_out": {"truths": seeds}}).set_index("over")
    assert found[["cases", "same"]].to_numpy().tolist() == [[3, 2], [1, 0]]
    assert found["overlap"].tolist() == pytest.approx([0.75, 1 / 3])


def test_the_stored_switches_of_an_adder_are_those_that_are_proved_now():
    stored = json.loads(STORED.read_text())["neurons"]
    kept = pd.DataFrame([row for row in stored if row["model"] == "microadder-22"])
    found = carry_neurons(["microadder-22", "toygpt-long"])  # the second one has no columns that are proved
    assert found.neuron.tolist() == kept.neuron.tolist() and found.signal.tolist() == kept.signal.tolist()
    assert found.gap.to_numpy() == pytest.approx(kept.gap.to_numpy(), abs=1e-3)
