"""BFGS after the last step: it finds what badly conditioned valleys hide, and never makes a seed worse."""

import math
from pathlib import Path

import pytest
import torch

from models.errors import UserError
from models.registry import build, parameter_count, recipe_of
from models.training import train
from models.training.bfgs_polish import MOST_PARAMETERS, Polish, polished
from models.training.choose_objective import objective_for
from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.training.ten_digit_problems import AdditionProblems
from models.training.training_batches import TrainingStream
from models.zoo import zoo_names
from tests.models.training.edited import contents

BRIEF = Recipe(
    steps=40, batch_size=64, warmup_steps=5, eval_every=20, validation_size=64, snapshots=2,
    polish=Polish(problems=512, iterations=10, drawn_at=20_000),
)  # fmt: skip
QUIET = {"progress": False, "compile": False, "device": "cpu"}
NAME = "microadder-57"


def valley(x: torch.Tensor) -> torch.Tensor:
    """sum_i 10^i (x_i - i)^2 / 2: a condition number of 100,000, and one minimum at (0, 1, ..., 5)."""
    return (10.0 ** torch.arange(6) * (x - torch.arange(6.0)).square()).sum() / 2


def test_a_valley_of_condition_100000_is_followed_to_its_end():
    end = polished(valley, torch.zeros(6), 100)
    assert (end - torch.arange(6.0)).abs().max() < 1e-3


def test_in_units_of_their_own_size_numbers_of_any_size_reach_the_minimum_in_float32():
    sizes = torch.tensor([1e-2, 1.0, 1e3])
    loss = lambda x: (x / sizes - 2).square().sum() + 1  # noqa: E731
    start = 1.5 * sizes
    assert (polished(loss, start, 3, relative=True) / sizes - 2).abs().max() < 1e-2
    assert (polished(loss, start, 3) / sizes - 2).abs().max() > 0.1
    zero = polished(lambda x: (x - 3).square().sum(), torch.zeros(2), 20, relative=True)
    assert (zero - 3).abs().max() < 1e-2


def test_at_a_minimum_nothing_moves():
    assert polished(valley, torch.arange(6.0), 100).equal(torch.arange(6.0))


def test_where_the_loss_is_not_finite_the_seed_stays_as_it_was():
    assert polished(lambda x: x.sum() * math.nan, torch.ones(6), 5).equal(torch.ones(6))


def test_a_model_whose_inverse_hessian_is_too_large_is_refused_before_anything_is_written(tmp_path):
    large = next(
        name for name in zoo_names() if name.startswith("addlm-adder") and parameter_count(name) > MOST_PARAMETERS
    )
    recipe = recipe_of(large).replace(polish=Polish())
    with pytest.raises(UserError):
        train(large, tmp_path / "run", recipe=recipe, **QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"problems": 0},
        {"problems": 2**25},
        {"iterations": 0},
        {"iterations": -1},
        {"drawn_at": -1},
        {"penalty": -1.0},
        {"penalty": math.nan},
    ],
)
def test_settings_that_cannot_be_are_refused(change):
    with pytest.raises(UserError):
        Polish(**change)


def test_problems_of_many_lengths_are_not_polished():
    with pytest.raises(UserError):
        get_recipe("position-coupling-small").replace(polish=Polish())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a run that is polished and of one that is not."""
    folder = tmp_path_factory.mktemp("polish")
    for name, recipe in (("polished", BRIEF), ("plain", BRIEF.replace(polish=None))):
        assert train(NAME, folder / name, 3, recipe=recipe, **QUIET).complete
    return folder


def at_the_end(folder: Path) -> tuple:
    loaded = RunFolder(folder).load_checkpoint()
    assert loaded is not None
    return loaded


def loss_on(problems_of: int, theta: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of each seed on 512 problems of this stream, by the general formula."""
    model = build(NAME)
    stream = TrainingStream(model.task, AdditionProblems(), 512, [problems_of], torch.device("cpu"))
    tokens, targets = stream.batch(20_000)
    layout, objective = ParameterLayout(model), objective_for(model)
    return torch.stack([objective.loss(layout.unflatten(row[None]), tokens, targets)[0] for row in theta])


@pytest.mark.slow
def test_every_seed_has_a_lower_loss_on_its_own_problems_and_on_others(runs):
    after, before = (at_the_end(runs / name)[1]["theta"] for name in ("polished", "plain"))
    assert not after.equal(before)
    for seed in range(3):
        assert loss_on(seed, after[seed : seed + 1]) < loss_on(seed, before[seed : seed + 1])
    assert loss_on(99, after).mean() < loss_on(99, before).mean()


def test_polishing_counts_as_one_step_and_is_validated(runs):
    step, _, state = at_the_end(runs / "polished")
    assert step == 41 and all(seed["polished"] and seed["status"] == "finished" for seed in state["seeds"])
    assert [line["step"] for line in RunFolder(runs / "polished").metrics()] == [20, 40, 41]


def test_a_run_that_is_stopped_between_two_seeds_ends_with_the_same_bits(runs, tmp_path):
    result = train(NAME, tmp_path / "run", 3, recipe=BRIEF, stop_at_step=39, **QUIET)
    calls = 0
    while not result.complete:
        calls += 1
        result = train(NAME, tmp_path / "run", 3, recipe=BRIEF, minutes=1e-9, **QUIET)
    assert calls == 3  # a seed each
    assert contents(tmp_path / "run") == contents(runs / "polished")
