"""Decide whether an adder or subtractor of one or two layers is right on all pairs, by a proof or a counterexample."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.proofs.columns.accuracy_bounds import WIDTH, bounds_of, check_tolerance
from interp.proofs.columns.adder_weights import FEW, FEW_OF_TWO, AdderWeights, known_layout, require_unchanged
from interp.proofs.columns.class_prover import UNPROVED, ClassProver, rounding_of
from interp.proofs.columns.column_classes import Classes
from interp.proofs.columns.column_evidence import CLASS, OverTheReals, PairEvidence, dataset
from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.extreme_pairs import Leads, replay, require_proved
from interp.proofs.columns.two_layer_adders import read_columns
from interp.proofs.columns.window_search import ClassProof
from interp.proofs.verdict.method import LAST_RESORT, CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import require_claim, require_counterexample
from interp.proofs.verdict.subject import Subject, reason_of
from interp.proofs.verdict.time_limit import ENDED, EndedBy, ended_by, watched
from interp.proofs.verdict.verdict import ArithmeticName, Status, Targets, Verdict, versions
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import UserError
from models.tasks import FormattedTask, Task
from models.transformer import HookedModel, model_name

TARGET_SHARE = 0.5  # the bound that proofs try for, as a share of the smallest margin that was hunted down
#: The share of every bound that a certificate does not claim: another machine or a later version may round an enclosure
#: differently, by far less than this, and the claim still holds there.
RESERVE = 0.1
#: Seconds of a proof, to order methods by: usually, and where heads write along more than FEW_DIRECTIONS.
USUAL, WITH_MANY, FEW_DIRECTIONS = 5.0, 100.0, 12
SAME_MARGIN = 1e-2  # how far a stored margin may lie from one computed again, in logits and relative


def certify_one_layer(
    model: HookedModel,
    arithmetic: ArithmeticName = "float32",
    task: Task | None = None,
    tolerance: float | None = WIDTH,
    targets: Targets = "all",
) -> Verdict:
    """Prove an adder of one layer, or of two (:mod:`interp.proofs.columns.two_layer_adders`), right on all pairs of
    ten-digit numbers, or find a pair that it gets wrong.

    The same proof is one of subtractors of ``a - b`` with ``a >= b``, and of numbers of other lengths: see
    :mod:`interp.proofs.columns.column_rule`.

    ``arithmetic`` sets how strong the claim is. "float" looks at margins in float64, at one hunted problem per class,
    and proves nothing about the others. "interval" proves what the stored weights define over the real numbers.
    "float32" encloses the rounding of every operation of the forward pass, in any order of summation, and so is about
    the model as it runs (teacher-forced and, as every token is then right, greedily decoded).
    :mod:`interp.proofs.numbers.rounding_errors` lists what is assumed of the machine.

    Precondition: the verdict is about the effective weights at hand (``fingerprint``), which are computed once.
    Where only EOS is wrong, the digits before it are judged all the same. What stays undecided with rounding is also
    judged over the reals.

    Cost: one CPU thread, about 2 s in floats, 3 to 6 s in intervals or with rounding. A model that is not certified
    also gets bounds on the share of wrong pairs, in another 2 to 30 s (except with "float").

    Args:
        model: one of this project's models, or (for "float" and "interval") a stock TransformerLens one.
        arithmetic: "float", "interval" or "float32".
        task: the task, if the model does not carry it.
        tolerance: how far apart the bounds on the accuracy may be; None computes none.
        targets: "all" tokens of the answer, or its "digits" alone, as AdderBoard scores.

    Raises:
        UserError: a model that no method can judge, or that computes something other than its weights say; an unknown
            option.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, prove(subject, arithmetic, CertifyOptions(None, tolerance, targets)))


