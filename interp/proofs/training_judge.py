"""The judge of training: a seed that answers all validation problems is asked to be right on all problems.

``interp train NAME --certify`` and ``models.train(..., until="certified")`` give the training loop a :class:`Prover`;
the second also gives back problems to train on. A seed that is accepted ends there, with its certificate in the run's
folder.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from interp.proofs.certify import certify, method_for
from interp.proofs.columns.column_method import certify_one_layer
from interp.proofs.stored_verdicts import FILE, facts
from interp.proofs.verdict.time_limit import MINUTES as USUAL
from interp.proofs.verdict.time_limit import time_limit
from interp.proofs.verdict.verdict import ArithmeticName, Verdict
from models import ArithmeticTransformer, UserError
from models.registry import build
from models.tasks import LIMIT, Task
from models.tasks.named.addition import adds_pairs_below
from models.training import acceptance

MINUTES = 0.5  # for each question of :class:`Prover`
MOST = 256  # problems that one verdict gives back


@dataclass(frozen=True)
class Prover:
    """Accepts models that are certified in ``arithmetic``; with "float", those in which nothing is wrong in floats.

    Of other models it ``gives_back`` what is wrong or not proved: the counterexample, and the problems with the least
    margins of the classes that are refuted or open. Then it is also asked more rarely.

    Cost per candidate: at most ``minutes``; a model that is wrong in many ways takes seconds.
    """

    arithmetic: ArithmeticName = "float32"
    minutes: float | None = MINUTES
    gives_back: bool = True

    @property
    def rarely(self) -> bool:
        return self.gives_back

    @property
    def option(self) -> str:
        return "--until certified" if self.gives_back else f"--certify {self.arithmetic}"

    def __call__(self, model: ArithmeticTransformer, step: int, seed: int) -> acceptance.Acceptance:
        try:
            found = judged(model, self.arithmetic, self.minutes)
        except UserError as error:  # these weights are beyond every method; later ones may not be
            return acceptance.Acceptance(False, f"validated at 100%, and no verdict on all problems: {error}")
        if found.status not in ("certified", "sampled"):  # sampled: in floats, where nothing is proved
            back = unproved_problems(found, model.task) if self.gives_back else ()
            return acceptance.Acceptance(False, f"validated at 100% and {found.finding()}", problems=back)
        return acceptance.Acceptance(True, found.finding(), facts(found), {FILE: found.to_bytes()})


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


def unproved_problems(found: Verdict, task: Task, most: int = MOST) -> tuple[tuple[int, ...], ...]:
    """Problems that a verdict says are wrong, or that stand for what could not be proved, the least margins first.

    Of a task whose problems are more than a row of numbers there are none.
    """
    texts = list(dict.fromkeys(found.evidence.problems_left()))[:most]
    if (wrong := found.counterexample) is not None:
        texts.insert(0, wrong.problem)
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


def certifier_for(name: str, arithmetic: ArithmeticName) -> Prover:
    """The judge of ``--certify``. It is tried on untrained weights, to refuse what cannot be certified.

    Raises:
        UserError: no method judges models of that name.
    """
    judged(build(name), "float")
    return Prover(arithmetic, None, gives_back=False)
