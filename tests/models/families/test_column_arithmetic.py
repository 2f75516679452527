"""One-layer decoders of other arithmetic: where attention starts, and what is one with what training computes."""

from __future__ import annotations

import math

import pytest
import torch

import models
from models.families.column_arithmetic import mixed
from models.training.choose_objective import objective_for
from models.training.stacked_objective import GeneralObjective
from models.training.training_batches import TrainingStream
from models.transformer.parts.weights import weight_shapes
from tests.models.training.stacked import stack

NAMES = ("subtractor-2480", "mixed-ten-digits", "clock-adder")


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_objective_is_the_general_one(name: str):
    model, layout, theta = stack(name)
    fast, problems = objective_for(model), models.registry.recipe_of(name).problems
    source = problems.of(model.task) if hasattr(problems, "of") else problems
    tokens, targets = TrainingStream(model.task, source, 64, [0, 1, 2], torch.device("cpu")).batch(100)
    losses = [objective.loss(layout.unflatten(theta), tokens, targets) for objective in (fast, GeneralObjective(model))]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_attention_starts_at_the_right_column_of_the_right_operand(name: str):
    model = models.build(name, seed=3)
    task = model.task
    for index, (own, problem) in enumerate((getattr(task, "by_operator", {}) or {"": task}).items()):
        numbers = problem.sample(4, torch.Generator().manual_seed(0))
        whole = torch.stack((numbers[:, 0], torch.full((4,), index), numbers[:, 1]), 1) if own else numbers
        _, cache = model.run_with_cache(task.encode(whole))
        readers = (0, 1 + index)  # of the first number, and of the second with this operator
        for target in range(10):
            pattern = cache["pattern", 0][:, :, task.query_positions[target]]
            for operand, head in enumerate(readers):
                digits = [i for i, role in enumerate(task.roles[: pattern.shape[2]]) if role.kind != "delimiter"]
                seen = pattern[:, head, digits]
                best = [task.roles[digits[i]] for i in seen.argmax(1).tolist()]
                assert {(role.column, role.index) for role in best} == {(target, operand)}
                assert (seen.amax(1) > 0.7 * seen.sum(1)).all()
            for head in {1, 2} - set(readers) if own else ():  # nothing but the operator
                assert (pattern[:, head].argmax(1) == 10).all() and pattern[:, head].amax(1).min() > 0.99


def test_attention_writes_along_few_directions_and_digits_stand_on_one_circle():
    for name, rank in (("subtractor-2480", 2), ("mixed-ten-digits", 2), ("clock-adder", 4)):
        written = models.build(name, seed=1).W_O[0].detach().double().flatten(0, 1)
        assert torch.linalg.matrix_rank(written, rtol=1e-6) == rank
    digits = models.build("clock-adder", seed=1).W_E[:10].detach()
    turn = digits[:, -2:] @ digits.roll(1, 0)[:, -2:].T
    torch.testing.assert_close(digits.norm(dim=1), torch.full((10,), 3.0))
    torch.testing.assert_close(turn.diagonal(), torch.full((10,), 9 * math.cos(math.tau / 10)))


def test_the_name_says_the_number_of_free_parameters():
    assert models.registry.parameter_count("subtractor-2480") == 2480


def test_a_file_in_the_shape_of_quanta_maths_is_read_and_judged(tmp_path):
    """Two layers, `a op b = +c`, the highest digit first, a TransformerLens state dict under QuantaMaths' file name."""
    import interp

    own = models.build("mixed-six-digits", seed=0)
    state = {name: value.detach() for name, value in own.all_weights().items()}
    state |= {f"blocks.{layer}.attn.mask": torch.ones(22, 22).tril().bool() for layer in (0, 1)}
    path = tmp_path / "mix_d6_l2_h4_t8K_s0.pth"
    torch.save(state, path)
    read = models.load(path, task=mixed(6))
    problems = read.task.sample(8, torch.Generator().manual_seed(0))
    tokens = read.task.encode(problems)
    assert torch.equal(read(tokens), own(tokens)) and read.config.act_fn == "relu"
    assert set(state) > set(weight_shapes(own.config))
    found = interp.attack(read, runs=300)
    assert found.wrong and found.wrong[0].predicted != found.wrong[0].expected
    few = models.load(path, task=mixed(1))  # all problems of one digit can be run: an exact share
    assert interp.certify(few).score.n == 200