def prove(subject: Subject, claim: str, options: CertifyOptions) -> Outcome:
    """Judge all classes of an adder or a subtractor, in the arithmetic ``claim``; see :func:`certify_one_layer`."""
    arithmetic, tolerance = cast(ArithmeticName, claim), options.tolerance
    if tolerance is not None:
        check_tolerance(tolerance)
    adder = read_columns(subject.model, subject.task, options.targets)
    if adder.fingerprint != subject.identity:
        raise UserError(f"The weights of {model_name(subject.model)} change from one call to the next.")
    rounding, asked = rounding_of(arithmetic, subject.model, adder), len(adder.layout.queries)
    case = ClassProver(adder, rounding)
    leads = replay(adder, case.classes, arithmetic)
    wrong, proofs, obstacle = leads.wrong(adder, case.classes), [UNPROVED] * len(case.classes), case.obstacle
    failing, ended = ~(leads.own > 0), None
    status: Status = "undecided" if wrong is None else "refuted"
    if arithmetic == "float":
        if wrong is None and min(float(case.hunted.min()), float(leads.margins.min())) > 0:
            status = "sampled"
    elif not (failing & (case.classes.target < adder.layout.rule.written)).any():
        try:
            prove_all(case, proofs, smallest_of(case, leads.margins[~failing]))
        except ENDED as error:
            ended = ended_by(error)
            obstacle = ended.value
        require_proved(adder, case.classes, leads, proofs)
        if wrong is None and all(proof.proved for proof in proofs):
            status = "certified" if adder.layout.rule.tried is None else "conditional"
        for pair in {proof.wrong for proof in proofs if proof.wrong}:
            if wrong is None and (wrong := wrong_answer(adder.model, adder.model.task, torch.tensor([pair]), asked)):
                status = "refuted"
    accuracy = reals = None
    if ended is not EndedBy.INTERRUPT:
        with suppress(*ENDED):
            if status == "undecided" and arithmetic == "float32":
                reals = _over_the_reals(case)
            open_ = status in ("refuted", "undecided") and not case.obstacle
            if open_ and arithmetic != "float" and tolerance is not None:
                accuracy = bounds_of(adder, rounding, arithmetic, tolerance, leads.failing_pairs(case.classes))
    found = PairEvidence(
        arithmetic=arithmetic,
        targets=options.targets,
        classes=_table(case, leads.margins, proofs),
        cuts=tuple(proof.splits for proof in proofs),
        counts=_counts(case, proofs),
        obstacle=obstacle if status == "undecided" else None,
        accuracy=accuracy,
        reals=reals,
        rule=adder.layout.rule,
    )
    return Outcome(status, found, wrong, ended)


def smallest_of(case: ClassProver, margins: Float[np.ndarray, "..."]) -> float:
    """The smallest positive margin that was met. Proofs try for a share of it."""
    met = np.concatenate((case.hunted, margins))
    return float(met[met > 0].min(initial=np.inf))


def prove_all(case: ClassProver, proofs: list[ClassProof], smallest: float) -> None:
    """Fill in a proof of each class, trying for a bound of ``TARGET_SHARE * smallest``.

    No proof is tried where there is an obstacle, nor for a class whose hunted margin is not positive, as it could not
    succeed. Raises TimeUp; the proofs found until then are filled in.
    """
    for index, hunted in enumerate(watched(case.hunted.tolist(), "proving", "class")):
        if case.obstacle is None and hunted > 0:
            proofs[index] = case.prove_class(index, TARGET_SHARE * smallest)


def _over_the_reals(rounded: ClassProver) -> OverTheReals | None:
    case = rounded.over_the_reals()
    proofs = [UNPROVED] * len(case.classes)
    prove_all(case, proofs, smallest_of(case, np.zeros(0)))
    bound = min(proof.lowest for proof in proofs) if all(proof.proved for proof in proofs) else float("nan")
    return OverTheReals(sum(not proof.proved for proof in proofs), bound)


def _table(case: ClassProver, margins: np.ndarray, proofs: list[ClassProof]) -> Any:
    classes = case.classes
    columns: dict[str, Int[np.ndarray, "..."] | Float[np.ndarray, "..."]] = {
        name: getattr(classes, name) for name in CLASS
    }
    columns |= {"a": classes.witnesses[:, 0, 0], "b": classes.witnesses[:, 0, 1]}
    bounds = np.array([_claimed(proof.lowest) for proof in proofs])
    return dataset(columns | {"margin": margins, "hunted": case.hunted, "proved": bounds})


