"""MicroAdder's ladder: every rung has its count, computes its formulas and keeps its promises."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from models.errors import UserError
from models.families.microadder import MicroAdderWeights
from models.families.microadder_ladder import (
    LADDER,
    PLACED_START,
    SMALLEST,
    rung,
)
from models.families.microadder_options import MicroAdderOptions
from models.registry import names
from models.training.choose_objective import objective_for
from models.training.stacked_objective import GeneralObjective, ParameterLayout
from models.training.ten_digit_problems import AdditionProblems
from models.training.training_batches import TrainingStream
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.geometry import mirrored_square, scaled_axes, spiral

TOTALS = [242, 226, 214, 203, 187, 170, 133, 100, 78, 75, 74, 67, 57]
SAVINGS = [16, 12, 11, 16, 17, 37, 33, 22, 3, 1, 7, 10]
MEMBERS = [name for name in names(sweeps=True) if name.startswith("microadder-")]
MIRRORED = {
    "predict_eos": False, "tokens": "arc", "values": "direction", "out_writes": "tokens", "mlp_reads": "tokens",
    "head_reads": "tokens", "mirror": True, "freeze_arc_start": True, "qk": "circle", "qk_dim": 2, "norm": "scalar",
}  # fmt: skip
#: The public notes' parameter budgets (README of the 170-parameter submission, JOURNEY.md).
BUDGETS = {
    170: {"tok_table": 28, "pos_z_hi": 4, "W_qk": 24, "q_angle": 2, "W_v": 12, "W_fc1": 12, "b_fc1": 2, "W_head": 12},
    100: {"pos_z_hi": 3, "W_qk": 15, "q_angle": 1, "W_v": 10, "W_fc1": 10, "W_fc2": 10, "W_head": 10},
    57: {"pos_z_hi": 3, "pos_equals": 3, "W_qk": 12, "q_angle": 1, "W_fc1": 10, "W_head": 10, "norm_w": 5},
}


def drawn(name: str, seed: int = 0) -> models.ArithmeticTransformer:
    """A model in float64 with all parameters moved off their initial values."""
    model = models.build(name, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def test_the_paper_s_table_is_counted_from_the_configurations() -> None:
    counts = [sum(p.numel() for p in models.build(one.name).parameters()) for one in LADDER]
    assert counts == TOTALS == [one.n_parameters for one in LADDER]
    assert [a - b for a, b in itertools.pairwise(counts)] == SAVINGS


@pytest.mark.parametrize("total", BUDGETS)
def test_budgets_are_the_published_ones(total: int) -> None:
    sizes = {name: math.prod(shape) for name, shape in rung(total).options.shapes().items()}
    assert {name: sizes[name] for name in BUDGETS[total]} == BUDGETS[total]
    assert sum(sizes.values()) == total


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_makes_a_model_of_its_count(name: str) -> None:
    model = models.build(name)
    options = model.weight_map.options
    parameters = dict(model.weight_map.named_parameters())
    assert {key: tuple(p.shape) for key, p in parameters.items()} == options.shapes()
    assert sum(p.numel() for p in parameters.values()) == options.n_parameters
    tokens = model.task.encode([(57, 48), (9_999_999_999, 1)])
    assert torch.isfinite(model(tokens)).all()


@pytest.mark.parametrize("name", [name for name in MEMBERS if not name.endswith("by-hand")])
def test_every_free_number_matters(name: str) -> None:
    """No number is counted that the function cannot depend on, except where the paper's own models have such."""
    model = drawn(name)
    options = model.weight_map.options
    problems = model.task.sample(16, torch.Generator().manual_seed(1))
    loss = torch.logsumexp(model(model.task.encode(problems))[:, list(model.task.query_positions)], -1).sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    for (key, parameter), gradient in zip(model.weight_map.named_parameters(), gradients, strict=True):
        if key == "pos_eos":
            assert gradient is None or not gradient.any()  # EOS is never read: 3 numbers for nothing until 203
            continue
        assert gradient is not None, key
        moved = gradient.abs().reshape(-1) > 0
        if key == "W_qk" and options.qk == "full" and not moved.all():
            pytest.fail(f"{key} has a number that changes nothing")
        assert moved.any() and parameter.numel() - int(moved.sum()) <= (2 if key == "tok_table" else 0), key


