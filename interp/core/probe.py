"""The registry of probes: what can be asked of a model, what each question needs, and how to ask it.

    @probe("How sure is it of each token?", needs=[neurons])
    def margins(model, *, task=None, problems=None, n=512, seed=0) -> Margins: ...

One registration is enough. The probe is then ``interp.margins``, and ``interp.probes(model)`` and ``interp ask`` list
it. With ``page`` it also appears on the models' pages, and with ``scalar`` in :func:`interp.compare_models` and
:func:`interp.training_dynamics`. Modules of the rooms ``probes``, ``causal``, ``proofs``, ``compare`` and ``papers``
are found automatically; a probe of your own is registered where it is defined.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from interp.core.answers import Answer
from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.sites import require_sums
from interp.core.strata import column_variables, signal_columns
from models.errors import UserError, known_name
from models.questions import MODELS, SEVERAL_MODELS
from models.questions import question as checked
from models.tasks.algorithms import column_layout
from models.tasks.base import Task
from models.tasks.domain import NoDomain

ROOMS = ("probes", "causal", "proofs", "compare", "papers")
#: (model, task) -> why the model cannot be asked, or an empty string.
Need = Callable[[Any, Any], str]
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Scalar:
    """A probe's finding as one number, for a column of a table of models or a curve over training.

    ``of(result)`` reads it off; a change over training that is smaller than ``least`` counts as no change.
    """

    heading: str
    unit: str
    of: Callable[[Any], Answer]
    least: float = 0.0


@dataclass(frozen=True)
class OnPage:
    """How a probe is shown on a model's page: with which arguments (the call should take seconds) and which pictures.

    ``pictures`` are names of drawings; ``control``: also say what an untrained copy gives, where the result does not;
    ``least`` and ``most``: the range of parameter counts for which the probe is worthwhile.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[str, ...] = ("",)
    control: bool = False
    least: int = 0
    most: int | None = None

    def suits(self, parameters: int) -> bool:
        return self.least <= parameters and (self.most is None or parameters <= self.most)


@dataclass(frozen=True)
class Probe:
    """One question. ``ask`` is the function with checked arguments; ``why_not`` says why a model cannot be asked."""

    name: str
    question: str
    ask: Callable[..., Any]
    needs: tuple[Need, ...] = ()
    by_default: tuple[Need, ...] = ()  # what a call without further options needs as well
    scalar: Scalar | None = None
    page: OnPage | None = None

    @property
    def module(self) -> str:
        return self.ask.__module__

    @property
    def subjects(self) -> tuple[str, ...]:
        """The parameters that must be given: ("model",), ("model", "pairs"), ("a", "b") and the like."""
        parameters = inspect.signature(self.ask).parameters.values()
        return tuple(each.name for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL)

    @property
    def call(self) -> str:
        return f"interp.{self.name}({', '.join(self.subjects)})"

    def why_not(self, model: HookedModel, task: Task | None = None) -> str:
        """Why this model cannot be asked, in a few words; empty where it can."""
        if not any(name in (*MODELS, *SEVERAL_MODELS) for name in self.subjects):
            return "it is asked of runs or files, not of a model"
        task = getattr(model, "task", None) if task is None else task
        if task is None:
            return "it does not say what its task is"
        return next((why for need in (*self.needs, *self.by_default, _problems) if (why := need(model, task))), "")

    def takes(self, option: str) -> bool:
        """Whether the function has a parameter of this name."""
        return option in inspect.signature(self.ask).parameters

    def answer(self, model: HookedModel, **options: Any) -> Any:
        """Ask a model, with those of the options (``task``, ``n``, ``seed``) that the function has."""
        return self.ask(model, **{name: value for name, value in options.items() if self.takes(name)})

    def number(self, model: HookedModel, **options: Any) -> Answer:
        """The number of a probe with a ``scalar``, asked as by :meth:`answer`.

        Raises:
            UserError: the model cannot be asked, or the probe refuses it.
        """
        assert self.scalar is not None
        if why := self.why_not(model, options.get("task")):
            raise UserError(f"{self.name} does not apply: {why}.")
        return self.scalar.of(self.answer(model, **options))


_PROBES: dict[str, Probe] = {}


def probe(
    question: str,
    *,
    needs: Sequence[Need] = (),
    by_default: Sequence[Need] = (),
    scalar: Scalar | None = None,
    page: OnPage | None = None,
) -> Callable[[_F], _F]:
    """Register a function as a probe under its own name; the function itself stays as it is.

    ``needs`` are checked whenever it is asked; ``by_default`` only decides whether it is listed, as options of the
    function may do without.

    Raises:
        UserError: another probe has the name.
    """

    def add(ask: _F) -> _F:
        known = _PROBES.get(ask.__name__)
        if known is not None and known.module != ask.__module__:
            raise UserError(f"A probe named {ask.__name__!r} is registered already, by {known.module}.")
        asked = checked(ask, finite=True, needs=tuple(needs))
        _PROBES[ask.__name__] = Probe(ask.__name__, question, asked, tuple(needs), tuple(by_default), scalar, page)
        return ask

    return add


