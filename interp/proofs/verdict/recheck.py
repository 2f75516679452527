"""What a stored verdict must hold, whatever its method: it is about this model and task, and is found again."""

from __future__ import annotations

from collections.abc import Callable

from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.method import method_named
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.verdict import Verdict
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import UserError
from models.tasks import Task
from models.transformer import HookedModel, own_name

SLACK = 1e-6  # how far a bound may differ with another machine's library


def require_claim(verdict: Verdict, identity: str, model: HookedModel, task: Task) -> None:
    """Check that a verdict is about this task of this model, by its own name or that of the registered model that it
    is, whose fingerprint is ``identity``, and claims something.

    Raises:
        UserError: a verdict on another model, or one that is undecided.
    """
    if identity != verdict.fingerprint:
        raise UserError(
            f"This certificate is about other weights (SHA-256 {verdict.fingerprint[:12]}...) than "
            f"{own_name(model)}'s ({identity[:12]}...)."
        )
    if verdict.model not in (named := own_name(model), getattr(model, "registered", named)):
        raise UserError(f"This certificate does not hold: it names {verdict.model!r}, and this model is {named!r}.")
    if verdict.task != task.name:
        raise UserError(f"This certificate does not hold: it is about {verdict.task!r}, and the task is {task.name!r}.")
    if verdict.status == "undecided":
        raise UserError("This certificate claims nothing: it is undecided.")


def require_model(verdict: Verdict, model: HookedModel, task: Task) -> Task:
    """The task in the verdict's shape. Raises UserError as :func:`require_claim` does."""
    shape = getattr(verdict, "shape", ())
    task = task.at(*shape) if shape else task
    require_claim(verdict, identify(model, task), model, task)
    return task


def require_counterexample(verdict: Verdict, model: HookedModel, task: Task) -> None:
    """Raises UserError unless the model answers the counterexample as the verdict says."""
    one = verdict.counterexample
    if wrong_answer(model, task, task.as_problems([one.problem])) != one:
        raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")


def judged_again(
    again: Callable[[Verdict, HookedModel, Task], Verdict],
    falls_short: Callable[[Verdict, Verdict], str | None],
    why_not: Callable[[Subject], str | None] | None = None,
) -> Callable[[Verdict, HookedModel, Task], Verdict]:
    """A check that judges the model once more, where there is no search that a certificate could spare.

    The model must answer the counterexample as the verdict says, get the same status from ``again``, and give all that
    the verdict claims: ``falls_short`` says in words what of it the verdict found again does not have, or None.
    ``why_not`` is by default the method's, as it is when the method is chosen.
    """

    def check(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
        task = require_model(verdict, model, task)
        in_the_way = why_not or method_named(verdict.method).why_not
        if (reason := in_the_way(Subject(model, task))) is not None:
            raise UserError(f"This certificate does not hold: {reason}.")
        if (one := verdict.counterexample) is not None:
            own = task.at(*one.shape) if one.shape else task
            if wrong_answer(model, own, own.as_problems([one.problem])) != one:
                raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")
        found = again(verdict, model, task)
        if found.status != verdict.status:
            raise UserError(f"This certificate does not hold: judged again, {found.sentence()}.")
        if (reason := verdict.evidence.misnamed(task) or falls_short(verdict, found)) is not None:
            raise UserError(f"This certificate does not hold: {reason}.")
        return found.replace(counterexample=verdict.counterexample)

    return check
