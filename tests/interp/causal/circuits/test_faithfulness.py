"""Ratios with their intervals, random circuits, and halves that share no problem."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.causal.circuits.circuit_space import CircuitSpace
from interp.causal.circuits.faithfulness import compute_drops, compute_faithfulness, random_circuits
from interp.causal.circuits.pair_halves import halves, linked
from interp.core.stats import ratio_interval, unseen
from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition
from models.tasks.paired.problem_pairs import ProblemPairs


def test_the_same_share_of_every_example_is_still_not_known_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    full, empty = 3 + torch.randn(40, generator=generator), torch.randn(40, generator=generator)
    value, low, high = compute_faithfulness(torch.stack((full, empty, (full + empty) / 2)), full, empty)
    np.testing.assert_allclose(value, [1, 0, 0.5], atol=1e-6)
    assert (low[[0, 2]] <= value[[0, 2]] * (1 - unseen(40)) + 1e-6).all() and low[1] <= 0
    assert (high[1:] >= value[1:] + unseen(40) * (1 - value[1:])).all() and high[0] >= 1


def test_a_drop_is_what_faithfulness_falls_by_and_its_interval_is_paired() -> None:
    """Every example loses exactly 0.1 of a span of 2, however much the examples differ: what is left are examples that
    fifty do not show, as far off on either side as those of which nothing or all is lost."""
    generator = torch.Generator().manual_seed(1)
    circuit = 10 * torch.randn(50, generator=generator, dtype=torch.float64)
    full, empty = torch.full((50,), 2.0).double(), torch.zeros(50).double()
    value, low, high = compute_drops((circuit - 0.1)[None], circuit, full, empty)
    missed = unseen(50)
    expected = [0.05, 0.05 - 0.95 * missed, 0.05 + 0.95 * missed]
    np.testing.assert_allclose([value[0], low[0], high[0]], expected, atol=1e-12)


def test_the_bootstrap_interval_of_a_ratio_covers_it_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    below = rng.normal(2, 1, (200, 80))
    above = 0.7 * below + rng.normal(0, 1, (200, 80))
    hits = 0
    for i in range(200):
        _, low, high = ratio_interval(above[i], below[i], seed=i, resamples=300)
        hits += bool(low <= 0.7 <= high)
    assert 0.88 <= hits / 200 <= 0.99


def layered(layers: int, width: int) -> CircuitSpace:
    """Every node reads all of the layer before it; the last is the output."""
    levels = [[f"n{i}.{j}" for j in range(width)] for i in range(layers)] + [["logits"]]
    edges = [(a, b) for one, other in pairwise(levels) for a in one for b in other]
    return CircuitSpace(
        tuple(map(str, edges)), tuple(a for a, _ in edges), tuple(b for _, b in edges), replacement_from_one_run=True
    )


def test_where_there_may_be_nothing_to_share_there_is_no_interval() -> None:
    rng = np.random.default_rng(0)
    value, low, high = ratio_interval(rng.normal(1, 1, (2, 30)), rng.normal(0.05, 1, 30), seed=0)
    assert np.isfinite(value).all() and np.isnan(low).all() and np.isnan(high).all()
    value, low, high = ratio_interval(rng.normal(1, 1, (2, 30)), rng.normal(3, 1, 30), seed=0)
    assert (low < value).all() and (value < high).all()


@given(st.integers(1, 3), st.integers(1, 3), st.floats(0, 1), st.integers(0, 99))
def test_random_circuits_have_no_loose_edges_and_their_size_or_the_next_that_has_none(
    layers: int, width: int, share: float, seed: int
) -> None:
    space = layered(layers, width)
    size = round(share * len(space))
    masks = random_circuits(space, size, 6, torch.Generator().manual_seed(seed))
    assert torch.equal(space.live(masks), masks) and (masks.sum(1) >= size).all()
    for mask in masks:  # some edge of it cannot go without fewer edges being left
        left = [int(space.live(mask & (torch.arange(len(mask)) != edge)).sum()) for edge in mask.nonzero()[:, 0]]
        assert not left or min(left) < size


def test_random_circuits_differ() -> None:
    masks = random_circuits(layered(2, 3), 8, 50, torch.Generator().manual_seed(0))
    assert len(masks.unique(dim=0)) > 10


def pairs_of(clean: list[tuple[int, int]], corrupted: list[tuple[int, int]]) -> ProblemPairs:
    task = TenDigitAddition()
    changed = {"a": (task.as_problems(clean)[:, :1] % 10) != (task.as_problems(corrupted)[:, :1] % 10)}
    return ProblemPairs(task, task.as_problems(clean), task.as_problems(corrupted), 0, "anything", 0, changed)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=12, max_size=40), st.integers(0, 99))
def test_no_problem_is_in_both_halves_and_every_pair_is_in_one(drawn: list[tuple[int, int]], seed: int) -> None:
    pairs = pairs_of([(a, 1) for a, _ in drawn], [(b, 1) for _, b in drawn])
    try:
        first, second = halves(pairs, seed)
    except UserError:
        assert len(np.unique(linked(pairs))) < len(pairs)  # only pairs that share problems can refuse
        return
    problems = [set(map(tuple, torch.cat((half.clean, half.corrupted)).tolist())) for half in (first, second)]
    assert not problems[0] & problems[1]
    both = [
        (*c, *o) for half in (first, second) for c, o in zip(half.clean.tolist(), half.corrupted.tolist(), strict=True)
    ]
    assert sorted(both) == sorted((a, 1, b, 1) for a, b in drawn)
    assert min(len(first), len(second)) >= len(pairs) // 4
    for half in (first, second):
        assert half.changed["a"][:, 0].tolist() == (half.clean[:, 0] % 10 != half.corrupted[:, 0] % 10).tolist()


def test_bad_input() -> None:
    with pytest.raises(UserError, match="share their problems"):
        halves(pairs_of([(1, i) for i in range(9)], [(2, 2)] * 9))
    with pytest.raises(UserError):
        ratio_interval(np.ones((2, 0)), np.ones(0), 0)
    with pytest.raises(UserError):
        ratio_interval(np.ones(4), np.zeros(4), 0)
    with pytest.raises(UserError):
        ratio_interval(np.ones(4), np.ones(4), 0, resamples=0)
    with pytest.raises(UserError, match="to draw 4"):
        random_circuits(layered(1, 3), 4, 1, torch.Generator())
