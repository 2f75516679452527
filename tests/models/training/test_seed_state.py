"""What validations make of a seed: when it is at its best, how fast it decays, when it ends."""

import pytest

from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe
from models.training.seed_state import SeedState


def judged(recipe: Recipe, *reports: dict[str, float]) -> tuple[SeedState, list[bool]]:
    """The state after validations at steps 500, 1000, ..., and which of them were the best so far."""
    state = SeedState(0)
    return state, [state.record_validation(report, 500 * (i + 1), recipe) for i, report in enumerate(reports)]


def test_of_equal_exact_matches_the_last_is_the_best():
    state, best = judged(Recipe(), *({"exact": exact, "token": 0.9} for exact in (0.1, 0.5, 0.5, 0.4)))
    assert best == [True, True, True, False]
    assert (state.best_exact, state.best_step, state.exact) == (0.5, 1500, 0.4)


def test_of_equal_losses_the_first_is_the_best_whatever_the_accuracy():
    reports = ({"exact": exact, "token": 0.5, "loss": loss} for exact, loss in ((0.3, 2.0), (0.1, 1.5), (0.2, 1.5)))
    state, best = judged(Recipe(), *reports)
    assert best == [True, True, False]
    assert (state.best_loss, state.best_step, state.best_exact) == (1.5, 1000, 0.1)


def test_a_seed_ends_when_it_was_perfect_so_many_times_in_a_row():
    recipe = Recipe(stop_after_perfect=2)
    state, _ = judged(recipe, *({"exact": exact, "token": 1.0} for exact in (1.0, 0.9, 1.0)))
    assert state.active and state.first_perfect_step == 500
    state.record_validation({"exact": 1.0, "token": 1.0}, 2000, recipe)
    assert (state.status, state.stopped_at) == ("perfect", 2000)


def test_a_seed_is_given_up_at_the_first_validation_from_the_step_that_is_asked_of_it():
    recipe = Recipe(drop_seed_below=((700, 0.5),))
    state, _ = judged(recipe, {"exact": 0.0, "token": 0.4})
    assert state.active
    state.record_validation({"exact": 0.0, "token": 0.4}, 1000, recipe)
    assert (state.status, state.stopped_at) == ("hopeless", 1000)
    later, _ = judged(recipe, *({"exact": 0.0, "token": token} for token in (0.4, 0.6, 0.4)))
    assert later.active


def test_adaptive_decay_falls_once_for_each_threshold_and_never_rises():
    recipe, state, decays = get_recipe("microadder-74"), SeedState(0), []
    for exact, token in ((0.0, 0.9), (0.03, 0.6), (0.03, 0.8), (0.01, 0.5), (0.3, 0.9), (0.0, 0.1)):
        report = {"exact": exact, "token": token, "exact_uniform": exact, "token_uniform": token}
        state.record_validation(report, 500, recipe)
        decays.append(state.weight_decay(recipe))
    assert decays == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
