"""A model that gets many random problems wrong is refuted by one of them, before any proof is begun.

A proof of such a model, or a run of all problems, takes minutes and ends with the same word. What it would add, the
exact share of wrong problems, is estimated from the sample instead; :func:`interp.certify` goes on with
``exact_share=True``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch

from interp.core.results import Provenance
from interp.core.stats import clopper_pearson
from interp.proofs.verdict.method import LAST_RESORT, CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import require_counterexample, require_model
from interp.proofs.verdict.subject import CannotJudge, Subject
from interp.proofs.verdict.verdict import Evidence, Status, Verdict
from interp.proofs.verdict.wrong_answers import wrong_answer
from models import UserError
from models.evaluation import predict
from models.number_format import in_percent_with
from models.tasks import Task, domain_of
from models.transformer import HookedModel

DRAWN, SEED = 64, 0
#: The model is refuted at once if this share of the problems is wrong, or more.
MANY = 0.25
FEW = 2**12  # problems of a domain that are counted exactly, as that takes no longer


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleEvidence(Evidence):
    """What a model answers on some random problems.

    Attributes:
        shape: of the problems, where the task has several.
        n: how many different problems were drawn. seed: of the draw. wrong: how many were answered wrongly.
        problems: these, in words. constant: whether all logits are equal, whatever the problem is.
    """

    shape: tuple[int, ...]
    n: int
    seed: int
    wrong: int
    problems: tuple[str, ...]
    constant: bool

    def to_dataframe(self) -> pd.DataFrame:
        return pd.DataFrame({"problem": self.problems})

    def problems_left(self) -> list[str]:
        return list(self.problems)

    def __post_init__(self) -> None:
        if not 0 < len(self.problems) == self.wrong <= self.n:
            raise ValueError("counts that do not fit")

    def allows(self, status: Status) -> bool:
        return status == "refuted"

    def finding(self, verdict: Verdict) -> str:
        one = verdict.counterexample
        share = in_percent_with(self.wrong / self.n, *clopper_pearson(self.wrong, self.n), counted=True)
        why = "; all of its logits are equal" if self.constant else ""
        return (
            f"refuted: {one} (run through the model), wrong on {self.wrong} of {self.n} "
            f"random problems ({share}){why}. No proof was begun"
        )

    def provenance(self, verdict: Verdict) -> Provenance:
        return Provenance(self.n, self.seed, "random problems")


def look(subject: Subject) -> Outcome | None:
    """That a model is refuted, if it gets ``MANY`` of some random problems wrong; else None.

    Cost: the answers to 64 problems.
    """
    model, task = subject.model, subject.task
    try:
        if domain_of(task).size <= FEW:
            return None
    except UserError:  # text, which has no problems; whoever judges it says so
        return None
    problems = task.sample(DRAWN, torch.Generator().manual_seed(SEED)).unique(dim=0)
    with torch.inference_mode():
        wrong = (
            (predict(model, problems, "greedy", DRAWN, task).cpu() != task.targets(problems).cpu()).flatten(1).any(1)
        )
        if float(wrong.double().mean()) < MANY:
            return None
        logits = model(task.encode(problems))[:, list(task.query_positions)]
        found = next(
            (one for row in problems[wrong] if (one := wrong_answer(model, task, row[None])) is not None), None
        )
    if found is None:  # all of them hang on the batch
        return None
    evidence = SampleEvidence(
        shape=task.shape,
        n=len(problems),
        seed=SEED,
        wrong=int(wrong.sum()),
        problems=tuple(task.problem_text(numbers) for numbers in task.numbers(problems[wrong])),
        constant=bool((logits == logits[:1, :1, :1]).all()),
    )
    return Outcome.of(False, evidence, found)


def _check(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    """Draw the same problems again."""
    subject = Subject(model, require_model(verdict, model, task))
    require_counterexample(verdict, model, subject.task)
    again = look(subject)
    found = None if again is None else verdict_by(METHOD.name, subject, again)
    if found is None or (found.wrong, found.n) != (verdict.wrong, verdict.n):
        raise UserError("This certificate does not hold: another number of random problems is wrong.")
    return found.replace(counterexample=verdict.counterexample)


def _run(subject: Subject, claim: str, options: CertifyOptions) -> Outcome:
    if (found := look(subject)) is None:
        raise CannotJudge(subject.model, "it gets most of some random problems right")
    return found


#: ``certify`` itself asks it, before all others.
METHOD = Method(
    "random problems",
    SampleEvidence,
    why_not=lambda subject: "a sample proves nothing",
    claims=lambda subject: (),
    cost=lambda subject, claim: LAST_RESORT,
    run=_run,
    check=_check,
    proves=False,
)
