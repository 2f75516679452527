"""Proofs about one-layer decoders whose heads see only near position ids: all classes of what a query can see.

A key that ``attn_window`` hides has a weight of exactly zero, whatever stands there. With a window of two columns of
two running sums, what a decoder of one layer predicts about digit k of ``b_s = b_{s-1} + a_s`` depends on digits k - 1
and k of b_{s-1}, of a_s and of a_{s+1} (the number that shares the ids of b_s), and on digit k - 1 of b_s, which is the
query's own token and says what came in from below. These are at most 2 x 10^6 classes for each target, however many
problems there are (:mod:`interp.proofs.near_classes`). In each of them the forward pass is enclosed
(:mod:`interp.proofs.enclosures`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.core.problems import resolve_task
from interp.core.results import Provenance
from interp.core.sites import model_name
from interp.proofs.directional import GatedBlock, is_gated_block
from interp.proofs.enclosed import Enclosure, Keys, Normed, Values
from interp.proofs.near_classes import Seen, Step
from interp.proofs.prefix_leads import ROUNDINGS, require_logits, require_provable
from interp.proofs.prefix_nodes import Tree
from interp.proofs.prefix_tree import EnclosedForward
from interp.proofs.small_domain import (
    ProvedEvidence,
    proofs_fall_short,
    require_all_targets,
    rung_of,
    smallest_margins,
    status_of,
    stored_proof,
)
from interp.proofs.verdict import IN_WORDS, ArithmeticName, CertifyOptions, Method, Verdict, about
from interp.proofs.verdict_checks import judged_again
from interp.proofs.watch import ENDED, watched, why_ended
from interp.proofs.wrong_answers import WrongAnswer, identify, wrong_answer
from models.errors import UserError
from models.evaluation import margins
from models.families.position_coupling import TWO_BY_TWO
from models.numerals import shown
from models.tasks.base import Task
from models.tasks.equal_answers import altered
from models.tasks.multi_addition import MultiOperandAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.hooked import HookedModel

BATCH = 1024  # classes at a time
WEAK, FOLLOWED = 1.0, 64  # leads with bounds below this are followed along their directions, this many at a time
SLACK = 1e-5  # relative slack for the model's own margins, in its arithmetic
REPLAYED = 8  # classes of each target that are run through the model: those with the smallest bounds, and some of all


@dataclass(frozen=True, eq=False, kw_only=True)
class NearKeysEvidence(ProvedEvidence):
    """What is proved of a decoder in every class of what its queries can see.

    ``smallest`` counts classes, and has a problem of the class with the least proved margin.

    Attributes:
        classes: how many there are; in ``right`` of them the right token is proved to lead, in ``wrong`` not to.
    """

    classes: int

    @property
    def domain(self) -> str:
        return f"all 10^{math.prod(self.shape)} {self.what}"


def finding(verdict: Verdict) -> str:
    own: NearKeysEvidence = verdict.evidence
    words, share = IN_WORDS[own.arithmetic], f"{own.right:,} of {own.classes:,} classes of what a query sees"
    if verdict.status == "certified":
        bound = f"every margin proved above {shown(own.smallest_margin, 4)}"
        return (
            f"certified {words}: {own.domain}, {own.classes:,} classes of what a query sees, {bound}, "
            f"the least at {own.witness}"
        )
    if (one := verdict.counterexample) is not None:
        return f"refuted: {one.problem} -> {one.predicted} (run through the model), {share} are proved right {words}"
    rest = f"; {own.obstacle}" if own.obstacle else ""
    return f"undecided {words}: {share} are proved right and {own.wrong:,} wrong{rest}"


# ---- what can be judged


def obstacle(model: HookedModel, task: Task) -> str | None:
    """Why this method cannot judge a model on a task, in words. None says that it can."""
    if not isinstance(model, ArithmeticTransformer) or not isinstance(task, MultiOperandAddition):
        return f"{task.name} is no sum of many numbers"
    if (other := altered(task)) is not None:
        return f"{other} is another method than the certifier knows"
    config, form = model.config, task.format
    if config.later_switches != ("attn_window",) or not set(config.window_offsets) <= set(TWO_BY_TWO):
        return "its heads see more than two columns of two running sums"
    if config.n_layers != 1 or config.attn_top_k is not None or config.attn_scores != "dot":
        return "it has several layers, or another attention than the softmax"
    if not is_gated_block(config, model.effective_weights()):
        return "its block is not gated with RMS norms before and after, or has biases"
    if not (form.scratchpad and form.zero_padding and form.reversed_response):
        return "its running sums are not written from the units on, in numbers of one length"
    if config.dtype != "float32" or model.dtype != torch.float32 or model.device.type != "cpu":
        return "classes are proved of models in float32 on the CPU"
    return None


# ---- the forward pass of a class


class LocalForward(EnclosedForward):
    """The forward pass at one query, given what stands at the keys that it sees."""

    def of_target(self, seen: Seen) -> Near:
        """What all classes of a target share: queries, keys and values of every token that may stand at a position."""
        choices = [column.unique() for column in seen.tokens.unbind(1)]
        first = np.cumsum([0, *(len(choice) for choice in choices)])[:-1].tolist()
        tokens = torch.cat(choices)
        position = torch.tensor([key for key, choice in zip(seen.keys, choices, strict=True) for _ in choice])
        task = seen.step.task
        ids = task.position_ids(task.encode(seen.problem(0)))[0]
        nothing = torch.zeros(0, dtype=torch.int64)
        x = self._embedded(Tree(tokens, ids[position], position, nothing[:, None], (), nothing))
        read = self._normed(x, "blocks.0.ln1") if self.config.has_pre_norm else Normed(x, ())
        q, k, v = (y.heads_first() for y in self._queries_keys_values("blocks.0.attn", read))
        stacked = zip(first, choices, seen.tokens.unbind(1), strict=True)
        nodes = [at + torch.searchsorted(choice, column.contiguous()) for at, choice, column in stacked]
        keys, values = self.rounding.keys(k), self.rounding.values(v, len(seen.keys))
        own = range(first[-1], len(tokens))
        scores = self._scores_of(q, keys, torch.tensor(own), len(tokens))
        return Near(x, scores, values, torch.stack(nodes, 1), first[-1])

    def _scores_of(self, q: Enclosure, keys: Keys, own: Tensor, nodes: int) -> Enclosure:
        """[head, own token, node]: the scaled scores of each token at the query with each at a key."""
        at = Enclosure(q.mid[:, own], q.rad[:, own], q.norm[:, own])
        found = self.rounding.scores(at, keys.at(torch.arange(nodes).expand(len(own), -1)), self.config.attn_scores)
        return self.rounding.scaled(found, self.config.score_scale)

    def leads(self, near: Near, rows: Tensor, targets: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Bounds of the right token's lead over all others."""
        nodes = near.nodes[rows]
        query = nodes[:, -1]
        at = (slice(None), (query - near.own)[:, None], nodes)
        pattern = self.rounding.softmax(Enclosure.apart(near.scores.mid[at], near.scores.rad[at]))
        z = self._side_by_side(self.rounding.mixed(pattern, near.values.at(nodes)))
        block = GatedBlock(self, near.x[query], z)
        low, high = block.leads(targets)
        for tighten, weak in ((False, WEAK), (True, min(WEAK, 0.0))):
            rows = (low < weak).nonzero()[:, 0]
            for part in rows.split(FOLLOWED) if len(rows) else ():
                block = GatedBlock(self, near.x[query[part]], z[part])
                if tighten:
                    block.tighten()
                low[part], high[part] = block.followed(targets[part])
        return low, high


