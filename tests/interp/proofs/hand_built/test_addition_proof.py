"""Certificates of the hand-built transformer: proved shapes are right, and what cannot be proved is really wrong."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import interp
import models
from interp.proofs.hand_built.addition_proof import attended, prove_shapes, read_heads, required_keys
from interp.proofs.hand_built.addition_values import NotSeparated, Perturbation, digit_values, read_units
from interp.proofs.hand_built.shape_problems import grid_problems
from interp.proofs.stored_verdicts import hand_built_sums
from models.errors import UserError
from models.evaluation import predict
from studies.position_coupling.hand_built import run_cell
from tests.sampling import sampled

NAME = "position-coupling-hand-built"


def prove_shape(model: Any, operands: int, digits: int, arithmetic: Any = "interval") -> Any:
    return next(prove_shapes(model, [(operands, digits)], arithmetic))


@pytest.fixture(scope="module")
def model():
    return models.build(NAME)


def broken(key: str, index, value: float, **options):
    """The construction with one weight changed."""
    model = models.build(NAME, **({"max_operands": 4, "max_digits": 4} | options))
    with torch.no_grad():
        model.weight_map.get_buffer(key.replace(".", "/"))[index] = value
    return model


def refuted(model, operands: int, digits: int) -> bool:
    """Whether the model is refuted on a shape, by a problem that it really gets wrong when it decodes it alone."""
    task = model.task.at(operands, digits)
    found = interp.certify(model, arithmetic="interval", task=task)
    if found.status != "refuted":
        return False
    one = found.counterexample
    problem = task.as_problems([one.problem])
    wrong = predict(model, problem, "greedy", 1, task)[0] != task.targets(problem)[0]
    first = [role.label for role in task.target_roles][int(wrong.long().argmax())]
    return bool(wrong.any()) and first == one.target and one.predicted != one.expected


# ---- what is proved


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (2, 1), (3, 2), (9, 9), (10, 10), (30, 1), (7, 23), (26, 11)])
@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_shapes_of_the_grid_are_certified(model, shape, arithmetic):
    proof = prove_shape(model, *shape, arithmetic)
    assert proof.obstacle is None and (proof.operands, proof.digits) == shape
    assert proof.margin > (0.99 if arithmetic == "interval" else 0.8)


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([3.6, 5.0, 16.0, 30.7]))
def test_a_certified_margin_is_a_lower_bound_of_every_measured_one(operands: int, digits: int, eta: float):
    model = models.build(NAME, max_operands=9, max_digits=9, eta=eta)
    proof = prove_shape(model, operands, digits, "float32")
    assert proof.obstacle is None
    measured = run_cell(model, grid_problems(operands, digits, 12, seed=1)).min_margin
    assert proof.margin <= measured


def test_exact_arithmetic_and_the_certificate_agree_on_the_margin():
    model = models.build(NAME, max_operands=2, max_digits=2, dtype="float64")
    assert prove_shape(model, 2, 2).margin == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "variant", [{"hidden": "paper"}, {"last_next": "zero"}, {"bos_tie": "split"}, {"P1": 6, "P2": 4}]
)
def test_variants_of_the_construction_are_certified(variant):
    model = models.build(NAME, max_operands=5, max_digits=6, **variant)
    for arithmetic in ("interval", "float32"):
        assert prove_shape(model, 5, 6, arithmetic).obstacle is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_certified_as_a_real_function_and_undecided_with_rounding(dtype: str):
    model = models.build(NAME, max_operands=4, max_digits=4, dtype=dtype)
    task = model.task.at(4, 4)
    assert interp.certify(model, arithmetic="interval", task=task).status == "certified"
    found = interp.certify(model, arithmetic="float32", task=task)
    assert (found.status, found.open, found.counterexample) == ("undecided", 1, None)


def test_the_verdict_on_all_sizes_draws_their_margins_by_operands_and_digits():
    found = interp.certify(models.build(NAME, max_operands=4, max_digits=3))
    (grid,) = found.evidence.picture().views
    assert (list(grid.rows), list(grid.columns)) == ([1, 2, 3, 4], [1, 2, 3]) and (grid.values > 0.8).all()
    assert grid.values.ravel().tolist() == [part.margin for part in found.parts]


@pytest.mark.parametrize("arithmetic", ["interval", "float32"])
def test_the_stored_verdicts_cover_all_sizes_and_are_reproduced(model, arithmetic: Any):
    stored = hand_built_sums(arithmetic)
    margins = {part.name: part.margin for part in stored.parts}
    assert (stored.status, len(margins)) == ("certified", 900) and stored.smallest_margin > 0.8
    for m, n in ((3, 2), (14, 6)):
        assert 0 <= prove_shape(model, m, n, arithmetic).margin - margins[f"{m} x {n} digits"] < 1e-3


# ---- what the steps say


@pytest.mark.parametrize(("operands", "digits"), [(1, 1), (1, 3), (2, 2), (3, 2), (5, 4), (10, 2)])
def test_the_required_keys_are_those_of_the_roles(model, operands: int, digits: int):
    """Head by head, from the task's roles instead of position arithmetic."""
    task = model.task.at(operands, digits)
    keys = required_keys(operands, task.length)
    m, length = operands, task.length
    for row in range(keys.shape[1]):
        i, p = divmod(row, length + 1)
        a = lambda number, place: task.operand_position(number, place - 1) if place else number * (length + 1)  # noqa: E731
        b = lambda number, place: task.step_position(number, place - 1) if place else (m + number) * (length + 1)  # noqa: E731
        own = {a(i, p), b(i - 1, p)} if i else set()
        if i == m and p == 0:
            own = {b(m - 1, 0)}  # the delimiter behind a_m is '=', which belongs to b_0
        to_come = p < length
        expected = [
            {a(i, p + 1), b(i - 1, p + 1)} if i and to_come else set(),
            own,
            ({a(j, p + 1) for j in range(1, m + 1)} | {b(j, p + 1) for j in range(i)}) if to_come else set(),
            {b(i, p)} | ({a(i + 1, p)} if i < m and not (i == m - 1 and p == 0) else set()),
        ]
        for head in range(4):
            assert set(np.flatnonzero(keys[head, row])) == expected[head] | {0}, (head + 1, i, p)


