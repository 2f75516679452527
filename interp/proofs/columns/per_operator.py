"""Tasks whose problems have an operator: a proof for each operator.

With its operator written into the format, a task of mixed addition and subtraction is one of addition or of subtraction
(:attr:`models.tasks.formats.formatted_task.FormattedTask.by_operator`), and the model is judged on each as on any other
task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import pandas as pd

from interp.core.results import Provenance, Strength
from interp.core.views import Picture
from interp.proofs.columns import column_method
from interp.proofs.verdict.method import CertifyOptions, Method, Outcome, method_named, verdict_by
from interp.proofs.verdict.recheck import require_model
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import ENDED, EndedBy
from interp.proofs.verdict.verdict import ArithmeticName, Evidence, Status, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import ArithmeticTransformer, UserError
from models.tasks import Task, altered
from models.transformer import HookedModel

NAME = "operator by operator"


@dataclass(frozen=True, eq=False)
class OperatorEvidence(Evidence):
    """The verdict on the problems of each operator."""

    parts: dict[str, Verdict]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("no operator")

    def allows(self, status: Status) -> bool:
        return status != "certified" or all(part.status == "certified" for part in self.parts.values())

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

    def finding(self, verdict: Verdict) -> str:
        parts = "; ".join(f"with {operator}: {part.finding()}" for operator, part in self.parts.items())
        return f"{verdict.status}, {NAME}: {parts}"

    def provenance(self, verdict: Verdict) -> Provenance:
        """That of the part whose evidence is the weakest, over the problems of all parts."""
        parts = [part.provenance for part in self.parts.values()]
        weakest = min(parts, key=lambda part: get_args(Strength).index(part.strength))
        domain = "; ".join(f"{operator}: {part.source}" for operator, part in zip(self.parts, parts, strict=True))
        return Provenance(sum(part.n for part in parts), None, domain, weakest.strength)


def _parts(subject: Subject) -> dict[str, Subject]:
    """The model as one of each operator's task, by operator; empty for other tasks."""
    model, task = subject.model, subject.task
    return {
        operator: Subject(
            ArithmeticTransformer(model.weight_map, own, model.name_or_path).eval()
            if isinstance(model, ArithmeticTransformer)
            else model,
            own,
        )
        for operator, own in getattr(task, "by_operator", {}).items()
    }


def why_not(subject: Subject) -> str | None:
    """Why a task is none of several operators, each of which is judged by columns, in words; None if it is."""
    parts = subject.once(_parts)
    if not parts:
        return "its problems do not have several operators, each with a rule of its own"
    if (other := altered(subject.task)) is not None:
        return f"{other} is another method than the certifier knows"
    return next(filter(None, map(column_method.why_not, parts.values())), None)


def _first(subject: Subject) -> Subject:
    return next(iter(subject.once(_parts).values()))


def _status(parts: dict[str, Verdict]) -> Status:
    found = {part.status for part in parts.values()}
    order: tuple[Status, ...] = ("refuted", "undecided", "sampled", "conditional", "certified")
    return next(status for status in order if status in found)


def prove(subject: Subject, claim: str, options: CertifyOptions) -> Outcome:
    """Judge the problems of every operator column by column. Where the time is over once one is refuted, the others
    are left out."""
    found: dict[str, Verdict] = {}
    for operator, part in subject.once(_parts).items():
        try:
            outcome = column_method.prove(part, claim, options)
        except ENDED:
            if not any(own.status == "refuted" for own in found.values()):
                raise
            break
        found[operator] = verdict_by(column_method.METHOD.name, part, outcome)
        if outcome.ended is EndedBy.INTERRUPT:  # this part is undecided, and so is the whole
            break
    return Outcome(_status(found), OperatorEvidence(found), _counterexample(subject.model, subject.task, found))


def _counterexample(model: HookedModel, task: Task, parts: dict[str, Verdict]) -> WrongAnswer | None:
    """The first part's counterexample, as the whole task writes it."""
    for part in parts.values():
        if (one := part.counterexample) is not None:
            return wrong_answer(model, task, task.as_problems([one.problem]))
    return None


def _check(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    """Check every part by its own method."""
    subject = Subject(model, require_model(verdict, model, task))
    parts = subject.once(_parts)
    complete = verdict.parts.keys() == parts.keys()
    some = verdict.status == "refuted" and bool(verdict.parts) and verdict.parts.keys() <= parts.keys()
    if not (complete or some) or _status(verdict.parts) != verdict.status:
        raise UserError("This certificate does not hold: it has other parts than the task.")
    found = {
        operator: method_named(verdict.parts[operator].method).check(verdict.parts[operator], part.model, part.task)
        for operator, part in parts.items()
        if verdict.parts[operator].status != "undecided"  # which claims nothing
    }
    if verdict.counterexample != _counterexample(model, subject.task, verdict.parts):
        raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")
    return verdict_by(
        verdict.method,
        subject,
        Outcome(verdict.status, OperatorEvidence(verdict.parts | found), verdict.counterexample),
    )


METHOD = Method(
    NAME,
    OperatorEvidence,
    why_not=why_not,
    claims=lambda subject: column_method.claims(subject.once(_first)),
    cost=lambda subject, claim: column_method.cost(subject.once(_first), claim),
    run=prove,
    check=_check,
    meant_for=lambda task: bool(getattr(task, "by_operator", {})),
    digits_alone=True,
)
