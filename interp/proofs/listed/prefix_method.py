"""Proofs that a causal model is right on every problem of a small domain, which compute each prefix once.

Where :mod:`interp.proofs.listed.exhaustive` runs all problems through the model and can speak of this machine only,
this method encloses what the model computes: over the real numbers, or with every rounding of float32 in any order of
summation. :mod:`interp.proofs.listed.prefix_forward` has the forward pass,
:mod:`interp.proofs.numbers.rounded_operations` the arithmetic.

A problem is *right* if the right token's lead is proved positive at every target, *wrong* if it is proved negative at
one, and *open* otherwise; given the right tokens before it, as teacher forcing does, so that a right problem is also
decoded rightly.

Where queries attend to their best keys and rounding may change which these are, a problem is proved in every case
(:mod:`interp.proofs.listed.top_key_choices`).

How far it reaches with rounding: the lengths of errors are multiplied by spectral norms from one operation to the next,
and the product grows with depth. Two layers are proved so, without norms and with; only the last norm and a last MLP of
ReLUs are followed along each lead's own direction. Deeper models are proved over the reals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
import torch
import xarray as xr

from interp.core.results import Provenance
from interp.proofs.listed.domain_evidence import SmallDomainEvidence, smallest_margins
from interp.proofs.listed.prefix_forward import PrefixForward
from interp.proofs.listed.prefix_leads import leads_of, why_not_model
from interp.proofs.listed.prefix_tree import Rows
from interp.proofs.numbers.rounded_operations import ROUNDINGS, Rounding, rounding_named
from interp.proofs.verdict.method import Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import SLACK, judged_again, require_bounds
from interp.proofs.verdict.subject import CannotJudge, Subject, reason_of, require_logits
from interp.proofs.verdict.time_limit import ENDED, EndedBy, ended_by, watched
from interp.proofs.verdict.verdict import IN_WORDS, ArithmeticName, Status, Verdict, strength_of
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models.evaluation import margins
from models.number_format import shown
from models.tasks import Task
from models.transformer import HookedModel

LARGEST_TREE = 2**20  # prefixes
LARGEST_INPUT = 2**24  # tokens of all problems: laid out once, to count their prefixes
SECONDS_PER_PREFIX = 4e-4  # of a proof, to order methods by
REPLAYED = 64  # problems run through the model: those with the smallest bounds, and some of all
_NOISE = 1e-9  # rounding error of a margin in float64, relative to the largest logit


@dataclass(frozen=True, eq=False, kw_only=True)
class PrefixEvidence(SmallDomainEvidence):
    """What is proved of a model on all problems of a small domain.

    A margin is a proved lower bound of the right token's lead, of problems that were decided before the end.

    Attributes:
        n: how many problems there are; ``right`` of them are proved right, ``wrong`` proved wrong.
        prefixes: how many (position, prefix) there are: the steps of the proof.
        obstacle: why it ended before the last one, if it did.
    """

    arithmetic: ArithmeticName
    right: int
    wrong: int
    n: int
    prefixes: int
    obstacle: str | None = None

    def __post_init__(self) -> None:
        if self.arithmetic not in ROUNDINGS:
            raise ValueError("an unknown arithmetic")

    def allows(self, status: Status) -> bool:
        return status != "certified" or self.right == self.n > 0

    @property
    def smallest_margin(self) -> float:
        """The smallest proved lower bound of a right token's lead; -inf where there is none."""
        found = self.smallest.margin.values
        return float(np.nanmin(found)) if np.isfinite(found).any() and not np.isneginf(found).any() else -math.inf

    @property
    def domain(self) -> str:
        """What it is about, in words."""
        return f"all {self.n:,} {self.what}"

    def to_dataframe(self) -> pd.DataFrame:
        """A row for each target and right token: how many there are, the least proved margin, a problem that has it."""
        rows = self.smallest.to_dataframe().reset_index()
        return rows[rows.n > 0].reset_index(drop=True)

    def finding(self, verdict: Verdict) -> str:
        words, steps = IN_WORDS[self.arithmetic], f"{self.prefixes:,} prefixes"
        if verdict.status == "certified":
            bound = f"every margin proved above {shown(self.smallest_margin, 4)}"
            return f"certified {words}: {self.domain}, {steps}, {bound}, the least at {self.witness}"
        proved = f"{self.right:,} of {self.n:,} {self.what} are proved right"
        if self.wrong:
            proved += f" and {self.wrong:,} proved wrong"
        if (one := verdict.counterexample) is not None:
            return f"refuted: {one} (run through the model), {proved} {words}"
        percent = math.floor((self.right + self.wrong) / self.n * 10**6) / 10**4
        rest = f"; {self.obstacle}" if self.obstacle else ""
        return f"undecided {words}: {proved} ({percent:.4f}% decided){rest}"

    def provenance(self, verdict: Verdict) -> Provenance:
        return Provenance(self.n, None, self.what, strength_of(verdict))


