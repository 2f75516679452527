"""The benchmark: its truths where they are known, its scores on rankings of known quality, and a run that resumes."""

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

from benchmarks.circuits import METHODS, SUBJECTS, Case, Subject, Truth, method, recipes, whole
from benchmarks.circuits import truth as truth_module
from benchmarks.circuits.bench_runs import (
    RESULTS,
    make_truths,
    prior_of,
    read_rows,
    require_frozen,
    rows_of_list,
    run_rows,
    write_lines,
)
from benchmarks.circuits.cases import role
from benchmarks.circuits.circuit_methods import CONTROL, Method
from benchmarks.circuits.planted import KINDS, planted
from benchmarks.circuits.scores import SCORES, SHARES, areas, auroc, head_accuracy, precision, score_ranking
from benchmarks.circuits.statistics import (
    ABOVE,
    BOTH,
    CLAIMS,
    NOT_ABOVE,
    RELEVANT,
    UNDECIDED,
    against,
    compared,
    family_mean,
    rank_correlation,
    scored,
    seen_in_most,
    side,
    with_edges_outside,
)
from benchmarks.circuits.subjects import (
    FAMILIES,
    N_TRUTH,
    NEW,
    SEEN,
    TRUTH_SEED,
    pairs_hash,
    planted_subject,
    quick,
    stored_truths,
    weights_hash,
    write_release,
)
from benchmarks.circuits.truth import CORRUPTED, ZERO, certified, in_all_and_some, known, sides_of, switches, truth_of
from interp.causal.edges import EdgeExperiment
from models.errors import UserError


def _subject(name: str) -> Subject:
    return next(subject for subject in SUBJECTS if subject.name == name)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return planted_subject("suppress", 3)


@pytest.fixture(scope="module")
def entry(subject: Subject) -> dict[str, Any]:
    return truth_of(subject, (CORRUPTED,)) | {"certified": certified(subject)}


@pytest.fixture(scope="module")
def truth(subject: Subject, entry: dict[str, Any]) -> Truth:
    return Truth(subject, CORRUPTED, entry)


# ---- what is known


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_model_answers_every_problem_and_its_circuit_is_faithful(kind: str):
    plan = planted(kind, 7)
    task = plan.model.task
    problems = task.domain.every()
    with torch.no_grad():
        answers = plan.model(task.encode(problems))[:, list(task.query_positions)].argmax(-1)
    assert torch.equal(answers, task.targets(problems))
    judge = Truth(planted_subject(kind, 7), plan.replacement, {"ablations": {}})
    _, _, score = judge.judged(judge.space.mask(plan.circuit)[None])
    assert score[0] > 0.99


@pytest.mark.parametrize("kind", ["irrelevant", "and", "cancel", "suppress", "largest", "places"])
def test_what_was_planted_is_the_only_minimal_circuit(kind: str):
    own = planted_subject(kind, 5)
    found = known(own, CORRUPTED)
    assert found["complete"] and found["n_minimal"] == 1 and own.plan is not None
    assert set(found["minimal"][0]) == set(own.plan.circuit)


