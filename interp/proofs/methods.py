"""``interp.certify``: the methods that can judge a model, and how one is chosen.

    hand-built                     a construction known by its weight map: a proof for every length up to its limits
    few keys                       one-layer ten-digit adders that look at only a few keys: all classes are run
    branch and bound over columns  one-layer ten-digit adders, by their effective weights: a proof over all 10^20 pairs
    near keys                      one-layer decoders whose heads see near ids: all that a query can see, with roundings
    prefix tree                    causal models on small domains: every prefix once, enclosed with all roundings
    exhaustive                     any model whose task's shape has at most 2^20 problems: all are run through the model

The first method without an ``obstacle`` judges the model, and raises if it cannot judge something else about it. All
return a :class:`~interp.proofs.verdict.Verdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from interp.core.model import HookedModel
from interp.core.probe import probe
from interp.core.problems import resolve_task
from interp.core.sites import model_name
from interp.proofs import certificate, class_proofs, exhaustive, few_keys, hand_built, near_keys, prefix_proof
from interp.proofs.accuracy_bounds import WIDTH
from interp.proofs.certify import certify_one_layer, check_one_layer
from interp.proofs.exhaustive import certify_exhaustively, check_exhaustive, problem_space
from interp.proofs.hand_built import certify_hand_built, check_hand_built, is_hand_built
from interp.proofs.one_layer import Targets, one_layer_adder
from interp.proofs.prefix_proof import certify_prefixes, check_prefixes
from interp.proofs.verdict import LARGEST_FILE, ArithmeticName, Verdict, parse_verdict, verdict_of
from interp.proofs.watch import MINUTES, TimeUp, time_limit
from models.checkpoint import read_bytes
from models.errors import UserError
from models.questions import question
from models.tasks.addition import FixedWidthAddition
from models.tasks.base import Task
from models.tasks.sequences import SequenceTask

MOST_SYMBOLS = 2**12  # of a problem's operands; 21 binary symbols already make too many problems to run


@dataclass(frozen=True)
class Asked:
    """What :func:`certify` was asked for, apart from the model and the task."""

    arithmetic: ArithmeticName | None = None
    width: float | None = WIDTH
    targets: Targets = "all"


@dataclass(frozen=True)
class Method:
    """One method of judging.

    Attributes:
        name: the text of ``method`` in a verdict and in its file.
        obstacle: (model, task) -> why the method cannot judge such models and tasks, in words, or None if it can.
        certify: (model, task, what was asked) -> a verdict.
        check: (verdict, model, task) -> the verdict as derived again; raises UserError unless it holds.
        of_fields: a file's fields -> a verdict; raises KeyError, TypeError or ValueError if they do not make one.
    """

    name: str
    obstacle: Callable[[Any, Task], str | None]
    certify: Callable[[Any, Task, Asked], Verdict]
    check: Callable[[Any, Any, Task], Verdict]
    of_fields: Callable[[dict[str, Any]], Verdict]


def _no_ten_digits(model: HookedModel, task: Task) -> str | None:
    return None if isinstance(task, FixedWidthAddition) else f"{task.name} is no addition of ten-digit numbers"


def _too_many(model: HookedModel, task: Task) -> str | None:
    try:
        problem_space(task)
    except UserError as error:
        return str(error).rstrip(".")
    return None


def _run_all(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    _all_targets(task, asked)
    if asked.arithmetic == "interval":
        raise UserError(
            f"All problems of {task.name} are run through the model in its own floating point; "
            f"{asked.arithmetic!r} arithmetic is for proofs over domains too large for that."
        )
    return certify_exhaustively(model, task)


def _by_prefixes(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    """The proof that was asked for, or by default the strongest claim: with rounding, over the reals, or by a run.

    With "float", a small domain is not proved but run. A model that gets a problem wrong is run on all of them as well,
    to count the wrong ones; so is one that is proved over the reals alone, since rounding may make it wrong. A proof
    that was interrupted says how far it got.
    """
    _all_targets(task, asked)
    if asked.arithmetic == "float":
        return certify_exhaustively(model, task)
    if asked.arithmetic is not None:
        return certify_prefixes(model, asked.arithmetic, task)
    for arithmetic in ("float32", "interval"):
        found = certify_prefixes(model, arithmetic, task, patient=False)
        if found.status == "certified" and arithmetic == "interval":
            ran = certify_exhaustively(model, task)
            return ran if ran.status == "refuted" else found
        if found.status == "certified" or found.obstacle:
            return found
        if found.status == "refuted":
            break
    return certify_exhaustively(model, task)


def _all_targets(task: Task, asked: Asked) -> None:
    if asked.targets != "all":
        raise UserError(
            f"Digits are judged apart from EOS for ten-digit adders; of {task.name} every token is asked for."
        )


def _hand_built(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    _all_targets(task, asked)
    return certify_hand_built(model, asked.arithmetic, task)


def _one_layer(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    own = "interval" if model.W_E.dtype == torch.float64 else "float32"  # float64's rounding is not bounded
    return certify_one_layer(model, asked.arithmetic or own, task, asked.width, asked.targets)


def _few_keys(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    if asked.arithmetic not in (None, "float32"):
        raise UserError(
            f"All classes of {task.name} are run in the model's own floating point, not in {asked.arithmetic}."
        )
    return few_keys.certify_few_keys(model, task)


def _near_keys(model: HookedModel, task: Task, asked: Asked) -> Verdict:
    _all_targets(task, asked)
    return near_keys.certify_near_keys(model, asked.arithmetic or "float32", task)


def _not_built(model: HookedModel, task: Task) -> str | None:
    return None if is_hand_built(model) else f"{model_name(model)} is not hand-built"


#: Certificates of unknown methods (earlier versions had others) are read by the method for ten-digit adders, whose
#: check refuses them.
_ADDERS = Method(class_proofs.METHOD, _no_ten_digits, _one_layer, check_one_layer, certificate.of_fields)
METHODS = (
    Method(hand_built.METHOD, _not_built, _hand_built, check_hand_built, hand_built.of_fields),
    Method(few_keys.METHOD, few_keys.obstacle, _few_keys, few_keys.check_few_keys, few_keys.of_fields),
    _ADDERS,
    Method(near_keys.METHOD, near_keys.obstacle, _near_keys, near_keys.check_near_keys, near_keys.of_fields),
    Method(prefix_proof.METHOD, prefix_proof.obstacle, _by_prefixes, check_prefixes, prefix_proof.of_fields),
    Method(exhaustive.METHOD, _too_many, _run_all, check_exhaustive, exhaustive.of_fields),
)


def _judged(model: HookedModel, task: Task) -> str:
    """Some method must judge the model; that for ten-digit adders must know its layers and its task's layout."""
    try:
        _require_short(model, task)
        if method_for(model, task) is _ADDERS:
            return one_layer_adder(model, task)
    except UserError as error:
        return str(error).rstrip(".")
    return ""


