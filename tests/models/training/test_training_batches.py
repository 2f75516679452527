"""The training distribution: counter-based, the same everywhere, and MicroAdder's."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.families.column_arithmetic import mixed
from models.rates import Rate
from models.registry import get_spec
from models.tasks.counter_rng import mix, signed, uniform
from models.tasks.named.addition import DelimitedAddition, PaddedAddition, TenDigitAddition, UnendedAddition
from models.training.task_problems import Drawn, TaskProblems
from models.training.ten_digit_problems import (
    AdditionProblems,
    CarryMix,
    SubtractionProblems,
    VariedLengthProblems,
    carry_rich_problems,
)
from models.training.training_batches import TrainingStream

CPU = torch.device("cpu")
SOURCE, ROWS = AdditionProblems(), 64
TASK = TenDigitAddition()
SOURCES = {
    "ten digits": (TASK, SOURCE),
    "delimited": (DelimitedAddition(), SOURCE),
    "unended": (UnendedAddition(), SOURCE),
    "varied lengths": (PaddedAddition(), VariedLengthProblems()),
    "differences": (get_spec("subtractor-47").task(), SubtractionProblems()),
    "differences, units last": (get_spec("subtractor-456").task(), SubtractionProblems()),
}


def splitmix_finaliser(z: int) -> int:
    """The published definition, in Python's integers."""
    mask = (1 << 64) - 1
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(st.integers(0, 2**64 - 1))
def test_the_hash_is_splitmix64(z: int):
    assert mix(torch.tensor(signed(z))).item() == signed(splitmix_finaliser(z))


@pytest.mark.parametrize("name", SOURCES)
@given(seed=st.integers(0, 10**6), step=st.integers(0, 130_000))
def test_batches_have_the_bits_of_their_definition_whether_or_not_the_native_sampler_draws_them(name, seed, step):
    task, source = SOURCES[name]
    batch = TrainingStream(task, source, ROWS, [seed, seed + 1], CPU).batch(step)
    for i in (0, 1):
        defined = task.encode_rows(source.draw(seed + i, step, ROWS, CPU))
        assert all(torch.equal(mine[i], one) for mine, one in zip(batch, defined, strict=True))


@pytest.mark.parametrize("name", ["ten digits", "varied lengths", "differences"])
def test_one_draw_for_all_seeds_is_one_draw_for_each(name: str, monkeypatch: pytest.MonkeyPatch):
    task, source = SOURCES[name]
    monkeypatch.setattr(type(source), "native_batch", lambda *_: None)  # as on a GPU
    batch = TrainingStream(task, source, ROWS, [5, 0, 7], CPU).batch(20_000)
    monkeypatch.setattr(type(source), "draw_all", lambda *_: None)
    alone = TrainingStream(task, source, ROWS, [5, 0, 7], CPU).batch(20_000)
    assert all(torch.equal(mine, other) for mine, other in zip(batch, alone, strict=True))


MIXED = mixed(8)


@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 40))
def test_problems_of_a_task_do_not_depend_on_how_many_steps_are_drawn_at_once(ahead: int, step: int, other: int):
    task, settings, seeds = MIXED, TaskProblems(hard=0.5), torch.tensor([4, 9])
    source = Drawn(task, settings, ahead)
    for at in (step, other, step):
        batch, alone = (
            source.native_batch(task, seeds, at, 5),
            Drawn(task, settings, 1).native_batch(task, seeds, at, 5),
        )
        assert all(torch.equal(x, y) for x, y in zip(batch, alone, strict=True))
        drawn = [Drawn(task, settings).draw(seed, at, 5, torch.device("cpu")) for seed in seeds.tolist()]
        assert torch.equal(batch[0], torch.stack([task.encode_rows(problems)[0] for problems in drawn]))


def test_seeds_and_steps_see_different_problems():
    drawn = [SOURCE.draw(seed, step, ROWS, CPU) for seed in (0, 1) for step in (20_000, 20_001)]
    pairs = {tuple(pair) for problems in drawn for pair in problems[problems.amax(1) > 10**6].tolist()}
    assert len(pairs) == sum(int((problems.amax(1) > 10**6).sum()) for problems in drawn)


@pytest.mark.parametrize(("step", "digits"), [(0, 3), (1_999, 3), (2_000, 6), (6_999, 6), (7_000, 10)])
def test_operands_have_the_digits_that_the_curriculum_allows(step: int, digits: int):
    problems = torch.cat([SOURCE.draw(seed, step, ROWS, CPU) for seed in range(20)])
    assert problems.max() <= 10**digits  # the chain pattern adds up to 10^min(nd, 3) itself
    assert problems.max() >= 10 ** (digits - 1)


def test_after_the_fade_all_problems_areuniform():
    problems = torch.cat([SOURCE.draw(seed, 50_000, ROWS, CPU) for seed in range(40)])
    digits = TASK.encode(problems)[:, :10].flatten()
    counts = torch.bincount(digits, minlength=10).double()
    expected = len(digits) / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("step", "share"), [(0, 0.8), (15_000, 0.8), (30_000, 0.4), (45_000, 0.0), (59_999, 0.0)])
def test_the_carry_mix_fades_linearly(step: int, share: float):
    assert CarryMix().at(step) == pytest.approx(share)


def test_a_fade_by_steps_does_not_adapt():
    stream = TrainingStream(TASK, SOURCE, ROWS, [3], CPU)
    before = stream.batch(20_000)
    stream.observe([1.0])
    assert torch.equal(stream.batch(20_000)[0], before[0])


def pattern_of(a: int, b: int, nd: int) -> set[str]:
    """Which of the paper's patterns with ``nd`` digits could have produced a problem."""
    found = set()
    digits = [(a // 10**i % 10, b // 10**i % 10) for i in range(10)]
    high = [pair for pair in digits if min(pair) >= 5]
    if len(high) == 1 and all(max(pair) <= 4 for pair in digits if pair not in high) and max(a, b) < 10**nd:
        found.add("single")
    if a == 10**nd - 1 and 1 <= b <= 10 ** min(nd, 3):
        found.add("chain")
    if 10 ** (nd - 1) - (nd == 1) <= a < 10**nd and str(b).strip("0") in "123456789" and b < 10**nd:
        found.add("place")
    if max(0, 10**nd - 10) <= a < 10**nd and 1 <= b <= 20:
        found.add("boundary")
    return found


def test_every_carry_rich_problem_follows_one_of_the_four_patterns():
    base = torch.tensor([random.Random(i).getrandbits(62) for i in range(4_000)])
    problems = carry_rich_problems(base, 10).tolist()
    assert all(any(pattern_of(a, b, nd) for nd in range(1, 11)) for a, b in problems)


def test_the_four_patterns_come_in_equal_shares():
    base = torch.tensor([random.Random(i).getrandbits(62) for i in range(20_000)])
    kinds = (uniform(base, 5) * 4).long()
    problems = carry_rich_problems(base, 10)
    nd = 1 + (uniform(base, 3) * 10).long()
    for index, name in enumerate(("single", "chain", "place", "boundary")):
        low, high = Rate(len(base), int((kinds == index).sum())).interval
        assert low < 0.25 < high
        of_kind = zip(problems[kinds == index].tolist(), nd[kinds == index].tolist(), strict=True)
        assert all(name in pattern_of(a, b, digits) for (a, b), digits in of_kind)
