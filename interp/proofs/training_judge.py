"""Judges for training: a seed that answers all validation problems is asked to be right on all problems.

``interp train NAME --certify`` gives the training loop a :class:`Certifier`, and ``models.train(...,
until="certified")`` a :class:`Prover`, which also gives back problems to train on. A seed that is accepted ends there,
with its certificate in the run's folder.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from interp.proofs.certify import certify, method_for
from interp.proofs.columns.column_evidence import PairEvidence, answered
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.stored_verdicts import FILE, facts
from interp.proofs.verdict.time_limit import MINUTES as USUAL
from interp.proofs.verdict.time_limit import time_limit
from interp.proofs.verdict.verdict import IN_WORDS, ArithmeticName, Verdict
from models import ArithmeticTransformer, UserError
from models.registry import build
from models.tasks import LIMIT, Task
from models.tasks.named.addition import adds_pairs_below
from models.training import acceptance

MINUTES = 0.5  # for each question of :class:`Prover`
MOST = 256  # problems that one verdict gives back


@dataclass(frozen=True)
class Prover:
    """Accepts models that :func:`interp.certify` certifies. Of others it gives back what is wrong or not proved: the
    counterexample, and the problems with the least margins of the classes that are refuted or open.

    Cost per candidate: at most ``minutes``; a model that is wrong in many ways takes seconds.
    """

    minutes: float = MINUTES
    rarely: bool = True

    @property
    def option(self) -> str:
        return "--until certified"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> acceptance.Acceptance:
        try:
            found = judged(model, "float32", self.minutes)
        except UserError as error:
            return acceptance.Acceptance(False, f"validated at 100%, and no verdict on all problems: {error}")
        if found.status == "certified":
            return acceptance.Acceptance(True, found.finding(), _facts(found), {FILE: found.to_bytes()})
        said = f"validated at 100% and {found.finding()}"
        return acceptance.Acceptance(False, said, problems=unproved_problems(found, model.task))


def judged(model: ArithmeticTransformer, arithmetic: ArithmeticName, minutes: float | None = None) -> Verdict:
    """The verdict on a candidate; of a ten-digit adder that is wrong in floats, this quicker one.

    Raises:
        UserError: no method can prove it right, or the minutes are not enough for a verdict.
    """
    if adds_pairs_below(model.task) != LIMIT:
        method_for(model, model.task)  # a search for wrong answers accepts nobody
        limit = USUAL if minutes is None else minutes
        return certify(model, arithmetic=arithmetic, tolerance=None, minutes=limit, exact_share=True)
    with time_limit(minutes):
        found = certify_one_layer(model, "float", tolerance=None)
        if found.status == "refuted" or arithmetic == "float":
            return found
        return certify_one_layer(model, arithmetic, tolerance=None)


def _facts(found: Verdict) -> dict[str, object]:
    return {"status": found.status, "method": found.method, "finding": found.finding(), "file": FILE}


def unproved_problems(found: Verdict, task: Task, most: int = MOST) -> tuple[tuple[int, ...], ...]:
    """Problems that a verdict says are wrong, or that stand for what could not be proved, the least margins first.

    Of a task whose problems are more than a row of numbers there are none.
    """
    texts = list(dict.fromkeys(found.evidence.problems_left()))[:most]
    if (wrong := found.counterexample) is not None:
        texts.insert(0, wrong[:2] if isinstance(wrong, tuple) else wrong.problem)
    rows = [task.as_problems([text]) for text in texts]
    if not rows or rows[0].ndim != 2:
        return ()
    return tuple(dict.fromkeys(map(tuple, torch.cat(rows).tolist())))


def until_certified(name: str) -> Prover:
    """The judge of ``until="certified"`` for runs of a registered model, which is tried on untrained weights.

    Raises:
        UserError: nothing can prove models of that name right.
    """
    model = build(name)
    method_for(model, model.task)
    return Prover()


@dataclass(frozen=True)
class Certifier:
    """Accepts models that are certified in ``arithmetic``. A model that is refuted in floats is not tried further.

    Cost per candidate: that of :func:`certify` in floats and, for the few that pass, once more in ``arithmetic``.
    """

    arithmetic: ArithmeticName

    @property
    def option(self) -> str:
        return f"--certify {self.arithmetic}"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> acceptance.Acceptance:
        try:
            certificate = self.verdict(model)
        except UserError as error:  # these weights are beyond every method; later ones may not be
            return acceptance.Acceptance(False, f"validated at 100%, and no verdict on all pairs: {error}")
        if certificate.status not in ("certified", "sampled"):  # sampled: in floats, where nothing is proved
            return acceptance.Acceptance(False, _turned_down(certificate))
        files = {FILE: certificate.to_bytes()}
        return acceptance.Acceptance(True, certificate.finding(), facts(certificate), files)

    def verdict(self, model: ArithmeticTransformer) -> Verdict:
        """The verdict on a candidate. Raises UserError if no method judges it."""
        return judged(model, self.arithmetic)


def certifier_for(name: str, arithmetic: ArithmeticName) -> Certifier:
    """The judge for runs of a registered model. It is tried on untrained weights, to refuse what cannot be certified.

    Raises:
        UserError: no method judges models of that name.
    """
    Certifier("float").verdict(build(name))
    return Certifier(arithmetic)


def _turned_down(certificate: Verdict) -> str:
    if not isinstance(certificate.evidence, PairEvidence):
        return f"validated at 100% and {certificate.finding()}"
    if certificate.counterexample is not None:
        return f"validated at 100% and yet wrong: {answered(certificate.rule, certificate.counterexample)}"
    why = certificate.obstacle or f"{certificate.open:,} of {len(certificate.cuts):,} classes could not be proved"
    return f"validated at 100% and undecided {IN_WORDS[certificate.arithmetic]}: {why}"
