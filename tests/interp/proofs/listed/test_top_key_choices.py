"""Choices of the best keys: those that the scores allow, no other, and cases that hold every combination."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.proofs.listed import top_key_choices
from interp.proofs.listed.top_key_choices import cases, choices
from interp.proofs.numbers.enclosure import Chosen, Enclosure


def around(low: list[list[list[int]]], high: list[list[list[int]]]) -> Enclosure:
    """[head, row, key], from ends that are integers; low and high are as exact as float64."""
    ends = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
    return Enclosure.apart((ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2)


def attended(scores: tuple[int, ...], top_k: int) -> tuple[bool, ...]:
    return tuple(sum(other > score for other in scores) < top_k for score in scores)


@given(st.permutations(range(10)), st.integers(1, 5))
def test_choices_are_exactly_those_of_the_points_of_the_intervals(ends: list[int], top_k: int):
    """No two ends coincide, so that points with integer coordinates show every order and every tie."""
    pairs = [sorted(ends[i : i + 2]) for i in range(0, 10, 2)]
    met = {attended(point, top_k) for point in product(*(range(low, high + 1) for low, high in pairs))}
    scores = around([[[low for low, _ in pairs]]], [[[high for _, high in pairs]]])
    chosen = Chosen.of(scores, top_k)
    assert [all(mask[key] for mask in met) for key in range(5)] == chosen.sure[0, 0].tolist()
    assert [not any(mask[key] for mask in met) for key in range(5)] == chosen.out[0, 0].tolist()
    one = Chosen(chosen.sure[0, 0], chosen.out[0, 0])
    found = choices([float(low) for low, _ in pairs], [float(high) for _, high in pairs], one, top_k)
    assert sorted(map(tuple, found)) == sorted(met)


def test_cases_are_all_combinations_of_the_choices_at_a_rows_queries():
    """Two heads of which row 1 windows two keys open each; row 0 is decided."""
    low, high = [[[0, 2, 4], [0, 2, 4]]] * 2, [[[1, 3, 5], [1, 5, 7]]] * 2
    scores = {2: around(low, high)}
    rows, found = cases(scores, {2: Chosen.of(scores[2], 1)}, 1, torch.tensor([0, 1]))
    assert rows.tolist() == [0] + [1] * 9 and not found[2].open.any()
    masks = {tuple(found[2].sure[:, case].flatten().tolist()) for case in range(1, 10)}
    one = [(False, True, False), (False, False, True), (False, True, True)]
    assert masks == {a + b for a in one for b in one}


def test_what_makes_too_many_cases_stays_open(monkeypatch):
    monkeypatch.setattr(top_key_choices, "MOST_CASES", 8)
    scores = {0: around([[[0, 0]] * 3] * 2, [[[1, 1]] * 3] * 2)}
    chosen = {0: Chosen.of(scores[0], 1)}
    rows, found = cases(scores, chosen, 1, torch.tensor([0, 1, 1]))  # three choices of each head; two rows are of one
    assert rows.bincount().tolist() == [3, 3, 3]
    assert found[0].open.any(-1).sum(1).tolist() == [0, 9]


def test_scores_without_bounds_stay_open():
    wide = Enclosure.apart(torch.zeros(1, 1, 3, dtype=torch.float64), torch.full((1, 1, 3), torch.inf).double())
    rows, found = cases({0: wide}, {0: Chosen.of(wide, 1)}, 1, torch.tensor([0]))
    assert rows.tolist() == [0] and found[0].open.all()
