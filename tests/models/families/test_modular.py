"""Models of modular arithmetic: uniform attention as a weight map, and training on a share of the pairs."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from models.families.modular import CELLS
from models.tasks.counter_rng import row_keys
from models.tasks.named.cyclic_groups import group_of
from models.training.task_problems import TaskProblems
from tests.sampling import every_third

CPU = torch.device("cpu")
NAMES = [name for name in models.names() if name.startswith("modular-") and models.get_spec(name).recipe is not None]


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_all_pairs_of_residues(name: str):
    task = models.get_spec(name).task()
    _, operation, p, *_ = name.split("-")
    of = {"addition": lambda a, b: a + b, "subtraction": lambda a, b: a - b, "multiplication": lambda a, b: a * b}
    every = torch.cartesian_prod(torch.arange(int(p)), torch.arange(int(p)))
    assert task.domain.size == len(every)
    assert torch.equal(task.answers(every), of[operation](*every.T) % int(p))


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("uniform")])
def test_uniform_attention_gives_each_token_a_third_and_has_no_numbers_of_its_own(name: str):
    model = models.build(name, seed=1)
    _, cache = model.run_with_cache(model.task.encode([(3, 5), (8, 1)]))
    assert torch.equal(cache["pattern", 0][:, :, 2], torch.full((2, 4, 3), 1 / 3))
    learned = models.build(name.removesuffix("-uniform"), seed=1)
    assert not (learned.run_with_cache(learned.task.encode([(3, 5)]))[1]["pattern", 0][0, :, 2] == 1 / 3).any()
    gone = set(dict(learned.weight_map.named_parameters())) - set(dict(model.weight_map.named_parameters()))
    assert gone == {"blocks/0/attn/W_Q", "blocks/0/attn/W_K"}


@pytest.mark.parametrize("name", every_third(NAMES))
def test_recipes_train_on_the_papers_share_of_all_pairs_and_validate_on_all_that_are_no_test(name: str):
    spec = models.get_spec(name)
    task, recipe = spec.task(), spec.recipe
    assert recipe is not None and isinstance(recipe.problems, TaskProblems)
    wanted = {113: 0.3, 59: 0.8, 31: 0.8}[task.base]
    drawn = recipe.problems.of(task).draw(0, 0, 2**17, CPU)
    assert len(drawn.unique(dim=0)) == pytest.approx(wanted * task.domain.size, abs=2)
    assert not task.held_out.holds(drawn).any()
    validated = task.held_out.validation(recipe.validation_size, seed=0)
    assert len(validated.unique(dim=0)) == task.domain.size - task.held_out.n


def test_a_cell_of_the_sweep_has_the_width_depth_and_attention_of_its_name():
    assert len(CELLS) == 25
    for name, (_, uniform, width, layers) in CELLS.items():
        model = models.build(name)
        assert (model.cfg.d_model, model.cfg.n_layers, model.cfg.d_mlp) == (width, layers, 4 * width)
        free = {key for key, _ in model.weight_map.named_parameters()}
        assert all((f"blocks/{layer}/attn/W_Q" in free) != uniform for layer in range(layers))


def test_shuffled_answers_are_the_sums_in_another_order_and_no_groups():
    task, sums = (models.build(f"modular-{kind}-31-d32-l1").task for kind in ("shuffled", "addition"))
    pairs = torch.cartesian_prod(torch.arange(31), torch.arange(31))
    assert torch.equal(task.answers(pairs).sort().values, sums.answers(pairs).sort().values)
    assert (task.answers(pairs) == sums.answers(pairs)).double().mean() < 0.1
    with pytest.raises(UserError):
        group_of(task)


def test_all_seeds_draw_at_once_what_each_draws_alone():
    task = models.get_spec("modular-addition-59").task()
    source = TaskProblems(share=0.5).of(task)
    tokens, targets = source.native_batch(task, torch.tensor([4, 9]), 7, 33)
    for i, seed in enumerate((4, 9)):
        alone = task.encode_rows(source.draw(seed, 7, 33, CPU))
        assert torch.equal(tokens[i], alone[0]) and torch.equal(targets[i], alone[1])


def test_a_share_needs_problems_that_can_be_listed():
    task = models.get_spec("subtractor-47").task()
    with pytest.raises(UserError, match="too many problems"):
        task.held_out.training(row_keys(0, 0, 4, CPU), share=0.5)
    for share in (0.0, 1.5):
        with pytest.raises(UserError, match="share"):
            TaskProblems(share=share)