def test_redundant_heads_are_two_minimal_circuits_under_zero_ablation_and_together_the_planted_one(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(truth_module, "MOST_LISTED", 2**13)
    own = planted_subject("or", 5)
    assert own.plan is not None
    found = known(own, ZERO)
    assert found["n_minimal"] == 2 and set().union(*found["minimal"]) == set(own.plan.circuit)


def test_a_circuit_that_is_right_on_every_input_needs_no_suppressor(entry: dict[str, Any], subject: Subject):
    assert subject.plan is not None
    assert entry["certified"]["how"] == "exhaustive" and entry["certified"]["n_minimal"] == 1
    assert set(entry["certified"]["minimal"][0]) < set(subject.plan.circuit)


def test_counterexamples_leave_the_right_circuits_of_a_run_of_all_problems(monkeypatch: pytest.MonkeyPatch):
    own = _subject("parity-5-1")
    every = certified(own)
    monkeypatch.setattr(truth_module, "FEW", 0)
    monkeypatch.setattr(truth_module, "STEPS", (1,))
    assert certified(own) == every and every["complete"] and every["n_minimal"] == 1


@pytest.mark.slow
def test_of_too_many_circuits_one_is_found_that_is_wrong_without_any_of_its_edges(monkeypatch: pytest.MonkeyPatch):
    own = planted_subject("relay", 5)
    found = certified(own)
    assert own.plan is not None and found["circuits"] is None and not found["complete"]
    assert found["minimal"] == [sorted(own.plan.circuit, key=found["minimal"][0].index)]


def test_pruning_by_the_first_pairs_loses_no_faithful_circuit(subject: Subject, entry: dict[str, Any], truth: Truth):
    masks, _ = truth.space.circuits(2**12)
    _, _, score = truth.judged(masks)
    assert int((score >= 0.9).sum()) == entry["ablations"][CORRUPTED]["faithful"]


def test_only_edges_that_can_change_an_output_are_live():
    own = _subject("microadder-57")
    experiment = EdgeExperiment(own.model, own.pairs(32, 0), "logit_diff", "corrupted", "noise")
    case = Case(own)
    single = ~torch.eye(len(case.edges), dtype=torch.bool)
    change = (experiment(single)[0] - experiment.full[0]).abs().amax(1)
    changes = change > 1e-5 * experiment.full[0].abs().max()  # more than rounding
    assert not (changes & ~case.live).any() and int(case.live.sum()) == 5


# ---- subjects


def test_there_are_as_many_subjects_and_families_as_the_rules_say_and_none_has_more_than_a_fifth():
    families = [subject.family for subject in SUBJECTS]
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS) == 114 and set(families) == set(FAMILIES)
    assert max(families.count(family) for family in FAMILIES) <= len(SUBJECTS) / 5
    assert len(NEW) == 13 and all(families.count(family) == 3 for family in NEW) and not {*SEEN} & {*NEW}
    assert {subject.family for subject in quick()} == set(FAMILIES)
    assert {subject.name for subject in SUBJECTS} == stored_truths().keys()


@pytest.mark.parametrize("name", ["adder-3-by-hand", "add-mod-23-0", "planted-or-0"])
def test_a_subject_is_the_one_whose_truth_is_stored(name: str):
    stored, own = stored_truths()[name], _subject(name)
    require_frozen(own, stored)
    assert (
        weights_hash(own.model) == stored["weights"] and pairs_hash(own.pairs(N_TRUTH, TRUTH_SEED)) == stored["pairs"]
    )
    with pytest.raises(UserError, match="weights"):
        require_frozen(own, stored | {"weights": "0"})


@pytest.mark.parametrize(("name", "n"), [("brackets-8-0", 256), ("dihedral-9-0", 324), ("lookup-two-layers-0", 7776)])
def test_an_own_model_is_right_on_every_problem(name: str, n: int):
    own = _subject(name).model
    problems = own.task.domain.every()
    with torch.no_grad():
        answers = own(own.task.encode(problems))[:, list(own.task.query_positions)].argmax(-1)
    assert len(problems) == n and torch.equal(answers, own.task.targets(problems))


def test_turns_and_reflections_are_composed_as_permutations_are():
    task = recipes.recipe("dihedral-9", 0).made_task()
    corner = torch.arange(9)
    moved = torch.stack([(turn + (1 - 2 * flip) * corner) % 9 for flip in (0, 1) for turn in range(9)])
    problems = task.domain.every()
    both = moved[problems[:, 0]].gather(1, moved[problems[:, 1]])
    assert torch.equal(moved[task.targets(problems)[:, 0]], both)


def test_stored_switches_are_those_that_are_proved_now():
    stored = stored_truths()["microadder-22"]["switches"]
    assert stored and stored == switches(_subject("microadder-22").model)


# ---- scores


def test_the_circuit_itself_has_the_best_scores_and_its_opposite_the_worst(truth: Truth):
    sides = truth.sides["minimal"]
    assert sides is not None
    inside = np.isin(truth.space.labels, [*sides[0]]).astype(float)
    best, worst = score_ranking(truth, inside), score_ranking(truth, 1 - inside)
    assert best["auroc"] == best["planted"] == best["precision"] == best["heads"] == 1 and best["regret"] == 0
    assert worst["auroc"] == worst["planted"] == 0 and worst["regret"] > 0
    assert worst["heads"] == 0.5  # two of three heads are in it
    assert best["cmd"] < worst["cmd"]


