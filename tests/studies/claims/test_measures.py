"""Measures against what they must give: known limits, other ways to the same number, and stores made for it."""

import json
import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import binomtest, sem, t, ttest_ind

import models
from interp.probes.learning_curves import learning_curves
from studies.adder_456.measures import halfway, keys_like_values
from studies.adder_456.studies import errors_by_test_seed
from studies.addlm.measures import best_losses, gaps, runs
from studies.claims import NotStored, Store, registered
from studies.claims.differences import rate_difference
from studies.claims.ours import Ours, answered, difference, least, ranked, rates
from studies.claims.printed import read_numbers
from studies.claims.read import Expression
from studies.claims.rules import Inside, Within
from studies.microadder.measures import constrained, fewest_certified, least_between, rise, without_z_hi
from studies.position_coupling.grid_panels import ExactMatchGrid, GridPanel, GridPanels
from studies.position_coupling.measures import compared, grids, lines, means, trend_with_layers

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def stored(tmp_path, name: str, value: dict) -> Store:
    """A store that holds one experiment alone."""
    path = tmp_path / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return Store(data=tmp_path)


def of_claim(paper: str, claim: str, store: Store | None = None, **numbers: Any) -> Ours:
    """Our number for a claim, of a store or of a model with these free numbers."""
    (row,) = (row for row in registered(paper) if row.claim == claim)
    parameters = [(name, torch.tensor(np.array(value))) for name, value in numbers.items()]
    model = SimpleNamespace(weight_map=SimpleNamespace(named_parameters=lambda: parameters))
    assert isinstance(row.ours, Expression)
    return row.ours(store or Store(), model if numbers else None)


ARC, EVEN = (
    "The digits' circle is near-optimal to tell ten classes apart: its margin over that of the full circle.",
    "The angles between all pairs of digits are about equal: the smallest over the largest.",
)


def test_the_margin_of_the_arc_is_that_of_the_logits():
    digits = models.load("microadder-57").W_E.detach().double()[:10, :2]
    radius = digits.norm(dim=1).mean()
    gap = (digits[4] @ digits[4] - digits[4] @ digits[5]) / radius  # for a state of length 1 towards digit 4
    full = radius * (1 - math.cos(math.tau / 10))
    assert of_claim("microadder", ARC).value == pytest.approx(float(gap / full), rel=1e-4)


def test_ten_points_on_a_full_circle_have_a_margin_of_one_and_angles_up_to_a_half_turn():
    assert of_claim("microadder", ARC, arc_stride=math.tau / 10).value == pytest.approx(1)
    assert of_claim("microadder", EVEN, arc_stride=math.tau / 10).value == pytest.approx(0.2)


def test_what_lies_in_the_output_space_is_counted_from_none_to_all():
    draw = np.random.default_rng(0).normal
    head, mix = draw(size=(2, 5)), draw(size=(2, 2))
    claim = "What the MLP of 67 parameters writes lies almost entirely where the head reads."
    share = lambda head, out: of_claim("microadder", claim, W_head=head, W_fc2=out).value  # noqa: E731
    assert share(head, mix @ head) == pytest.approx(1)
    assert share(np.eye(2, 5), np.eye(5)[3:]) == pytest.approx(0)
    chance = [share(draw(size=(2, 5)), draw(size=(2, 5))) for _ in range(500)]
    assert np.mean(chance) == pytest.approx(0.4, abs=0.03)


def test_without_z_hi_digits_stay_right_and_the_stored_model_is_not_touched():
    model = models.load("microadder-57")
    assert without_z_hi(model).counts == Store().score("microadder-57").counts == (10_010, 10_010)
    assert model.weight_map.pos_z_hi.abs().sum() > 0


def test_the_fewest_of_unproved_seeds_are_not_counted():
    kept = Store().stored("microadder-smallest")
    others = [found for found in kept["verdicts"] if not found["recipe"].startswith(("10 ", "18 "))]
    assert fewest_certified(kept | {"verdicts": others}).value == 22


def test_constraints_work_where_every_model_with_them_is_proved(tmp_path):
    claim = "Seven constraints that fail at 170 parameters work at 74, 67 or 57."
    assert constrained() == [57, 67, 74] and of_claim("microadder", claim).value == 1
    with pytest.raises(NotStored):
        of_claim("microadder", claim, Store(zoo=tmp_path))


