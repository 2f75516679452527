"""``interp.certify``: is a one-layer adder right on all 10^20 pairs? A proof, a counterexample, or neither."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from tqdm import tqdm

from interp.certificates.certificate import Certificate, dataset
from interp.certificates.columns import Classes, numbers_of_problems
from interp.certificates.decision import Proof
from interp.certificates.exact_accuracy import WIDTH, bounds_of, check_width
from interp.certificates.methods import Case, NotApplicable, choose, rung_of
from interp.certificates.one_layer import OneLayerAdder, read_adder
from interp.certificates.rungs import ArithmeticName
from interp.certificates.verdict import Status, require_claim, versions
from interp.sites import model_name
from models.errors import UserError
from models.evaluation import predict

#: Classes are proved above a share of the smallest margin that was hunted down: the first of these that can be.
SHARES = (0.5, 0.25, 0.1, 0.0)
SAME_MARGIN = 1e-2  # how far a stored margin may lie from one computed anew, in logits and relative
_AT_ONCE = 256  # problems run through the model: 7 MB, and more are hardly faster
_NOT_PROVED = Proof(False, float("nan"), ())


def certify(
    model: Any, arithmetic: ArithmeticName = "float32", task: Any = None, width: float | None = WIDTH
) -> Certificate:
    """Prove a one-layer adder right on all pairs of ten-digit numbers, or find a pair that it gets wrong.

    The rungs: "float" looks at margins in float64, on a grid or (branch and bound) at one hunted problem a class, and
    proves nothing about all others; "interval" proves
    in ball arithmetic what the stored weights define over the real numbers; "float32" also encloses the rounding of
    every operation of the forward pass, in any order of summation, and so is about the model as it runs (teacher-forced
    and, every token being right, greedily decoded). What is assumed of the machine stands in
    :mod:`interp.certificates.balls`.

    Precondition: the verdict is about the effective weights at hand (``fingerprint``). Postcondition: "certified" only
    if every class of inputs was proved; "refuted" only with a pair that the model itself, run on it, gets wrong.

    Cost: one CPU thread, under half a second in floats, about 2 s in intervals, 3 s with rounding. What is not
    certified also gets bounds on the share of wrong pairs, in another 2 to 4 s ("float" can give none).

    Args:
        model: one of this project's models, or (for "float" and "interval") a stock TransformerLens one.
        arithmetic: "float", "interval" or "float32".
        task: the task, if the model does not carry it.
        width: how far apart the bounds on the accuracy may be; None computes none.

    Raises:
        UserError: a model that no method can judge, in one sentence.
    """
    start = time.perf_counter()
    if width is not None:
        check_width(width)
    adder = read_adder(model, task)
    rung = rung_of(arithmetic, model, adder)
    method, case = choose(adder, rung)
    margins, wrong = replay(adder, case.classes)
    proofs = [_NOT_PROVED] * len(case.classes)
    counterexample = None
    if wrong is not None:
        status: Status = "refuted"
        counterexample = wrong
    else:
        smallest = min(float(case.hunted.min()), float(margins.min()))
        if arithmetic == "float":
            status = "certified" if smallest > 0 and case.grid else "undecided"
        else:
            proofs = prove_all(case, max(0.0, smallest))
            status = "certified" if all(proof.proved for proof in proofs) else "undecided"
            for pair in {proof.wrong for proof in proofs if proof.wrong}:
                if counterexample is None and (counterexample := wrong_answer(adder, torch.tensor([pair]))):
                    status = "refuted"
    accuracy = None
    if status != "certified" and arithmetic != "float" and width is not None and case.obstacle is None:
        with suppress(NotApplicable):
            accuracy = bounds_of(adder, rung, arithmetic, width)
    return Certificate(
        model=model_name(model),
        fingerprint=adder.fingerprint,
        task=adder.model.task.name,
        method=method,
        arithmetic=arithmetic,
        status=status,
        classes=_table(case, margins, proofs),
        cuts=tuple(proof.cuts for proof in proofs),
        counts=_counts(case, proofs),
        seconds=time.perf_counter() - start,
        versions=versions(),
        counterexample=counterexample,
        obstacle=case.obstacle if status == "undecided" else None,
        accuracy=accuracy,
    )


def prove_all(case: Case, smallest: float) -> list[Proof]:
    """A proof of each class, above the first of ``SHARES`` of a margin where that can be done.

    None where an obstacle stands, and none for a class whose hunted margin is not positive: it could not succeed.
    """
    proofs = []
    shown = tqdm(case.hunted.tolist(), desc="proving", unit="class", delay=2, leave=False, disable=None)
    for index, hunted in enumerate(shown):
        proof = _NOT_PROVED
        if case.obstacle is None and hunted > 0:
            for level in dict.fromkeys(share * smallest for share in SHARES):
                proof = case.prove(index, level)
                if proof.proved:
                    break
        proofs.append(proof)
    return proofs


@torch.inference_mode()
def replay(adder: OneLayerAdder, classes: Classes) -> tuple[Float[np.ndarray, "n witness"], tuple | None]:
    """Margins of all extreme pairs in the model's own logits, and the worst pair that it answers wrongly, if one is.

    A margin is the right token's logit less the best other one's, at the class's target; NaN counts as wrong. The wrong
    pair comes with the model's own answer, greedily decoded.
    """
    model, problems = adder.model, torch.from_numpy(classes.witnesses.reshape(-1, 2).copy())
    weights, found = model.effective_weights(), []
    each = classes.witnesses.shape[1]
    targets, queries = np.repeat(classes.target, each), np.array(adder.layout.queries)
    for chosen in torch.arange(len(problems)).split(_AT_ONCE):
        logits = model(model.task.encode(problems[chosen]).to(model.device), weights=weights).double().cpu().numpy()
        rows = logits[np.arange(len(chosen)), queries[targets[chosen.numpy()]]]
        answers = np.repeat(classes.answer, each)[chosen.numpy()]
        right = rows[np.arange(len(rows)), answers]
        rows[np.arange(len(rows)), answers] = -np.inf
        found.append(right - rows.max(1))
    margins = np.concatenate(found)
    for index in np.argsort(np.where(np.isnan(margins), -np.inf, margins)):
        if margins[index] > 0:
            break
        if (wrong := wrong_answer(adder, problems[index : index + 1])) is not None:
            return margins.reshape(-1, each), wrong
    return margins.reshape(-1, each), None


@torch.inference_mode()
def wrong_answer(adder: OneLayerAdder, pair: Int[torch.Tensor, "1 2"]) -> tuple[int, int, int | None] | None:
    """A problem with the model's own answer to it, greedily decoded (None spells no number), if that is wrong."""
    task = adder.model.task
    answer = predict(adder.model, pair, method="greedy").cpu()
    if torch.equal(answer, task.targets(pair)):
        return None
    a, b = pair[0].tolist()
    decoded = task.decode(answer)[0]
    return a, b, None if decoded < 0 else decoded