def test_exact_effects_agree_with_themselves(truth: Truth):
    assert score_ranking(truth, truth.exact)["rank"] == pytest.approx(1)
    assert score_ranking(truth, -truth.exact)["rank"] == pytest.approx(-1)


def test_equal_scores_are_chance(truth: Truth):
    found = score_ranking(truth, np.ones(len(truth.space)))
    sides = truth.sides["minimal"]
    assert sides is not None
    assert found["auroc"] == 0.5 and np.isnan(found["rank"])
    assert found["precision"] == pytest.approx(len(sides[0]) / int(truth.live.sum()))


@pytest.mark.parametrize("bad", [np.zeros(3), np.full(23, np.nan), np.full(23, np.inf)])
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


def test_precision_counts_ties_with_their_chance_and_heads_by_their_largest_edge():
    assert precision(np.array([3.0, 1, 1, 0]), np.array([True, True, False, False])) == 0.75
    names = ["embed->L0H0.v", "L0H0->logits", "L0H1->logits", "L0H1->L0.mlp"]
    assert head_accuracy(names, np.array([9.0, 1, 0, -2]), ["L0H0->logits"]) == 0
    assert np.isnan(head_accuracy(names, np.ones(4), ["L0H0->logits", "L0H1->logits"]))


def test_areas_are_mib_s():
    """The loop of MIB's evaluation, on a curve that overshoots."""
    curve = np.array([-0.1, 0, 0.1, 0.2, 0.5, 1.3, 1.1, 0.9, 1, 1])
    under = away = 0.0
    for i in range(len(SHARES) - 1):
        width = SHARES[i + 1] - SHARES[i]
        under += width * (curve[i] + curve[i + 1]) / 2
        away += width * (abs(1 - curve[i]) + abs(1 - curve[i + 1])) / 2
    assert areas(np.array(SHARES), curve) == pytest.approx((under, away))


def test_an_edge_of_some_minimal_circuits_is_on_no_side():
    known = {"complete": True, "n_minimal": 2} | in_all_and_some(["ab", "ac"])
    assert sides_of(known, "abcd") == ({"a"}, {"d"})
    assert sides_of(known | {"complete": False}, "abcd") is None is sides_of(None, "abcd")


# ---- methods and cases


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("conductance", "eap-ig")])
def test_every_method_gives_each_edge_a_score_and_counts_its_passes(name: str, subject: Subject):
    case = Case(subject)
    scores = case.scored(METHODS[name].function(case))
    assert scores.shape == (len(case.edges),) and scores.isfinite().all()
    assert (case.passes[0] > 0) == (METHODS[name].kind != CONTROL)
    assert (case.passes[1] > 0) == (name in ("eap", "eap-ig-5", "clean-corrupted", "atp-qk", "atp-star", "gim"))


def test_the_softmax_fix_changes_only_edges_into_queries_and_keys():
    case = Case(_subject("add-mod-23-0"))
    one, other = (case.scored(METHODS[name].function(case)) for name in ("eap", "atp-qk"))
    changed = (one - other).abs() > 1e-4 * one.abs().max()
    assert changed.any() and all(name.endswith((".q", ".k")) for name in np.array(case.edges)[changed.numpy()])


def test_a_case_is_the_same_in_every_framework(subject: Subject):
    case = Case(subject)
    with torch.no_grad():
        ours, stock = case.module(case.clean_tokens), case.hooked_transformer(case.clean_tokens)
    assert torch.allclose(case.metric(ours), case.metric(stock), atol=1e-4)
    assert torch.allclose(case.metric(ours).float(), case.experiment.full[0].float(), atol=1e-4)
    assert case.scored({case.edges[2]: 1.5}).tolist()[:4] == [0, 0, 1.5, 0]
    with pytest.raises(UserError, match="no edge"):
        case.scored({"embed->nowhere": 1.0})


