"""What a card says of the runs behind it."""

import json

from models.training.named_recipes import get_recipe
from models.training.provenance import how_made
from models.training.recipes import Recipe
from models.zoo.card import made_by


def card(name: str, recipe: Recipe) -> str:
    stored = json.loads(json.dumps(recipe.to_dict()))  # as a run folder has it
    return made_by(name, how_made([{"model": name, "recipe": stored, "seeds": 4, "first_seed": 2}], 60.0))


def test_a_model_of_its_registered_recipe_is_made_by_the_command_alone():
    for name in ("microadder-57", "microadder-74", "toygpt-none-pre", "addlm-0.8m", "position-coupling-1l4h-small"):
        recipe = "toygpt" if name.startswith("toygpt") else name.removesuffix("-57")
        assert card(name, get_recipe(recipe)) == f"Made by\n\n    interp train {name} --seeds 4 --first-seed 2"


def test_a_run_with_a_judge_is_made_by_a_command_that_asks_for_it():
    config = {"model": "microadder-57", "recipe": {}, "seeds": 4, "first_seed": 2, "judge": "--certify float32"}
    made = how_made([config], 60.0)
    assert made["commands"] == ["interp train microadder-57 --seeds 4 --first-seed 2 --certify float32"]


def test_whatever_differs_from_the_registered_recipe_is_listed_with_both_values():
    recipe = get_recipe("microadder-74")
    fade = recipe.problems.carry_mix
    problems = type(recipe.problems)(carry_mix=type(fade)(0.8, 2_000, fade.fade_end))
    text = card("microadder-74", recipe.replace(steps=24_000, drop_seed_below=((10_000, 0.35),), problems=problems))
    assert text.splitlines()[3:] == [
        "",
        "with a recipe that differs from the registered one, microadder-74, in",
        "",
        "* `drop_seed_below`: [[10000, 0.35]] (registered: none)",
        "* `problems.carry_mix.fade_start`: 2,000 (registered: 10,000)",
        "* `steps`: 24,000 (registered: 120,000)",
    ]


def test_the_gpu_and_the_version_of_torch_are_those_of_the_run():
    config = {"model": "microadder-57", "seeds": 1, "first_seed": 0, "recipe": get_recipe("microadder").to_dict()}
    parts = [{"device": "cpu", "torch": "2.9.0+cpu"}, {"device": "NVIDIA X", "torch": "2.8.1+cu130"}]
    made = how_made([config], 1.0, parts)
    assert made["machine"] == "NVIDIA X" and made["torch"] == "2.9.0, 2.8.1"
    assert "machine" not in how_made([config], 1.0, parts[:1]) and "torch" in how_made([config], 1.0)
