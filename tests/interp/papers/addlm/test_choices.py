"""Which keys the ten-digit adder chooses: counts of sets, and pairs that are proved one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.papers.addlm.choices import choice_counts
from interp.papers.studies import Settings, reproduce


def test_sets_are_counted_by_head_and_together():
    """Two heads with two sets each, which meet in three ways; at the second target nothing varies."""
    one, other = [True, False, False], [False, True, True]
    pairs = [(one, one), (one, other), (other, other), (one, one)]
    first = torch.tensor(pairs)
    masks = torch.stack((first, torch.ones_like(first)), 2)
    assert choice_counts(masks) == ([2.0, 1.0], [3, 1])


def test_nearly_every_pair_makes_its_own_choice_and_each_is_proved_over_the_reals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("interp.papers.addlm.choices.PROVED", 8)
    page = reproduce("addlm:choices", Settings(out=tmp_path, problems=200, say=lambda text: None))
    assert page is not None and len(page.data["choices"]) == 2 * 12
    for row in page.data["choices"]:
        assert 1 < row["one head"] <= row["all heads"] <= 200
        assert row["layer"] == 0 or row["all heads"] >= 195
    exact, rounded = page.data["proofs"]
    assert exact["right"] == exact["pairs"] == 8 and exact["right tokens"] == exact["tokens"] == 96
    assert rounded["right"] <= 8 and 48 < rounded["right tokens"] <= 96
    shown = page.sections[1].tables[0]
    assert shown["95% interval"][0] == "0.6306 to 1.0000"