def test_the_blind_prior_knows_other_families_alone():
    first, later = "embed->first head.v", "first head->later head.k"
    assert (role("embed->L0H3.v", 2), role("L0H1->L1H0.k", 2), role("L0.mlp->logits", 1)) == (
        first,
        later,
        "mlp->logits",
    )
    one = {
        "complete": True,
        "n_minimal": 1,
        "in_all": ["embed->L0H0.v"],
        "in_some": ["embed->L0H0.v"],
        "minimal": [["embed->L0H0.v"]],
        "live_edges": ["embed->L0H0.v", "embed->L0H1.v"],
    }
    stored = {"a": {"family": "x", "layers": 1, "ablations": {CORRUPTED: one}}}
    assert prior_of(stored, "x", CORRUPTED) == {}
    assert prior_of(stored, "y", CORRUPTED) == {"embed->head.v": (1.0, 2.0)}


def test_a_run_resumes_and_a_new_method_alone_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: Subject):
    asked: list[str] = []

    def mine(case: Case) -> dict[str, float]:
        asked.append(case.subject.name)
        return {case.edges[0]: 1.0}

    monkeypatch.setitem(METHODS, "mine", Method("mine", "one edge", mine))
    truths = make_truths([subject], (CORRUPTED,), False, tmp_path / "truth.json", say=lambda line: None)
    options: dict[str, Any] = {"ablations": (CORRUPTED,), "path": tmp_path / "rows.json", "say": lambda line: None}
    first = run_rows([subject], truths, ["random"], **options)
    assert first["method"].tolist() == ["random"] and not asked
    for _ in range(2):
        rows = run_rows([subject], truths, ["random", "mine"], **options)
    assert rows["method"].tolist() == ["random", "mine"] and asked == [subject.name]
    assert read_rows(tmp_path / "rows.json")[list(SCORES)].notna().any().any()
    with pytest.raises(UserError, match="'random'"):
        run_rows([subject], truths, ["randon"], **options)


def test_of_a_subject_all_stored_methods_are_judged_by_the_same_kinds_of_truth():
    """A truth that became known after a method had run is in its row too."""
    rows = read_rows(RESULTS)
    for score in ("auroc", "optimal", "certified", "planted"):
        kinds = rows[score].notna().groupby([rows["subject"], rows["ablation"]]).nunique()
        assert kinds[kinds > 1].index.tolist() == []


def test_a_line_is_a_row_and_what_is_written_is_read_again(tmp_path: Path):
    value = {"seed": 1, "rows": [["a", None], ["b", 0.25]], "truths": {"x": {"y": [1, 2]}, "z": {}}}
    write_lines(tmp_path / "one.json", value, 2)
    text = (tmp_path / "one.json").read_text()
    assert json.loads(text) == value and '["b", 0.25]' in text.splitlines() and len(text.splitlines()) == 11


def test_a_name_is_taken_once():
    with pytest.raises(UserError, match="registered already"):
        method("eap", "another")(lambda case: case.live.double())


# ---- statistics


def _table(effect: float) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([[f"f{i}" for i in range(8)], range(6)], names=["family", "subject"])
    level, own = rng.normal(0.6, 0.1, 8).repeat(6), rng.normal(0, 0.02, (48, 2))
    return pd.DataFrame({"eap": level + own[:, 0], "gim": level + effect + own[:, 1]}, index)


def test_a_difference_that_all_families_share_is_seen_and_none_is_not():
    found = compared(_table(0.1), "gim", "eap")
    assert found["low"] > 0 and found["p"] == pytest.approx(2 / 2**8) and found["families"] == 8
    nothing = compared(_table(0.0), "gim", "eap")
    assert nothing["low"] < 0 < nothing["high"] and nothing["p"] > 0.05


def test_all_changes_of_sign_of_many_families_are_counted():
    rng = np.random.default_rng(1)
    change = rng.normal(0.02, 0.05, 12)
    index = pd.MultiIndex.from_product([range(12), ["one"]], names=["family", "subject"])
    p = compared(pd.DataFrame({"one": change, "other": 0.0}, index), "one", "other")["p"]
    signs = 1 - 2 * (np.arange(2**12)[:, None] >> np.arange(12) & 1)
    assert p == pytest.approx((np.abs(signs @ change) >= abs(change.sum()) - 1e-12).mean()) and 0 < p < 1


def test_a_family_counts_the_same_whatever_its_size_and_its_spread_is_in_the_interval():
    table = _table(0.0)
    more = pd.concat([table, *[table.xs("f0", level="family", drop_level=False)] * 20])
    assert family_mean(more).to_numpy() == pytest.approx(family_mean(table).to_numpy())
    row = scored(table).set_index("method").loc["eap"]
    between = table["eap"].groupby(level="family").mean().std() / 8**0.5
    assert 2 * between < row["high"] - row["low"] < 6 * between