def _claimed(bound: float) -> float:
    """What a certificate claims of a bound that was proved, in five digits."""
    return float(f"{(1 - RESERVE) * bound:.5g}") if bound > 0 else bound


def _counts(case: ClassProver, proofs: list[ClassProof]) -> tuple[tuple[int, int, int], ...]:
    """How many problems of each class were certified, refuted and left open."""
    return tuple(
        (0, 0, number) if proof is UNPROVED else proof.counts
        for proof, number in zip(proofs, case.numbers, strict=True)
    )


def check_one_layer(certificate: Verdict, model: HookedModel, task: Task | None = None) -> Verdict:
    """Verify a certificate against a model, without searching; returns the certificate as derived again.

    Nothing in the file is believed. The terms and errors of attention, and the classes, are read from the weights
    again, and every window that the file's splits leave must be enclosed above the bound that it claims. Its extreme
    pairs must be problems of their classes and, run through the model again, have the margins that it says, up to
    another order of summation; the smallest margin found again must not be smaller. A refutation is run through the
    model and must fail as the file says. The numbers of problems are counted and bounds on the accuracy proved again.

    Raises:
        UserError: a certificate of another model, one that claims nothing, or one that does not hold.
    """
    start = time.perf_counter()
    adder = read_columns(model, task, certificate.targets)
    require_claim(certificate, adder.fingerprint, model, adder.model.task)
    rounding = rounding_of(certificate.arithmetic, model, adder)
    case = ClassProver(adder, rounding)
    classes = _same_classes(certificate, case)
    data = certificate.classes
    leads = replay(adder, replace(case.classes, witnesses=classes.witnesses), certificate.arithmetic)
    if not np.allclose(leads.margins, data.margin.values, rtol=SAME_MARGIN, atol=SAME_MARGIN, equal_nan=True):
        raise _broken("the model has other margins on its extreme pairs")
    found = replay(adder, case.classes, certificate.arithmetic)
    smallest = float(np.nan_to_num(found.margins, nan=-np.inf).min())
    if certificate.smallest_margin > smallest + SAME_MARGIN * (1 + abs(smallest)):
        raise _broken("some pair has a smaller margin than the smallest that it names")
    accuracy = None
    if certificate.status == "refuted":
        require_counterexample(certificate, adder.model, adder.model.task, len(adder.layout.queries))
        failing = leads.failing_pairs(case.classes)
        if (accuracy := certificate.accuracy) is not None:
            own = rounding_of(accuracy.arithmetic, model, adder)
            again = bounds_of(adder, own, accuracy.arithmetic, accuracy.requested, failing)
            names = ("model", "fingerprint", "arithmetic", "method")
            if any(getattr(accuracy, name) != getattr(again, name) for name in names) or not accuracy.encloses(again):
                raise _broken("its bounds on the accuracy do not follow")
    elif not (leads.own > 0).all() or not (case.hunted > 0).all():
        raise _broken("the model gets an extreme pair wrong")
    proofs = _proved_again(certificate, adder, case, classes, leads)
    require_unchanged(adder)
    computed = {"margin": (data.margin.dims, leads.margins), "hunted": (data.hunted.dims, case.hunted)}
    return certificate.replace(
        classes=data.assign(computed),
        counts=_counts(case, proofs),
        obstacle=None,
        reals=None,
        accuracy=accuracy,
        seconds=time.perf_counter() - start,
        versions=versions(),
    )


def _broken(why: str) -> UserError:
    return UserError(f"This certificate does not hold: {why}.")


