"""One training loop for every model: stacked seeds, curricula, snapshots, bit-exact resume."""

from models.training.loop import train
from models.training.recipes import RECIPES, Recipe, get_recipe

__all__ = ["RECIPES", "Recipe", "get_recipe", "train"]
