"""The registry in which ``result.figure(kind)`` finds the function that says what a result shows.

    @drawing(AttentionByRole)             # result.figure()
    def attention_by_role(result, layer=None, head=None) -> Picture: ...

    @drawing(AttentionByRole, "heads")    # result.figure("heads")
    def attention_heads(result) -> Grid: ...

Such a function stands next to its result and returns a view (:mod:`interp.core.views`), which knows nothing of Plotly;
:mod:`interp.figures` draws it. One that returns a Plotly figure is taken as it is, for what no view can show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from interp.core.loading import load
from models.errors import UserError, unknown_name

if TYPE_CHECKING:  # drawing is imported only when a figure is asked for
    import plotly.graph_objects as go

Drawing = Callable[..., Any]  # returns a view, several, a picture, or a Plotly figure
_DRAWINGS: dict[type, dict[str, Drawing]] = {}
_RENDERERS: list[Callable[[Any, Any], go.Figure]] = []
_F = TypeVar("_F", bound=Drawing)


def drawing(result: type[Any], kind: str = "") -> Callable[[_F], _F]:
    """Register a function as the default figure of a type of results, or as its figure ``kind``."""

    def add(draws: _F) -> _F:
        _DRAWINGS.setdefault(result, {})[kind] = draws
        return draws

    return add


def renders(render: Callable[[Any, Any], go.Figure]) -> None:
    """Say what makes a figure of what a drawing of a result returned."""
    _RENDERERS.append(render)


def drawings(result: type[Any]) -> dict[str, Drawing]:
    """Every figure of a type of results by name; the default is called "". A subclass has its parents' figures, too."""
    load("drawings", result.__module__)
    found: dict[str, Drawing] = {}
    for each in reversed(result.__mro__):
        found |= _DRAWINGS.get(each, {})
    return found


def registered() -> list[type]:
    """The types of all results that have a figure here or in a study."""
    load("drawings")
    return list(_DRAWINGS)


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
    shown = found[kind](result, **options)
    return _RENDERERS[0](result, shown)