def test_the_spiral_s_factors_are_one_plus_a_correction() -> None:
    model = drawn("microadder-203")
    w = model.weight_map
    i = torch.arange(10, dtype=torch.float64)
    angle = 2 * torch.pi * i / 10 + w.spiral_phase
    base = torch.stack(
        (w.spiral_amp * angle.cos(), w.spiral_amp * angle.sin(), w.spiral_slope * i + w.spiral_offset), 1
    )
    expected = base * (1 + w.pos_correction_intercept + w.pos_correction_slope * i)[:, None]
    positions = model.W_pos[:, 3:]
    for first in (0, 11, 22):
        assert torch.allclose(positions[first : first + 10], expected, atol=1e-7)
    assert torch.equal(positions[10], w.pos_plus) and torch.equal(positions[21], w.pos_equals)
    assert torch.equal(positions[32], w.pos_z_hi) and not positions[33].any()


def test_two_heads_turn_their_own_keys() -> None:
    """q = R(theta_h) k on rows 0 and 1 of each head; the third row is the key's."""
    model = drawn("microadder-187")
    w = model.weight_map
    for head in range(2):
        keys = w.W_qk[3 * head : 3 * head + 3]
        cos, sin = w.q_angle[head].cos(), w.q_angle[head].sin()
        turned = torch.stack((keys[0] * cos - keys[1] * sin, keys[0] * sin + keys[1] * cos, keys[2]))
        assert torch.allclose(model.W_Q[0, head][3:], turned.T)
        assert torch.equal(model.W_K[0, head][3:], keys.T)
        assert not model.W_Q[0, head][:3].any() and not model.W_V[0, head][3:].any()


def test_rank_two_output_is_the_product_of_its_factors() -> None:
    model = drawn("microadder-214")
    w = model.weight_map
    assert torch.allclose(model.W_O[0].reshape(6, 6), w.out_A @ w.out_B)
    assert torch.linalg.matrix_rank(model.W_O[0].reshape(6, 6)) == 2


def test_the_largest_rung_is_its_formulas() -> None:
    """242 parameters, token by token in float64 numpy."""
    model = drawn("microadder-242")
    p = {key: value.detach().numpy() for key, value in model.weight_map.named_parameters()}
    tokens = model.task.encode([(9_876_543_210, 1_234_567_899)])
    places = np.concatenate(
        (
            p["pos_columns"],
            p["pos_plus"][None],
            p["pos_columns"],
            p["pos_equals"][None],
            p["pos_columns"],
            p["pos_z_hi"][None],
        )
    )
    x = np.concatenate((p["tok_table"][tokens[0].numpy()], places), 1)

    def norm(v: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return v / np.sqrt((v**2).mean(-1, keepdims=True) + 1e-5) * gain

    h = norm(x, p["norm1_w"])
    written = np.zeros((33, 6))
    for head in range(2):
        rows = slice(3 * head, 3 * head + 3)
        q, k, v = h[:, 3:] @ p["W_q"][rows].T, h[:, 3:] @ p["W_qk"][rows].T, h[:, :3] @ p["W_v"][rows].T
        scores = np.where(np.tri(33, dtype=bool), q @ k.T / math.sqrt(3), -np.inf)
        pattern = np.exp(scores - scores.max(1, keepdims=True))
        written[:, rows] = pattern / pattern.sum(1, keepdims=True) @ v
    y = x + written @ p["W_out"]
    pre = norm(y, p["norm2_w"]) @ p["W_fc1"].T + p["b_fc1"]
    y = y + torch.nn.functional.gelu(torch.from_numpy(pre)).numpy() @ p["W_fc2"] + p["b_fc2"]
    expected = norm(y, p["norm_f_w"]) @ p["W_head"].T @ p["tok_table"].T
    assert np.abs(model(tokens)[0].detach().numpy() - expected).max() < 1e-9 * np.abs(expected).max()


def test_delimiters_are_tokens_above_133_and_zeros_from_there_on() -> None:
    assert models.build("microadder-170").task.encode([(57, 48)])[0, [10, 21]].tolist() == [10, 11]
    assert models.build("microadder-170").task.targets([(57, 48)])[0, -1] == 12
    assert models.build("microadder-133").task.encode([(57, 48)])[0, [10, 21]].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["microadder-170", "microadder-75", "microadder-11"])