@dataclass(frozen=True, eq=False)
class Near:
    """See :meth:`LocalForward.of_target`. A node is a token at a position; the query's own start at ``own``."""

    x: Enclosure
    scores: Enclosure
    values: Values
    nodes: Int[Tensor, "n key"]
    own: int


# ---- the proof


def certify_near_keys(model: HookedModel, arithmetic: ArithmeticName = "float32", task: Task | None = None) -> Verdict:
    """Prove a decoder right on every sum of m numbers of n digits (leading zeros included), or find a wrong one.

    Precondition: as :func:`obstacle` says. Postcondition: "certified" only if in every class that a problem can reach
    the right token's lead is proved positive; "refuted" only with a problem that the model, decoding it alone, gets
    wrong. The smallest margins and some others are run through the model itself and must lie within their bounds.

    Cost: 0.1 ms for each class on one core, with an MLP of 3 x 128 x 512 weights. A time limit or Ctrl-C end it as
    undecided.

    Raises:
        UserError: another arithmetic than "interval" and "float32", or a model that computes something else than its
            weights say.
    """
    start = time.perf_counter()
    task = resolve_task(model, task)
    require_provable(model, arithmetic, obstacle(model, task))
    assert isinstance(task, MultiOperandAddition)  # otherwise there is an obstacle
    identity = identify(model, task)
    with torch.inference_mode():
        proof = _Proof(model, task, arithmetic)
        ended = proof.run()
        wrong = proof.refutation()
    return Verdict(
        **about(model, task, identity, start),
        method=METHOD.name,
        status=status_of(proof.right == proof.classes, wrong),
        counterexample=wrong,
        evidence=NearKeysEvidence(
            shape=task.shape,
            what=f"sums of {task.n_operands} numbers of {task.n_digits} digits",
            arithmetic=arithmetic,
            classes=proof.classes,
            right=proof.right,
            wrong=proof.wrong,
            smallest=proof.table(),
            obstacle=ended,
        ),
    )


