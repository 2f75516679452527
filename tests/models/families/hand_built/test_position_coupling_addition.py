"""The hand-built Position Coupling transformer: exact, certified elsewhere, and limited where its docstring says."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.func import functional_call, stack_module_state, vmap
from transformer_lens import patching

import models
from interp.proofs.hand_built.shape_problems import grid_problems
from models.errors import UserError
from models.families.hand_built.construction import codes
from models.families.hand_built.position_coupling_addition import HandBuiltOptions
from models.run import logits_at
from studies.position_coupling.hand_built import run_cell
from tests.comparing import assert_same
from tests.conformance.expected import expected_activations
from tests.models.families.hand_built.exact_arithmetic import exact_check, is_rounding_of_rational

NAME = "position-coupling-hand-built"


@pytest.fixture(scope="module")
def model():
    return models.build(NAME)


@pytest.fixture(scope="module")
def small():
    return models.build(NAME, max_operands=4, max_digits=4)


def right(model, operands: int, digits: int, n: int = 6, seed: int = 0) -> bool:
    """Whether every one of ``n`` problems (the extremes among them) is answered entirely right."""
    return run_cell(model, grid_problems(operands, digits, n, seed)).correct == n


# ---- shape and size


@pytest.mark.parametrize(("operands", "digits"), [(1, 1), (3, 2), (7, 10), (30, 30), (100, 100), (1000, 1)])
def test_the_width_is_twice_the_position_bits_plus_19(operands: int, digits: int):
    options = HandBuiltOptions(operands, digits)
    P1, P2 = options.position_bits
    cfg = models.build(NAME, max_operands=operands, max_digits=digits).config
    assert (cfg.n_layers, cfg.n_heads, cfg.d_model, cfg.d_head) == (1, 4, 2 * (P1 + P2) + 19, P1 + P2 + 1)
    length = digits + 1 + math.floor(math.log10(operands))
    assert 2 ** (P1 - 1) < length + 2 <= 2**P1 and 2 ** (P2 - 1) < operands + 1 <= 2**P2
    assert (cfg.normalization_type, cfg.act_fn, cfg.score_scale, cfg.n_position_levels) == (None, "relu", 1.0, 2)


def test_the_number_of_nonzero_weights_at_the_size_of_the_grid(model):
    count = lambda m: {k: int((w != 0).sum()) for k, w in m.effective_weights().items()}  # noqa: E731
    shared, paper = count(model), count(models.build(NAME, hidden="paper"))
    assert (sum(shared.values()), sum(shared.values()) - shared["pos_embed.W_pos"]) == (1474, 386)
    assert (sum(paper.values()), sum(paper.values()) - paper["pos_embed.W_pos"]) == (1628, 540)


def test_the_named_dimensions_tile_the_stream_in_the_papers_order(model):
    dims, labels = model.weight_map.dims, model.weight_map.dim_labels
    flags = ["NUM", "IS_BOS", "FULL_ONES", "PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS"]
    assert list(dims) == [*flags, "SUM", "ARROW", "EOS", "POS_1", "POS_1_NEXT", "POS_2", "POS_2_NEXT"]
    covered = [i for where in dims.values() for i in range(where.start, where.stop)]
    assert covered == list(range(model.config.d_model)) and len(labels) == model.config.d_model
    assert labels[dims["NUM"].start] == "NUM" and labels[dims["SUM"].start + 7] == "SUM[7]"


@hypothesis.given(st.integers(1, 10))
def test_codes_are_signs_at_most_two_short_of_a_match(n_bits: int):
    code = codes(n_bits)
    products = code @ code.T
    assert (products.diagonal() == n_bits).all()
    assert (products - n_bits * torch.eye(2**n_bits, dtype=code.dtype)).fill_diagonal_(-n_bits).max() <= n_bits - 2


def test_sharing_knots_leaves_44_hidden_units_that_compute_what_the_texts_83_do():
    tied, paper = (
        models.build(NAME, max_operands=9, max_digits=9, hidden=h, dtype="float64") for h in ("shared", "paper")
    )
    assert (tied.config.d_mlp, paper.config.d_mlp) == (44, 83)
    stream = 20 * torch.randn(4, 50, tied.config.d_model, generator=torch.Generator().manual_seed(0)).double()
    assert_same(tied.blocks[0].mlp(stream), paper.blocks[0].mlp(stream), tolerance=1e-12)


# ---- right answers


@hypothesis.given(st.data())
def test_it_adds(model, data: st.DataObject):
    operands = data.draw(st.integers(1, 8))
    digits = data.draw(st.integers(1, 8))
    numbers = tuple(data.draw(st.integers(0, 10**digits - 1)) for _ in range(operands))
    task = model.task.at(operands, digits)
    logits = model(task.encode([numbers]))
    predicted = logits.argmax(-1)[:, list(task.query_positions)]
    assert torch.equal(predicted, task.targets([numbers]))
    assert task.decode(predicted) == [sum(numbers)]


SAMPLED_SHAPES = [(2, 1), (2, 30), (30, 1), (3, 2), (9, 9), (10, 10), (5, 17), (17, 5), (29, 8), (11, 24)]


@pytest.mark.parametrize(("operands", "digits"), SAMPLED_SHAPES)
def test_carry_heavy_and_extreme_problems_are_right_on_sampled_shapes_of_the_grid(model, operands: int, digits: int):
    cell = run_cell(model, grid_problems(operands, digits, 8, seed=5))
    assert cell.correct == cell.problems == 8
    assert cell.min_margin > 0.99


# ---- exact arithmetic


@pytest.mark.parametrize(
    ("operands", "digits"),
    [
        (1, 1),
        (2, 1),
        (3, 1),
        (1, 2),
        (1, 3),
        *[pytest.param(*s, marks=pytest.mark.slow) for s in [(2, 2), (1, 4), (4, 1)]],
    ],
)
def test_in_exact_arithmetic_every_input_is_right_by_a_margin_of_one(small, operands: int, digits: int):
    check = exact_check(small, operands, digits)
    assert check.inputs == 10 ** (operands * digits)
    assert check.predictions == check.inputs * (operands + 1) * (digits + 2)
    assert check.wrong == () and check.min_margin == Fraction(1)


def test_the_exact_check_reads_this_models_weights():
    assert is_rounding_of_rational(models.build(NAME, max_operands=2, max_digits=2))
    broken = models.build(NAME, max_operands=2, max_digits=2)
    with torch.no_grad():
        broken.weight_map.get_buffer("blocks/0/mlp/W_out")[4] = 0.0
    assert exact_check(broken, 1, 1).wrong
    with pytest.raises(UserError, match="at most 10\\^6"):
        exact_check(broken, 2, 4)


# ---- the paper's bound on P1


@pytest.mark.parametrize("digits", [2, 6, 14])
def test_with_the_papers_bound_every_arrow_and_eos_is_missed_where_it_is_tight(digits: int):
    """l + 1 = 2^P1: the NEXT code of the last digit's id is that of the delimiters."""
    model = models.build(NAME, max_operands=3, max_digits=digits, last_next="paper")
    task = model.task.at(3, digits)
    assert task.length + 1 == 2 ** model.weight_map.options.position_bits[0]
    sequences = task.sequences(grid_problems(3, digits, 10, seed=1))
    wrong = (model(sequences.inputs).argmax(-1) != sequences.targets) & sequences.mask
    delimiter = (sequences.targets >= 10) & sequences.mask
    assert torch.equal(wrong, delimiter)


