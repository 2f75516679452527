"""Verdicts on small domains by running every problem through the model. No proof is needed: there is no other input.

The verdict is about the model as it runs, in its own arithmetic: teacher-forced in batches, which is right on a whole
answer exactly if greedy decoding is. Floating-point sums depend on the order of their terms, and the order depends on
the number of rows in a batch, so a logit is known up to some *noise*. The noise is measured by running problems again
alone. Every problem whose verdict hangs on a margin within ``near`` (:data:`NEAR`, or ten times the noise if that is
more) of a tie is decoded greedily as well: alone, as long as nothing is wrong, and in batches once a wrong answer
settles the verdict. Answers that then differ are *open*, and leave the verdict undecided where nothing is wrong.
Another machine may round differently: compare the smallest margin with the noise to see how much that could matter.

Problems that begin alike share what is computed of their beginnings, where that is faster
(:mod:`models.run.shared_prefixes`). The noise holds the difference: problems run alone go through the usual forward.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.results import Provenance
from interp.proofs.listed.domain_evidence import SmallDomainEvidence, smallest_margins
from interp.proofs.verdict.method import Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import judged_again
from interp.proofs.verdict.subject import Subject, reason_of
from interp.proofs.verdict.time_limit import ENDED, check_time, ended_by, watched
from interp.proofs.verdict.verdict import Status, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import UserError
from models.evaluation import BATCH_SIZE, Tally, margins, most_likely, predict, rows_at_once, teacher_forcing
from models.number_format import shown
from models.problem_score import Score
from models.run import logits_by_prefix, numbers_kept, shares_prefixes
from models.tasks import Domain, Task, domain_of
from models.transformer import HookedModel

LARGEST_SPACE = 2**20  # problems: 20 bits, six digits. More are run where the time is known to suffice
LARGEST_RUN = 2**30  # and no more than these
SHARE_OF_TIME = 0.7  # of the time that running them may be expected to take
MOST_WRONG = 2**16  # problems that are wrong and kept, to be decoded alone
NEAR = 1e-3  # logits
NOISE_FACTOR = 10.0
RUN_ALONE = 32  # the noise is measured on this many spread-out problems, and on as many with the smallest margins
SHARED = 16  # times as many rows at once where beginnings are shared,
KEPT = 2**28  # if they hold no more numbers than these: a gigabyte
CHECK_BATCH = 384  # unlike the search's batch, so that sums are taken in another order


@dataclass(frozen=True, eq=False, kw_only=True)
class ExhaustiveEvidence(SmallDomainEvidence):
    """What a model answers on all problems of a small domain.

    A margin is the right token's logit minus the best other one's, and -inf where a logit is NaN.

    Attributes:
        score: exact counts of whole answers, by carry-chain length, and of tokens (given the right ones before).
        noise: the largest change of a margin, in logits, when problems were run alone.
        near: problems with a margin this near a tie were decoded again. near_ties: how many there were.
        open: right answers that depend on the batch they are in, near ties, or whose lead is NaN or infinite: the
            largest of several infinite logits is the first.
        size: how many problems there are. They were not all run where the time was over after a wrong one.
    """

    score: Score
    size: int
    noise: float
    near: float
    near_ties: int
    open: int

    def __post_init__(self) -> None:
        if self.score.n < 1 or list(self.score.per_target) != self.smallest.target.values.tolist():
            raise ValueError("no problems, or other targets than those of the score")

    def allows(self, status: Status) -> bool:
        return status != "certified" or (math.isfinite(self.noise) and math.isfinite(self.near) and not self.open)

    def to_dataframe(self) -> pd.DataFrame:
        """Exact counts: one row for all problems, one per target, and one per chain length of several."""
        rows: list[dict[str, Any]] = [{"by": "all", "group": "", "rate": self.score}]
        rows += [{"by": "target", "group": key, "rate": rate} for key, rate in self.score.per_target.items()]
        chain = self.score.lengths.items()
        rows += [{"by": "chain length", "group": str(key), "rate": rate} for key, rate in chain]
        table = pd.DataFrame([{"by": row["by"], "group": row["group"]} for row in rows])
        for name in ("n", "correct", "accuracy"):
            table[name] = [getattr(row["rate"], name) for row in rows]
        return table

    def problems_left(self) -> list[tuple[int, ...]]:
        return [one.problem for one in self.score.failures]

    def finding(self, verdict: Verdict) -> str:
        n = f"{self.size:,} {self.what}"
        where = f"smallest margin {self.smallest_margin:.3g} at {self.witness}"
        if verdict.status == "certified":
            noise = f"run alone, margins differ by up to {shown(self.noise, 1, up=True)}"
            return f"certified exhaustively: all {n}, {where} ({noise})"
        if (one := verdict.counterexample) is not None:
            wrong = self.score.n - self.score.correct
            count = f"wrong on {wrong:,} of {n} (exhaustive)"
            if self.score.n < self.size:
                count = (
                    f"wrong on at least {wrong:,} of {n}: the first {self.score.n:,} were run before the time was over"
                )
            return f"refuted: {one} (run through the model), {count}"
        if self.open:
            why = (
                "their logits overflow or are NaN"
                if math.isinf(self.smallest_margin)
                else "the order of summation decides"
            )
            return f"undecided: {self.open:,} of {n} are right, but {why}; {where}"
        noise = shown(self.noise, 1, up=True)
        return f"undecided: run alone, margins of {n} differ by up to {noise}, and {where}"

    def provenance(self, verdict: Verdict) -> Provenance:
        return Provenance(self.score.n, None, self.what, self.score.strength)


def listed_domain(task: Task, most: int = LARGEST_SPACE) -> Domain:
    """The problems of the task's shape. Raises UserError if they are too many to run or the task does not list them."""
    domain = domain_of(task)
    if domain.size > most:
        smaller = "; a smaller shape may do" if task.has_other_sizes else ""
        raise UserError(
            f"{task.name} has {size_text(domain.size)} {task.kind_of_problems}, and more than {most:,} are only run "
            f"where there is time{smaller}."
        )
    return domain