class _Proof:
    """Runs over all classes; results are attributes."""

    def __init__(self, model: HookedModel, task: MultiOperandAddition, arithmetic: ArithmeticName):
        self.model, self.task, self.exact = model, task, arithmetic == "interval"
        self.weights = {name: value.detach().clone() for name, value in model.effective_weights().items()}
        self.forward = LocalForward(model.config, self.weights, ROUNDINGS[arithmetic])
        self.steps = [Step.of(task, target) for target in range(len(task.query_positions))]
        self.classes = sum(step.classes for step in self.steps)
        self.right = self.wrong = 0
        shape = len(self.steps), task.d_vocab
        self.n, self.margin = np.zeros(shape, np.int64), np.full(shape, np.nan)
        self.problem = np.full(shape, "", dtype=object)
        self.doubtful: list[tuple[float, Tensor]] = []  # problems of classes that are not proved right

    def run(self) -> str | None:
        """Go through the classes. Returns why it ended before the last one, and None if it did not."""
        found: list[tuple[Tensor, Tensor]] = []
        try:
            for seen, near, rows in watched(self._batches(found), "proving", "batch", math.ceil(self.classes / BATCH)):
                found.append(self.forward.leads(near, rows, seen.targets[rows]))
        except ENDED as error:
            return why_ended(error)
        return None

    def _batches(self, found: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Seen, Near, Tensor]]:
        for step in self.steps:
            seen = Seen.of(self.task, step, self.model.config.window_offsets)
            require_logits(self.model, seen.targets)
            near = self.forward.of_target(seen)
            try:
                for rows in torch.arange(step.classes).split(BATCH):
                    yield seen, near, rows
            finally:
                if found:
                    self._settle(seen, *(torch.cat(ends) for ends in zip(*found, strict=True)))
                found.clear()

    def _settle(self, seen: Seen, low: Tensor, high: Tensor) -> None:
        """Count what was found of a target's classes, the first of them, and hold some against the model itself.

        Raises:
            UserError: a margin outside its bounds: the model does something that the enclosures do not know of.
        """
        self.right += int((low > 0).sum())
        self.wrong += int((high < 0).sum())
        targets, target = seen.targets[: len(low)], seen.step.target
        for token in targets.unique().tolist():
            rows = (targets == token).nonzero()[:, 0]
            least = int(rows[low[rows].argmin()])
            self.n[target, token], self.margin[target, token] = len(rows), low[least]
            self.problem[target, token] = self.task.problem_text(self.task.numbers(seen.problem(least))[0])
        spread = torch.linspace(0, len(low) - 1, REPLAYED, dtype=torch.float64).long()
        chosen = torch.cat((low.argsort()[:REPLAYED], spread)).unique()
        problems = torch.cat([seen.problem(index) for index in chosen.tolist()])
        self._require_bounds(seen, chosen, problems, low[chosen], high[chosen])
        for row in (low[chosen] <= 0).nonzero()[:, 0].tolist():
            self.doubtful.append((float(high[chosen[row]]), problems[row : row + 1]))

    def _require_bounds(self, seen: Seen, chosen: Tensor, problems: Tensor, low: Tensor, high: Tensor) -> None:
        weights = {name: value.double() for name, value in self.weights.items()} if self.exact else self.weights
        tokens, right = self.task.encode(problems), self.task.targets(problems)[:, [seen.step.target]]
        logits = self.model(tokens, weights=weights)[:, [seen.step.query]]
        found = margins(logits, right)[:, 0]
        outside = (found < low - SLACK * (1 + low.abs())) | (found > high + SLACK * (1 + high.abs()))
        laid_out = torch.equal(tokens[:, list(seen.keys)], seen.tokens[chosen])
        if not laid_out or not torch.equal(right[:, 0], seen.targets[chosen]) or bool(outside.any()):
            raise UserError(f"{model_name(self.model)} does not compute what its weights say.")

    def refutation(self) -> WrongAnswer | None:
        """A problem that the model gets wrong when it decodes it alone. None says that none was found."""
        for _, problem in sorted(self.doubtful, key=lambda one: one[0]):
            if (found := wrong_answer(self.model, self.task, problem)) is not None:
                return found
        return None

    def table(self) -> xr.Dataset:
        """The least lower bound of each target and right token, among the classes that were reached."""
        kept = self.n.any(0)
        names = [self.task.token_text(int(token)) for token in np.flatnonzero(kept)]
        labels = [step.label for step in self.steps]
        return smallest_margins(self.n[:, kept], self.margin[:, kept], self.problem[:, kept], labels, names)


def _judge(model: HookedModel, task: Task, asked: CertifyOptions) -> Verdict:
    require_all_targets(task, asked)
    return certify_near_keys(model, asked.arithmetic or "float32", task)


METHOD = Method(
    "near keys",
    obstacle=obstacle,
    certify=_judge,
    finding=finding,
    provenance=lambda verdict: Provenance(verdict.classes, None, f"classes of {verdict.domain}", rung_of(verdict)),
    read=lambda value: NearKeysEvidence(**stored_proof(value, "classes")),
    check=judged_again(
        lambda verdict, model, task: certify_near_keys(model, verdict.arithmetic, task),
        lambda verdict, found: proofs_fall_short(verdict, found, ("classes", "what")),
    ),
    meant_for=lambda task: isinstance(task, MultiOperandAddition),
)