def test_methods_that_keep_their_order_are_correlated():
    index = pd.MultiIndex.from_product([["f", "g"], range(5)], names=["family", "subject"])
    rows = np.array([0.5, 0.6, 0.7, 0.8, 0.9]) + np.random.default_rng(0).normal(0, 0.005, (10, 5))
    table = pd.DataFrame(rows, index, ["eap", "gim", "atp-qk", "exact", "greedy"])
    assert rank_correlation(table, table)["low"] > 0.9
    assert rank_correlation(table, 1 - table)["high"] < -0.9


def test_methods_whose_order_hangs_on_two_of_them_are_not_sure_to_be_correlated():
    """Two bad methods beside seven whose order on the other subjects is their opposite: the correlation of these
    methods is sure, that of methods like them is not, and without the two it is negative."""
    index = pd.MultiIndex.from_product([[f"f{i}" for i in range(6)], range(5)], names=["family", "subject"])
    names = ["restore", "atp-star", "eap", "clean-corrupted", "atp-qk", "gim", "eap-ig-5", "conductance", "exact"]
    noise = np.random.default_rng(0).normal(0, 0.002, (2, 30, 9))
    one = pd.DataFrame(np.array([0.3, 0.4, *np.linspace(0.8, 0.9, 7)]) + noise[0], index, names)
    other = pd.DataFrame(np.array([0.3, 0.4, 0.84, 0.82, 0.8, 0.86, 0.9, 0.88, 0.81]) + noise[1], index, names)
    found = rank_correlation(one, other)
    assert set(found["worst"]) == {"restore", "atp-star"} and found["without"] < found["value"] - 0.2
    assert found["fixed"][0] > 0.3 and found["low"] < found["fixed"][0] and found["high"] > found["fixed"][1]


@given(st.floats(-1, 1), st.floats(0.001, 1), st.floats(-0.5, 0.5), st.floats(0, 0.2))
def test_an_interval_that_holds_the_line_and_a_relevant_excess_is_undecided(
    low: float, width: float, line: float, relevant: float
):
    where = side({"low": low, "high": low + width}, line, relevant)
    holds_both = low <= line and low + width >= line + relevant
    assert (where == UNDECIDED) == holds_both
    assert (where == ABOVE) == (low > line)


@pytest.mark.parametrize(
    ("effect", "spread", "where"),
    [(0.0, 0.005, NOT_ABOVE), (0.0, 0.15, UNDECIDED), (0.1, 0.02, ABOVE), (RELEVANT, 0.15, UNDECIDED)],
)
def test_a_control_as_good_as_a_method_is_told_from_one_that_is_worse_where_the_runs_can_tell(
    effect: float, spread: float, where: str
):
    """The spread between families decides what can be seen: a method that is as good as the control, or better by a
    relevant bit, is undecided where families spread by more."""
    index = pd.MultiIndex.from_product([[f"f{i}" for i in range(9)], range(4)], names=["family", "subject"])
    rng = np.random.default_rng(3)
    own = rng.normal(0, spread, 9)
    change = effect + (own - own.mean()).repeat(4) + rng.normal(0, spread / 10, 36)
    table = pd.DataFrame({BOTH: 0.8, "eap": 0.8 + change, "blind prior": 0.7}, index)
    found = against(table, BOTH)
    assert found["one"].tolist() == ["eap"]  # no control is compared with another
    row = found.iloc[0].to_dict()
    assert side(row) == where and row["p_corrected"] == row["p"]
    assert abs(row["difference"] - effect) < spread / 10


def test_verdicts_are_one_rule_for_what_is_claimed_above_a_line_and_not_above_it():
    more, none, open_ = {"low": 0.01, "high": 0.2}, {"low": -0.1, "high": 0.01}, {"low": -0.1, "high": 0.1}
    blind, fixed, ranks = CLAIMS
    assert [blind.verdict(each) for each in (more, none, open_)] == ["refuted", "stands", UNDECIDED]
    assert [fixed.verdict(each) for each in (more, none, open_)] == ["stands", "refuted", UNDECIDED]
    wide = [{"low": low, "high": high} for low, high in ((0.6, 0.9), (-0.2, 0.4), (0.4, 0.9))]
    assert [ranks.verdict(each) for each in wide] == ["stands", "refuted", UNDECIDED]