def size_text(size: int) -> str:
    """A number of problems, such as "1,048,576" or "about 10^20"."""
    return f"{size:,}" if size < 10**15 else f"about 10^{len(str(size)) - 1}"


def can_run_all(subject: Subject, minutes: float | None) -> bool:
    """Whether all problems can be run in a time, from how long two batches take (None: in any time)."""
    try:
        domain = listed_domain(subject.task, LARGEST_RUN)
        if minutes is None or domain.size <= LARGEST_SPACE:
            return True
        seconds = subject.once(seconds_per_problem)
    except UserError:  # problems that are not listed, or not numbered
        return False
    return seconds * domain.size < SHARE_OF_TIME * 60 * minutes


def seconds_per_problem(subject: Subject) -> float:
    """How long a problem takes in a run of all, from two batches. Raises UserError where problems are not numbered."""
    domain = listed_domain(subject.task, LARGEST_RUN)
    found = _Run(subject.model, subject.task, domain, BATCH_SIZE)
    with teacher_forcing(subject.model, subject.task) as found.alone:
        found.choose_forward(domain.size)
        rows = torch.arange(min(found.rows, domain.size))
        found._leads(rows)  # what is made on the first call
        start = time.perf_counter()
        found._leads(rows)
        each, start = (time.perf_counter() - start) / len(rows), time.perf_counter()
        found.chunk(rows[:RUN_ALONE])
        # Near ties are decoded alone.
        return max(each, (time.perf_counter() - start) / RUN_ALONE) if found.near_ties else each


