"""Type two numbers and watch one model, or two beside each other, write the answer.

interp.explore(adder)                     in Jupyter: type, step, click a head or unit to ablate it
interp.explore(adder, other)              two models that move together, digit by digit
frame(adder, "57+48", ["L0U1"])           what the view draws, as numbers
static_view([adder, other])               the same view over chosen examples, for a page without a kernel
write_explorer("page.html", [adder])      or as a page of its own
"""

from __future__ import annotations

from typing import Any

from torch import nn

from interp.site.explorer.frames import Frame, frame
from interp.site.explorer.session import Session
from interp.site.explorer.static import assets, static_view, write_explorer
from interp.site.explorer.subject import Subject
from models.errors import UserError
from models.zoo import load


def explore(
    a: str | nn.Module,
    b: str | nn.Module | None = None,
    problem: str | None = None,
    method: str = "zero",
    task: Any = None,
) -> Any:
    """A view of one model or two in Jupyter: type a problem, step through the answer, ablate heads and units.

    Attention, units, streams and logits of both models move together by answer digit, whatever their formats; a click
    on a head or unit (or Enter on it) ablates it and the model answers again, some tens of milliseconds for the small
    adders (``python -m benchmarks explorer``). Weights are read when the view is made.

    Args:
        a, b: models with a task of numbers or bits, or their names; stock TransformerLens models too.
        problem: what to start with, such as "57+48".
        method: how to ablate: "zero", or "mean" over uniform problems; the view can change it.
        task: what the tokens of a model mean that does not say so itself.

    Returns:
        the widget; as the last line of a cell it is shown.

    Raises:
        UserError: anywidget is not installed; an unknown name; a model of text, or in training mode; a problem that
            one of the models does not take.
    """
    try:
        from interp.site.explorer.widget import Explorer
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        raise UserError("The explorer needs anywidget, which is not installed: pip install 'carrylens[lab]'.") from None
    models = [load(model) if isinstance(model, str) else model for model in (a, b) if model is not None]
    subjects = [Subject(model, task if getattr(model, "task", None) is None else None) for model in models]
    return Explorer(Session(subjects, problem, method))


__all__ = ["Frame", "Session", "Subject", "assets", "explore", "frame", "static_view", "write_explorer"]