def test_every_kind_of_rung_trains_by_the_gradient_of_its_own_loss(name: str) -> None:
    """Heads, ranks, biases and separate norms through whatever kernel serves them."""
    model = models.build(name)
    layout = ParameterLayout(model)
    theta = torch.stack([layout.flatten(models.build(name, seed)) for seed in (0, 1)])
    theta = (theta + 0.2 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    batch = TrainingStream(model.task, AdditionProblems(), 32, [0, 1], torch.device("cpu")).batch(20_000)
    found = []
    for objective in (objective_for(model), GeneralObjective(model)):
        loss = objective.loss(layout.unflatten(theta), *batch)
        found.append((loss.detach(), torch.autograd.grad(loss.sum(), theta)[0]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=2e-3, atol=2e-4)


# ---- below 57


def test_values_of_one_direction_cost_three_numbers_less_and_nothing_else() -> None:
    """o_A counts only through H o_A: the 57-parameter model's output has two numbers there and not five."""
    full, short = drawn("microadder-57"), variant(values="direction")
    own, its = dict(full.weight_map.named_parameters()), dict(short.weight_map.named_parameters())
    with torch.no_grad():
        for key, parameter in its.items():
            parameter.copy_(own["W_head"] @ own["out_A"] if key == "W_v" else own[key])
    tokens = full.task.encode(full.task.sample(8, torch.Generator().manual_seed(0)))
    assert torch.allclose(full(tokens), short(tokens), atol=1e-9)


def test_a_mirrored_model_commutes_with_the_nines_complement() -> None:
    """Reflecting the token plane takes digit d to 9 - d, and the mirrored maps to themselves."""
    for model in (drawn("microadder-11"), variant(**MIRRORED | {"head_reads": "tokens and slope"})):
        commutes_with_the_nines_complement(model)


def commutes_with_the_nines_complement(model: ArithmeticTransformer) -> None:
    swap = torch.tensor([1, 0, 2, 3, 4])
    assert torch.allclose(model.W_E[:, swap].flip(0)[:, :2], model.W_E[:, :2])
    for matrix in (model.W_in[0], model.W_out[0].T):
        assert torch.allclose(matrix[swap].flip(1), matrix)
    assert torch.allclose(model.W_U[swap].flip(1), model.W_U)
    assert torch.allclose(-model.W_V[0, 0][swap], model.W_V[0, 0])


def test_placed_attention_starts_where_trained_models_have_it() -> None:
    """About 0.435 on both own operands and 0.044 on the three digits before: FACTS of the published weights."""
    model = models.build("microadder-36")
    _, cache = model.run_with_cache(model.task.encode([(1_234_567_890, 9_876_543_210)]))
    pattern = cache["pattern", 0][0, 0]
    for column in range(1, 10):
        own, previous = [column, 11 + column], [column - 1, 10 + column, 21 + column]
        assert pattern[21 + column, own].min() > 0.40
        assert 0.02 < pattern[21 + column, previous].min() <= pattern[21 + column, previous].max() < 0.06
    last = pattern[31]  # delimiters, digits of zero, stand in for the operands of an eleventh column
    assert last[[10, 21]].sum() > 0.85


def test_without_eos_nothing_behind_the_tenth_column_is_read() -> None:
    task = models.build("microadder-36").task
    assert task.encode([(57, 48)]).shape == (1, 32) and task.targets([(57, 48)]).shape == (1, 11)
    assert task.decode(task.targets([(9_999_999_999, 1), (57, 48)])) == [10_000_000_000, 105]
    rows = torch.tensor([[57, 48], [123, 9]])
    tokens, targets = task.encode_rows(rows)
    assert torch.equal(tokens.T.long(), task.encode(rows)) and torch.equal(targets.T.long(), task.targets(rows))


@given(rows=st.integers(1, 6), columns=st.integers(1, 6), seed=st.integers(0, 99))
def test_structured_matrices_repeat_their_numbers(rows: int, columns: int, seed: int) -> None:
    numbers = torch.randn(min(rows, columns), generator=torch.Generator().manual_seed(seed))
    found = scaled_axes(numbers, rows, columns)
    assert found.shape == (rows, columns) and torch.equal(found[: len(numbers), : len(numbers)], torch.diag(numbers))
    a, b = torch.randn(2, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(mirrored_square(torch.stack((a, b))), torch.tensor([[a, b], [b, a]]))


def test_a_spiral_may_start_before_its_first_column() -> None:
    numbers = [torch.tensor(x) for x in (3.5, 0.2, 0.15, -1.0)]
    assert torch.allclose(spiral(*numbers, 12, first=-1)[1:-1], spiral(*numbers, 10))


# ---- starts


def test_the_placed_start_lies_where_trained_arcs_and_the_column_before_the_first_lie() -> None:
    begin = dict(PLACED_START.initial_values or ())
    trained = {name: p.item() for name, p in models.load("microadder-57").weight_map.named_parameters() if p.ndim == 0}
    centre = begin["arc_start"] + 4.5 * begin["arc_stride"]
    assert centre == pytest.approx(math.pi / 4)
    assert trained["arc_start"] + 4.5 * trained["arc_stride"] == pytest.approx(centre, abs=0.1)
    assert begin["arc_stride"] == pytest.approx(trained["arc_stride"], abs=0.03)
    columns = models.load("microadder-57").W_pos[:10, 2:4]  # each a tenth of a turn after the one before
    angle = math.atan2(begin["pos_equals[1]"], begin["pos_equals[0]"])
    assert angle == pytest.approx(math.atan2(columns[0, 1], columns[0, 0]) - 2 * math.pi / 10, abs=1e-5)


def test_a_shorter_schedule_holds_for_the_same_share_of_it() -> None:
    recipe = PLACED_START
    short = recipe.shrunk(5)
    shares = [{step / each.steps for _, step in each.freeze_until or ()} for each in (recipe, short)]
    assert shares[0] == shares[1] == {1 / 3}


# ---- bad input


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"token_dim": 3}, "arc lies in two dimensions"),
        ({"tokens": "table", "position_dim": 1}, "spiral needs three"),
        ({"tokens": "table", "position_dim": 2, "freeze_spiral": False}, "spiral needs three"),
        ({"columns": "table", "equals": "spiral"}, "need columns on the spiral"),
        ({"head_dim": 4}, "n_heads \\* head_dim = d_model"),
        ({"values": "direction", "out_rank": 2}, "need one head and out_rank=1"),
        ({"d_mlp": 1}, "d_mlp cannot be 1"),
        ({"mirror": True}, "mirrored token plane needs"),
        ({"mlp_reads": "tangent"}, "Only a mirrored arc"),
        ({"columns": "table", "equals": "scaled half"}, "need columns on the spiral"),
        ({"qk_dim": 0}, "at least 1"),
        ({"freeze_spiral": False, "level": True}, "frozen spiral"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes: dict, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        replace(MicroAdderOptions(), **changes)


def test_the_default_is_the_57_parameter_model() -> None:
    assert MicroAdderWeights().options == rung(57).options == MicroAdderOptions()


def variant(**changes: Any) -> ArithmeticTransformer:
    """A variant of the 57 in float64 with all parameters moved off their initial values."""
    options = replace(MicroAdderOptions(), **changes)
    weight_map = MicroAdderWeights(options).double()
    for i, parameter in enumerate(weight_map.parameters()):
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
    return ArithmeticTransformer(weight_map, options.task(), name="variant")


def test_a_place_half_a_column_away_is_a_number_times_the_spiral_there() -> None:
    model = variant(equals="scaled half", plus="scaled half")
    spiral_at = lambda i: torch.tensor([3.5 * math.cos(math.pi * i / 5), 3.5 * math.sin(math.pi * i / 5), 0.15 * i])  # noqa: E731
    torch.testing.assert_close(model.W_pos[21, 2:].float(), model.weight_map.pos_equals.float() * spiral_at(-0.5))
    torch.testing.assert_close(model.W_pos[10, 2:].float(), model.weight_map.pos_plus.float() * spiral_at(9.5))


def test_a_head_that_reads_tokens_and_slope_has_no_number_for_the_circle_of_columns() -> None:
    model = variant(head_reads="tokens and slope")
    head = model.W_out[0]  # F is H
    assert torch.equal(head[:, [0, 1, 4]], model.weight_map.W_head) and not head[:, 2:4].any()
    assert torch.allclose(model.W_U, head.T @ model.W_E[:, :2].T)


def test_on_a_level_circle_all_columns_have_one_norm_and_turns_take_one_to_the_next() -> None:
    options = replace(rung(57).options, **SMALLEST[22])
    weights = MicroAdderWeights(options)
    places = weights()["pos_embed.W_pos"][:, 2:]
    columns = places[:10]
    assert torch.equal(places[11:21], columns) and torch.equal(places[22:32], columns)
    assert torch.allclose(columns.square().sum(1), torch.tensor(3.5**2 + 1)) and (columns[:, 2] == 1).all()
    angle = 2 * math.pi / 11
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    around = torch.cat((places[21:22], columns, places[10:11]))[:, :2]  # equals before the first, plus after the last
    assert torch.allclose(around[1:], around[:-1] @ turn.T, atol=1e-5)


def test_an_mlp_that_reads_tokens_and_slope_has_no_number_for_the_circle_of_columns() -> None:
    options = replace(rung(57).options, mlp_reads="tokens and slope")
    weights = MicroAdderWeights(options)
    weights.initialise(torch.Generator().manual_seed(0))
    read = weights()["blocks.0.mlp.W_in"]
    assert options.n_parameters == 57 - 4
    assert torch.equal(read[[0, 1, 4]], weights.W_fc1.T) and (read[2:4] == 0).all()


def test_a_mirrored_model_may_read_along_the_tangent_of_its_arc() -> None:
    model = variant(**MIRRORED | {"mlp_reads": "tangent", "head_reads": "tangent and slope"})
    a, (b, slope) = model.weight_map.W_fc1, model.weight_map.W_head
    assert torch.equal(model.W_in[0][:2], a * torch.tensor([[1.0, -1], [-1, 1]]).double())
    expected = torch.stack([torch.stack([b, -b, slope]), torch.stack([-b, b, slope])])
    assert torch.equal(model.W_out[0][:, [0, 1, 4]], expected)
    commutes_with_the_nines_complement(model)


def test_the_circle_of_the_keys_may_have_one_number_and_the_slope_another() -> None:
    model = variant(qk="circle and slope", qk_dim=3)
    assert torch.equal(model.W_K[0, 0][2:, :3], torch.diag(model.weight_map.W_qk[[0, 0, 1]]))