def registered() -> dict[str, Probe]:
    """All probes by name, room by room."""
    import_rooms()
    order = {f"interp.{room}": index for index, room in enumerate(ROOMS)}
    place = lambda each: order.get(".".join(each.module.split(".")[:2]), len(order))  # noqa: E731
    return {each.name: each for each in sorted(_PROBES.values(), key=place)}


@cache
def import_rooms() -> None:
    """Import every module that may register a probe."""
    for room in ROOMS:
        package = import_module(f"interp.{room}")
        for module in walk_packages(package.__path__, f"interp.{room}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


def find_probe(name: str) -> Probe:
    """A probe by name. Raises UserError with the closest match."""
    known = registered()
    return known[known_name("probe", name, known)]


def applying(model: HookedModel, task: Task | None = None, subjects: tuple[str, ...] = ("model",)) -> Iterator[Probe]:
    """The probes whose required arguments are ``subjects`` and that apply to this model."""
    for each in registered().values():
        if each.subjects == subjects and not each.why_not(model, task):
            yield each


def probes(model: HookedModel | str | None = None, task: Task | None = None) -> pd.DataFrame:
    """Table of the probes that apply to a model, one row each: its name, its question and the call.

    Args:
        model: any model with hooks, or the name of one of the zoo's; None lists all probes.
        task: the task of a model that does not name its own.

    Raises:
        UserError: a name that the zoo does not have (with the closest), something that is no model with hooks, or a
            model without a task.
    """
    if isinstance(model, str):
        import models

        model = models.load(model)
    if model is not None:
        task = resolve_task(model, task)
    rows = [
        {"probe": each.name, "question": each.question, "call": each.call}
        for each in registered().values()
        if model is None or not each.why_not(model, task)
    ]
    return pd.DataFrame(rows, columns=["probe", "question", "call"]).set_index("probe")


# ---- needs: what a model and its task must have


def neurons(model: HookedModel, task: Any) -> str:
    """The model must have an MLP."""
    has = getattr(model.cfg, "d_mlp", 0) and not getattr(model.cfg, "attn_only", False)
    return "" if has else "it has no MLP"


def sums(model: HookedModel, task: Any) -> str:
    """The residual stream must be the sum of what is written to it."""
    try:
        require_sums(model, "")
    except UserError:
        return "its residual stream is not the sum of what is written to it: norms come after the sums"
    return ""


def two_valued(model: HookedModel, task: Any) -> str:
    """The task must have a variable with two values, such as a carry, at every column that it writes."""
    try:
        places = signal_columns(task)
        drawn = task.sample(64, torch.Generator().manual_seed(0))
        variables = column_variables(task, drawn, places.columns)
    except (UserError, NoDomain):
        return "its answers have no columns"
    found = any(len(np.unique(values)) == 2 for values in variables.values())
    return "" if found else "its task has no variable with two values at every column"


def _problems(model: HookedModel, task: Any) -> str:
    """The task must be able to draw problems: of text, only where the text is at hand."""
    try:
        task.encode(task.sample(1, torch.Generator().manual_seed(0)))
    except UserError as error:
        return str(error).rstrip(".")
    return ""


def task_of(*kinds: type) -> Need:
    """The task must be of one of these classes."""

    def need(model: HookedModel, task: Any) -> str:
        return "" if isinstance(task, kinds) else f"its task is not of the kind {kinds[0].__name__}"

    return need


def columns(least: int) -> Need:
    """The task must add two numbers column by column, units first, and write at least so many digits."""

    def need(model: HookedModel, task: Any) -> str:
        try:
            layout = column_layout(task)
        except UserError:
            return "its task does not add two numbers column by column, units first"
        return "" if len(layout) >= least else f"its task writes {len(layout)} digits, and {least} are needed"

    return need


def digits(model: HookedModel, task: Any) -> str:
    """The task must have digits of a base above 2: any two points lie on a line."""
    try:
        return "" if len(task.digit_tokens) > 2 else "any two digits lie on a line"
    except NoDomain:
        return "it does not say which of its tokens are digits"


def parameters(model: HookedModel, task: Any) -> str:
    """The model must have free parameters."""
    return "" if any(True for _ in model.parameters()) else "it has no free parameters"


def named_dimensions(*names: str) -> Need:
    """The model's weight map must name the dimensions of the residual stream, with these names among them."""

    def need(model: HookedModel, task: Any) -> str:
        dims = getattr(getattr(model, "weight_map", None), "dims", None) or {}
        if not dims:
            return "it has no named dimensions; only hand-built models do"
        missing = [name for name in names if name not in dims]
        return f"no dimension of its stream is named {', '.join(missing)}" if missing else ""

    return need


# ---- probes as names of the package


def known(name: str) -> Callable[..., Any] | None:
    """The function, with checked arguments, of a probe that is registered by now, or None."""
    found = _PROBES.get(name)
    return None if found is None else found.ask
