"""What a method of judging must say of itself, what it returns, and the registry of methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from interp.core.loading import load
from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.subject import CannotJudge, Subject
from interp.proofs.verdict.time_limit import EndedBy
from interp.proofs.verdict.verdict import EVIDENCE, ArithmeticName, Evidence, Status, Targets, Verdict, versions
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models import UserError
from models.tasks import Task
from models.transformer import HookedModel, model_name, own_name

#: A cost at which a method is tried only if nothing else is left.
LAST_RESORT = float("inf")


@dataclass(frozen=True)
class CertifyOptions:
    """What ``interp.certify`` was asked for, apart from the model and the task.

    ``tolerance`` and ``targets`` are for adders, column by column: see
    :func:`interp.proofs.columns.column_method.certify_one_layer`.
    """

    arithmetic: ArithmeticName | None = None
    tolerance: float | None = None
    targets: Targets = "all"


@dataclass(frozen=True)
class Outcome:
    """What one run of a method comes to. ``ended``: why it ended before its end, if it did; it then has what it found.

    Postcondition of every method: the status is "certified" only if the method proved every answer that the question
    covers. It is "conditional" if these answers were proved for a rule that was only tried against the task. It is
    "refuted" only with a counterexample that the model answers wrongly when it decodes that problem alone.
    """

    status: Status
    evidence: Evidence
    counterexample: WrongAnswer | None = None
    ended: EndedBy | None = None

    @classmethod
    def of(cls, proved: bool, evidence: Evidence, wrong: WrongAnswer | None, ended: EndedBy | None = None) -> Outcome:
        """That of a search which proved everything, or did not, and found a ``wrong`` answer, or none."""
        status: Status = "refuted" if wrong is not None else "certified" if proved else "undecided"
        return cls(status, evidence, wrong, ended)


@dataclass(frozen=True)
class Method:
    """One method of judging: a row of the registry.

    Attributes:
        name: the text of ``method`` in a verdict and in its file.
        evidence: the class of what it finds, which has its sentence, provenance and file form.
        why_not: why the method can never judge such a model and task, in words, or None if it may.
        claims: how strong a claim the method can make of a subject, the strongest first: "float32" (a proof with
            rounding), "interval" (over the reals), "exhaustive" (all problems run) or "float" (nothing is proved).
        cost: roughly how many seconds a claim takes, found without running the model; :data:`LAST_RESORT` where others
            go first. Costs order methods and promise nothing.
        run: judge a subject, for one of the claims. It returns what it has, if the time is over or Ctrl-C ends it.
            Raises CannotJudge where it finds on the way that it cannot judge the model, so that others are asked.
        check: (verdict, model, task) -> the verdict as derived again; raises UserError unless it holds. That of most
            methods is :func:`interp.proofs.verdict.recheck.judged_again`.
        meant_for: whether the method is made for such tasks, so that its reason is what a user should know.
        any_length: whether it takes problems that are too long to be laid out one by one.
        digits_alone: whether it can be asked about an answer's digits without the EOS after them.
        proves: whether it can prove a model right. The others are asked where no method that does judges the model.
        followed_by: what else is tried (:mod:`interp.proofs.schedule`): "search first" and "search", for a wrong answer
            along gradients, before it and if its time is over; "run", of all problems if half of the time is enough;
            "listed", its next claim and a run of all problems.
    """

    name: str
    evidence: type[Evidence]
    why_not: Callable[[Subject], str | None]
    claims: Callable[[Subject], tuple[str, ...]]
    cost: Callable[[Subject, str], float]
    run: Callable[[Subject, str, CertifyOptions], Outcome]
    check: Callable[[Verdict, HookedModel, Task], Verdict]
    meant_for: Callable[[Task], bool] = lambda task: False
    any_length: bool = False
    digits_alone: bool = False
    proves: bool = True
    followed_by: tuple[str, ...] = ()


#: The methods by name. Of those with equal claims and costs the first is tried.
METHODS: dict[str, Method] = {}


def register(*methods: Method, first: bool = False) -> None:
    """Add methods to the registry, behind those that are there, or ``first``."""
    new, there = {method.name: method for method in methods}, dict(METHODS)
    METHODS.clear()
    METHODS.update(new | there if first else there | new)
    EVIDENCE.update({method.name: method.evidence for method in methods})


def method_named(name: str) -> Method:
    """The method of that name. Raises UserError for one that is unknown here, such as a plug-in's that is missing."""
    load("methods")
    if name not in METHODS:
        raise UserError(f"This certificate is by a method that is not known here: {name!r}.")
    return METHODS[name]


def verdict_by(method: str, subject: Subject, outcome: Outcome) -> Verdict:
    """The verdict on a subject that a method's run comes to.

    Raises:
        UserError: the model's fingerprint has changed since the run began.
    """
    identity = subject.identity
    if identify(subject.model, subject.task) != identity:
        raise UserError(f"The weights of {model_name(subject.model)} change from one call to the next.")
    return Verdict(
        model=own_name(subject.model),
        fingerprint=identity,
        task=subject.task.name,
        method=method,
        status=outcome.status,
        seconds=time.perf_counter() - subject.started,
        versions=versions(),
        counterexample=outcome.counterexample,
        evidence=outcome.evidence,
    )


def judged_by(method: Method, model: HookedModel, claim: str | None = None, task: Task | None = None) -> Verdict:
    """The verdict by one method alone, whichever others might judge the model; by default for its strongest claim.

    Raises:
        CannotJudge: the method does not judge such a model.
    """
    subject = Subject(model, task)
    if (reason := method.why_not(subject)) is not None:
        raise CannotJudge(model, reason)
    outcome = method.run(subject, claim or method.claims(subject)[0], CertifyOptions())
    return verdict_by(method.name, subject, outcome)
