"""The interface that is required of a model, whether it is this project's or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

from models.calls.argument_kinds import HOOKED


@runtime_checkable
class Hooked(Protocol):
    """A model with TransformerLens' hooks: this project's, a HookedTransformer, a TransformerBridge.

    Its other attributes (``W_E`` and the like, ``blocks``) are TransformerLens' too and are not listed one by one.
    """

    cfg: Any

    @property
    def hook_dict(self) -> Mapping[str, Any]:
        """Hook points by name."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any: ...

    def run_with_cache(self, *args: Any, **kwargs: Any) -> Any: ...

    def __getattr__(self, name: str) -> Any: ...


def own_name(model: Any) -> str:
    """The name that a model was built or loaded by, else its class."""
    return str(getattr(model, "name_or_path", None) or type(model).__name__)


def model_name(model: Any) -> str:
    """The name by which a result calls the model: its own, and for a run the name of its folder: "microadder-57, run at
    x"."""
    run = getattr(model, "run", "")
    return own_name(model) + (f", run at {Path(run).resolve().name}" if run else "")


# At run time the annotation is a kind of argument: a checked function asks for less than all of Hooked.
if TYPE_CHECKING:
    HookedModel = Hooked
else:
    HookedModel = Annotated[Any, HOOKED]