def certify_exhaustively(
    model: HookedModel,
    task: Task | None = None,
    batch_size: int = BATCH_SIZE,
    first: int | None = None,
    most: int = LARGEST_SPACE,
) -> Verdict:
    """Run all problems of a small domain through a model, and say whether it is right on all of them.

    Near ties count as right if they are so when decoded alone, too; ``score`` counts them as they were decoded. A time
    limit or Ctrl-C end it as refuted if an answer was wrong by then, and are raised otherwise.

    Cost: one forward pass per problem: for four layers of width 128, seconds for 10^4, minutes to hours for 10^6.

    Args:
        model: one of this project's models, or a TransformerLens one (which is run itself; its copy is hashed).
        task: the task, if the model does not carry it, or the model's own in another shape, ``model.task.at(...)``.
        first: run so many problems only.
        most: the largest number of problems that is begun with.

    Raises:
        UserError: more problems than ``most``, or a model that does not fit the task.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, run_all(subject, batch_size, first, most))


def run_all(
    subject: Subject, batch_size: int = BATCH_SIZE, first: int | None = None, most: int = LARGEST_SPACE
) -> Outcome:
    """Run all problems of a subject; see :func:`certify_exhaustively`."""
    model, task = subject.model, subject.task
    domain = listed_domain(task, most)
    found = _Run(model, task, domain, batch_size)
    ended = None
    try:
        found.run(domain.size if first is None else min(first, domain.size))
        wrong = found.replayed()
    except ENDED as error:
        ended = ended_by(error)
        if (wrong := found.replayed(RUN_ALONE)) is None:
            raise
    complete = found.done == domain.size
    described = (
        task.kind_of_problems if complete else f"the first {found.done:,} of {domain.size:,} {task.kind_of_problems}"
    )
    sure = not found.open and found.noise <= found.near and found.tally.correct >= domain.size
    evidence = ExhaustiveEvidence(
        shape=task.shape,
        what=task.kind_of_problems,
        score=found.tally.score(model, described, "teacher_forced", "exhaustive" if complete else "sampled"),
        size=domain.size,
        smallest=found.table(),
        noise=found.noise,
        near=found.near,
        near_ties=found.near_ties,
        open=found.open,
    )
    return Outcome.of(sure, evidence, wrong, ended)


class _Run:
    """One pass over all problems; its attributes hold what it finds."""

    def __init__(self, model: HookedModel, task: Task, domain: Domain, batch_size: int):
        self.model, self.task, self.domain = model, task, domain
        self.rows = rows_at_once(model, task, batch_size)
        self.tally, self.near_ties, self.open = Tally(task), 0, 0
        self.noise, self.near, self.done = 0.0, NEAR, 0
        self.wrong: list[tuple[float, int]] = []  # margin at the first wrong token, number of the problem
        n_targets = len(task.target_roles)
        self.counts = np.zeros((n_targets, task.d_vocab), dtype=np.int64)
        self.least = np.full(self.counts.shape, np.inf)
        self.where = np.zeros(self.counts.shape, dtype=np.int64)

    def run(self, size: int) -> None:
        """Run the first ``size`` problems."""
        with teacher_forcing(self.model, self.task) as self.alone:
            self.choose_forward(size)
            self._measure(torch.linspace(0, size - 1, min(size, RUN_ALONE), dtype=torch.float64).long().unique())
            self.near = max(NEAR, NOISE_FACTOR * self.noise)
            for start in watched(range(0, size, self.rows), "running all problems", "batch"):
                self.chunk(torch.arange(start, min(start + self.rows, size)))
                self.done = min(start + self.rows, size)
            hardest = np.unique(self.where.flat[np.argsort(self.least, axis=None)[:RUN_ALONE]])
            self._measure(torch.from_numpy(hardest))

    def choose_forward(self, size: int) -> None:
        """Take whichever is faster: to run every problem by itself, or what problems begin with once."""
        self.logits, model = self.alone, self.model
        if not shares_prefixes(model):
            return
        weights, positions = model.effective_weights(), list(self.task.query_positions)
        rows = min(SHARED * self.rows, KEPT // numbers_kept(model, self.task.input_length, len(positions)))
        if not self.rows < rows <= size:
            return

        def shared(problems: Tensor) -> Tensor:
            return logits_by_prefix(model, self.task.encode(problems).to(model.device), positions, weights)

        if self._seconds(shared, rows) < self._seconds(self.alone, self.rows):
            self.logits, self.rows = shared, rows

    def _seconds(self, forward: Callable[[Tensor], Tensor], rows: int) -> float:
        """How long a problem takes in a batch of so many."""
        problems = self.domain.at(torch.arange(rows))
        forward(problems[:2]).cpu()  # what is made on the first call
        start = time.perf_counter()
        forward(problems).cpu()  # which waits for a GPU
        return (time.perf_counter() - start) / rows

    def _leads(
        self, index: Int[Tensor, " n"], logits: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Float[Tensor, "n target"], Tensor]:
        """(problems, right tokens, margins, most likely tokens) of problems run in one batch."""
        problems = self.domain.at(index)
        targets, found = self.task.targets(problems), (logits or self.logits)(problems).cpu()
        return problems, targets, margins(found, targets), most_likely(found)

    def _measure(self, index: Int[Tensor, " n"]) -> None:
        """How much margins of these problems change when each is run alone, by the model's usual forward."""
        together = self._leads(index)[2]
        alone = torch.cat([self._leads(one, self.alone)[2] for one in index.split(1)])
        # Two margins of -inf (NaN logits) count as unchanged.
        change = torch.where(alone == together, 0.0, (alone - together).abs())
        self.noise = max(self.noise, float(change.max()))

    def chunk(self, index: Int[Tensor, " n"]) -> None:
        """Run the problems with these numbers."""
        problems, targets, lead, predicted = self._leads(index)
        self._keep_smallest(index, targets, lead)
        clear = lead > self.near
        first = (~clear).long().argmax(1)
        deciding_margin = lead.gather(1, first[:, None])[:, 0]
        near_tie = (~clear.all(1) & (deciding_margin >= -self.near)).nonzero().flatten()
        if len(near_tie):
            again = self._decoded(problems[near_tie], targets[near_tie], bool((deciding_margin < -self.near).any()))
            right = [(tokens == targets[near_tie]).all(1) for tokens in (again, predicted[near_tie])]
            self.near_ties, self.open = self.near_ties + len(near_tie), self.open + int((right[0] != right[1]).sum())
            predicted[near_tie] = again
        self.tally.add(problems, predicted, targets)
        failed = (predicted != targets).any(1)
        self.open += int((~failed & ~lead.isfinite().all(1)).sum())
        found = zip(deciding_margin[failed].tolist(), index[failed].tolist(), strict=True)
        self.wrong += islice(found, MOST_WRONG - len(self.wrong))

    def _decoded(
        self, problems: Tensor, targets: Int[Tensor, "n target"], already_refuted: bool
    ) -> Int[Tensor, "n target"]:
        """What the model answers to near ties: alone until a wrong answer settles the verdict, then in batches."""
        already_refuted, found = already_refuted or bool(self.wrong), []
        for part in range(0, len(problems), RUN_ALONE):
            if already_refuted:
                found.append(predict(self.model, problems[part:], "greedy", self.rows, self.task).cpu())
                break
            check_time()
            own = slice(part, part + RUN_ALONE)
            found.append(predict(self.model, problems[own], "greedy", 1, self.task).cpu())
            already_refuted = bool((found[-1] != targets[own]).any())
        return torch.cat(found)

    def _keep_smallest(self, index: Tensor, targets: Int[Tensor, "n target"], lead: Float[Tensor, "n target"]) -> None:
        number, value = index.numpy(), lead.numpy()
        for target, tokens in enumerate(targets.T.numpy()):
            self.counts[target] += np.bincount(tokens, minlength=self.task.d_vocab)
            for token in np.unique(tokens):
                rows = np.flatnonzero(tokens == token)
                best = rows[value[rows, target].argmin()]
                if value[best, target] < self.least[target, token]:
                    self.least[target, token], self.where[target, token] = value[best, target], number[best]

    def replayed(self, most: int | None = None) -> WrongAnswer | None:
        """The most clearly wrong problem that is also wrong when decoded alone, or None if there is none; ``most`` are
        tried when the time is over."""
        for _, index in sorted(self.wrong)[:most]:
            if most is None:
                check_time()
            problem = self.domain.at(torch.tensor([index]))
            found = wrong_answer(self.model, self.task, problem)
            if found is not None:
                return found
        return None

    def table(self) -> xr.Dataset:
        kept = self.counts.any(0)
        columns = np.flatnonzero(kept)
        problem = np.full(self.counts.shape, "", dtype=object)
        for at in np.argwhere(self.counts > 0):
            index = torch.tensor([self.where[tuple(at)]])
            problem[tuple(at)] = self.task.problem_text(self.task.numbers(self.domain.at(index))[0])
        margin = np.where(self.counts > 0, self.least, np.nan)
        return smallest_margins(
            self.counts[:, columns],
            margin[:, columns],
            problem[:, columns],
            [role.label for role in self.task.target_roles],
            [self.task.token_text(int(token)) for token in columns],
        )


