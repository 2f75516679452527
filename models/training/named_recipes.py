"""Recipes by name, and whether a model can be trained with one."""

from __future__ import annotations

from models import registry
from models.errors import UserError, unknown_name
from models.training.bfgs_polish import MOST_PARAMETERS
from models.training.recipes import RECIPES, Recipe
from models.training.training_batches import require_problems_of

MOST_SEEDS = 100_000  # per run


def get_recipe(name: str) -> Recipe:
    """A recipe by its name. Raises UserError with the closest match."""
    registry.names()  # imports the modules of the models, which add their recipes
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]


def checked_recipe(name: str, seeds: int, first_seed: int, recipe: Recipe | None) -> Recipe:
    """The recipe, by default the model's own. Raises UserError if it or the seeds cannot be trained."""
    spec = registry.get_spec(name)
    recipe = registry.recipe_of(name) if recipe is None else recipe
    if not 1 <= seeds <= MOST_SEEDS or not 0 <= first_seed < 2**62:
        raise UserError(
            f"--seeds must be at least 1 and at most {MOST_SEEDS:,}, and --first-seed not negative and below 2^62."
        )
    require_problems_of(spec.task(**spec.options), recipe.problems)
    if recipe.polish is not None and (n := registry.parameter_count(name)) > MOST_PARAMETERS:
        raise UserError(
            f"polish keeps an inverse Hessian, of at most {MOST_PARAMETERS:,} parameters; {name} has {n:,}."
        )
    return recipe
