"""Tasks whose problems have an operator: a proof for each operator.

With its operator written into the format, a task of mixed addition and subtraction is one of addition or of subtraction
(:attr:`models.tasks.formats.formatted_task.FormattedTask.by_operator`), and the model is judged on each as on any other
task.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from interp.core.results import Provenance
from interp.core.views import Picture
from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.recheck import require_model
from interp.proofs.verdict.time_limit import ENDED
from interp.proofs.verdict.verdict import (
    METHODS,
    TEN_DIGIT_ADDERS,
    ArithmeticName,
    CertifyOptions,
    Evidence,
    Method,
    Status,
    Verdict,
    about,
    method_named,
    verdict_of,
)
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import ArithmeticTransformer, UserError
from models.tasks import ProblemSpace, Task, altered
from models.transformer import HookedModel

NAME = "operator by operator"


@dataclass(frozen=True, eq=False)
class OperatorEvidence(Evidence):
    """The verdict on the problems of each operator."""

    parts: dict[str, Verdict]

    @property
    def arithmetic(self) -> ArithmeticName:
        """That of every part."""
        return next(iter(self.parts.values())).arithmetic

    @property
    def smallest_margin(self) -> float:
        """A proved lower bound of the right tokens' leads, in logits; where some class is not proved, the smallest lead
        among the extreme pairs."""
        parts = self.parts.values()
        return min(part.lower_bound if part.lower_bound > 0 else part.smallest_margin for part in parts)

    @property
    def witness(self) -> str:
        """The extreme pair with the smallest lead."""
        part = min(self.parts.values(), key=lambda part: part.smallest_margin)
        return part.rule.problem(*part.witness)

    @property
    def domain(self) -> str:
        """What the verdict is about."""
        return " and ".join(f"{operator} of {part.rule.all_claimed}" for operator, part in self.parts.items())

    def picture(self) -> Picture:
        """The margins of each operator, one above the other."""
        found = {operator: part.evidence.margins() for operator, part in self.parts.items()}
        views = [replace(grid, title=f"with {operator}") for operator, (grid, _) in found.items()]
        lowest = "; ".join(f"{said} (with {operator})" for operator, (_, said) in found.items())
        return Picture(views, 1, note=f"Smallest lead of the right token among the hunted pairs. Lowest: {lowest}")

    def to_dataframe(self) -> pd.DataFrame:
        """The tables of all parts, with their operator."""
        tables = [part.to_dataframe().assign(operator=operator) for operator, part in self.parts.items()]
        return pd.concat(tables, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        return {"parts": {operator: part.to_dict() for operator, part in self.parts.items()}}


def _parts(model: HookedModel, task: Task) -> dict[str, tuple[HookedModel, Task]]:
    """The model as one of each operator's task, by operator; empty for other tasks."""
    return {
        operator: (
            ArithmeticTransformer(model.weight_map, own, model.name_or_path).eval()
            if isinstance(model, ArithmeticTransformer)
            else model,
            own,
        )
        for operator, own in getattr(task, "by_operator", {}).items()
    }


def _why_not(model: HookedModel, task: Task) -> str | None:
    parts = _parts(model, task)
    if not parts:
        return "its problems do not have several operators, each with a rule of its own"
    if (other := altered(task)) is not None:
        return f"{other} is another method than the certifier knows"
    return next(filter(None, (METHODS[TEN_DIGIT_ADDERS].why_not(*part) for part in parts.values())), None)


def _status(parts: dict[str, Verdict]) -> Status:
    found = {part.status for part in parts.values()}
    order: tuple[Status, ...] = ("refuted", "undecided", "sampled", "conditional", "certified")
    return next(status for status in order if status in found)


def _judge(model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    start, identity = time.perf_counter(), identify(model, task)
    judge, found = METHODS[TEN_DIGIT_ADDERS].certify, {}
    for operator, part in _parts(model, task).items():
        try:
            found[operator] = judge(*part, asked)
        except ENDED:
            if not any(own.status == "refuted" for own in found.values()):
                raise
            break  # a wrong problem is known, and the other operators are not judged
    return Verdict(
        **about(model, task, identity, start),
        method=NAME,
        status=_status(found),
        counterexample=_counterexample(model, task, found),
        evidence=OperatorEvidence(found),
    )


def _counterexample(model: HookedModel, task: Task, parts: dict[str, Verdict]) -> WrongAnswer | None:
    for operator, part in parts.items():
        if part.status == "refuted":
            a, b, _ = part.counterexample
            return wrong_answer(model, task, ProblemSpace.of(task).find(f"{a}{operator}{b}"))
    return None


def _finding(verdict: Verdict) -> str:
    parts = "; ".join(f"with {operator}: {part.finding()}" for operator, part in verdict.parts.items())
    return f"{verdict.status}, {NAME}: {parts}"


def _provenance(verdict: Verdict) -> Provenance:
    """That of the part whose evidence is the weakest, over the problems of all parts."""
    parts = [part.provenance for part in verdict.parts.values()]
    strengths = ("sampled", "exhaustive", "certified in floats", "certified in intervals", "certified with rounding")
    weakest = min(parts, key=lambda part: strengths.index(part.strength))
    domain = "; ".join(f"{operator}: {part.source}" for operator, part in zip(verdict.parts, parts, strict=True))
    return Provenance(sum(part.n for part in parts), None, domain, weakest.strength)


def _read(value: dict[str, Any]) -> OperatorEvidence:
    return OperatorEvidence({str(key): verdict_of(part, "A part of it") for key, part in value["parts"].items()})


def _check(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    """Check every part by its own method."""
    start, task = time.perf_counter(), require_model(verdict, model, task)
    parts = _parts(model, task)
    complete = verdict.parts.keys() == parts.keys()
    some = verdict.status == "refuted" and bool(verdict.parts) and verdict.parts.keys() <= parts.keys()
    if not (complete or some) or _status(verdict.parts) != verdict.status:
        raise UserError("This certificate does not hold: it has other parts than the task.")
    found = {
        operator: method_named(verdict.parts[operator].method).check(verdict.parts[operator], *part)
        for operator, part in parts.items()
        if verdict.parts[operator].status != "undecided"  # which claims nothing
    }
    if verdict.counterexample != _counterexample(model, task, verdict.parts):
        raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")
    return verdict.replace(parts=verdict.parts | found, **about(model, task, verdict.fingerprint, start))


METHOD = Method(
    NAME,
    _why_not,
    _judge,
    _finding,
    _provenance,
    _read,
    _check,
    meant_for=lambda task: bool(getattr(task, "by_operator", {})),
)
