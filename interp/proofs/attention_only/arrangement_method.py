"""Proofs for models of two layers of attention, on tasks whose problems are arrangements of different tokens.

Induction is such a task. Its problems are taken apart into sets with the same right token
(:class:`~models.tasks.Arrangements`): in each, the token that is asked for, where it stood before and what followed it
are known, and all other places may have any tokens that are left. One bound is computed for all strings of a set
(:mod:`interp.proofs.attention_only.arrangement_bounds`). A set that it does not prove is split by where one token
stands, and run in full once it is small.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.attention_only.arrangement_bounds import StackedBounds
from interp.proofs.attention_only.attention_tables import StackedWeights
from interp.proofs.numbers.rounded_operations import FLOAT32, rounding_named
from interp.proofs.verdict.class_table import COUNTED, MEASURED, MachineEvidence, falls_short
from interp.proofs.verdict.method import CertifyOptions, Method, Outcome, verdict_by
from interp.proofs.verdict.recheck import SLACK, judged_again, require_bounds
from interp.proofs.verdict.subject import CannotJudge, Subject, not_float32, reason_of, require_logits
from interp.proofs.verdict.time_limit import ENDED, EndedBy, ended_by, watched
from interp.proofs.verdict.verdict import ArithmeticName, Verdict
from interp.proofs.verdict.wrong_answers import WrongAnswer, wrong_answer
from models import ArithmeticTransformer, UserError
from models.tasks import Arrangements, Induction, Task
from models.transformer import HookedModel, model_name
from models.transformer.config import ANY, PLAIN, uncovered

#: Without MLPs and norms, switches of these change nothing.
COVERS = PLAIN | dict.fromkeys(
    ("act_fn", "gated_mlp", "normalization_type", "norm_placement", "norm_eps_outside", "final_norm"), ANY
)
FEW_PROBLEMS = 2**22  # see :func:`why_not`
FEW = 20_000  # strings of a set that is run in full
SAMPLED = 3_000  # strings from which centres and coordinates are guessed
AT_ONCE = 5_000  # strings that are run together
MET = 64  # strings of each class that are run beforehand, for the least lead that is met
REPLAYED = 64  # classes whose lowest string is run through the model itself
ALONE = 1_000  # strings too near to a tie for the bounds of rounding that are decoded alone


class ArrangementEvidence(MachineEvidence):
    """What is proved of a model on all arrangements of a task, by what is asked for."""

    by = "what is asked for"


def why_not_model(model: HookedModel) -> str | None:
    """What of a model the bounds are not stated for."""
    if model.cfg.n_layers != 2:
        return f"bounds of arrangements are for two layers, and {model_name(model)} has {model.cfg.n_layers}"
    if not isinstance(model, ArithmeticTransformer):
        return None  # its copy is asked
    config = model.config
    if (reason := not_float32(model)) is not None:
        return reason
    if config.d_mlp or config.normalization_type is not None:
        return "bounds of two layers are for attention alone, without MLPs or norms"
    if more := uncovered(config, COVERS):
        known = "a softmax of products and learned positions"
        return f"bounds of two layers are for {known}, and do not know {', '.join(more)}"
    return None


def arrangements_of(task: Task) -> list[Arrangements]:
    """All problems of a task, each in one set of strings with the same right token and different tokens at free places.

    Raises:
        UserError: a task whose problems are not known to be such sets.
    """
    if not isinstance(task, Induction):
        raise UserError(f"the problems of {task.name} are not known as arrangements of different tokens.")
    return task.arrangements()


def cannot(subject: Subject) -> str | None:
    """Why the method cannot judge a model on a task, in words."""
    return reason_of(lambda: arrangements_of(subject.task)) or why_not_model(subject.model)


def why_not(subject: Subject) -> str | None:
    """Why this method does not judge a model on a task. Few problems are left to be run, which counts wrong answers."""
    if (reason := cannot(subject)) is not None:
        return reason
    size = sum(one.count() for one in arrangements_of(subject.task))
    return f"the {size:,} problems of {subject.task.name} are few enough to be run" if size <= FEW_PROBLEMS else None


def certify_arrangements(
    model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None
) -> Verdict:
    """Prove a model of two layers of attention right on all arrangements of a task, or find one that it gets wrong.

    Precondition: as :func:`why_not_model` says. The strings with the least leads that were met are run through the
    model itself, and must lie above their bounds.

    Cost: 20 to 50 ms for each set, with a stream of 32 numbers and 16 tokens; see ``docs/proofs.md`` for how many sets
    induction takes. A time limit (:mod:`interp.proofs.verdict.time_limit`) or Ctrl-C end it as undecided, with the
    share that is proved.

    Raises:
        UserError: a model that computes something else than its weights say.
    """
    subject = Subject(model, task)
    return verdict_by(METHOD.name, subject, prove(subject, arithmetic))


def prove(subject: Subject, claim: str, options: CertifyOptions | None = None) -> Outcome:
    """Judge all sets of strings, in the arithmetic ``claim``; see :func:`certify_arrangements`."""
    if (reason := why_not_model(subject.own)) is not None:
        raise CannotJudge(subject.model, reason)
    with torch.inference_mode():
        proof = ArrangementProof(subject, cast(ArithmeticName, claim))
        ended = proof.run()
        proof.replay()
        evidence = proof.evidence(ended)
    return Outcome.of(not evidence.unproved, evidence, proof.refuted, ended)


@dataclass(eq=False)
class _Class:
    """The strings of one set of the task: what is known of them."""

    strings: Arrangements
    nodes: int = 0
    open: int = 0  # sets that are not proved
    unproved: int = 0  # strings of these, and strings that are answered wrongly
    bound: float = math.inf
    lead: float = math.inf
    lowest: Int[Tensor, " place"] | None = None

    def met(self, strings: Int[Tensor, "n place"], leads: Tensor) -> None:
        least = int(leads.argmin())
        if self.lowest is None or float(leads[least]) < self.lead:
            self.lead, self.lowest = float(leads[least]), strings[least]


class ArrangementProof:
    """The search over all sets of a task; results are attributes."""

    def __init__(self, subject: Subject, arithmetic: ArithmeticName):
        self.model, self.task = model, task = subject.own, subject.task
        self.arithmetic: ArithmeticName = arithmetic
        self.classes = [_Class(one) for one in arrangements_of(task)]
        require_logits(model, torch.tensor([one.strings.answer for one in self.classes]))
        (self.query,) = task.query_positions
        self.weights, floats = (
            StackedWeights(model, subject.weights, task.input_length, rounding)
            for rounding in (rounding_named(arithmetic), FLOAT32)
        )
        #: How far differences of scores, and leads, may be off: in the proof's arithmetic, and as the model runs.
        self.errors, self.float_errors = (each.float_errors(self.query) for each in (self.weights, floats))
        self.generator = torch.Generator().manual_seed(0)
        drawn = task.encode(task.sample(SAMPLED, self.generator))
        tokens = sorted({token for one in self.classes for token in one.strings.all_tokens})
        self.bounds = StackedBounds(self.weights, self.query, tokens, drawn, self.errors)
        self.refuted: WrongAnswer | None = None

    def run(self) -> EndedBy | None:
        """Bound all sets; why it ended early."""
        for one in self.classes:
            one.open, one.unproved = 1, one.strings.count()
        numbers = count(len(self.classes))
        try:
            for one in watched(self.classes, "looking at each class", "class"):
                strings = one.strings.sample(min(MET, one.strings.count()), self.generator)
                self._look(one, strings)
            heap = [(0, number, one, [one.strings]) for number, one in enumerate(self.classes)]
            for depth, _, one, sets in watched(_popped(heap), "bounding sets of strings", "set"):
                for parts in self._bounded(one, sets):
                    heapq.heappush(heap, (depth + 1, next(numbers), one, parts))
        except ENDED as error:
            return ended_by(error)
        return None

    def _bounded(self, one: _Class, sets: list[Arrangements]) -> Iterator[list[Arrangements]]:
        """Prove some sets, or run them; the parts of those that are left, together for each."""
        one.nodes += len(sets)
        for strings, found in zip(sets, self.bounds.bounded(sets), strict=True):
            if found.bound > 0:
                bound, wrong = found.bound, 0
            elif strings.count() > FEW and found.split is not None:
                parts = strings.by_place_of(found.split)
                one.open += len(parts) - 1
                yield parts
                continue
            else:
                bound, wrong = self._run(one, strings)
            one.bound = min(one.bound, bound)
            one.open -= not wrong
            one.unproved += wrong - strings.count()

    def _run(self, one: _Class, strings: Arrangements) -> tuple[float, int]:
        """(The least proved lead, how many are not proved) of all strings of a set."""
        bound, wrong = math.inf, 0
        for part in strings.strings().split(AT_ONCE):
            sure = self._look(one, part)
            near = (~(sure > 0)).nonzero()[:, 0]  # also where a bound is not a number
            bound = min(bound, float(sure[sure > 0].min()) if len(near) < len(part) else math.inf)
            for row in part[near[:ALONE]]:
                margin = self._alone(row)
                wrong, bound = wrong + (not margin > 0), min(bound, margin if margin > 0 else math.inf)
            wrong += max(0, len(near) - ALONE)
        return bound, wrong

    def _look(self, one: _Class, strings: Int[Tensor, "n place"]) -> Tensor:
        """Lower bounds of the leads of some strings, one by one; wrong answers that are met are tried on the model."""
        answer = one.strings.answer
        leads, spread = self.weights.leads(strings, self.query, answer)
        spread = torch.where(leads.isfinite(), spread, 0.0)
        off = self.errors[0] / 2 * spread + self.errors[1]
        least, sure = leads.amin(1), (leads - off).amin(1)
        one.met(strings, least)
        if self.refuted is None and bool((least <= 0).any()):
            self.refuted = wrong_answer(self.model, self.task, strings[least.argmin()][None])
        return sure

    def _alone(self, string: Int[Tensor, " place"]) -> float:
        """The lead of a string that the model is run on alone; over the reals there is none to be had so."""
        if self.arithmetic != "float32":
            return 0.0
        found = wrong_answer(self.model, self.task, string[None])
        if found is not None:
            self.refuted = self.refuted or found
            return 0.0
        return self._lead(string)

    def _lead(self, string: Int[Tensor, " place"]) -> float:
        """The lead that the model itself computes."""
        logits = self.model(self.task.encode(string[None]))[0, self.query].double()
        right = int(self.task.targets(string[None])[0, 0])
        return float(logits[right] - torch.cat((logits[:right], logits[right + 1 :])).max())

    def replay(self) -> None:
        """Run the lowest strings of some classes through the model itself.

        Raises:
            UserError: a lead below its class's bound: the model does something that the bounds do not know of.
        """
        known = sorted((one for one in self.classes if one.lowest is not None), key=lambda one: one.lead)
        chosen = known[:: max(1, len(known) // REPLAYED)]
        strings = [one.lowest for one in chosen if one.lowest is not None]
        own = [0.0 if self.arithmetic == "float32" else self._rounded(one) for one in chosen]
        bounds = [one.bound if one.open == 0 else -math.inf for one in chosen]
        text = lambda row: self.task.problem_text(strings[row].tolist())  # noqa: E731
        require_bounds(self.model, list(map(self._lead, strings)), bounds, [error + SLACK for error in own], text)

    def _rounded(self, one: _Class) -> float:
        """How far float32 may move the lead of a class's lowest string."""
        assert one.lowest is not None
        difference, lead = self.float_errors
        _, spread = self.weights.leads(one.lowest[None], self.query, one.strings.answer)
        return difference / 2 * float(spread.max()) + lead if math.isfinite(lead) else math.inf

    def evidence(self, ended: EndedBy | None) -> ArrangementEvidence:
        rows = [
            {
                "target": 0,
                "token": one.strings.tokens[self.query],
                "answer": one.strings.answer,
                "before": 0,
                "after": 0,
                "nodes": one.nodes,
                "open": max(one.open, int(one.unproved > 0)),
                "bound": math.nan if one.unproved else one.bound,
                "sampled": math.nan if one.lowest is None else one.lead,
                "problem": self.task.problem_text(self._example(one).tolist()),
            }
            for one in self.classes
        ]
        return ArrangementEvidence(
            arithmetic=self.arithmetic,
            state="",
            size=sum(one.strings.count() for one in self.classes),
            unproved=sum(one.unproved for one in self.classes),
            tried=None,
            classes=pd.DataFrame(rows)[[*COUNTED, *MEASURED, "problem"]],
            obstacle=None if ended is None else ended.value,
            shape=self.task.shape,
        )

    def _example(self, one: _Class) -> Int[Tensor, " place"]:
        """The string with the least lead that was met, or any."""
        return one.strings.sample(1, self.generator)[0] if one.lowest is None else one.lowest


def _popped(heap: list[Any]) -> Iterator[Any]:
    """What is on a heap, as long as there is something: first what was split least."""
    while heap:
        yield heapq.heappop(heap)


def _again(verdict: Verdict, model: HookedModel, task: Task) -> Verdict:
    return certify_arrangements(model, verdict.arithmetic, task)


METHOD = Method(
    "two layers of attention",
    ArrangementEvidence,
    why_not=why_not,
    claims=lambda subject: ("float32", "interval"),
    cost=lambda subject, claim: 300.0,
    run=prove,
    check=judged_again(_again, falls_short, cannot),
    followed_by=("search first", "search"),
)
