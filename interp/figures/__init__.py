"""Results as Plotly figures, drawn from the views that results declare (:mod:`interp.core.views`), never from a model.

Every figure's title states the finding with numbers from the result; its subtitle says n, seed and how strong the claim
is. Colours are Okabe and Ito's, which suit colour blindness; whatever they say, position, fill or text says too.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from interp.core.drawings import draw, drawing, drawings

__all__ = ["draw", "drawing", "drawings", "import_all"]


@cache
def import_all() -> None:
    """Import every module here, so that its drawings are registered."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