def _same_classes(certificate: Verdict, case: ClassProver) -> Classes:
    """The certificate's classes with its own witnesses, checked against the model and the task."""
    data, classes = certificate.classes, case.classes
    if case.obstacle or certificate.rule != classes.rule or len(certificate.cuts) != len(classes):
        raise _broken(case.obstacle or "it has other classes")
    if any(not np.array_equal(data[name].values, getattr(classes, name)) for name in CLASS):
        raise _broken("its classes are not those of the task")
    witnesses = np.stack((data.a.values, data.b.values), -1)[:, None]
    if not classes.hold(witnesses).all():
        raise _broken("an extreme pair is not of its class")
    return replace(classes, witnesses=witnesses)


def _proved_again(
    certificate: Verdict,
    adder: AdderWeights,
    case: ClassProver,
    classes: Classes,
    leads: Leads,
) -> list[ClassProof]:
    """The proofs that the certificate claims, by its own cuts; checks that its bounds and counts follow from them."""
    proved, status, n = certificate.classes.proved.values, certificate.status, len(classes)
    if status in ("certified", "conditional") and not (proved > 0).all():
        raise _broken(f"class {int((~(proved > 0)).argmax())} has no bound")
    counts = np.array(certificate.counts, dtype=object).reshape(n, 3)
    chosen = (proved > 0) | (counts[:, :2] > 0).any(1)
    if certificate.arithmetic == "float":
        if chosen.any():
            raise _broken("nothing is proved in floats")
        return [UNPROVED] * n
    proofs = case.verify(certificate.cuts, proved.tolist(), chosen)
    for index in np.flatnonzero(chosen).tolist():
        proof = proofs[index]
        if proved[index] > 0 and not (proof.proved and proof.lowest >= proved[index]):
            raise _broken(f"class {index} is not proved by its splits")
    own = np.array(_counts(case, proofs), dtype=object)
    if (counts[:, :2] > own[:, :2]).any() or (counts.sum(1) != own.sum(1)).any():
        raise _broken("it counts other problems than its proofs do")
    claimed = [replace(proof, lowest=bound) for proof, bound in zip(proofs, proved.tolist(), strict=True)]
    require_proved(adder, classes, leads, claimed)
    return proofs


def _rule(subject: Subject) -> ColumnRule:
    model = subject.model
    return known_layout(model, subject.task, 1 if model.cfg.n_layers == 1 else 2)[1].rule


def why_not(subject: Subject) -> str | None:
    """Why an adder or a subtractor is not one that is judged column by column, in words; None if it is."""
    return reason_of(lambda: subject.once(_rule))


def claims(subject: Subject) -> tuple[str, ...]:
    """Proofs with rounding, which is bounded for this project's own forward pass in float32, and over the reals."""
    rounded = subject.own is subject.model and subject.model.W_E.dtype != torch.float64
    return ("float32", "interval", "float") if rounded else ("interval", "float")


def cost(subject: Subject, claim: str) -> float:
    """A few seconds; more where heads write along many directions, as intervals of what they write are then wide. Few
    problems are better proved one by one."""
    if claim != "float" and subject.once(_rule).digits <= (FEW if subject.model.cfg.n_layers == 1 else FEW_OF_TWO):
        return LAST_RESORT
    return WITH_MANY if subject.once(directions_written) > FEW_DIRECTIONS else USUAL


def directions_written(subject: Subject) -> int:
    """Along how many directions the heads of a model's first layer can write: the rank of its output matrices."""
    written = torch.as_tensor(subject.model.W_O)[0].detach().double().flatten(0, 1)  # pyright: ignore
    return int(torch.linalg.matrix_rank(written)) if bool(written.isfinite().all()) else len(written)


def _of_two_numbers(task: Task) -> bool:
    """Whether the problems are two numbers of some digits, with one rule for the answer."""
    parsed = task.parsed if isinstance(task, FormattedTask) else None
    numbers = () if parsed is None or parsed.operators else parsed.operand_fields
    return len(numbers) == 2 and not any(field.one_token for field in numbers)


METHOD = Method(
    "branch and bound over columns",
    PairEvidence,
    why_not=why_not,
    claims=claims,
    cost=cost,
    run=prove,
    check=check_one_layer,
    meant_for=_of_two_numbers,
    digits_alone=True,
)
