"""What many models have in common, and what sets them apart from untrained copies.

    population([models.load(name) for name in ("microadder-57", "microadder-100", "adder-456")]).figure()

Every model is asked each question that gives a number (``scalar`` in :func:`interp.core.probe.probe`), and so are, as
controls, an untrained copy of each and trained models that you give because they work otherwise (``otherwise``). A
number *sets a member apart* if it lies beyond those of all untrained copies, by more than the least difference that
counts, on the side on which most members lie.
Seeds of one architecture have the architecture in common, so that shares are also given by architecture.

Limits. "All 30 of this population" says nothing of other models. The numbers are sampled, except where a question
proves something. What is built into an architecture is in its untrained copy as well and sets nothing apart. With few
members, chance alone sets some apart: one of two in a third of cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from interp.compare.compare_models import question_of
from interp.compare.model_table import TableQuestion
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.probe import Probe, with_number
from interp.core.results import Provenance, Result
from interp.core.task_checks import resolve_task
from interp.core.views import Picture, Points, Series
from models.calls.argument_kinds import Count, Seed
from models.calls.checked_calls import checked
from models.errors import UserError, known_name
from models.rates import Rate
from models.tasks import Task, TaskLike
from models.transformer import model_name
from models.transformer.hooked import HookedModel


@dataclass(frozen=True, eq=False)
class Population(Result):
    """The numbers of many models.

    Attributes:
        questions: what was asked.
        members: one row per model with its ``name``, its ``architecture`` and its number for each question, NaN where
            a question does not apply.
        controls: the same for an untrained copy of each.
        otherwise: the same for the trained models that were given as a control.
    """

    questions: tuple[TableQuestion, ...]
    members: pd.DataFrame
    controls: pd.DataFrame
    provenance: Provenance
    otherwise: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def names(self) -> list[str]:
        return [question.name for question in self.questions]

    def apart(self, question: str, architecture: str = "all") -> Rate:
        """How many members (of an architecture) a question sets apart from all untrained copies, of those that it
        applies to. Raises UserError for an unknown question or architecture."""
        known_name("question", question, self.names)
        known_name("architecture", architecture, ["all", *self.members["architecture"].unique()])
        blank, everyone = self.controls[question].dropna(), self.members[question].dropna()
        chosen = everyone if architecture == "all" else everyone[self.members["architecture"] == architecture]
        if blank.empty:
            return Rate(0, 0)
        least = next(each.least for each in self.questions if each.name == question)
        low, high = blank.min() - least, blank.max() + least
        above = int((everyone > high).sum()) >= int((everyone < low).sum())
        return Rate(len(chosen), int(((chosen > high) if above else (chosen < low)).sum()))

    def shared(self) -> list[str]:
        """The questions that set every member apart from all untrained copies."""
        return [name for name in self.names if self.apart(name) == Rate(len(self.members), len(self.members))]

    def by_architecture(self) -> str:
        """How many members each architecture has, the most frequent first: "122 microadder-57, 30 adder-763"."""
        return ", ".join(f"{count:,} {name}" for name, count in self.members["architecture"].value_counts().items())

    def sentence(self) -> str:
        said = []
        for question in self.questions:
            found = self.apart(question.name)
            if found.n:
                values = self.members[question.name]
                span = f"{values.min():.3g} to {values.max():.3g}"
                said.append(f"{question.heading} {span}, {found.correct:,} of {found.n:,} beyond every untrained copy")
        return f"{len(self.members):,} models ({self.by_architecture()}). {'; '.join(said)}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per question and architecture ("all" for all together): least, median and largest number of the
        members, of the untrained copies and of the trained controls; how many members are set apart, ``k`` of ``n``,
        with the 95% Clopper-Pearson interval of their share."""
        rows = []
        for question in self.questions:
            for architecture in ("all", *self.members["architecture"].unique()):
                row: dict[str, Any] = {"question": question.name, "architecture": architecture}
                for kind in ("members", "controls", "otherwise"):
                    frame = getattr(self, kind)
                    if architecture != "all" and len(frame):
                        frame = frame[frame["architecture"] == architecture]
                    values = frame[question.name].dropna() if len(frame) else pd.Series(dtype=float)
                    ends = values.quantile([0, 0.5, 1]) if len(values) else [math.nan] * 3
                    row |= dict(zip((f"{kind}_{end}" for end in ("least", "median", "largest")), ends, strict=True))
                rate = self.apart(question.name, architecture)
                low, high = rate.interval if rate.n else (math.nan, math.nan)
                rows.append(row | {"k": rate.correct, "n": rate.n, "low": low, "high": high})
        return pd.DataFrame(rows)


