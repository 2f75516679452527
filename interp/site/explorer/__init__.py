"""An interactive view: type two numbers and watch one or two models, which run in the browser, write the answer.

interp.explore(adder)                     in Jupyter: type, step, remove, scale or patch any component
interp.explore(adder, other)              two models that move together, digit by digit
static_view([adder, other])               the same view as HTML to put into a page
write_explorer("page.html", [adder])      the view as a page of its own
"""

from __future__ import annotations

from typing import Any

from interp.site.explorer.pack import ExploredModel, view_data
from interp.site.explorer.static import assets, bundle, static_view, write_explorer
from models.calls.progress_line import progress_line
from models.errors import UserError
from models.tasks import Task
from models.transformer import HookedModel
from models.zoo import load


def explore(
    a: str | HookedModel,
    b: str | HookedModel | None = None,
    problem: str | None = None,
    method: str = "zero",
    task: Task | None = None,
) -> Any:
    """A view of one or two models in Jupyter: type a problem, step through the answer, edit components and digits.

    The browser gets the weights and runs the model itself (float64; a test holds its logits to within 1e-4 of torch's):
    on any problem, with any combination of heads, neurons and sublayers removed, scaled or patched from a second
    problem, and with written digits changed. Attention, neurons, streams and logits of both models move together by
    answer digit, whatever their formats. Weights are read when the view is made.

    Args:
        a, b: models with a task of numbers or bits, or their names; stock TransformerLens models too. For a task that
            is not this project's, the kernel turns typed problems into tokens.
        problem: the problem shown first, such as "57+48".
        method: what replaces removed components: "zero", or "mean" over uniform problems; the view can change it.
        task: the task of models that do not have one.

    Returns:
        the widget, which is shown if it is the last line of a cell.

    Raises:
        UserError: anywidget is not installed; an unknown name; a model of text, in training mode, in half precision or
            with hooks (the view would show another model); a problem that one of the models does not take.
    """
    try:
        from interp.site.explorer.widget import Explorer
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        raise UserError("The explorer needs anywidget, which is not installed: pip install 'carrylens[lab]'.") from None
    with progress_line("explore"):
        models = [load(model) if isinstance(model, str) else model for model in (a, b) if model is not None]
        subjects = [ExploredModel(model, task if getattr(model, "task", None) is None else None) for model in models]
        return Explorer(subjects, view_data(subjects, None, method, problem))


__all__ = [
    "ExploredModel",
    "assets",
    "bundle",
    "explore",
    "static_view",
    "view_data",
    "write_explorer",
]