@pytest.mark.parametrize("last_next", ["wrap", "zero"])
@pytest.mark.parametrize("digits", [2, 5, 6, 7, 14])
def test_an_id_to_spare_or_a_zero_next_code_mends_it(last_next: str, digits: int):
    model = models.build(NAME, max_operands=3, max_digits=digits, last_next=last_next)
    assert model.weight_map.options.position_bits[0] == math.ceil(
        math.log2(digits + 1 + (2 if last_next == "wrap" else 1))
    )
    assert right(model, 3, digits)


def test_the_papers_sufficient_number_of_bits_does_not_hold_all_ids():
    """log2(n + 1 + floor(log10 m)) = log2 l bits name l ids, and l + 1 are needed: 8 digits padded, 3 bits."""
    with pytest.raises(UserError, match="P1 = 3 bits tell 8 ids apart.*need 10: P1 must be at least 4"):
        models.build(NAME, max_operands=3, max_digits=7, P1=3)
    with pytest.raises(UserError, match="need 9"):
        models.build(NAME, max_operands=3, max_digits=7, P1=3, last_next="paper")


def test_the_wrap_of_level_two_is_harmless():
    model = models.build(NAME, max_operands=7, max_digits=3)
    assert 2 ** model.weight_map.options.position_bits[1] == 7 + 1  # b_7 has the last id
    assert right(model, 7, 3)