def test_the_lowest_exact_match_is_of_seeds_that_had_come_in_before():
    of_57, of_74 = (learning_curves(name) for name in ("microadder-57", "microadder-74"))
    assert least_between(of_57, "microadder-57", 40_000, 60_000).value > 0.9
    assert least_between(of_74, "microadder-74", 80_000, 120_000).provenance.n == 3
    with pytest.raises(NotStored):
        least_between(of_57, "microadder-57", 1_000, 60_000)


def test_the_rise_ends_where_ninety_percent_are_first_right():
    begins, ends = rise(Store().curve("microadder-57"))
    curves = learning_curves("microadder-57")
    exact = curves.of("microadder-57").sel(seed=curves.chosen["microadder-57"])
    assert ends == curves.onset("microadder-57", 0.9)[curves.chosen["microadder-57"]]
    assert float(exact.sel(step=begins)) < 0.01 <= float(exact.sel(step=begins + 500))


def test_halfway_is_before_any_seed_is_perfect():
    curves = learning_curves("adder-456", what="uniform")
    steps = curves.onset("adder-456")
    found = halfway(curves, "adder-456")
    assert len(found) == len(steps) == 3 and max(found) < 1
    latest = max(steps, key=steps.__getitem__)
    before = curves.of("adder-456").sel(seed=latest, step=steps[latest] // 2_000 * 1_000)
    assert max(found) == float(before) > 0.05


@pytest.mark.slow
def test_errors_by_test_set_add_up_to_those_of_the_stored_score():
    wrong = sum(errors_by_test_seed(models.load("adder-582")).values())
    assert (100_000 - wrong, 100_000) == Store().score("adder-582").counts


def test_one_seed_per_size_has_no_order():
    found = least([difference([27.0, 40.0], [18.0], "seeds"), difference([18.0], [25.0], "seeds")])
    assert found.value == -7 and Within(1).judge(found, ()) == "undecided"


def test_keys_that_are_the_values_are_wholly_alike():
    assert keys_like_values(models.load("adder-456")).value == pytest.approx(1)
    assert keys_like_values(models.load("adder-512")).value < 0.9


def test_overfitting_is_how_far_the_last_loss_is_above_the_best(tmp_path):
    row = {"model": "addlm-0.8m-float", "budget": 3, "steps": [1, 2, 3]}
    rows = [row | {"losses": [2.0, 1.5, 1.7]}, row | {"losses": [2.0, 1.8, 1.6]}]
    claim = "The float model overfits: its last validation loss above its best."
    found = of_claim("addlm", claim, stored(tmp_path, "addlm-runs", {"rows": rows}))
    assert found.value == pytest.approx(0.2) and len(runs(rows, "addlm-0.8m-float")) == 2
    with pytest.raises(NotStored):
        runs([row | {"budget": 4}], "addlm-0.8m-float")


def test_the_gap_of_both_losses_is_that_of_the_last_lines_of_training():
    of = []
    for name in ("addlm-0.8m-float", "addlm-0.8m"):
        lines = map(json.loads, (models.zoo.ZOO / name / "metrics.jsonl").read_text().splitlines())
        of.append([x["validation_loss"][0] - x["loss"][0] for x in lines if x["step"] == 2_000])
        assert gaps(learning_curves(name), name) == pytest.approx(of[-1], abs=1e-5)
    found = of_claim("addlm", "Ternary weights keep validation loss closer to training loss.")
    assert found.value == pytest.approx(np.mean(of[0]) - np.mean(of[1]), abs=1e-5)
    assert found.ends == pytest.approx(ttest_ind(*of, equal_var=False).confidence_interval(), abs=1e-4)


def test_a_cost_in_loss_is_as_sure_as_its_seeds():
    def costs(ours: list[float], floats: list[float]) -> Any:
        rows = [
            {"model": model, "budget": 2, "steps": [1, 2], "losses": [best, best + 0.5]}
            for model, losses in (("m", ours), ("float", floats))
            for best in losses
        ]
        return difference(*[best_losses(rows, name, steps=2) for name in ("m", "float")], "seeds")

    sure, printed = costs([2.02, 2.03, 2.01], [1.88, 1.89, 1.9]), read_numbers("+0.14")
    assert sure.value == pytest.approx(0.13)
    assert (Inside().judge(sure, printed), Within(most=0.05).judge(sure, ())) == ("compatible", "differs")
    for alone in (costs([2.02], [1.88, 1.89]), costs([2.02], [1.88])):
        assert not np.isfinite(alone.ends).any()
        assert {
            Inside().judge(alone, printed),
            Within(most=0.05).judge(alone, ()),
            Within(most=1.0).judge(alone, ()),
        } == {"undecided"}


def test_times_are_compared_for_each_seed(monkeypatch):
    tried = {"addlm-0.8m-float": 4, "addlm-0.8m": 2}
    made = {name: {"training": {"seeds_tried": n, "seconds": 100.0 * n}} for name, n in tried.items()}
    monkeypatch.setattr(Store, "entry", lambda self, name: made[name])
    (claim,) = (row.claim for row in registered("addlm") if row.command == "interp train addlm-0.8m --seeds 2")
    assert of_claim("addlm", claim).value == 1


def test_every_wrong_digit_beyond_the_first_takes_one_sum_away(tmp_path):
    errors = {"digits": {"units": 9_999, "tens": 9_940, "hundreds": 9_998}, "first_wrong": {"units": 1, "tens": 59}}
    row = {"model": "toygpt-learned-pre", "step": 1_000, "errors": errors}
    found = of_claim(
        "toygpt", "A wrong sum has one wrong digit.", stored(tmp_path, "toygpt-table-positions", {"rows": [row]})
    )
    assert found.counts == (57, 60)  # 63 wrong digits in 60 sums


def a_figure(**panels: list[float]) -> GridPanels:
    """One figure of Position Coupling: of each panel, every seed's share right of 100."""
    about = {"requested": 100, "offsets": "start 1", "seed": 0, "early_exit": None, "trained": None}
    about |= dict.fromkeys(("task", "format", "method"), "")
    drawn = []
    for label, shares in panels.items():
        counts = [
            xr.Dataset({"correct": ("bits", [round(100 * x)]), "n": ("bits", [100])}, {"bits": [5]}) for x in shares
        ]
        drawn.append(GridPanel(label, tuple(ExactMatchGrid.made("a", table, about) for table in counts)))
    return GridPanels("a figure", tuple(drawn), len(drawn))


def difference_of_shares(a: list[float], b: list[float]) -> tuple[float, float]:
    """Newcombe's hybrid interval of two means of shares. A mean's own interval is Student's, but covers a kind of seed
    that is missing in one sample of forty and has share 0 or 1."""

    def mean_and_ends(x: list[float]) -> tuple[float, float, float]:
        mean, missed = float(np.mean(x)), binomtest(0, len(x)).proportion_ci().high
        low, high = t.interval(0.95, len(x) - 1, mean, sem(x))
        return mean, max(min(low, mean - missed * mean), 0), min(max(high, mean + missed * (1 - mean)), 1)

    (m, low, high), (m2, low2, high2) = mean_and_ends(a), mean_and_ends(b)
    return m - m2 - float(np.hypot(m - low, high2 - m2)), m - m2 + float(np.hypot(high - m, m2 - low2))


@pytest.mark.slow
def test_a_ranking_is_as_sure_as_its_least_sure_step_over_seeds():
    low, middle, high = [0.1, 0.12, 0.14], [0.2, 0.21, 0.22, 0.25], [0.5, 0.6, 0.9]
    many = (20 * low, 20 * middle, 30 * [0.8, 0.81])
    for panels, sure in (((low, middle, high), False), (many, True)):
        store = a_figure(**{f"S_A({3 + i}, {3 + i})": panel for i, panel in enumerate(panels)})
        rise = compared(store, "least_rise")
        steps = [difference_of_shares(b, a) for a, b in pairwise(panels)]
        assert rise.value == pytest.approx(min(np.mean(b) - np.mean(a) for a, b in pairwise(panels)))
        assert f"S_A(5, 5) {np.mean(panels[2]):.3f} (mean of {len(panels[2])} seeds)" in rise.remark
        assert rise.low == pytest.approx(min(low for low, _ in steps))
        assert rise.high == pytest.approx(min(high for _, high in steps))
        assert Within(0).judge(rise, ()) == ("reproduced" if sure else "compatible")
        spread = compared(store, "spread")
        assert spread.value == pytest.approx(np.mean(panels[2]) - np.mean(low))
        assert Within(most=0.1).judge(spread, ()) == ("differs" if sure else "undecided")
    assert Within(0).judge(compared(store, "first_above_the_rest"), ()) == "differs"
    alone = a_figure(a=[0.1], b=[0.9])
    assert Within(0).judge(compared(alone, "least_rise"), ()) == "undecided"


def test_the_difference_of_two_panels_is_of_all_their_seeds():
    with_it, without = [0.3, 0.32, 0.35, 0.31], [0.1, 0.2, 0.12, 0.11]
    ours = difference(*[means(one) for one in a_figure(a=with_it, b=without).panels], "seeds", (0.0, 1.0))
    assert (ours.value, ours.low, ours.high) == pytest.approx((0.1875, *difference_of_shares(with_it, without)))


def test_the_trend_with_layers_is_that_of_a_regression_with_an_intercept_for_each_number_of_heads():
    rows = [
        (np.log2(int(one.label.split()[0])), one.label.split()[2], float(grid.accuracy.mean()))
        for one in grids(Store().stored("position-coupling-fig10-small")).panels
        for grid in one.grids
    ]
    frame = pd.DataFrame(rows, columns=["depth", "heads", "y"])
    centred = frame[["depth", "y"]] - frame.groupby("heads")[["depth", "y"]].transform("mean")
    slope = float((centred.depth * centred.y).sum() / (centred.depth**2).sum())
    found = trend_with_layers(grids(Store().stored("position-coupling-fig10-small")))
    assert found.value == pytest.approx(slope) and found.low < slope < found.high


def test_operands_that_are_read_at_once_have_lines_and_untrained_ones_have_none():
    """Coupled ids give a column's digits one id, so a trained head finds all of them: the picture of Figure 7b."""
    coupled = lines(models.load("position-coupling-1l4h-no-scratchpad-small"), 4, 4)
    assert coupled.value == 1.0
    fire = "position-coupling-1l4h-fire-no-scratchpad-small"
    assert {lines(models.build(fire, seed=seed), 4, 4).value for seed in range(3)} == {0.0}


def test_a_rank_comparison_counts_all_that_share_its_seeds():
    comparisons = [
        {"a": "base", "b": "x", "superiority": 0.2, "p_rank": 0.02},
        {"a": "base", "b": "y", "superiority": 0.4, "p_rank": 0.3},
        {"a": "other", "b": "z", "superiority": 0.1, "p_rank": 0.001},
    ]
    sweeps = [{"label": label, "seeds": list(range(n))} for label, n in (("base", 32), ("x", 16), ("y", 32))]
    sweeps[0]["first_perfect"] = [None] * 31 + [500]
    sweep = {"comparisons": comparisons, "sweeps": sweeps}
    ours = ranked(sweep, "base", "x")
    assert (ours.value, ours.p, ours.provenance.n, ours.able) == (0.2, 0.04, 16, True)
    assert ranked(sweep, "base", "x", "y").value == 0.4  # the furthest of several
    with pytest.raises(NotStored):
        ranked(sweep, "base", "z")


def test_what_a_teacher_adds_is_a_difference_of_two_shares():
    def row(label: str, right: int) -> dict:
        found = dict.fromkeys(("best_exact", "token"), [1.0] * 8) | {"label": label, "model": "microadder-53"}
        found |= {
            "seeds": list(range(8)),
            "first_perfect": [None] * 8,
            "on_test": [10_010] * right + [None] * (8 - right),
        }
        return found | dict(parameters=53, steps=10, planned=10, n_test=10_010, curve_steps=[], curves=[])

    sweeps = [row("53 parameters, no teacher", 1), row("53 parameters, taught by 57", 4)]
    ours = rates(*[answered(sweep) for sweep in reversed(sweeps)])
    assert (ours.value, ours.low, ours.high) == rate_difference(4, 8, 1, 8)
    assert ours.value == 3 / 8 and ours.provenance.n == 16
