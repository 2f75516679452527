"""A certified adder is its program: both right everywhere, and the levels that the program speaks of lie apart."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

import interp
from interp.proofs.reading.decompile import PROGRAM, Decompiled, decompile, prove_program
from models.errors import UserError
from tests.interp.proofs.conftest import dense, zoo

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@cache
def found(name: str = "microadder-67") -> Decompiled:
    return interp.decompile(zoo(name))


def test_the_program_is_addition():
    made: dict = {}
    exec(PROGRAM, made)
    digits = torch.randint(10, (200, 2, 10), generator=torch.Generator().manual_seed(0))
    digits[:20] = torch.tensor([[9] * 10, [1] + [0] * 9])
    value = lambda row: sum(int(digit) * 10**i for i, digit in enumerate(row))  # noqa: E731
    for a, b in digits.tolist():
        answer = made["add"](a, b)
        assert len(answer) == 11 and value(answer) == value(a) + value(b)
    assert len([line for line in PROGRAM.splitlines() if line]) <= 20
    assert prove_program() == 19 + 19 * 2 * 19


@pytest.mark.parametrize(
    ("was", "now"), [("0.55", "1.2"), ("0.55", "-0.1"), ("/ 10", "/ 4"), ("range(1, 20)", "range(1, 19)")]
)
def test_a_program_that_is_wrong_somewhere_is_not_proved(was: str, now: str):
    assert was in PROGRAM
    with pytest.raises(UserError):
        prove_program(PROGRAM.replace(was, now))


@pytest.mark.parametrize(("was", "now"), [("0.55", "0.3"), ("/ 10", "/ 9")])
def test_thresholds_and_base_have_room(was: str, now: str):
    assert prove_program(PROGRAM.replace(was, now)) == prove_program()


@pytest.mark.slow
def test_attention_and_levels_of_the_model_are_within_the_bounds():
    model, program = zoo("microadder-67"), found()
    task: Any = model.task
    pairs = task.sample(400, torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, cache = model.run_with_cache(task.encode(pairs))
    pattern, written = cache["blocks.0.attn.hook_pattern"][:, 0].double(), cache["blocks.0.hook_attn_out"].double()
    row = program.reads.iloc[0]
    a, b = (torch.stack([pairs[:, k] // 10**i % 10 for i in range(10)], 1) for k in (0, 1))
    sums, answer = a + b, task.targets(pairs)
    for target in range(1, 10):
        at = pattern[:, task.query_positions[target]]
        own, before = (at[:, [task.operand_position(k, c) for k in (0, 1)]].sum(1) for c in (target, target - 1))
        assert ((own >= row.own_low - 1e-6) & (own <= row.own_high + 1e-6)).all()
        assert ((before >= row.before_low - 1e-6) & (before <= row.before_high + 1e-6)).all()
    # The levels of one query, on the line that attention writes along: in the order of sum plus carry, apart.
    target = 4
    at = written[:, task.query_positions[target]]
    level = at @ torch.linalg.svd(at - at.mean(0))[2][0]
    carry = (sums[:, target - 1] > answer[:, target - 1]).long()
    for token in range(10):
        rows = answer[:, target - 1] == token
        count = (sums[:, target] + carry)[rows]
        if torch.corrcoef(torch.stack((level[rows], count.double())))[0, 1] < 0:
            level = -level
        ends = [(level[rows][count == k].min(), level[rows][count == k].max()) for k in count.unique()]
        stated = program.levels[(program.levels.target == target) & (program.levels.own == token)].iloc[0]
        apart = [float(low - high) for (low, _), (_, high) in zip(ends[1:], ends[:-1], strict=True)]
        assert min(apart) >= stated.gap * stated.step - 1e-4


@pytest.mark.slow
def test_what_it_says_is_what_was_found():
    program = found()
    assert program.gap == program.levels.gap.min() > 0.3 and len(program.levels) == 101
    assert program.bits == (8 * len(PROGRAM), 32 * 67)
    assert program.provenance.strength == "certified with rounding" and program.provenance.n == 10**20
    assert 8 < program.reads.ratio_low[0] < 10 < program.reads.ratio_high[0] < 12
    assert program.digits.written.is_monotonic_increasing
    assert Decompiled.from_dict(program.to_dict()).to_dict() == program.to_dict()
    assert len(program.figure().data) > 0


def test_a_model_that_is_not_certified_or_no_adder_has_no_program():
    def weaken(weights: dict[str, torch.Tensor]) -> None:
        weights["blocks.0.attn.W_O"].mul_(0.9)

    with pytest.raises(UserError):
        decompile(dense("microadder-67", weaken))
    with pytest.raises(UserError):
        decompile(zoo("toygpt-learned-pre"))
