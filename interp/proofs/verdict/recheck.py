"""What a stored verdict must hold, whatever its method: it is about this model and task, and is found again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from interp.proofs.verdict.identity import identify
from interp.proofs.verdict.method import method_named
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.verdict import Verdict
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import UserError
from models.tasks import Task
from models.transformer import HookedModel, model_name, own_name

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


def require_counterexample(verdict: Verdict, model: HookedModel, task: Task, targets: int | None = None) -> None:
    """Raises UserError unless a refutation has a counterexample, and no other verdict has, which the model answers as
    the verdict says, where so many tokens of it are asked for (None: all)."""
    if (verdict.status == "refuted") != (verdict.counterexample is not None):
        raise UserError("This certificate does not hold: a refutation and a counterexample belong together.")
    if (one := verdict.counterexample) is None:
        return
    task = task.at(*one.shape) if one.shape else task
    if wrong_answer(model, task, task.as_problems([one.problem]), targets) != one:
        raise UserError("This certificate does not hold: the model answers its counterexample otherwise.")


def require_bounds(
    model: HookedModel,
    leads: Any,
    low: Any,
    allowance: Any,
    problem: Callable[[int], str],
    high: Any = np.inf,
) -> None:
    """Check that leads that the model itself has, in logits, lie within the bounds that were proved of them.

    All numbers are arrays, tensors or lists [row] or [row, target], or one number for all.
    ``low`` is -inf or NaN, and ``high`` is inf or NaN, where nothing is proved. ``allowance`` is how far the run that
    gave the leads may be off. ``problem`` says which problem a row of them is about, counted along the first axis.

    Raises:
        UserError: one does not, or is NaN: the model does something that the bounds do not know of.
    """
    leads, low, high, allowance = (np.asarray(x, np.float64) for x in (leads, low, high, allowance))
    low_enough = (leads <= high + allowance) | ~(high < np.inf)
    outside = ~(low_enough & ((leads >= low - allowance) | ~(low > -np.inf)))
    if outside.any():
        at = tuple(np.argwhere(outside)[0])
        raise UserError(
            f"{model_name(model)} does not compute what its weights say: a token of {problem(int(at[0]))} leads by "
            f"{leads[at]:.3g}, which is outside of the bounds that are proved of its weights."
        )


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
        require_counterexample(verdict, model, task)
        found = again(verdict, model, task)
        if found.status != verdict.status:
            raise UserError(f"This certificate does not hold: judged again, {found.sentence()}.")
        if (reason := verdict.evidence.misnamed(task) or falls_short(verdict, found)) is not None:
            raise UserError(f"This certificate does not hold: {reason}.")
        return found.replace(counterexample=verdict.counterexample)

    return check
