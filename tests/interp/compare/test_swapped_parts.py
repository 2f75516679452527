"""Maps and role-wise patterns on arrays whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.compare.activation_maps import least_squares
from interp.compare.paired_readings import ReadingFrame, common_columns
from interp.compare.swapped_parts import by_role
from models.tasks.named.addition import TenDigitAddition
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition

seeds = st.integers(0, 2**31 - 1)


def _frame(task: TenDigitAddition | MultiOperandAddition) -> ReadingFrame:
    problems = task.sample(2, torch.Generator().manual_seed(0))
    return common_columns(task, problems, task.encode(problems))


PLAIN, WITH_BOS = _frame(TenDigitAddition()), _frame(MultiOperandAddition(2, 2))


def _rows(at: ReadingFrame, seed: int) -> torch.Tensor:
    """Random attention rows [1, target, key], zero beyond the query."""
    rng = np.random.default_rng(seed)
    length = at.member.shape[-1]
    seen = np.arange(length) <= np.array(at.queries)[:, None]
    weights = np.where(seen, rng.gamma(0.5, size=seen.shape) + 1e-9, 0.0)
    return torch.from_numpy(weights / weights.sum(-1, keepdims=True))[None]


@given(seeds)
def test_a_pattern_by_role_has_the_others_weight_on_roles_and_its_own_shares_within(seed: int):
    own, other = _rows(PLAIN, seed), _rows(PLAIN, seed + 1)
    new = by_role(own, other, PLAIN)
    mass = [np.einsum("ntk,trk->ntr", rows.numpy(), PLAIN.member) for rows in (own, other, new)]
    assert mass[2] == pytest.approx(mass[1], abs=1e-12)
    ratio = np.einsum("ntr,trk->ntk", mass[1] / np.maximum(mass[0], 1e-300), PLAIN.member)
    assert new.numpy() == pytest.approx(own.numpy() * ratio, abs=1e-9)


@given(seeds)
def test_bos_keeps_its_weight_and_rows_still_add_up_to_one(seed: int):
    own, other = _rows(WITH_BOS, seed), _rows(WITH_BOS, seed + 1)
    new = by_role(own, other, WITH_BOS)
    assert new.sum(-1).numpy() == pytest.approx(1)
    assert new[..., 0].numpy() == pytest.approx(own[..., 0].numpy())
    on_bos = torch.zeros_like(other)
    on_bos[..., 0] = 1
    assert by_role(own, on_bos, WITH_BOS).numpy() == pytest.approx(on_bos.numpy())


def test_a_role_that_the_model_gives_nothing_is_shared_equally():
    own = _rows(PLAIN, 0)
    role = PLAIN.roles.index("own operands")
    keys = torch.from_numpy(PLAIN.member[:, role])
    own = torch.where(keys, 0.0, own)
    new = by_role(own, torch.where(keys, 1.0, 0.0)[None] / keys.sum(-1).clamp_min(1)[:, None], PLAIN)
    there = keys.any(-1)
    assert new[0, there].numpy() == pytest.approx((keys[there] / keys[there].sum(-1, keepdim=True)).numpy())


@given(seeds)
def test_the_map_is_numpys_least_squares(seed: int):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 3))
    weight, rank = least_squares(torch.from_numpy(x), torch.from_numpy(y), float(np.linalg.norm(x)))
    assert rank == 4
    assert weight.numpy() == pytest.approx(np.linalg.lstsq(x, y, rcond=None)[0])


def test_directions_of_rounding_size_take_no_part_in_the_map():
    rng = np.random.default_rng(0)
    x = np.stack((rng.normal(size=40), 1e-9 * rng.normal(size=40)), -1)
    weight, rank = least_squares(torch.from_numpy(x), torch.from_numpy(x[:, 1:] * 1e9), float(np.linalg.norm(x)))
    assert rank == 1 and abs(weight[1, 0]) < 1
    nothing, rank = least_squares(torch.zeros(40, 2, dtype=torch.float64), torch.from_numpy(x), 3.0)
    assert rank == 0 and not nothing.any()
