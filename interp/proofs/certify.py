"""``interp.certify``: the methods that can judge a model, and how one is chosen.

    hand-built                     a construction known by its weight map: a proof for every length up to its limits
    finite machine                 models of one layer on tasks whose answer needs a small memory: classes of all that a
                                   query can see, each bounded at once
    two layers of attention        induction, by models without MLPs and norms: sets of strings that share what is asked
                                   for, each bounded at once
    branch and bound over columns  adders and subtractors of one layer, or of two whose second attends by position, by
                                   their effective weights: a proof over all pairs
    operator by operator           mixed addition and subtraction by one layer: the proof above for each operator
    prefix tree                    causal models on small domains: every prefix once, enclosed with all roundings
    exhaustive                     any model whose task's shape has at most 2^20 problems, or as many as the time
                                   is enough for: all are run through the model
    search                         what none of these can prove: a wrong answer is looked for along gradients
    random problems                a model that gets a quarter of 64 of them wrong is refuted before any of these

The first method whose ``why_not`` is None judges the model, and raises if it cannot judge something else about it.
Those of plug-ins (:mod:`models.plugins`) are asked before these. One that finds on the way that it cannot judge the
model leaves it to the general method of one layer, or to the search. All return a
:class:`~interp.proofs.verdict.verdict.Verdict`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from interp.core.loading import load
from interp.core.measured import Measured
from interp.core.probe import Scalar, probe
from interp.core.problems import resolve_task
from interp.proofs.attacks import first_look, search_method
from interp.proofs.attention_only import arrangement_method
from interp.proofs.columns import per_operator
from interp.proofs.columns.accuracy_bounds import WIDTH
from interp.proofs.columns.column_method import METHOD as ONE_LAYER
from interp.proofs.hand_built import hand_built_method
from interp.proofs.hand_built.hand_built_method import is_hand_built
from interp.proofs.listed import exhaustive, prefix_method
from interp.proofs.machine import machine_method
from interp.proofs.verdict.identity import require_exact_products
from interp.proofs.verdict.time_limit import MINUTES, TimeUp, minutes_left, time_limit
from interp.proofs.verdict.verdict import (
    ARITHMETICS,
    LARGEST_FILE,
    METHODS,
    ArithmeticName,
    CannotJudge,
    CertifyOptions,
    Method,
    Targets,
    Verdict,
    method_named,
    parse_verdict,
    register,
    verdict_of,
)
from models.calls import checked, doing
from models.errors import UserError, known_name
from models.evaluation import predict
from models.files import read_bytes
from models.tasks import Task, doubt
from models.transformer import HookedModel, model_name

MOST_SYMBOLS = 2**12  # of a problem's operands; 21 binary symbols already make too many problems to run

register(
    hand_built_method.METHOD,
    machine_method.METHOD,
    arrangement_method.METHOD,
    ONE_LAYER,
    per_operator.METHOD,
    prefix_method.METHOD,
    exhaustive.METHOD,
    search_method.METHOD,
    first_look.METHOD,
)


def _judged(model: HookedModel, task: Task) -> str:
    """Some method must judge the model."""
    try:
        _require_short(model, task)
        method_for(model, task)
    except UserError as error:
        return str(error).rstrip(".")
    return ""


def _proved(found: Verdict) -> Measured:
    """1 for a proof, 0 where an input is wrong. Raises UserError where it is not known."""
    if found.status not in ("certified", "refuted"):
        raise UserError(f"It is not known of all inputs: {found.status}.")
    return Measured(float(found.status == "certified"), note=found.status)


@probe(
    "Is it right on all inputs: a proof, or one that is wrong?",
    by_default=[_judged],  # asked anyway, it looks for a method itself
    scalar=Scalar(
        "right on all inputs: 1, or one is wrong: 0",
        "verdict",
        _proved,
        0.5,
        lambda *_: {"tolerance": None},
        asked_by=(),
    ),
)
def certify(
    model: HookedModel,
    *,
    arithmetic: ArithmeticName | None = None,
    task: Task | None = None,
    tolerance: float | None = WIDTH,
    targets: Targets = "all",
    minutes: float | None = MINUTES,
    exact_share: bool = False,
) -> Verdict:
    """Certify that a model is right on every input of a domain, refute it by an input that it gets wrong, or neither.

    A model that gets a quarter or more of 64 random problems wrong is refuted at once, with the share among these,
    unless a certain ``arithmetic``, ``targets`` or the ``exact_share`` is asked for.

    Where no method has a proof, a wrong answer is looked for along gradients for up to a minute, or a quarter of the
    time. If none is found and all problems can be run in the time that is left, they are. Else the verdict is
    "undecided", with the reason and what was tried.

    Args:
        model: one of this project's models or, with ``task`` and where the method allows it, a stock TransformerLens
            one.
        arithmetic: "float", "interval" or "float32", for proofs (by default "float32", and for small domains the first
            of "float32" and "interval" that succeeds; if neither does, and with "float", all problems are run in the
            model's own arithmetic). See :func:`interp.proofs.columns.column_method.certify_one_layer`.
        task: the task, if the model does not carry it, or the model's own in another shape, ``model.task.at(...)``.
        tolerance: how far apart the bounds on the share of right pairs may be, where a proof fails; None computes none.
        targets: "all", or for ten-digit adders the answer's "digits" without the EOS after them.
        minutes: how long to try; None: as long as it takes. A proof that is not complete by then is undecided, and says
            what is left. Runs of all problems, which have no verdict before their end, then raise instead.
        exact_share: judge a model that gets many random problems wrong as any other, for what the method says of the
            share of all.

    Returns:
        a :class:`~interp.proofs.verdict.verdict.Verdict`, whose ``evidence`` is the method's own, such as
        :class:`~interp.proofs.columns.column_evidence.PairEvidence` for ten-digit adders.

    Raises:
        UserError: a model or a domain that no method judges and no search can look through, in one sentence; too little
            time for any verdict.
    """
    if arithmetic is not None:
        known_name("arithmetic", arithmetic, ARITHMETICS)
    if (own := getattr(model, "task", None) if task is None else task) is not None:
        _require_short(model, own)
    require_exact_products(model)
    task = resolve_task(model, task)
    method, reason = _method_or_reason(model, task)
    asked = CertifyOptions(arithmetic, tolerance, targets)
    # A construction's own proof says in a moment which of its parts is wrong.
    at_once = (
        not exact_share and asked == CertifyOptions(tolerance=tolerance) and method is not hand_built_method.METHOD
    )
    if at_once and (found := first_look.looked(model, task)) is not None:
        return found.replace(doubt=doubt(model, task, predict))
    with time_limit(minutes):
        try:
            try:
                found = None if method is None else _by(method, model, task, asked)
            except CannotJudge as error:
                found, reason = None, error.reason
            if found is None:
                found = _unproved(model, task, replace(asked, reason=reason))
        except TimeUp:
            raise UserError(
                f"{minutes:g} minutes are not enough for a verdict on {model_name(model)}; give more (minutes=),"
                " or None for as many as it takes."
            ) from None
    return found.replace(doubt=doubt(model, task, predict)) if found.status == "refuted" else found


def _unproved(model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    """What can be said where no method has a proof, for the reason in ``asked``. Raises UserError with that reason, if
    nothing can be said either."""
    if machine_method.can_judge(model, task):  # though another method was to be quicker
        return _by(machine_method.METHOD, model, task, asked)
    for method in METHODS.values():
        if not method.proves and method.why_not(model, task) is None:
            return _by(method, model, task, asked)
    raise CannotJudge(model, asked.reason)


def _by(method: Method, model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    """A method's verdict; a terminal says which it is and how much time there is."""
    left = minutes_left()
    doing(f"{method.name}{'' if left is None else f', at most {60 * left:.0f} s more'}")
    return method.certify(model, task, asked)


def _require_short(model: HookedModel, task: Any) -> None:
    """Raise UserError for problems so long that laying one out would need much memory, before that is tried."""
    if task.shape and not is_hand_built(model) and task.n_operands * task.n_digits > MOST_SYMBOLS:
        raise UserError(
            f"Problems of {task.name} with {task.n_operands * task.n_digits:,} symbols are more than can be run one by "
            "one; a smaller shape may do."
        )


def method_for(model: HookedModel, task: Task) -> Method:
    """The method that judges such a model. Raises UserError if there is none."""
    method, reason = _method_or_reason(model, task)
    if method is None:
        raise CannotJudge(model, reason)
    return method


def _method_or_reason(model: HookedModel, task: Task) -> tuple[Method | None, str]:
    """The first method that can prove a model right, or None and why there is none."""
    load("methods")
    reason, reasons = "there is no method", []
    for method in METHODS.values():
        if not method.proves:
            continue
        if (reason := method.why_not(model, task)) is None:
            return method, ""
        if method.meant_for(task):
            reasons.append(reason)
    # The last of them takes any model and task of few problems.
    return None, f"{'; '.join(reasons)}. Nor can all problems be run: {reason}" if reasons else str(reason)


@checked
def load_certificate(path: str | Path) -> Verdict:
    """Load a verdict of any method from its file. This checks the form; :func:`check_certificate` checks the proof.

    Raises:
        UserError: no such file, one that is too large, or one that does not hold a certificate.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size > LARGEST_FILE:
        raise UserError(f"{path} is larger than a certificate can be ({LARGEST_FILE >> 20} MB).")
    return parse_certificate(read_bytes(path), path)


def parse_certificate(data: bytes, path: object) -> Verdict:
    """A verdict from a file's bytes, JSON or gzipped JSON; see :func:`load_certificate`."""
    return verdict_of(parse_verdict(data, path), path)


@checked
def check_certificate(verdict: Verdict, model: HookedModel, task: Task | None = None) -> Verdict:
    """Verify a certificate against a model, without believing what the file says; each method has its own check.

    Returns:
        the verdict as derived again. Everything that it prints was compared or found again.

    Raises:
        UserError: a certificate of another model, one that claims nothing, or one that does not hold.
    """
    require_exact_products(model)
    return method_named(verdict.method).check(verdict, model, resolve_task(model, task))


def certified_at_best(model: HookedModel, task: Task | None = None) -> Verdict:
    """The certificate that includes float32 rounding, or the one over the real numbers if that is undecided."""
    found = certify(model, arithmetic="float32", task=task)
    return found if found.status != "undecided" else certify(model, arithmetic="interval", task=task)