@partial(checked, ready=True)
def population(
    models: Sequence[HookedModel],
    *,
    names: Sequence[str] | None = None,
    otherwise: Sequence[HookedModel] = (),
    questions: Sequence[str] | None = None,
    task: TaskLike | None = None,
    n: Count = 1000,
    seed: Seed = 0,
) -> Population:
    """Ask every model and an untrained copy of each the questions that give a number.

    Args:
        models: two or more models with hooks.
        names: what to call them, default their own names. A member's architecture is its model's name.
        otherwise: trained models of the same task that are known to work otherwise, as a control that can fail.
        questions: names of probes that give a number; default those of :func:`interp.compare_models`.
        task: what their tokens mean, for models that do not name their task.
        n: problems per question, by default 1,000, as there are many models and questions (some take fewer).
        seed: draws problems; each untrained copy is drawn with another seed, counting from this one.

    Cost: some 4 s per model with one core.

    Raises:
        UserError: fewer than two models, a wrong number of names, or an unknown question.
    """
    models = list(models)
    called = [model_name(model) for model in models] if names is None else [str(name) for name in names]
    if len(models) < 2 or len(called) != len(models):
        raise UserError(
            f"A population is two models or more with a name each, not {len(models)} and {len(called)}; the probes "
            "themselves say what is true of one."
        )
    chosen = with_number(questions, "compare_models")
    members, controls, others = [], [], []
    for draw, (model, name) in enumerate(zip(models, called, strict=True)):
        own = {"name": name, "architecture": model_name(model)}
        twin = untrained_twin(model, resolve_task(model, task), seed + draw)
        members.append(own | dict(_numbers(model, chosen, task, n, seed)))
        controls.append(own | dict(_numbers(twin, chosen, task, n, seed)))
    for model in otherwise:
        own = {"name": model_name(model), "architecture": model_name(model)}
        others.append(own | dict(_numbers(model, chosen, task, n, seed)))
    frames = [pd.DataFrame(rows) for rows in (members, controls, others)]
    kept = tuple(question_of(each) for each in chosen if frames[0][each.name].notna().any())
    if not kept:
        raise UserError("None of these questions applies to any of these models.")
    return Population(kept, frames[0], frames[1], Provenance(n, seed, "problems a model"), frames[2])


def _numbers(
    model: HookedModel, chosen: Sequence[Probe], task: Task | None, n: int, seed: int
) -> Iterator[tuple[str, float]]:
    """A model's number for each question, NaN where it does not apply."""
    for each in chosen:
        try:
            yield each.name, each.number(model, task=task, n=n, seed=seed).value
        except UserError:
            yield each.name, np.nan


@drawing(Population)
def population_view(result: Population) -> Picture:
    """For every question, the share of models that it sets apart from all untrained copies, with its interval."""
    shares = {each.heading: result.apart(each.name) for each in result.questions}
    shares = {heading: rate for heading, rate in shares.items() if rate.n}
    shared = [each.heading for each in result.questions if each.name in result.shared()]
    title = f"{len(shared)} of {len(shares)} numbers set all {len(result.members):,} models apart from their copies"
    low, high = zip(*(rate.interval for rate in shares.values()), strict=True)
    series = Series("", list(shares), [rate.accuracy for rate in shares.values()], low, high)
    x = "share of the models beyond every untrained copy"
    return Picture([Points("", x, series=[series], scale="share", across=True)], title=title)
