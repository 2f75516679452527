"""What ``interp.certify`` says of a model that no method can prove: a wrong answer, or what was tried.

A search along gradients (:func:`interp.proofs.attacks.attack`) looks for a problem that the model gets wrong. If it
finds one, the model is refuted. If it finds none, the model is undecided: the verdict gives the reason for which no
method has a proof, and what was tried. All problems are run instead where the time is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pandas as pd

from interp.core.model_checks import require_hook
from interp.core.results import Provenance
from interp.core.views import Picture
from interp.proofs.attacks.counted_runs import EMBED
from interp.proofs.attacks.gradient_attack import RUNS, SEARCHES, Attack, attack, attack_view
from interp.proofs.attacks.problem_digits import digit_space
from interp.proofs.verdict.method import LAST_RESORT, Method, Outcome
from interp.proofs.verdict.recheck import require_counterexample, require_model
from interp.proofs.verdict.subject import Subject, reason_of
from interp.proofs.verdict.verdict import Evidence, Status, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models.tasks import Task
from models.transformer import HookedModel, model_name, own_name

#: The most seconds of a search; the random search that it is compared with takes about as long again.
SECONDS = 60.0


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchEvidence(Evidence):
    """What a search for wrong answers met.

    Attributes:
        shape: of the problems, where the task has several.
        reason: for which no method has a proof.
        attack: the search along gradients, and the random search that is its control.
    """

    shape: tuple[int, ...]
    reason: str
    attack: Attack
    derived: ClassVar[tuple[str, ...]] = ("tried", "failures", "worst", "smallest_margin")

    def __post_init__(self) -> None:
        found = self.attack
        counts = (found.runs, found.budget)
        if any(isinstance(n, bool) or n < 0 for n in counts) or not all(found.history.get(one) for one in SEARCHES):
            raise ValueError("a search that is not whole")

    @property
    def tried(self) -> int:
        """How many problems the search along gradients tried."""
        return self.attack.provenance.n or 0

    @property
    def failures(self) -> int:
        """How many of them had a margin of zero or less, teacher-forced."""
        return self.attack.n_wrong["attack"]

    @property
    def worst(self) -> str:
        """The problem with the least margin."""
        return self.attack.text(self.attack.worst["attack"])

    @property
    def smallest_margin(self) -> float:
        """The least margin that was met, in logits; -inf where logits are not numbers."""
        return self.attack.smallest_margin()

    def allows(self, status: Status) -> bool:
        return status in ("refuted", "undecided")

    def to_dataframe(self) -> pd.DataFrame:
        return self.attack.to_dataframe()

    def problems_left(self) -> list[str]:
        return [self.worst]

    def picture(self) -> Picture:
        """The least margins that both searches met, over their runs and by target."""
        return attack_view(self.attack)

    def finding(self, verdict: Verdict) -> str:
        tried = f"{self.tried:,} problems that a search along gradients tried"
        if (one := verdict.counterexample) is not None:
            return f"refuted: {one} (run through the model); {self.failures:,} of {tried} have a margin of zero or less"
        control = self.attack.smallest_margin("random")
        least = f"the least margin {self.smallest_margin:.3g} at {self.worst} (random search: {control:.3g})"
        return f"undecided: {self.reason}; no failure among {tried}, {least}. That proves nothing"

    def provenance(self, verdict: Verdict) -> Provenance:
        return self.attack.provenance


def search(subject: Subject, reason: str, seconds: float | None = None, runs: int = RUNS) -> Outcome:
    """Look for a problem that the model gets wrong, as there is no proof for that ``reason``.

    The status is "refuted" with a problem that the model, decoding it alone, gets wrong, or "undecided".

    Cost: as :func:`interp.proofs.attacks.attack`; ``seconds`` bound the search along gradients.

    Raises:
        UserError: a model or task that cannot be searched, such as one whose problems are not listed.
    """
    model, task = subject.model, subject.task
    found = attack(model, task=task, runs=runs, seconds=seconds)
    evidence = SearchEvidence(
        shape=task.shape,
        reason=reason.rstrip(".").replace(model_name(model), own_name(model)),  # without where its file lies
        attack=replace(found, model=own_name(model)),
    )
    return Outcome.of(False, evidence, _wrong(model, task, found))


def _wrong(model: HookedModel, task: Task, found: Attack) -> WrongAnswer | None:
    """The first of the attack's failures that is one when the problem is decoded alone."""
    problems = (task.as_problems([one.problem]) for one in sorted(found.wrong, key=lambda one: one.margin))
    return next((one for problem in problems if (one := wrong_answer(model, task, problem)) is not None), None)


def first_wrong(subject: Subject, runs: int) -> WrongAnswer | None:
    """A wrong answer that a short search finds, if it finds one; None for what cannot be searched."""
    if why_not(subject) is not None:
        return None
    model, task = subject.own, subject.task
    return _wrong(model, task, attack(model, task=task, runs=runs, seconds=SECONDS))


def _check(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    """Ask the model again for the wrong answer, and search again as long."""
    task = require_model(verdict, model, task)
    require_counterexample(verdict, model, task)
    found = search(Subject(model, task), verdict.reason, SECONDS, max(1, min(verdict.attack.runs, RUNS)))
    return verdict.replace(evidence=found.evidence)


def why_not(subject: Subject) -> str | None:
    """Why a model and a task cannot be searched."""
    return reason_of(lambda: require_hook(subject.model, EMBED)) or reason_of(lambda: digit_space(subject.task))


METHOD = Method(
    "search",
    SearchEvidence,
    why_not=why_not,
    claims=lambda subject: (),
    cost=lambda subject, claim: LAST_RESORT,
    run=lambda subject, claim, options: search(subject, "nothing else was asked"),
    check=_check,
    proves=False,
)