# ---- what can be judged


def why_not(subject: Subject) -> str | None:
    """Why this method cannot judge a model on a task, in words. None says that it can."""
    if (reason := why_not_model(subject.model) or reason_of(lambda: subject.domain)) is not None:
        return reason
    domain, task = subject.domain, subject.task
    if domain.size > LARGEST_TREE or domain.size * task.input_length > LARGEST_INPUT:
        return f"{task.name} has {domain.size:,} {task.kind_of_problems}, more than the prefix tree goes through"
    return None


# ---- the proof


def certify_prefixes(
    model: HookedModel,
    arithmetic: ArithmeticName = "float32",
    task: Task | None = None,
    stop_early: bool = False,
    first: int | None = None,
) -> Verdict:
    """Prove a causal model right on every problem of a small domain, or find one that it gets wrong.

    Precondition: as :func:`why_not` says. The smallest margins and some others are run through the model itself and
    must lie within their bounds.

    Cost: two float64 products of matrices for each float32 one of the model, once for each prefix: 4 s for two layers
    of width 64 and 31,110 prefixes. Four layers of width 128 take 13 s over the reals and 51 s with rounding. A time
    limit (see :mod:`interp.proofs.verdict.time_limit`) or Ctrl-C end it as undecided, with the share that is decided.

    ``stop_early``: end after a part in which nothing is decided, or something is proved wrong. ``first``: end once so
    many problems were gone through, as a check of a verdict does that ended early.

    Raises:
        UserError: a model that computes something else than its weights say, or more than 2^20 prefixes.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, prove(subject, arithmetic, stop_early, first))


def prove(subject: Subject, claim: str, stop_early: bool = False, first: int | None = None) -> Outcome:
    """Judge all problems of a subject, in the arithmetic ``claim``; see :func:`certify_prefixes`."""
    if (reason := why_not(subject)) is not None:
        raise CannotJudge(subject.model, reason)
    arithmetic = cast(ArithmeticName, claim)
    with torch.inference_mode():
        proof = _Proof(subject, rounding_named(arithmetic))
        ended = proof.run(stop_early, len(proof.rows) if first is None else first)
        wrong = proof.replayed(arithmetic)
        evidence = PrefixEvidence(
            shape=subject.task.shape,
            what=subject.task.kind_of_problems,
            arithmetic=arithmetic,
            n=len(proof.rows),
            prefixes=proof.prefixes,
            right=proof.right,
            wrong=proof.wrong,
            smallest=proof.table(),
            obstacle=None if ended is None else ended.value,
        )
    return Outcome.of(proof.right == len(proof.rows), evidence, wrong, ended)


class _Proof:
    """One pass over the prefixes of a domain. What it finds stands in its attributes."""

    def __init__(self, subject: Subject, rounding: Rounding):
        self.model, self.task, self.domain, self.weights = subject.own, subject.task, subject.domain, subject.weights
        self.rows = subject.once(_rows)
        require_logits(self.model, self.rows.targets)
        self.prefixes = self.rows.n_nodes
        if self.prefixes > LARGEST_TREE:
            more = f"{self.task.name} has {self.prefixes:,} prefixes, and at most {LARGEST_TREE:,} are gone through"
            raise CannotJudge(self.model, more)
        self.forward = PrefixForward(self.model.config, self.weights, rounding)
        self.right = self.wrong = self.done = 0
        # Bounds of the right token's lead for each row and target, in the rows' order.
        shape = self.rows.targets.shape
        self.low, self.high = (torch.full(shape, math.nan, dtype=torch.float64) for _ in range(2))

    def run(self, stop_early: bool, first: int) -> EndedBy | None:
        """Go through the rows. Returns why it ended before the last one, and None if it did not."""
        parts = list(self.rows.parts())
        try:
            for part in watched(parts, "proving", "part"):
                low, high = leads_of(self.forward, part)
                here = slice(self.done, self.done + len(part))
                self.low[here], self.high[here] = low, high
                self.done += len(part)
                self.right += int((low > 0).all(1).sum())
                self.wrong += int((high < 0).any(1).sum())
                if self.done >= first or (stop_early and (self.wrong or not self.right)):
                    break
        except ENDED as error:
            return ended_by(error)
        return None

    def replayed(self, arithmetic: ArithmeticName) -> WrongAnswer | None:
        """A problem that the model gets wrong when it decodes it alone. None says that none was found.

        Those with the smallest bounds are tried, and all margins of these and of some others must lie within bounds.

        Raises:
            UserError: one does not: the model does something that the enclosures do not know of.
        """
        if not self.done:
            return None
        lowest = self.low[: self.done].amin(1)
        spread = torch.linspace(0, self.done - 1, REPLAYED, dtype=torch.float64).long()
        chosen = torch.cat((lowest.argsort()[:REPLAYED], spread)).unique()
        self._require_bounds(chosen, arithmetic)
        doubtful = chosen[~(lowest[chosen] > 0)]
        for row in doubtful[self.high[doubtful].amin(1).argsort()].tolist():
            problem = self.domain.at(self.rows.index[row : row + 1])
            if (found := wrong_answer(self.model, self.task, problem)) is not None:
                return found
        return None

    def _text(self, index: torch.Tensor) -> str:
        """The text of the problem with a number, [1]."""
        return self.task.problem_text(self.task.numbers(self.domain.at(index))[0])

    def _require_bounds(self, chosen: torch.Tensor, arithmetic: ArithmeticName) -> None:
        exact = arithmetic == "interval"
        weights = {name: value.double() for name, value in self.weights.items()} if exact else self.weights
        tokens = self.task.encode(self.domain.at(self.rows.index[chosen]))
        logits = self.model(tokens, weights=weights)[:, list(self.rows.queries)]
        found = margins(logits, self.rows.targets[chosen])
        slack = (_NOISE if exact else 2.0**-50) * (1 + logits.double().abs().amax(-1))
        text = lambda row: self._text(self.rows.index[chosen[row : row + 1]])  # noqa: E731
        require_bounds(self.model, found, self.low[chosen], slack, text, self.high[chosen])

    def table(self) -> xr.Dataset:
        """The least lower bound of each target and right token, among the rows that were reached."""
        targets, low = self.rows.targets[: self.done].numpy(), self.low[: self.done].numpy()
        tokens = np.unique(self.rows.targets.numpy())
        n = np.zeros((targets.shape[1], len(tokens)), np.int64)
        margin, problem = np.full(n.shape, np.nan), np.full(n.shape, "", dtype=object)
        for target, column in np.ndindex(n.shape):
            rows = np.flatnonzero(targets[:, target] == tokens[column])
            n[target, column] = len(rows)
            if len(rows):
                least = rows[low[rows, target].argmin()]
                margin[target, column] = low[least, target]
                problem[target, column] = self._text(self.rows.index[least : least + 1])
        labels = [role.label for role in self.task.target_roles]
        return smallest_margins(n, margin, problem, labels, [self.task.token_text(int(token)) for token in tokens])


def _rows(subject: Subject) -> Rows:
    return Rows.of(subject.task)


def _falls_short(verdict: Verdict, found: Verdict) -> str | None:
    """What a verdict claims beyond the one found again, in words."""
    same = all(getattr(verdict, name) == getattr(found, name) for name in ("n", "prefixes", "what"))
    if not same or verdict.right > found.right or verdict.wrong > found.wrong:
        return f"proved again, {found.sentence()}"
    stored, again = verdict.smallest, found.smallest
    if not np.array_equal(stored.n, again.n) or stored.token.values.tolist() != again.token.values.tolist():
        return "it counts other problems"
    claimed, proved = stored.margin.values, again.margin.values
    held = (claimed <= proved + SLACK * (1 + np.abs(proved)))[stored.n.values > 0]
    return "it claims larger margins than are proved" if verdict.status == "certified" and not held.all() else None


METHOD = Method(
    "prefix tree",
    PrefixEvidence,
    why_not=why_not,
    claims=lambda subject: ("float32", "interval"),
    cost=lambda subject, claim: SECONDS_PER_PREFIX * subject.domain.size,
    run=lambda subject, claim, options: prove(subject, claim, stop_early=options.arithmetic is None),
    check=judged_again(
        lambda verdict, model, task: certify_prefixes(
            model, verdict.arithmetic, task, first=int(verdict.smallest.n.values[:1].sum())
        ),
        _falls_short,
    ),
    followed_by=("listed",),
)