@probe("Is it right on all inputs: a proof, or one that is wrong?", needs=[_judged])
def certify(
    model: HookedModel,
    *,
    arithmetic: ArithmeticName | None = None,
    task: Any = None,
    width: float | None = WIDTH,
    targets: Targets = "all",
    minutes: float | None = MINUTES,
) -> Any:
    """Certify that a model is right on every input of a domain, refute it by an input that it gets wrong, or neither.

    Args:
        model: one of this project's models or, with ``task`` and where the method allows it, a stock TransformerLens
            one.
        arithmetic: "float", "interval" or "float32", for proofs (by default "float32", and for small domains the first
            of "float32" and "interval" that succeeds; if neither does, and with "float", all problems are run in the
            model's own arithmetic). See :func:`interp.proofs.certify.certify_one_layer`.
        task: the task, if the model does not carry it, or the model's own in another shape, ``model.task.at(...)``.
        width: how far apart the bounds on the share of right pairs may be, where a proof fails; None computes none.
        targets: "all", or for ten-digit adders the answer's "digits" without the EOS after them.
        minutes: how long to try; None: as long as it takes. A proof that is not complete by then is undecided, and says
            what is left. Runs of all problems, which have no verdict before their end, then raise instead.

    Returns:
        a :class:`~interp.proofs.verdict.Verdict` of the method's own kind, such as
        :class:`~interp.proofs.certificate.Certificate` for ten-digit adders.

    Raises:
        UserError: a model or a domain that no method judges, in one sentence; too little time for any verdict.
    """
    _require_short(model, getattr(model, "task", None) if task is None else task)
    task = resolve_task(model, task)
    with time_limit(minutes):
        try:
            return method_for(model, task).certify(model, task, Asked(arithmetic, width, targets))
        except TimeUp:
            raise UserError(
                f"{minutes:g} minutes are not enough for a verdict on {model_name(model)}; give more (minutes=),"
                " or None for as many as it takes."
            ) from None


def _require_short(model: HookedModel, task: Any) -> None:
    """Raise UserError for problems so long that laying one out would need much memory, before that is tried."""
    if isinstance(task, SequenceTask) and not is_hand_built(model) and task.n_operands * task.n_digits > MOST_SYMBOLS:
        raise UserError(
            f"Problems of {task.name} with {task.n_operands * task.n_digits:,} symbols are more than can be run one by "
            "one; a smaller shape may do."
        )


def method_for(model: HookedModel, task: Task) -> Method:
    """The method that judges such a model. Raises UserError if there is none."""
    for method in METHODS:
        if (reason := method.obstacle(model, task)) is None:
            return method
    raise UserError(  # the last method is the most general, so give its reason
        f"The certifier cannot judge {model_name(model)}: {reason}. It knows hand-built models, ten-digit adders of "
        "one layer and small domains; `interp attack` may find a problem that it gets wrong."
    )


@question
def load_certificate(path: str | Path) -> Any:
    """Load a verdict of any method from its file. This checks the form; :func:`check_certificate` checks the proof.

    Raises:
        UserError: no such file, one that is too large, or one that does not hold a certificate.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size > LARGEST_FILE:
        raise UserError(f"{path} is larger than a certificate can be ({LARGEST_FILE >> 20} MB).")
    return parse_certificate(read_bytes(path), path)


def parse_certificate(data: bytes, path: object) -> Any:
    """A verdict from a file's bytes, JSON or gzipped JSON; see :func:`load_certificate`."""
    value = parse_verdict(data, path)
    return verdict_of(value, path, _method_of(value.get("method")).of_fields)


@question
def check_certificate(verdict: Verdict, model: HookedModel, task: Any = None) -> Any:
    """Verify a certificate against a model, without believing what the file says; each method has its own check.

    Returns:
        the verdict as derived again. Everything that it prints was compared or found again.

    Raises:
        UserError: a certificate of another model, one that claims nothing, or one that does not hold.
    """
    return _method_of(verdict.method).check(verdict, model, resolve_task(model, task))


def _method_of(name: Any) -> Method:
    return next((method for method in METHODS if method.name == name), _ADDERS)


def certified_at_best(model: HookedModel, task: Any = None) -> Any:
    """The certificate that includes float32 rounding, or the one over the real numbers if that is undecided."""
    found = certify(model, arithmetic="float32", task=task)
    return found if found.status != "undecided" else certify(model, arithmetic="interval", task=task)