def why_not(subject: Subject) -> str | None:
    """Why all problems cannot be run, in words; None if they are few enough."""
    return reason_of(lambda: listed_domain(subject.task))


def _falls_short(verdict: Verdict, found: Verdict) -> str | None:
    claimed, again = verdict.score, found.score
    if verdict.status == "refuted" and claimed.correct >= claimed.n:
        return "it counts no wrong answer"
    if (again.n, again.correct, found.size) != (claimed.n, claimed.correct, verdict.size):
        return f"run again, {found.sentence()}"
    if again.by_chain_length != claimed.by_chain_length:
        return "other carry-chain lengths are answered wrongly"
    stored, computed, tolerance = verdict.smallest, found.smallest, 2 * found.near
    same = stored.margin.shape == computed.margin.shape and np.array_equal(stored.n, computed.n)
    if not same or not np.allclose(stored.margin, computed.margin, rtol=0, atol=tolerance, equal_nan=True):
        return "the model has other margins"
    return None


#: A check runs everything again in other batches. It may have been begun with more problems, as there was time.
METHOD = Method(
    "exhaustive",
    ExhaustiveEvidence,
    why_not=why_not,
    claims=lambda subject: ("exhaustive",),
    cost=lambda subject, claim: 60.0,
    run=lambda subject, claim, options: run_all(subject),
    check=judged_again(
        lambda verdict, model, task: certify_exhaustively(model, task, CHECK_BATCH, verdict.score.n, LARGEST_RUN),
        _falls_short,
        lambda subject: reason_of(lambda: listed_domain(subject.task, LARGEST_RUN)),
    ),
)
