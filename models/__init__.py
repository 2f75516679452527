"""Transformers that do arithmetic. Each is a weight map that feeds one hooked forward pass.

import models
adder = models.load("microadder-57")            # trained by this project
fresh = models.build("microadder-57", seed=3)   # fresh parameters
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from models.calls.progress_line import progress_line as _progress_line
from models.lens.lens_package import defer

if TYPE_CHECKING:
    from models import tasks as tasks
    from models import zoo as zoo
    from models.checks import check as check
    from models.errors import UserError as UserError
    from models.evaluation import score as score
    from models.importers.adopt import adopt as adopt
    from models.importers.guess_from_model import FormatGuess as FormatGuess
    from models.importers.guess_from_model import guess as guess
    from models.problem_score import Score as Score
    from models.registry import ModelSpec as ModelSpec
    from models.registry import build as build
    from models.registry import get_spec as get_spec
    from models.registry import names as names
    from models.registry import register as register
    from models.solving import solve as solve
    from models.text_scores import TextLoss as TextLoss
    from models.text_scores import text_loss as text_loss
    from models.training.train_own_model import train as train
    from models.transformer.arithmetic_transformer import ArithmeticTransformer as ArithmeticTransformer
    from models.transformer.config import TransformerConfig as TransformerConfig
    from models.zoo import load as load
    from models.zoo import zoo_names as zoo_names
    from models.zoo.entry_writer import save_entry as save_entry

#: The public names by module. They are imported on first use, as importing torch and TransformerLens takes seconds.
_NAMES = {
    "models": "tasks zoo",
    "models.checks": "check",
    "models.transformer.config": "TransformerConfig",
    "models.errors": "UserError",
    "models.evaluation": "score",
    "models.importers.adopt": "adopt",
    "models.importers.guess_from_model": "FormatGuess guess",
    "models.problem_score": "Score",
    "models.registry": "ModelSpec build get_spec names register",
    "models.solving": "solve",
    "models.text_scores": "TextLoss text_loss",
    "models.training.train_own_model": "train",
    "models.transformer.arithmetic_transformer": "ArithmeticTransformer",
    "models.zoo": "load zoo_names",
    "models.zoo.entry_writer": "save_entry",
}
defer()  # before a module of this package asks for TransformerLens' hook point
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name or a module of this package."""
    if name == "__version__":
        return import_module("importlib.metadata").version("carrylens")
    with _progress_line("importing"):
        if _HOME.get(name, "models") != "models":
            found = globals()[name] = getattr(import_module(_HOME[name]), name)
            return found
        if name.startswith("_") or find_spec(f"models.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"models.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
