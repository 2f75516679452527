"""``interp.certify``: the methods that can judge a model, and the checks of what they found.

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

Which of them judges a model, and in which order, is :mod:`interp.proofs.schedule`'s business. Plug-ins
(:mod:`models.plugins`) add others. All give a :class:`~interp.proofs.verdict.verdict.Verdict`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.core.estimate import Estimate
from interp.core.probe import Scalar, probe
from interp.core.task_checks import resolve_task
from interp.proofs.attacks import first_look, search_method
from interp.proofs.attention_only import arrangement_method
from interp.proofs.columns import column_method, per_operator
from interp.proofs.columns.accuracy_bounds import WIDTH
from interp.proofs.hand_built import hand_built_method
from interp.proofs.listed import exhaustive, prefix_method
from interp.proofs.machine import machine_method
from interp.proofs.schedule import attempts_at, judged
from interp.proofs.verdict.identity import require_exact_products
from interp.proofs.verdict.method import METHODS, CertifyOptions, Method, method_named, register, verdict_by
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.time_limit import MINUTES, TimeUp, time_limit
from interp.proofs.verdict.verdict import ARITHMETICS, ArithmeticName, Targets, Verdict
from interp.proofs.verdict.verdict_files import LARGEST_FILE, parse_verdict
from models.calls import checked
from models.errors import UserError, known_name
from models.evaluation import predict
from models.files import read_bytes
from models.task_mismatch import task_mismatch
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, model_name

MOST_SYMBOLS = 2**12  # of a problem's operands; 21 binary symbols already make too many problems to run

register(
    hand_built_method.METHOD,
    machine_method.METHOD,
    arrangement_method.METHOD,
    column_method.METHOD,
    per_operator.METHOD,
    prefix_method.METHOD,
    exhaustive.METHOD,
    search_method.METHOD,
    first_look.METHOD,
)


def _judged(model: HookedModel, task: Task) -> str:
    """Some method must judge the model."""
    try:
        method_for(model, task)
    except UserError as error:
        return str(error).rstrip(".")
    return ""


def _proved(found: Verdict) -> Estimate:
    """1 for a proof, 0 where an input is wrong. Raises UserError where it is not known."""
    if found.status not in ("certified", "refuted"):
        raise UserError(f"It is not known of all inputs: {found.status}.")
    return Estimate(float(found.status == "certified"), note=found.status)


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
    task: TaskLike | None = None,
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
    subject, options = Subject(model, task), CertifyOptions(arithmetic, tolerance, targets)
    _require_short(subject)
    require_exact_products(model)
    at_once = not exact_share and options == CertifyOptions(tolerance=tolerance)
    # A construction's own proof says in a moment which of its parts is wrong.
    if at_once and hand_built_method.why_not(subject) is not None and (found := first_look.look(subject)) is not None:
        verdict = verdict_by(first_look.METHOD.name, subject, found)
    else:
        verdict = _in_time(subject, options, minutes)
    if verdict.status != "refuted":
        return verdict
    return verdict.replace(task_mismatch=task_mismatch(model, subject.task, predict))


def _in_time(subject: Subject, options: CertifyOptions, minutes: float | None) -> Verdict:
    with time_limit(minutes):
        try:
            return judged(subject, options)
        except TimeUp:
            raise UserError(
                f"{minutes:g} minutes are not enough for a verdict on {model_name(subject.model)}; give more "
                "(minutes=), or None for as many as it takes."
            ) from None


def _require_short(subject: Subject) -> None:
    """Raise UserError for problems so long that laying one out would need much memory, before that is tried."""
    task: Any = getattr(subject.model, "task", None) if subject.given is None else subject.given
    if task is None or not task.has_other_sizes or task.n_operands * task.n_digits <= MOST_SYMBOLS:
        return
    if not any(method.any_length and method.why_not(subject) is None for method in METHODS.values()):
        raise UserError(
            f"Problems of {task.name} with {task.n_operands * task.n_digits:,} symbols are more than can be run one by "
            "one; a smaller shape may do."
        )


def method_for(model: HookedModel, task: Task) -> Method:
    """The method that is tried first on such a model. Raises UserError if none can prove it right."""
    subject = Subject(model, task)
    _require_short(subject)
    return attempts_at(subject, CertifyOptions())[0].method


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
    return Verdict.from_dict(parse_verdict(data, path), path)


@checked
def check_certificate(verdict: Verdict, model: HookedModel, task: TaskLike | None = None) -> Verdict:
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