def test_the_difference_that_is_told_is_seen_in_four_of_five_runs():
    rng = np.random.default_rng(0)
    se = 0.04
    estimates = seen_in_most(se) + rng.normal(0, se, 20_000)
    assert (estimates - 1.96 * se > 0).mean() == pytest.approx(0.8, abs=0.01)
    assert compared(_table(0.0), "gim", "eap")["seen"] == pytest.approx(seen_in_most(0.02 / 24**0.5), rel=0.3)


def test_subjects_of_which_few_edges_are_outside_are_left_out():
    def entry(outside: int) -> dict[str, Any]:
        names = [f"e{i}" for i in range(2 + outside)]
        known = {"complete": True, "n_minimal": 1, "live_edges": names} | in_all_and_some([names[:2]])
        return {"ablations": {CORRUPTED: known}}

    truths = {f"s{n}": entry(n) for n in range(6)} | {"open": {"ablations": {CORRUPTED: {"complete": False}}}}
    index = pd.MultiIndex.from_tuples([("f", name) for name in truths], names=["family", "subject"])
    table = pd.DataFrame({"eap": 0.5}, index)
    assert with_edges_outside(table, truths, 3).index.get_level_values("subject").tolist() == ["s3", "s4", "s5"]


def test_the_added_ranks_are_those_of_the_live_edges_and_need_no_run():
    own = _subject("microadder-57")
    case = Case(own, prior={"embed->head.v": (9.0, 10.0), "head->mlp": (1.0, 10.0)})
    found, prior, weights = (case.scored(METHODS[name].function(case)) for name in (BOTH, "blind prior", "weights"))
    live = case.live
    below = [(part[live][:, None] > part[live]).sum(1) for part in (prior, weights)]
    ties = [(part[live][:, None] == part[live]).sum(1) - 1 for part in (prior, weights)]
    ranks = [1 + b + t.double() / 2 for b, t in zip(below, ties, strict=True)]
    assert torch.equal(found[live], ranks[0] + ranks[1])
    assert not found[~live].any() and case.passes == (0, 0)
    unknown = Case(own)  # where nothing is known of roles, the order is that of the weights
    assert torch.equal(unknown.scored(METHODS[BOTH].function(unknown))[live].argsort(), weights[live].argsort())


def test_fresh_subjects_are_run_again_for_what_is_missing_of_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: Subject
):
    made: list[int] = []

    def fresh_subjects(seed: int, *_: Any) -> list[Subject]:
        made.append(seed)
        return [subject]

    monkeypatch.setattr(whole.page, "FRESH", tmp_path / "fresh.json")
    monkeypatch.setattr(whole, "fresh_subjects", fresh_subjects)
    ran: list[pd.DataFrame] = []
    for names in (["random"], ["random", "weights"], ["random", "weights"]):
        monkeypatch.setattr(whole, "METHODS", {name: METHODS[name] for name in names})
        whole.run_fresh({}, lambda line: None)
        ran.append(rows_of_list(json.loads((tmp_path / "fresh.json").read_text())["rows"]))
    assert made == [whole.FRESH_SEED] * 2
    assert [sorted(each["method"].unique()) for each in ran] == [["random"], *[["random", "weights"]] * 2]
    assert ran[1][ran[1]["method"] == "random"].equals(ran[0])


def test_a_release_has_weights_pairs_and_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: Subject):
    from safetensors import safe_open

    from benchmarks.circuits import subjects

    monkeypatch.setattr(subjects, "SUBJECTS", (subject,))
    write_release(tmp_path)
    with safe_open(tmp_path / f"{subject.name}.safetensors", "pt") as file:
        assert {"embed.W_E", "clean", "corrupted", "right", "wrong"} <= set(file.keys())
        assert file.metadata()["hash"] == weights_hash(subject.model)
        assert file.get_tensor("clean").shape == file.get_tensor("corrupted").shape
    assert json.loads((tmp_path / "truth.json").read_text()) == stored_truths()
