"""The registry of probes: what can be asked of a model, what each question needs, and how to ask it.

    @probe("How sure is it of each token?", needs=[neurons])
    def margins(model, *, task=None, problems=None, n=512, seed=0) -> Margins: ...

One registration is enough. The probe is then ``interp.margins``, and ``interp.probes(model)`` and ``interp ask`` list
it. With ``summary`` it also appears in :func:`interp.compare_models` and :func:`interp.training_dynamics`. Modules of
the rooms ``probes``, ``causal``, ``proofs`` and ``compare`` are found automatically; a probe of your own is registered
where it is defined.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import torch

from interp.core.answer_columns import column_variables, signal_columns
from interp.core.estimate import Estimate
from interp.core.loading import load
from interp.core.model_checks import has_mlp, require_sums
from interp.core.task_checks import has_chains, resolve_task
from models.calls import checked
from models.errors import UserError, known_name
from models.tasks import NoDomain, Task, column_places, group_of, pairs
from models.transformer import HookedModel

ROOMS = ("probes", "causal", "proofs", "compare")
#: (model, task) -> the reason why the model cannot be asked, with what would help after a comma or semicolon; or an
#: empty string.
Need = Callable[[Any, Any], str]
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Summary:
    """A probe's finding as one number, for a column of a table of models or a curve over training.

    Attributes:
        heading: a few words above a column or a panel.
        unit: "share", "count", or the name of a unit.
        of: reads the number off a result. It may leave out ``n`` and ``strength``, which are then those of the result's
            provenance. An answer with ``parts`` gives one curve for each of them.
        least: a change over training that is smaller counts as no change.
        arguments: (model, task, n, seed) -> arguments that the call needs, or that keep it short.
        asked_by: who asks for the number without being told to; others get it by the probe's name.
    """

    heading: str
    unit: str
    of: Callable[[Any], Estimate]
    least: float = 0.0
    arguments: Callable[[Any, Any, int, int], Mapping[str, Any]] = lambda *_: {}
    asked_by: tuple[str, ...] = ("compare_models", "training_dynamics")


def at_most(n: int, **arguments: Any) -> Callable[[Any, Any, int, int], Mapping[str, Any]]:
    """Arguments of a :class:`Summary` that keep the call short: no more than ``n`` problems, and others as given."""
    return lambda model, task, asked, seed: {"n": min(asked, n)} | arguments


#: Parameters of probes that are a model, and those that are several.
MODELS = ("model", "a", "b", "reference")
SEVERAL_MODELS = ("models",)


@dataclass(frozen=True)
class Probe:
    """A registered probe; ``ask`` is its checked function, and ``why_not`` says why it does not apply to a model."""

    name: str
    question: str
    ask: Callable[..., Any]
    needs: tuple[Need, ...] = ()
    by_default: tuple[Need, ...] = ()  # what a call without further options needs as well
    summary: Summary | None = None
    control: bool = False

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
        """Ask a model, with those of the options (such as ``task``, ``n``, ``seed``) that the function has."""
        return self.ask(model, **{name: value for name, value in options.items() if self.takes(name)})

    def number(
        self, model: HookedModel, *, task: Task | None = None, n: int = 512, seed: int = 0, **options: Any
    ) -> Estimate:
        """The number of a probe with a ``summary``, asked with those of the options that the function has.

        Raises:
            UserError: the model cannot be asked, the probe refuses it, or what it gives is not a number.
        """
        assert self.summary is not None
        if not {"model"} & set(self.subjects):
            raise UserError(f"{self.name} is not asked of one model.")
        task = resolve_task(model, task)
        if why := self.why_not(model, task):
            raise UserError(f"{self.name} does not apply: {why}.")
        given = {"task": task, "n": n, "seed": seed} | dict(self.summary.arguments(model, task, n, seed)) | options
        found = self.answer(model, **given)
        answer = self.summary.of(found)
        if not math.isfinite(answer.value):
            raise UserError(f"{self.name} finds nothing to give a number for.")
        rests = found.provenance
        return replace(answer, n=rests.n if answer.n is None else answer.n, strength=answer.strength or rests.strength)


_PROBES: dict[str, Probe] = {}


def probe(
    question: str,
    *,
    needs: Sequence[Need] = (),
    by_default: Sequence[Need] = (),
    summary: Summary | None = None,
    control: bool = False,
    able: Callable[[Mapping[str, Any]], None] | None = None,
    least: int = 2,
) -> Callable[[_F], _F]:
    """Register a function as a probe under its own name, and check what it presumes whenever it is asked.

    Every model among its arguments must have finite weights and be in evaluation mode. ``least``: so many problems or
    pairs are needed. ``able`` gets the arguments and raises UserError for a model that cannot do what is asked about
    (:func:`interp.causal.metrics.require_pairs_answered`). ``needs`` are what model and task must have; ``by_default``
    only decides whether the probe is listed, as options of the function may do without. ``control``: the report also
    says what it gives for an untrained copy, which the result itself does not.

    Raises:
        UserError: another probe has the name.
    """

    def add(ask: _F) -> _F:
        known = _PROBES.get(ask.__name__)
        if known is not None and known.module != ask.__module__:
            raise UserError(f"A probe named {ask.__name__!r} is registered already, by {known.module}.")
        asked = checked(ask, ready=True, least=least, needs=tuple(needs), presumes=able)
        if [*inspect.signature(ask).parameters][:2] == ["model", "pairs"]:
            asked = cast(_F, _of_two_problems(asked))
        _PROBES[ask.__name__] = Probe(ask.__name__, question, asked, tuple(needs), tuple(by_default), summary, control)
        return cast(_F, asked)

    return add


def _of_two_problems(asked: Callable[..., Any]) -> Callable[..., Any]:
    """A question about pairs, which also takes two problems that somebody types, the clean and the corrupted one, or as
    many of the one as of the other."""

    @functools.wraps(asked)
    def ask(*args: Any, **kwargs: Any) -> Any:
        typed = (str, list, tuple)
        if len(args) > 2 and all(isinstance(each, typed) for each in args[1:3]):
            model, clean, corrupted = args[:3]
            args = (model, pairs(resolve_task(model, kwargs.get("task")), clean, corrupted), *args[3:])
        return asked(*args, **kwargs)

    return ask


def registered() -> dict[str, Probe]:
    """All probes by name: room by room, and by module, whatever was imported first."""
    import_rooms()
    order = {f"interp.{room}": index for index, room in enumerate(ROOMS)}
    place = lambda each: (order.get(".".join(each.module.split(".")[:2]), len(order)), each.module)  # noqa: E731
    return {each.name: each for each in sorted(_PROBES.values(), key=place)}


@cache
def import_rooms() -> None:
    """Import every module that may register a probe."""
    load("probes", *ROOMS)


def find_probe(name: str) -> Probe:
    """A probe by name. Raises UserError with the closest match."""
    known = registered()
    return known[known_name("probe", name, known)]


def with_number(names: Sequence[str] | None = None, asker: str = "") -> list[Probe]:
    """The probes with a ``summary`` of these names; without names, those that ``asker`` asks, or all.

    Raises:
        UserError: an unknown name, a probe without a number, no name or one given twice.
    """
    known = {each.name: each for each in registered().values() if each.summary is not None}
    if names is None:
        return [each for each in known.values() if each.summary and (not asker or asker in each.summary.asked_by)]
    if not names or len(set(names)) < len(names):
        raise UserError("Give at least one question, and none twice.")
    return [known[known_name("question with a number", name, known)] for name in names]


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
    return "" if has_mlp(model.cfg) else "it has no MLP; component_ablation asks its heads"


def sums(model: HookedModel, task: Any) -> str:
    """The residual stream must be the sum of what is written to it."""
    try:
        require_sums(model, "")
    except UserError:
        return (
            "its residual stream is not the sum of what is written to it: norms come after the sums; patch it instead, "
            "with activation_patching"
        )
    return ""


def two_valued(model: HookedModel, task: Any) -> str:
    """The task must have a variable with two values, such as a carry, at every column that it writes."""
    try:
        places = signal_columns(task)
        drawn = task.sample(64, torch.Generator().manual_seed(0))
        variables = column_variables(task, drawn, places.columns)
    except (UserError, NoDomain):
        return "its answers have no columns; a task has them whose answer is a field of digits, such as {s:3}"
    if any(len(np.unique(values)) == 2 for values in variables.values()):
        return ""
    cure = "give it some, as in models.tasks.formatted(..., variables='addition')"
    return f"its task has no variable with two values at every column; {cure}"


def _problems(model: HookedModel, task: Any) -> str:
    """Needs problems to sample; text tasks need their data file."""
    try:
        task.encode(task.sample(1, torch.Generator().manual_seed(0)))
    except UserError as error:
        return str(error).rstrip(".")
    return ""


#: A model for each kind of task that a probe here may need.
_SUCH_AS = {
    "SequenceTask": "position-coupling-1l4h-small",
    "MultiOperandAddition": "position-coupling-1l4h-small",
}


def task_of(*kinds: type) -> Need:
    """The task must be of one of these classes."""

    def need(model: HookedModel, task: Any) -> str:
        such_as = (
            f"; ask one whose task is, such as {_SUCH_AS[kinds[0].__name__]}" if kinds[0].__name__ in _SUCH_AS else ""
        )
        return "" if isinstance(task, kinds) else f"its task is not of the kind {kinds[0].__name__}{such_as}"

    return need


def chains(model: HookedModel, task: Any) -> str:
    """The task must have carries or borrows that travel."""
    none = "in 64 problems of its task no carry or borrow was found; one that has some is '{a:3}+{b:3}={s:4r}'"
    return "" if has_chains(task) else none


def columns(least: int, adds: bool = False) -> Need:
    """The task must add (or, without ``adds``, subtract) two numbers column by column, and write at least so many
    digits."""

    def need(model: HookedModel, task: Any) -> str:
        try:
            layout = column_places(task)
        except UserError:
            return "its task does not add two numbers column by column; one that does is '{a:3}+{b:3}={s:4r}'"
        if adds and layout.subtracts:
            return "its task subtracts, and this asks how a sum of digits is written; ask a model that adds"
        return (
            ""
            if len(layout) >= least
            else f"its task writes {len(layout)} digits, and {least} are needed; ask a model of longer numbers"
        )

    return need


def digits(model: HookedModel, task: Any) -> str:
    """The task must have digits of a base above 2: any two points lie on a line."""
    try:
        return "" if len(task.digit_tokens) > 2 else "any two digits lie on a line; ask a model of a base above 2"
    except NoDomain:
        return "it does not say which of its tokens are digits; a task of models.tasks.formatted does"


def group(model: HookedModel, task: Any) -> str:
    """The task must add or multiply two numbers of one token modulo a number."""
    try:
        group_of(task)
    except UserError:
        return (
            "its task does not add or multiply two numbers of one token modulo a number, as '{a}{b}=' with "
            "'(a + b) % 113' does"
        )
    return ""


def parameters(model: HookedModel, task: Any) -> str:
    """The model must have free parameters."""
    return "" if any(True for _ in model.parameters()) else "it has no free parameters; model.dense_copy() has"


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