# ---- the contract of a constant weight map


def test_gradients_reach_every_activation_and_weight(small):
    tokens = small.to_tokens("57+48+96")
    _, cache = small.run_with_cache(tokens, return_type="loss", incl_bwd=True)
    hooks = expected_activations(small.config, *tokens.shape)
    assert {f"{name}_grad" for name in hooks} <= set(cache)
    assert all(weight.requires_grad for weight in small.effective_weights().values())
    with torch.inference_mode():
        assert not small(tokens).requires_grad


def test_patching_and_vmap_work_on_the_exact_weights(small):
    clean, other = small.to_tokens("57+8"), small.to_tokens("57+7")
    _, cache = small.run_with_cache(clean)
    at = small.task.at(2, 2).step_position(2, 0) - 1  # predicts the units digit of b_2: 5, or 4
    metric = lambda logits: logits[0, at, 5] - logits[0, at, 4]  # noqa: E731
    swept = patching.get_act_patch_resid_pre(small, other, cache, metric)
    units = small.task.at(2, 2).operand_position(2, 0)
    assert swept[0, units] == pytest.approx(1, abs=1e-3) and swept.argmax() == units and (swept < 0).sum() > 5
    parameters, buffers = stack_module_state([small, small])
    stacked = vmap(lambda p, b: functional_call(small, (p, b), (clean,)))(parameters, buffers)
    assert_same(stacked[1], small(clean))


def test_it_moves_between_dtypes_and_copies():
    model = models.build(NAME, max_operands=3, max_digits=2)
    tokens = model.to_tokens("57+48+96")
    twin = copy.deepcopy(model).double()
    assert twin.dtype == twin(tokens).dtype == torch.float64 and model.dtype == torch.float32
    assert_same(twin(tokens), model(tokens), tolerance=1e-4)
    assert models.build(NAME, max_operands=3, max_digits=2, dtype="bfloat16").cfg.dtype == torch.bfloat16


def test_rows_of_a_long_sequence_are_those_of_the_hooked_forward(model):
    task = model.task.at(9, 7)
    sequences = task.sequences(grid_problems(9, 7, 3, seed=2))
    rows = sequences.mask[0].nonzero().flatten()
    expected = model(sequences.inputs)[:, rows]
    for at_once in (1, 10**5, 10**9):
        assert_same(logits_at(model, sequences.inputs, rows, scores_at_once=at_once), expected, tolerance=1e-6)
    with pytest.raises(UserError, match="one-layer models without norms"):
        logits_at(models.build("microadder-57"), sequences.inputs[:, :4].clamp(max=9), rows[:1])


# ---- what a user can get wrong


def test_larger_problems_are_refused_with_the_limit(small):
    with pytest.raises(UserError, match="adds at most 4 operands, not 5"):
        small((1, 2, 3, 4, 5))
    with pytest.raises(UserError, match="at most 4 digits, not 5"):
        small((10000, 1))


def test_ids_beyond_the_tables_are_refused(small):
    tokens = small.to_tokens("57+48")
    ids = small.task.position_ids(tokens) + torch.tensor([small.config.position_rows, 0])
    with pytest.raises(UserError, match="tables end at"):
        small(tokens, position_ids=ids)