def _table(case: Case, margins: np.ndarray, proofs: list[Proof]) -> Any:
    classes = case.classes
    columns: dict[str, Int[np.ndarray, "..."] | Float[np.ndarray, "..."]] = {
        name: getattr(classes, name) for name in ("target", "previous", "carry", "total", "token", "answer")
    }
    if classes.ends.size:
        columns["reach"] = classes.ends
    columns |= {"a": classes.witnesses[..., 0], "b": classes.witnesses[..., 1]}
    columns |= {"margin": margins, "hunted": case.hunted, "proved": np.array([proof.lowest for proof in proofs])}
    return dataset(columns)


def _counts(case: Case, proofs: list[Proof]) -> tuple[tuple[int, int, int], ...]:
    """Of each class's problems, how many were certified, refuted and left open."""
    numbers = numbers_of_problems(case.classes)
    return tuple(
        p.counts or ((number, 0, 0) if p.proved else (0, 0, number)) for p, number in zip(proofs, numbers, strict=True)
    )


def check_certificate(certificate: Certificate, model: Any, task: Any = None) -> None:
    """Verify a certificate against a model, without searching: nothing in the file is believed.

    Read anew from the weights: the method's terms and errors, and the classes with their ranges. The file's own ranges
    must cover those, its pieces must cover its ranges, and every piece must be enclosed above the bound that it claims.
    Its extreme pairs are run through the model again, and must have the margins that it says, as far as another order
    of summation lets them. A refutation is run through the model; bounds on its accuracy are proved anew.

    Raises:
        UserError: another model's certificate, one that claims nothing, or one that does not hold.
    """
    adder = read_adder(model, task)
    require_claim(certificate, adder.fingerprint, model_name(model))
    if certificate.status == "refuted":
        pair = torch.tensor([list(certificate.counterexample or (0, 0, None))[:2]])
        pair = adder.model.task.as_problems(pair)
        if torch.equal(predict(adder.model, pair, method="greedy").cpu(), adder.model.task.targets(pair)):
            raise UserError(f"This certificate does not hold: the model answers {pair[0].tolist()} rightly.")
        claimed = certificate.accuracy
        if claimed is not None:
            rung = rung_of(claimed.arithmetic, model, adder)
            found = bounds_of(adder, rung, claimed.arithmetic, claimed.requested)
            if claimed.fingerprint != adder.fingerprint or not claimed.encloses(found):
                raise UserError("This certificate does not hold: its bounds on the accuracy do not follow.")
        return
    method, case = choose(adder, rung_of(certificate.arithmetic, model, adder))
    data, classes = certificate.classes, case.classes
    names = ("target", "previous", "carry", "total", "token", "answer")
    if method != certificate.method or case.obstacle or len(certificate.cuts) != len(classes):
        raise UserError("This certificate does not hold: it was made by another method, or has other classes.")
    if any(not np.array_equal(data[name].values, getattr(classes, name)) for name in names):
        raise UserError("This certificate does not hold: its classes are not those of the task.")
    reach = data.reach.values if "reach" in data else np.zeros((len(classes), 0), dtype=np.int64)
    if reach.shape != classes.ends.shape:
        raise UserError("This certificate does not hold: it has ranges of another method.")
    if reach.size and ((reach[:, 0] > classes.ends[:, 0]).any() or (reach[:, 1] < classes.ends[:, 1]).any()):
        raise UserError("This certificate does not hold: some inputs lie outside its ranges.")
    stored = replace(classes, witnesses=np.stack((data.a.values, data.b.values), -1))
    margins, _ = replay(adder, stored)
    if not (margins > 0).all() or not (case.hunted > 0).all():
        raise UserError("This certificate does not hold: the model gets an extreme pair wrong.")
    if not np.allclose(margins, data.margin.values, rtol=SAME_MARGIN, atol=SAME_MARGIN):
        raise UserError("This certificate does not hold: the model has other margins on its extreme pairs.")
    if certificate.arithmetic == "float":
        return
    bounds = data.proved.values
    failing = (
        case.verify(certificate.cuts, reach, bounds.tolist()) if (bounds > 0).all() else int((~(bounds > 0)).argmax())
    )
    if failing is not None:
        raise UserError(f"This certificate does not hold: class {failing} is not proved by its pieces.")
