"""What ``interp.certify`` says of a model that no method can prove: a wrong answer, or what was tried.

A search along gradients (:func:`interp.proofs.attacks.attack`) looks for a problem that the model gets wrong. If it
finds one, the model is refuted. If it finds none, the model is undecided: the verdict gives the reason for which no
method has a proof, and what was tried. All problems are run instead where the time is enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from interp.core.model_checks import require_hook
from interp.core.results import Provenance
from interp.core.views import Line, Picture, Points, Series
from interp.proofs.attacks.counted_runs import EMBED
from interp.proofs.attacks.gradient_attack import RUNS, SEARCHES, Attack, attack
from interp.proofs.attacks.problem_digits import digit_space
from interp.proofs.verdict.method import LAST_RESORT, Method, Outcome
from interp.proofs.verdict.recheck import require_counterexample, require_model
from interp.proofs.verdict.subject import Subject, reason_of
from interp.proofs.verdict.verdict import Evidence, Verdict
from interp.proofs.verdict.verdict_files import is_count, is_number, stored_shape
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
        runs: sequences that each search ran. seed: of both. tried: problems of the search along gradients.
        failures: how many of them had a margin of zero or less, teacher-forced.
        worst: the problem with the least margin. smallest_margin: that margin, and the random search's, in logits (-inf
            where logits are not numbers).
        margins: the least margin of both searches at each target (a table with ``target``, ``attack``, ``random``).
    """

    shape: tuple[int, ...]
    reason: str
    runs: int
    seed: int
    tried: int
    failures: int
    worst: str
    smallest_margin: float
    random_margin: float
    margins: pd.DataFrame

    def to_dataframe(self) -> pd.DataFrame:
        return self.margins.copy()

    def problems_left(self) -> list[str]:
        return [self.worst]

    def to_dict(self) -> dict[str, Any]:
        finite = lambda x: float(x) if math.isfinite(x) else None  # noqa: E731
        table = {"target": self.margins["target"].tolist()}
        table |= {name: [finite(x) for x in self.margins[name]] for name in SEARCHES}
        own = {name: finite(getattr(self, name)) for name in ("smallest_margin", "random_margin")}
        return super().to_dict() | own | {"margins": table}

    def picture(self) -> Picture:
        """The least margin that both searches met at each target."""
        targets = self.margins["target"].tolist()
        series = [
            Series(name, targets, self.margins[name].to_numpy(float), control=name != "attack") for name in SEARCHES
        ]
        return Picture([Points("target", "smallest margin (logits)", "", series, "", (Line(0),))])

    def finding(self, verdict: Verdict) -> str:
        tried = f"{self.tried:,} problems that a search along gradients tried"
        if (one := verdict.counterexample) is not None:
            return (
                f"refuted: {one.problem} -> {one.predicted} (run through the model); {self.failures:,} of {tried} have "
                "a margin of zero or less"
            )
        least = f"the least margin {self.smallest_margin:.3g} at {self.worst} (random search: {self.random_margin:.3g})"
        return f"undecided: {self.reason}; no failure among {tried}, {least}. That proves nothing"

    def provenance(self, verdict: Verdict) -> Provenance:
        return Provenance(self.tried, self.seed, "problems along gradients")

    @classmethod
    def read(cls, value: dict[str, Any]) -> SearchEvidence:
        if value["status"] not in ("refuted", "undecided"):
            raise ValueError("a search proves nothing")
        table = value["margins"]
        columns = [table[name] for name in ("target", *SEARCHES)]
        numbers = [x for name in SEARCHES for x in table[name]] + [value["smallest_margin"], value["random_margin"]]
        if len({len(column) for column in columns}) != 1 or not all(x is None or is_number(x) for x in numbers):
            raise ValueError("a table of margins that is none")
        counts, texts = ("runs", "seed", "tried", "failures"), ("reason", "worst")
        if not all(is_count(value[name]) for name in counts) or not all(isinstance(value[name], str) for name in texts):
            raise ValueError("numbers that are none")
        number = lambda x: -math.inf if x is None else float(x)  # noqa: E731
        margins = pd.DataFrame(
            {"target": [str(x) for x in table["target"]]}
            | {name: [number(x) for x in table[name]] for name in SEARCHES}
        )
        return cls(
            shape=stored_shape(value),
            **{name: value[name] for name in (*counts, *texts)},
            smallest_margin=number(value["smallest_margin"]),
            random_margin=number(value["random_margin"]),
            margins=margins,
        )


def search(subject: Subject, reason: str, seconds: float | None = None, runs: int = RUNS) -> Outcome:
    """Look for a problem that the model gets wrong, as there is no proof for that ``reason``.

    The status is "refuted" with a problem that the model, decoding it alone, gets wrong, or "undecided".

    Cost: as :func:`interp.proofs.attacks.attack`; ``seconds`` bound the search along gradients.

    Raises:
        UserError: a model or task that cannot be searched, such as one whose problems are not listed.
    """
    model, task = subject.model, subject.task
    found = attack(model, task=task, runs=runs, seconds=seconds)
    table = found.to_dataframe()
    table = table[table["by"] == "target"].rename(columns={"where": "target"})[["target", *SEARCHES]]
    evidence = SearchEvidence(
        shape=task.shape,
        reason=reason.rstrip(".").replace(model_name(model), own_name(model)),  # without where its file lies
        runs=found.runs,
        seed=0,
        tried=found.provenance.n or 0,
        failures=found.n_wrong["attack"],
        worst=found.text(found.worst["attack"]),
        smallest_margin=found.smallest_margin(),
        random_margin=found.smallest_margin("random"),
        margins=table.reset_index(drop=True),
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
    found = search(Subject(model, task), verdict.reason, SECONDS, max(1, min(verdict.runs, RUNS)))
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
