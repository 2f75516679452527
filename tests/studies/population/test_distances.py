"""Straight lines between models, and distances of seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from interp.core.results import Provenance
from interp.core.samples import draw
from interp.core.stats import js_divergence
from models.errors import UserError
from studies.checkpoints import load_published
from studies.population.alignment import Alignment, align, component_of
from studies.population.mode_connectivity import (
    ALIGNED,
    STORED,
    ModeConnectivity,
    compute_mode_connectivity,
    mode_connectivity,
)
from studies.population.seed_distances import SeedDistances, centred_distance, seed_distances

pytestmark = pytest.mark.usefixtures("few_starts")


@pytest.fixture(scope="module")
def line() -> ModeConnectivity:
    """A trained MicroAdder and the same numbers set by hand: both right on all pairs."""
    return mode_connectivity(models.load("microadder-57"), models.build("microadder-57-by-hand"), points=5, n=64)


def test_the_ends_of_every_path_are_the_models(line: ModeConnectivity) -> None:
    trained, by_hand = models.load("microadder-57"), models.build("microadder-57-by-hand")
    task = trained.task
    sample = draw(task, None, 64, 0, carry_heavy=0.5)
    targets = task.targets(sample.problems)
    for t, model in ((0.0, trained), (1.0, by_hand)):
        with torch.no_grad():
            logits = model(sample.tokens)[:, list(task.query_positions)].log_softmax(-1)
        loss = -float(logits.gather(-1, targets[..., None]).mean())
        rows = line.table[(line.table["t"] == t) & line.table["path"].isin([STORED, ALIGNED])]
        assert len(rows) == 2 and (rows["exact"] == 1.0).all()
        np.testing.assert_allclose(rows["loss"], loss, atol=1e-4)


def test_alignment_moves_logits_by_no_more_than_rounding(line: ModeConnectivity) -> None:
    model = models.load("microadder-57")
    with torch.no_grad():
        largest = float(model(model.task.encode([(1, 2), (9, 9)])).abs().max())
    assert line.logit_change < 1e-4 * largest


def test_aligned_keys_of_the_published_model_are_nearly_ours(published_checkpoint: Callable[[str], Path]) -> None:
    """Two trainings of one architecture found the same keys, up to a unitary matrix."""
    found = align(models.load("microadder-57"), load_published(published_checkpoint("microadder_57p.pt"))).distances()
    keys = found.set_index("component").loc["QK"]
    assert keys.before > 0.5 and keys.after < 0.1


def test_between_models_that_add_nothing_no_line_joins_two_solutions() -> None:
    fresh = [models.build("microadder-57", seed=k).eval() for k in (1, 2)]
    assert not mode_connectivity(*fresh, n=8, points=3, controls=False).able


def test_the_barrier_is_the_largest_height_over_the_straight_line() -> None:
    rng = np.random.default_rng(0)
    losses = rng.uniform(0, 3, (2, 7, 40))
    alignment = Alignment(("a", "b"), ("none",), ({}, {}), ({}, {}))
    right = rng.random((2, 7, 40)) < 0.5
    found = compute_mode_connectivity(right, losses, [STORED, ALIGNED], alignment, 0.0, Provenance(40, 0, "draws"))
    for path, values in zip((STORED, ALIGNED), losses.mean(2), strict=True):
        heights = [v - ((1 - i / 6) * values[0] + i / 6 * values[-1]) for i, v in enumerate(values)]
        assert found.barrier(path) == pytest.approx(max(heights))
        row = found.barriers.set_index("path").loc[path]
        assert row["at"] == pytest.approx(int(np.argmax(heights)) / 6)
        assert 0 <= row.low <= row.high
    assert found.table["correct"].tolist() == right.sum(2).reshape(-1).tolist()


def test_bad_requests_are_refused(line: ModeConnectivity) -> None:
    model = models.load("microadder-57")
    with pytest.raises(UserError, match="at least 3 points"):
        mode_connectivity(model, model, points=2)
    with pytest.raises(UserError, match="not two models of one architecture"):
        mode_connectivity(model, models.load("microadder-67"))
    with pytest.raises(UserError, match="no path 'sideways'"):
        line.barrier("sideways")
    with pytest.raises(UserError, match="at least two"):
        seed_distances([model])
    with pytest.raises(UserError, match="different names"):
        seed_distances([model, model], names=["one", "one"])


# ---- distances of seeds


@pytest.fixture(scope="module")
def distances() -> SeedDistances:
    found = [models.load("microadder-57"), models.build("microadder-57-by-hand"), models.load("microadder-57")]
    return seed_distances(found, names=["trained", "by hand", "again"], n=32, untrained=2)


def test_alignment_does_not_move_apart_what_it_sees_whole(distances: SeedDistances) -> None:
    assert distances.matrix("after")[0, 1] <= distances.matrix("before")[0, 1]


def test_distances_have_a_null_and_components_count_all_numbers(distances: SeedDistances) -> None:
    rows = distances.table[(distances.table["a"] == "trained") & (distances.table["b"] == "by hand")]
    parts = rows.set_index("component")
    assert parts["numbers"].drop("all").sum() == parts.loc["all", "numbers"] == 57
    assert parts["untrained_after"].drop(["W_E", "norms"]).notna().all()
    assert len(distances.untrained_functions) == 1


def test_every_parameter_belongs_to_a_component() -> None:
    for name in ("microadder-57", "microadder-133", "adder-456", "toygpt-learned-pre", "position-coupling-1l4h-small"):
        for parameter, _ in models.build(name).weight_map.named_parameters():
            assert component_of(parameter) != "other", parameter
    assert component_of("blocks/0/attn/W_V") == component_of("W_v") == "OV"
    assert component_of("W_head") == "W_U" and component_of("pos_z_hi") == "W_pos"


finite = st.lists(st.floats(-20, 20, allow_subnormal=False), min_size=4, max_size=4)


@given(a=finite, b=finite, shift=st.floats(-5, 5, allow_subnormal=False))
def test_divergence_is_symmetric_bounded_and_blind_to_a_shift(a: list[float], b: list[float], shift: float) -> None:
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    p, q, moved = (logits.softmax(-1).numpy()[None] for logits in (x, y, x + shift))
    (value,) = js_divergence(p, q)
    assert 0 <= value <= 1 and value == pytest.approx(js_divergence(q, p)[0], abs=1e-9)
    assert js_divergence(p, moved) == pytest.approx(0, abs=1e-9)
    assert centred_distance(x, x + shift) == pytest.approx(0, abs=1e-5) or bool((x - x.mean()).abs().max() < 1e-9)


def test_disjoint_answers_are_one_bit_apart_and_opposite_logits_root_two() -> None:
    one, other = torch.tensor([200.0, 0]), torch.tensor([0.0, 200])
    assert js_divergence(*(x.softmax(-1).numpy()[None] for x in (one, other))) == pytest.approx(1)
    assert centred_distance(one, other) == pytest.approx(math.sqrt(2))


def test_alignment_of_two_seeds_brings_them_closer_than_they_were(without_shape_checks: None) -> None:
    one, other = models.load("adder-456"), models.build("adder-456", seed=1)
    rows = align(one, other).distances().set_index("component")
    assert rows.loc["all", "after"] < rows.loc["all", "before"]
