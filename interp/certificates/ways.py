"""``interp.certify``: the ways a model can be judged, and which of them a model is for.

    hand-built       a construction that is known by its weight map: a proof for every length up to its limits
    one layer        ten-digit adders, by their effective weights: a proof over all 10^20 pairs
    exhaustive       any model whose task's shape has at most 2^20 problems: all of them, run through the model

The first way without an ``obstacle`` judges the model, and says itself what else it cannot judge about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.certificates import certify as one_layer
from interp.certificates import exhaustive
from interp.certificates.certificate import load_certificate
from interp.certificates.exact_accuracy import WIDTH
from interp.certificates.exhaustive import certify_exhaustively, check_exhaustive, load_exhaustive, problem_space
from interp.certificates.rungs import ArithmeticName
from interp.certificates.verdict import Verdict, parse_verdict
from interp.problems import resolve_task
from interp.sites import model_name
from models.checkpoint import read_bytes
from models.errors import UserError
from models.tasks.addition import FixedWidthAddition
from models.tasks.base import Task


@dataclass(frozen=True)
class Way:
    """One way of judging.

    Attributes:
        method: what ``method`` says in a certificate's file; None for all names that no other way has.
        obstacle: (model, task) -> why such models and tasks are not judged this way, None if they are.
        certify: (model, arithmetic or None, task, width) -> a verdict.
        check: (verdict, model, task), raising UserError unless it holds.
        load: a verdict from its file.
    """

    name: str
    method: str | None
    obstacle: Callable[[Any, Task], str | None]
    certify: Callable[[Any, ArithmeticName | None, Task, float | None], Verdict]
    check: Callable[[Any, Any, Task], None]
    load: Callable[[Path], Verdict]


def _no_ten_digits(model: Any, task: Task) -> str | None:
    return None if isinstance(task, FixedWidthAddition) else f"{task.name} is no addition of ten-digit numbers"


def _too_many(model: Any, task: Task) -> str | None:
    try:
        problem_space(task)
    except UserError as error:
        return str(error).rstrip(".")
    return None


def _run_all(model: Any, arithmetic: ArithmeticName | None, task: Task, _width: float | None) -> Verdict:
    if arithmetic not in (None, "float32"):
        raise UserError(
            f"All problems of {task.name} are run through the model in its own floating point; "
            f"{arithmetic!r} arithmetic is for proofs over domains too large for that."
        )
    return certify_exhaustively(model, task)


WAYS = (
    Way(
        "one layer",
        None,
        _no_ten_digits,
        lambda model, arithmetic, task, width: one_layer.certify(model, arithmetic or "float32", task, width),
        one_layer.check_certificate,
        load_certificate,
    ),
    Way("exhaustive", exhaustive.METHOD, _too_many, _run_all, check_exhaustive, load_exhaustive),
)


def certify(model: Any, arithmetic: ArithmeticName | None = None, task: Any = None, width: float | None = WIDTH) -> Any:
    """Is a model right on every input of a domain? Certified, refuted by an input that it gets wrong, or undecided.

    Args:
        model: one of this project's models; with ``task``, where the way allows it, a stock TransformerLens one.
        arithmetic: "float", "interval" or "float32", for proofs (by default "float32"); what is run exhaustively is
            run in the model's own arithmetic. See :func:`interp.certificates.certify.certify`.
        task: the task, if the model does not carry it; or its own in another shape, ``model.task.at(...)``.
        width: how far apart the bounds on the share of right pairs may be, where a proof fails; None gives none.

    Returns:
        a :class:`~interp.certificates.verdict.Verdict` of the way's own kind, such as
        :class:`~interp.certificates.certificate.Certificate` for ten-digit adders.

    Raises:
        UserError: a model or a domain that no way judges, in one sentence.
    """
    task = resolve_task(model, task)
    return way_for(model, task).certify(model, arithmetic, task, width)


def way_for(model: Any, task: Task) -> Way:
    """The way that judges such a model. Raises UserError if there is none."""
    for way in WAYS:
        if (reason := way.obstacle(model, task)) is None:
            return way
    raise UserError(  # the last way is the widest, and its reason the one to give
        f"The certifier cannot judge {model_name(model)}: {reason}. It knows hand-built models, ten-digit adders of "
        "one layer and small domains; `interp attack` may find a problem that it gets wrong."
    )


def load_verdict(path: str | Path) -> Any:
    """A certificate of any way from its file, checked in form only. Raises UserError if it is none."""
    return _way_of(parse_verdict(read_bytes(path), path).get("method")).load(Path(path))


def check_verdict(verdict: Verdict, model: Any, task: Any = None) -> None:
    """Verify a certificate against a model, without believing what the file says; see the way's own check.

    Raises:
        UserError: another model's certificate, one that claims nothing, or one that does not hold.
    """
    _way_of(verdict.method).check(verdict, model, resolve_task(model, task))


def _way_of(method: Any) -> Way:
    named = [way for way in WAYS if way.method == method]
    return named[0] if named else next(way for way in WAYS if way.method is None)
