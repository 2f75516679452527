"""Transformers that do arithmetic, as weight maps in front of one hooked forward pass.

import models
adder = models.load("microadder-57")            # trained by this project
fresh = models.build("microadder-57", seed=3)   # fresh parameters
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models import tasks as tasks
    from models import zoo as zoo
    from models.config import TransformerConfig as TransformerConfig
    from models.errors import UserError as UserError
    from models.evaluation import Score as Score
    from models.evaluation import score as score
    from models.registry import build as build
    from models.registry import get_spec as get_spec
    from models.registry import names as names
    from models.registry import register as register
    from models.text_scores import TextLoss as TextLoss
    from models.text_scores import text_loss as text_loss
    from models.transformer import ArithmeticTransformer as ArithmeticTransformer
    from models.zoo import load as load
    from models.zoo import save_entry as save_entry
    from models.zoo import zoo_names as zoo_names

#: The modules that register models; :mod:`models.registry` imports them before it looks for a name.
REGISTERING = (
    "models.addlm",
    "models.addlm_adder",
    "models.hand_built.adders",
    "models.hand_built.coupled_addition",
    "models.hand_built.microadder",
    "models.hand_built.multiplication",
    "models.hand_built.parity",
    "models.low_rank_adder",
    "models.microadder_continued",
    "models.position_coupling_figures",
    "models.toygpt",
)

#: Where the public names are. They are imported on first use: torch and TransformerLens take some seconds.
_HOME = {
    "ArithmeticTransformer": "models.transformer",
    "Score": "models.evaluation",
    "TextLoss": "models.text_scores",
    "TransformerConfig": "models.config",
    "UserError": "models.errors",
    "build": "models.registry",
    "get_spec": "models.registry",
    "load": "models.zoo",
    "names": "models.registry",
    "register": "models.registry",
    "save_entry": "models.zoo",
    "score": "models.evaluation",
    "tasks": "models",
    "text_loss": "models.text_scores",
    "zoo": "models",
    "zoo_names": "models.zoo",
}
__all__ = [
    "ArithmeticTransformer",
    "Score",
    "TextLoss",
    "TransformerConfig",
    "UserError",
    "build",
    "get_spec",
    "load",
    "names",
    "register",
    "save_entry",
    "score",
    "tasks",
    "text_loss",
    "zoo",
    "zoo_names",
]


def __getattr__(name: str) -> Any:
    """A public name or a module of this package."""
    if _HOME.get(name, "models") != "models":
        found = globals()[name] = getattr(import_module(_HOME[name]), name)
        return found
    if name.startswith("_") or find_spec(f"models.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"models.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
