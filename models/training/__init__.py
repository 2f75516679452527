"""One training loop for every model: stacked seeds, curricula, snapshots, bit-exact resume."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.training.loop import train
    from models.training.named_recipes import get_recipe
    from models.training.recipes import RECIPES, Recipe

_HOME = {"train": "loop", "get_recipe": "named_recipes", "RECIPES": "recipes", "Recipe": "recipes"}
__all__ = ["RECIPES", "Recipe", "get_recipe", "train"]


def __getattr__(name: str) -> Any:
    """The names of ``__all__``, imported on first use, so that models can register recipes without loading the loop."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