def test_the_pattern_of_the_forward_pass_is_the_required_one(model):
    task = model.task.at(5, 4)
    _, cache = model.run_with_cache(task.encode(grid_problems(5, 4, 3, 0)))
    first = task.query_positions[0]
    keys = required_keys(5, task.length)
    ideal = torch.as_tensor(keys / keys.sum(-1, keepdims=True)).float()
    for row in cache["pattern", 0][:, :, first:]:
        assert torch.allclose(row, ideal, atol=1e-4)


def test_leakage_stays_below_the_closed_form_of_the_temperature_module():
    for eta in (2.0, 4.0, 16.0):
        model = models.build(NAME, max_operands=9, max_digits=9, eta=eta)
        weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
        readings = read_heads(weights, model.weight_map.dims, model.task.special)
        task = model.task.at(9, 9)
        ids = model.task.position_ids(task.encode(torch.zeros(1, 9, 9).long()))[0].numpy()
        P1, P2 = model.weight_map.options.position_bits
        flip = 1 + np.exp(-2 * eta)
        bounds = [2 * (flip ** (P1 + P2) - 1)] * 4
        bounds[2] = 19 * (flip**P1 - 1)
        for reading, bound in zip(readings, bounds, strict=True):
            assert 0 < attended(reading, ids, 9, task.length)[1] <= bound * (1 + 1e-6)


def test_the_finite_set_has_every_digit_and_both_carries(model):
    weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
    _, _, coefficients = read_units(weights, model.weight_map.dims)
    none = Perturbation((0.0,) * 4, (0.0,) * 4, 0.0, 0.0, 0.0, 0.0)
    low, high, digit = digit_values(none, coefficients)
    assert np.allclose(low, high, atol=1e-6) or (high - low).max() < 1e-5
    expected = {(0.0, 0)} | {(round(s + c / 10, 6), (s + (c >= 9)) % 10) for s in range(19) for c in (0, -1, 10, 9)}
    assert {(round(value, 6) + 0.0, int(d)) for value, d in zip(low, digit, strict=True)} == expected


# ---- what fails


@pytest.mark.parametrize(("operands", "digits"), [(3, 2), (3, 6), (1, 14)])
def test_the_papers_bound_on_p1_is_refuted_by_a_problem_that_the_model_gets_wrong(operands: int, digits: int):
    model = models.build(NAME, max_operands=operands, max_digits=digits, last_next="paper")
    assert "attends to keys it should not" in prove_shape(model, operands, digits).obstacle
    assert refuted(model, operands, digits)


@pytest.mark.parametrize(
    ("eta", "shape"),
    sampled([(1.0, (3, 2)), (2.5, (12, 12)), (2.5, (30, 4)), (1e5, (12, 12))], (1.0, (3, 2)), (1e5, (12, 12))),
)
def test_temperatures_at_which_attention_leaks_or_the_tie_breaks_are_refuted(eta: float, shape):
    model = models.build(NAME, max_operands=shape[0], max_digits=shape[1], eta=eta)
    assert refuted(model, *shape)


BROKEN = {
    "a query that reads the digit": ("blocks.0.attn.W_Q", (0, 0, 0), 1.0, "queries of head 1 depend on the token"),
    "a key that reads the digit": ("blocks.0.attn.W_K", (1, 0, 0), 1.0, "keys of head 2 depend on the digit"),
    "a value that reads the position": ("blocks.0.attn.W_V", (2, 19, 0), 1.0, "values of head 3 depend on the pos"),
    "a head that writes elsewhere": ("blocks.0.attn.W_O", (3, 0, 3), 1.0, "head 4 does not copy"),
    "an embedding that fills an output": ("embed.W_E", (3, 7), 1.0, "the input fills outputs"),
    "a hidden unit that reads a position": ("blocks.0.mlp.W_in", (20, 5), 1.0, "a hidden unit reads something else"),
    "an unembedding that reads the digit": ("unembed.W_U", (0, 3), 1.0, "the unembedding reads more than"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_weight_that_breaks_the_argument_is_named(model, name: str):
    key, index, value, sentence = BROKEN[name]
    dims = model.weight_map.dims
    weights = {k: v.detach().double().numpy().copy() for k, v in model.effective_weights().items()}
    weights[key][index] = value
    with pytest.raises(NotSeparated, match=sentence):
        read_heads(weights, dims, model.task.special)
        read_units(weights, dims)


def test_a_weight_that_was_changed_is_not_proved_and_may_be_refuted():
    model = broken("blocks.0.mlp.W_out", (30, slice(7, 17)), 0.0)
    proof = prove_shape(model, 2, 3)
    assert proof.obstacle == "blocks.0.mlp.W_out is not what its options build" and proof.margin == float("-inf")
    assert refuted(model, 2, 3)


def test_shapes_beyond_the_model_s_limits_are_refused(model):
    with pytest.raises(UserError):
        prove_shape(model, 31, 2)
