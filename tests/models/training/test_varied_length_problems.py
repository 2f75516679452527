"""The 456-parameter adder's training distribution: counter-based, uniform in digit counts, and off the test sets."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from models.tasks.named.adder_test_sets import fingerprint
from models.tasks.named.addition import PaddedAddition
from models.training import ten_digit_problems
from models.training.ten_digit_problems import VariedLengthProblems

CPU, TASK, SOURCE, ROWS = torch.device("cpu"), PaddedAddition(), VariedLengthProblems(), 96


@pytest.mark.parametrize(("step", "most"), [(0, 3), (1_999, 3), (2_000, 6), (6_999, 6), (7_000, 10), (53_999, 10)])
def test_digit_counts_are_uniform_up_to_the_curriculum_s_maximum(step: int, most: int):
    problems = torch.cat([SOURCE.draw(seed, step, 512, CPU) for seed in range(40)])
    assert problems.max() < 10**most
    # P(max < 10^k) = sum over the digit counts c of min(1, 10^(k - c))^2 / most
    larger = [int((problems.amax(1) >= 10**k).sum()) for k in range(most)]
    for k, count in enumerate(larger):
        expected = sum(1 - min(1.0, 10.0 ** (k - c)) ** 2 for c in range(1, most + 1)) / most
        assert abs(count / len(problems) - expected) < 5 * (expected * (1 - expected) / len(problems)) ** 0.5 + 1e-9


def test_operands_are_uniform_below_their_power_of_ten():
    problems = torch.cat([SOURCE.draw(seed, 20_000, 512, CPU) for seed in range(20)])
    long = problems[problems.amax(1) >= 10**9]  # only ten digits reach so far
    first = long[:, 0][long[:, 1] >= 10**9] // 10**9
    assert chisquare(torch.bincount(first, minlength=10).tolist()).pvalue > 1e-3


@pytest.mark.parametrize("native", [True, False])
def test_a_held_out_pair_is_drawn_again(monkeypatch, native: bool):
    """With every tenth problem of a batch declared held out, exactly these change, in both samplers."""
    before = SOURCE.draw(3, 20_000, ROWS, CPU)
    forbidden = fingerprint(before[::10]).unique()
    monkeypatch.setattr(ten_digit_problems, "held_out_fingerprints", lambda: forbidden)
    monkeypatch.setattr(ten_digit_problems, "_held_out_table", ten_digit_problems._held_out_table.__wrapped__)
    if native:
        batch = SOURCE.native_batch(TASK, torch.tensor([3]), 20_000, ROWS)
        if batch is None:
            pytest.skip("no C compiler here")
        tokens = batch[0][0].T.long()
        assert torch.equal(tokens, TASK.encode(SOURCE.draw(3, 20_000, ROWS, CPU)))
    after = SOURCE.draw(3, 20_000, ROWS, CPU)
    changed = (after != before).any(1)
    assert not (fingerprint(after)[:, None] == forbidden).any()
    kept = (fingerprint(before)[:, None] == forbidden).any(1)
    assert torch.equal(changed, kept)
