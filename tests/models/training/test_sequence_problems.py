"""The training distributions of Position Coupling: who is in them, and what a batch looks like."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from models.errors import UserError
from models.families.position_coupling import PAPER, SMALL
from models.tasks import AdditionFormat, MultiOperandAddition, Multiplication, Parity
from models.training.sequence_problems import AdditionSet, MultiplicationSet, ParitySet, make_buckets

CPU = torch.device("cpu")
UNLIKELY = 1e-4  # p-values below this would be a once-in-ten-thousand accident; the seeds are fixed


def uniform_counts(values: torch.Tensor, low: int, high: int) -> None:
    counts = torch.stack([(values == v).sum() for v in range(low, high + 1)])
    assert int(counts.sum()) == len(values), "values outside the range"
    assert chisquare(counts.numpy()).pvalue > UNLIKELY


def test_s_a_draws_two_to_m_operands_alike() -> None:
    drawn = AdditionSet(max_digits=5, max_operands=7).numbered(torch.arange(6_000))
    uniform_counts(drawn.n_operands, 2, 7)


def test_half_of_s_a_gives_every_operand_a_length_of_its_own_and_half_one_length_to_all() -> None:
    source = AdditionSet(max_digits=6, max_operands=4)
    own, common = source.numbered(torch.arange(0, 8_000, 2)), source.numbered(torch.arange(1, 8_000, 2))
    for drawn in (own, common):
        uniform_counts(drawn.n_digits[:, 0], 1, 6)
    present = torch.arange(4) < common.n_operands[:, None]
    assert (common.n_digits == common.n_digits[:, :1])[present].all()
    two = own.n_digits[own.n_operands >= 2, :2]
    table = torch.zeros(6, 6).index_put((two[:, 0] - 1, two[:, 1] - 1), torch.tensor(1.0), accumulate=True)
    assert chisquare(table.flatten().numpy()).pvalue > UNLIKELY, "lengths of a problem depend on each other"


def test_operands_have_exactly_their_length_and_a_leading_zero_only_alone() -> None:
    drawn = AdditionSet(max_digits=4, max_operands=5).numbered(torch.arange(2_000))
    leading = drawn.digits.gather(2, (drawn.n_digits - 1).clamp(min=0)[..., None])[..., 0]
    long = drawn.n_digits > 1
    assert (leading[long] > 0).all()
    uniform_counts(leading[drawn.n_digits == 1], 0, 9)
    beyond = torch.arange(4) >= drawn.n_digits[..., None]
    assert (drawn.digits[beyond] == 0).all()


def test_s_m_draws_both_lengths_alike_and_apart() -> None:
    drawn = MultiplicationSet(max_first=3, max_second=5).numbered(torch.arange(6_000))
    uniform_counts(drawn.n_digits[:, 0], 1, 3)
    uniform_counts(drawn.n_digits[:, 1], 1, 5)


def test_parity_draws_every_length_alike() -> None:
    drawn = ParitySet(max_bits=9).numbered(torch.arange(6_000))
    uniform_counts(drawn.n_digits[:, 0], 1, 9)


def test_a_set_is_finite_and_the_same_for_every_seed() -> None:
    source = AdditionSet(size=50, max_digits=9, max_operands=3)
    rows = lambda seed: {tuple(row.flatten().tolist()) for row in source.draw(seed, 0, 2_000, CPU).digits}  # noqa: E731
    assert len(rows(0)) == 50
    assert rows(0) == rows(1)


def test_held_out_problems_are_outside_the_set() -> None:
    source = AdditionSet(size=1_000, max_digits=12, max_operands=3)
    inside = {tuple(row.flatten().tolist()) for row in source.numbered(torch.arange(1_000)).digits}
    held_out = source.held_out(500, CPU)
    long = held_out.n_digits.amax(1) > 6  # short problems may be drawn twice
    assert not any(tuple(row.flatten().tolist()) in inside for row in held_out.digits[long])


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    source = AdditionSet()
    assert torch.equal(source.draw(3, 8, 16, CPU).digits, source.draw(3, 8, 16, CPU).digits)
    assert not torch.equal(source.draw(3, 8, 16, CPU).digits, source.draw(3, 9, 16, CPU).digits)
    assert not torch.equal(source.draw(3, 8, 16, CPU).digits, source.draw(4, 8, 16, CPU).digits)


def test_offsets_move_whole_levels_and_reach_every_id_up_to_the_limit() -> None:
    task, source = MultiOperandAddition(3, 2), AdditionSet(position_limits=(9, 7))
    ids = task.position_ids(task.encode(task.sample(3_000, torch.Generator().manual_seed(0))))
    moved = source.offsets(ids, seed=0, step=0, rows=3_000)
    assert torch.equal(moved == 0, ids == 0)
    for level, limit in enumerate((9, 7)):
        by = (moved - ids)[..., level].masked_fill(ids[..., level] == 0, -1)
        shift = by.amax(1)
        assert ((by == shift[:, None]) | (by == -1)).all(), "tokens of one row moved by different amounts"
        uniform_counts(shift, 0, limit - int(ids[..., level].max()))


def test_without_offsets_ids_are_the_tasks_own() -> None:
    task = MultiOperandAddition(3, 2)
    ids = task.position_ids(task.encode("57+48+96"))
    assert torch.equal(AdditionSet(position_limits=(9, 9), random_offsets=False).offsets(ids, 0, 0, 1), ids)


FORMATS = [AdditionFormat(), AdditionFormat(zero_padding=False), AdditionFormat(scratchpad=False)]
TASKS = [(MultiOperandAddition(5, 4, form), AdditionSet(max_digits=4, max_operands=5)) for form in FORMATS]
TASKS += [(Multiplication(3, 4), MultiplicationSet(max_first=3, max_second=4)), (Parity(6), ParitySet(max_bits=6))]


@pytest.mark.parametrize(("task", "source"), TASKS)
def test_buckets_hold_every_response_token_once_and_nothing_else(task, source) -> None:
    problems = source.draw(0, 0, 64, CPU)
    buckets = make_buckets(task, problems, 4, ids_of=task.position_ids)
    whole = task.sequences(problems.digits, problems.n_operands, problems.n_digits)
    assert sum(int((b.targets >= 0).sum()) for b in buckets) == int(whole.mask.sum())
    expected = sorted(tuple(tokens[mask].tolist()) for tokens, mask in zip(whole.targets, whole.mask, strict=True))
    found = sorted(tuple(row[row >= 0].tolist()) for b in buckets for row in b.targets)
    assert found == expected
    lengths = [b.tokens.shape[1] for b in buckets]
    assert lengths == sorted(lengths)
    for bucket in buckets:
        assert torch.equal(bucket.position_ids, task.position_ids(bucket.tokens))


def test_buckets_save_padding() -> None:
    source, task = PAPER["addition"].training_set, PAPER["addition"].make_task()
    problems = source.draw(0, 0, 400, CPU)
    size = lambda n: sum(b.tokens.numel() for b in make_buckets(task, problems, n))  # noqa: E731
    assert size(4) < 0.75 * size(1)


def test_a_set_needs_two_problems() -> None:
    with pytest.raises(UserError):
        AdditionSet(size=1)


@pytest.mark.parametrize("variant", [*PAPER.values(), *SMALL.values()], ids=lambda v: v.name)
def test_no_training_batch_needs_an_id_past_the_tables(variant) -> None:
    source, task = variant.training_set, variant.make_task()
    for step in range(3):
        for bucket in make_buckets(task, source.draw(0, step, 64, CPU), 2, task.position_ids):
            moved = source.offsets(bucket.position_ids, 0, step, len(bucket.tokens))
            assert (moved.amax((0, 1)) <= torch.tensor(variant.position_limits)).all()
