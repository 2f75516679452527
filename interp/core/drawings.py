"""The registry of drawings, in which ``result.figure(kind)`` finds the function that draws a result.

    @drawing(AttentionByRole)             # result.figure()
    def attention_by_role(result, layer=None, head=None) -> go.Figure: ...

    @drawing(AttentionByRole, "heads")    # result.figure("heads")
    def attention_heads(result) -> go.Figure: ...

Results know nothing of Plotly. Drawings of general results are in this package, those of a paper's results in the
paper's module ``figures``; both are imported when the first figure is asked for. A result of your own registers its
drawing where it is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from models.errors import UserError, unknown_name

if TYPE_CHECKING:  # drawing is imported only when a figure is asked for
    import plotly.graph_objects as go

Drawing = Callable[..., "go.Figure"]
_DRAWINGS: dict[type, dict[str, Drawing]] = {}
_F = TypeVar("_F", bound=Drawing)


def drawing(result: type[Any], kind: str = "") -> Callable[[_F], _F]:
    """Register a function as the default figure of a type of results, or as its figure ``kind``."""

    def add(draws: _F) -> _F:
        _DRAWINGS.setdefault(result, {})[kind] = draws
        return draws

    return add


def drawings(result: type[Any]) -> dict[str, Drawing]:
    """Every figure of a type of results by name; the default is called "". A subclass has its parents' figures, too."""
    import_module("interp.figures").import_all()
    _import_beside(result.__module__)
    found: dict[str, Drawing] = {}
    for each in reversed(result.__mro__):
        found |= _DRAWINGS.get(each, {})
    return found


def registered() -> list[type]:
    """The types of all results that have a figure here or in a paper."""
    import_module("interp.figures").import_all()
    for folder in filter(lambda found: found.ispkg, iter_modules(import_module("interp.papers").__path__)):
        _import_beside(f"interp.papers.{folder.name}")
    return list(_DRAWINGS)


@cache
def _import_beside(module: str) -> None:
    """Import the module ``figures`` of a paper's folder."""
    parts = module.split(".")
    if parts[:2] == ["interp", "papers"] and find_spec(name := ".".join([*parts[:3], "figures"])):
        found = import_module(name)
        for each in iter_modules(getattr(found, "__path__", [])):
            import_module(f"{name}.{each.name}")


def draw(result: Any, kind: str = "", **options: Any) -> go.Figure:
    """Draw a result.

    Raises:
        UserError: the result has no figure of that name.
    """
    found = drawings(type(result))
    if kind not in found:
        if not kind:
            raise UserError(f"{type(result).__name__} has no figure.")
        raise unknown_name("figure", kind, [each for each in found if each])
    return found[kind](result, **options)
