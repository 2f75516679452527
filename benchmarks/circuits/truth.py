"""What is known of a subject's circuits: three kinds of truth, which are never mixed in one column.

    minimal     all different circuits of the edges that can matter are run on pairs, under one of four ablations; a
                circuit is faithful if it keeps 90% of the logit difference and of the right answers, and minimal if no
                faithful one is a part of it. Edges of every minimal circuit are inside, those of none outside, and
                those of some are not judged
    certified   the same for circuits that are right on every input, with what one fixed problem writes on cut edges.
                There are no pairs in it
    planted     the edges of a model that was built around them (:mod:`benchmarks.circuits.planted`)

A circuit that gets too many of the first pairs wrong cannot become faithful on all of them, and is not run further; so
nothing is lost by it. Where there are more circuits than can be run, the smallest one is bounded from both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

import interp
from benchmarks.circuits.subjects import N_TRUTH, TRUTH_SEED, Subject, pairs_hash, weights_hash
from interp.causal.circuits import CircuitSpace, Criterion, search, space_of
from interp.causal.circuits.all_circuits import MOST_FITTED
from interp.causal.circuits.circuit_as_model import masked_as_model
from interp.causal.circuits.circuit_stability import minimal_rows
from interp.causal.circuits.edge_space import space_of_runs
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.masked_model import MaskedModel
from interp.causal.edges.optimal_ablation import optimal_values
from interp.causal.edges.path_patching import compute_direct
from interp.proofs.columns.adder_weights import one_layer_adder
from interp.proofs.reading.unit_ranges import unit_ranges
from interp.proofs.training_judge import unproved_problems
from models.errors import UserError
from models.tasks import ProblemPairs
from models.tasks.check_task import domain_of
from models.tasks.domain import COUNTED

METRICS = ("logit_diff", "exact_match")
CORRUPTED, MEAN, ZERO, OPTIMAL = ABLATIONS = ("corrupted", "mean", "zero", "optimal")
#: Subsets of edges that are all made; with more of them, so many circuits are listed by size.
MOST_SUBSETS, MOST_LISTED = {CORRUPTED: 2**20, MEAN: 2**20, ZERO: 2**13, OPTIMAL: MOST_FITTED}, 2**11
THRESHOLD, FIRST_PAIRS = 0.9, (8, 16)
MOST_TWICE = 2**16  # circuits that are run on another draw of pairs, too
KEPT = 12  # minimal circuits that are stored by themselves
FEW, EXHAUSTED, STEPS = 20_000, 3_000_000, (8, 64, 1024)
SECONDS, MINUTES = 60, 3.0  # of CPU time, after which no more proofs are begun; of time for each


def experiment_of(subject: Subject, pairs: ProblemPairs, ablation: str, metrics: Any = METRICS) -> EdgeExperiment:
    """Runs in which cut edges carry what the ablation says; of "optimal", before constants are fitted, means."""
    return EdgeExperiment(subject.model, pairs, metrics, MEAN if ablation == OPTIMAL else ablation, "noise")


def values_of(
    experiment: EdgeExperiment, masks: Bool[Tensor, "variant edge"], rows: slice
) -> Float[Tensor, "metric variant n"]:
    """The metrics of some of the pairs under every mask."""
    parts = torch.full((len(experiment.metrics), len(masks), rows.stop - rows.start), torch.nan)
    replacement = experiment.replacement[:, rows]
    for which, at, logits in experiment.masked.chunks(experiment.tokens[rows], masks, replacement):
        judged = experiment.judge(logits, slice(rows.start + at.start, rows.start + at.stop))
        for part, found in zip(parts, judged, strict=True):
            part[which, at] = found.float()
    return parts


def in_all_and_some(minimal: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Edges of every circuit, and of at least one."""
    sets = [set(names) for names in minimal] or [set()]
    return {"in_all": sorted(set.intersection(*sets)), "in_some": sorted(set.union(*sets))}


@dataclass(frozen=True, eq=False)
class Listed:
    """The different circuits that were looked at, which of them are faithful, and the minimal ones."""

    space: CircuitSpace
    masks: Bool[Tensor, "circuit edge"]
    faithful: Bool[np.ndarray, " circuit"]
    complete: bool
    looked_to: int
    at_most: int | None = None

    @cached_property
    def minimal(self) -> list[tuple[str, ...]]:
        return [self.space.names(self.masks[row]) for row in minimal_rows(self.masks.numpy(), self.faithful)]

    def to_dict(self) -> dict[str, Any]:
        smallest = len(self.minimal[0]) if self.minimal else self.at_most
        return {
            "live_edges": list(self.space.names(self.space.everything())),
            "circuits": len(self.masks),
            "complete": self.complete,
            "looked_to": self.looked_to,
            "faithful": int(self.faithful.sum()),
            "n_minimal": len(self.minimal),
            "minimal": [list(names) for names in self.minimal[:KEPT]],
            **in_all_and_some(self.minimal),
            "smallest": smallest,
        }


def listed(subject: Subject, pairs: ProblemPairs, ablation: str) -> Listed:
    """All circuits, or those up to a size, judged on the pairs."""
    experiment = experiment_of(subject, pairs, ablation)
    space, n = space_of(experiment), len(pairs)
    live = int(space.everything().sum())
    complete = 2**live <= MOST_SUBSETS[ablation]
    masks, looked_to = space.circuits(MOST_SUBSETS[ablation] if complete else MOST_LISTED)
    complete = looked_to == live and (ablation != OPTIMAL or len(masks) <= MOST_FITTED)
    undecided = ~space.everything()
    nothing = torch.zeros(1, len(space), dtype=torch.bool)

    def fitted(masks: Tensor) -> Tensor:
        return optimal_values(experiment, masks | undecided, pairs.corrupted_tokens)

    if ablation == OPTIMAL:
        if not complete:
            return Listed(space, masks[:1], np.zeros(1, dtype=bool), False, 0)
        criterion = Criterion(experiment.full, fitted(nothing)[:, 0], THRESHOLD)
        return Listed(space, masks, (criterion.score(fitted(masks)) >= THRESHOLD).numpy(), True, looked_to)
    criterion = Criterion(experiment.full, experiment(nothing | undecided)[:, 0], THRESHOLD)
    faithful = np.zeros(len(masks), dtype=bool)
    ends = (0, *FIRST_PAIRS, n)
    for at in torch.arange(len(masks)).split(2**14):
        values = torch.zeros(len(METRICS), len(at), 0)
        for start, stop in pairwise(ends):
            values = torch.cat((values, values_of(experiment, masks[at] | undecided, slice(start, stop))), -1)
            best = (values[1].double().sum(-1) + n - stop) / n  # if all others are right
            possible = (best - criterion.empty[1].double().mean()) / criterion.span[1] >= THRESHOLD
            at, values = at[possible], values[:, possible]
        faithful[at.numpy()] = (criterion.score(values) >= THRESHOLD).numpy()
    at_most = None
    if not complete and not faithful.any():
        found = search(
            lambda some: experiment(some | undecided),
            space,
            criterion,
            "greedy",
            share=0.0 if live < 48 else 0.1,
            to_the_end=False,
        )
        at_most = found.size
    return Listed(space, masks, faithful, complete, looked_to, at_most)


def known(subject: Subject, ablation: str) -> dict[str, Any]:
    """What is stored of the minimal circuits under an ablation, and whether another draw of pairs has the same."""
    found = listed(subject, subject.pairs(N_TRUTH, TRUTH_SEED), ablation)
    stored = found.to_dict()
    if found.complete and ablation in (CORRUPTED, MEAN) and len(found.masks) <= MOST_TWICE:
        again = listed(subject, subject.pairs(N_TRUTH, TRUTH_SEED + 1), ablation)
        stored["same_on_other_pairs"] = sorted(again.minimal) == sorted(found.minimal)
    return stored


# ---- circuits that are right on every input


@dataclass(eq=False)
class _Certifier:
    """Circuits whose cut edges carry what one problem writes, on all inputs."""

    subject: Subject

    def __post_init__(self) -> None:
        self.task = self.subject.model.task
        self.masked = MaskedModel(self.subject.model, list(self.task.query_positions), None, self.task)
        self.problem = self.task.sample(1, torch.Generator().manual_seed(TRUTH_SEED))
        self.constants = self.masked.values(self.task.encode(self.problem))[:, :1]
        domain = domain_of(self.task)
        self.size = domain.size if domain.combinations <= COUNTED else domain.combinations

    def wrong(self, masks: Bool[Tensor, "variant edge"], problems: Int[Tensor, "n ..."]) -> Bool[Tensor, "variant n"]:
        """Which problems each circuit gets wrong."""
        tokens, targets = self.task.encode(problems), self.task.targets(problems)
        carried = self.constants.expand(self.masked.shape(len(tokens)))
        found = torch.zeros(len(masks), len(tokens), dtype=torch.bool)
        for which, at, logits in self.masked.chunks(tokens, masks, carried):
            found[which, at] = (logits.argmax(-1) != targets[at]).flatten(2).any(2)
        return found

    def right(self, masks: Bool[Tensor, "variant edge"], problems: Int[Tensor, "n ..."]) -> Tensor:
        """The circuits that answer all of these problems."""
        return torch.cat([part[~self.wrong(part, problems).any(1)] for part in masks.split(2**14)])

    def space(self) -> CircuitSpace:
        tokens = self.task.encode(self.task.sample(256, torch.Generator().manual_seed(1)))
        shape = self.masked.shape(len(tokens))
        return space_of_runs(self.masked, self.masked.values(tokens), self.constants.expand(shape), True)

    def drawn(self) -> list[Tensor]:
        """Problems, few and then more, that most wrong circuits fail; all problems, where these are few."""
        found = [self.task.sample(n, torch.Generator().manual_seed(TRUTH_SEED + n)) for n in STEPS]
        if self.task.has_long_carries:
            generator = torch.Generator().manual_seed(TRUTH_SEED)
            found.append(self.task.sample(STEPS[-1], generator, long_carries=True))
        return [*found, domain_of(self.task).every()] if self.size <= FEW else found

    def judged(self, mask: Bool[Tensor, " edge"]) -> tuple[str, Int[Tensor, "n ..."]]:
        """(how it is known to be right on every input, or "" if it is not, problems that it gets wrong)"""
        if self.size <= EXHAUSTED:
            for problems in domain_of(self.task).every().split(2**12):
                wrong = self.wrong(mask[None], problems)[0]
                if wrong.any():
                    return "", problems[wrong][:64]
            return "exhaustive", self.problem[:0]
        whole = MaskedModel(self.subject.model, None, None, self.task)
        constants = whole.values(self.task.encode(self.problem))[:, :1][:, 0]
        try:
            verdict = interp.certify(masked_as_model(whole, mask, constants), tolerance=None, minutes=MINUTES)
        except UserError:
            return "", self.problem[:0]
        if verdict.status == "certified":
            return verdict.provenance.strength, self.problem[:0]
        found = torch.tensor(unproved_problems(verdict, self.task), dtype=torch.int64).reshape(
            -1, *self.problem.shape[1:]
        )
        return "", found[self.wrong(mask[None], found)[0]]


def certified(subject: Subject) -> dict[str, Any]:
    """The minimal circuits that are right on every input, and whether all of them are known (``complete``). Of graphs
    whose circuits are too many to be listed, one that is wrong without any of its edges."""
    certifier = _Certifier(subject)
    space, start = certifier.space(), time.process_time()
    undecided = ~space.everything()
    live = int(space.everything().sum())
    complete, how, found = 2**live <= MOST_SUBSETS[CORRUPTED], "", list[Tensor]()
    masks = space.circuits(2**live)[0] if complete else _pruned(certifier, space)
    n_circuits = len(masks) if complete else None
    for problems in certifier.drawn():
        masks = certifier.right(masks | undecided, problems) & ~undecided
    while len(masks):
        if time.process_time() - start > SECONDS:
            complete = False
            break
        mask, masks = masks[0], masks[1:]
        proof, wrong = certifier.judged(mask | undecided)
        if proof:
            found.append(mask)
            how, masks = proof, masks[(mask & ~masks).any(1)]
        elif len(wrong):
            masks = certifier.right(masks | undecided, wrong) & ~undecided
        else:  # a proof that fails says nothing about the circuit
            complete = False
    minimal = [list(space.names(mask)) for mask in found]
    return {
        "live": live, "circuits": n_circuits, "complete": complete, "how": how, "n_minimal": len(minimal),
        "minimal": minimal, **in_all_and_some(minimal),
        "problem": certifier.task.problem_text(certifier.task.numbers(certifier.problem)[0]),
    }  # fmt: skip


def _pruned(certifier: _Certifier, space: CircuitSpace) -> Bool[Tensor, "1 edge"]:
    """A circuit that is right on all problems that are drawn, and wrong on some without any one of its edges."""
    undecided, mask = ~space.everything(), space.everything()
    while True:
        trials = space.live(mask & ~torch.eye(len(mask), dtype=torch.bool)[mask])
        for problems in certifier.drawn():
            trials = certifier.right(trials | undecided, problems) & ~undecided
        if not len(trials):
            return mask[None]
        mask = trials[int(trials.sum(1).argmin())]


# ---- all of it


def truth_of(subject: Subject, ablations: tuple[str, ...] = ABLATIONS) -> dict[str, Any]:
    """What ``truth.json`` holds of a subject, but for :func:`certified`."""
    model, plan = subject.model, subject.plan
    pairs = subject.pairs(N_TRUTH, TRUTH_SEED)
    found: dict[str, Any] = {
        "family": subject.family,
        "question": subject.question,
        "what": pairs.what,
        "layers": model.cfg.n_layers,
        "heads": model.cfg.n_heads,
        "weights": weights_hash(model),
        "pairs": pairs_hash(pairs),
        "ablations": {},
        "switches": switches(model),
        "planted": None if plan is None else {"replacement": plan.replacement, "edges": list(plan.circuit)},
    }
    for ablation in ablations:
        try:
            found["ablations"][ablation] = known(subject, ablation)
        except UserError as error:  # such as an ablation that leaves the mean of a metric as it is
            found["ablations"][ablation] = {"refused": str(error)[:200]}
    return found


def switches(model: Any) -> list[list[Any]]:
    """[neuron, signal] of the neurons that are proved to be switches on a carry or a borrow."""
    try:
        if one_layer_adder(model, model.task):
            return []
        table = unit_ranges(model)
        table = table[table.switch != ""]
    except UserError:
        return []
    return table[["neuron", "signal"]].astype(str).to_numpy().tolist()


def sides_of(known: Mapping[str, Any] | None, live: Iterable[str]) -> tuple[set[str], set[str]] | None:
    """(live edges of every minimal circuit, those of none); edges of some are on no side. None where not all circuits
    were looked at."""
    if not known or not known.get("complete") or not known["n_minimal"] or "in_all" not in known:
        return None
    return set(known["in_all"]) & set(live), set(live) - set(known["in_some"])


@dataclass(eq=False)
class Truth:
    """The truth of a subject under one ablation, as methods are judged by it."""

    subject: Subject
    ablation: str
    entry: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.experiment = experiment_of(self.subject, self.subject.pairs(N_TRUTH, TRUTH_SEED), self.ablation)
        self.space = space_of(self.experiment)
        self.live = self.space.everything()
        self.criterion = Criterion(self.experiment.full, self.experiment.empty, THRESHOLD)
        self._seen: dict[bytes, tuple[float, float]] = {}

    @property
    def known(self) -> Mapping[str, Any]:
        return self.entry["ablations"][self.ablation]

    @cached_property
    def sides(self) -> dict[str, tuple[set[str], set[str]] | None]:
        """(edges inside, edges outside) by kind of truth: of "minimal" circuits under this ablation; of those with
        constants that are fitted ("optimal"), by which methods that saw means are judged; of "certified" ones, by which
        those that saw other problems are; and what was "planted", under the ablation for which it was."""
        live = set(self.space.names(self.live))
        entry, plan = self.entry, self.entry.get("planted")
        planted = None
        if plan is not None and plan["replacement"] == self.ablation:
            planted = set(plan["edges"]) & live, live - set(plan["edges"])
        return {
            "minimal": sides_of(entry["ablations"].get(self.ablation), live),
            "optimal": sides_of(entry["ablations"].get(OPTIMAL), live) if self.ablation == MEAN else None,
            "certified": sides_of(entry.get("certified"), live) if self.ablation == CORRUPTED else None,
            "planted": planted,
        }

    @cached_property
    def exact(self) -> Float[np.ndarray, " edge"]:
        """What the logit difference loses without each edge."""
        return (self.experiment.full[0] - compute_direct(self.experiment)[0]).double().mean(-1).numpy()

    def judged(self, masks: Bool[Tensor, "variant edge"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sizes, F of the logit difference, least score of both metrics) of circuits; each is run once."""
        masks = self.space.live(masks)
        keys = [row.numpy().tobytes() for row in masks]
        new = list({key: i for i, key in enumerate(keys) if key not in self._seen}.values())
        if new:
            values = self.experiment(masks[new] | ~self.live)
            both = zip(
                self.criterion.faithfulness(values)[0].tolist(), self.criterion.score(values).tolist(), strict=True
            )
            self._seen |= {keys[i]: pair for i, pair in zip(new, both, strict=True)}
        share, score = np.array([self._seen[key] for key in keys]).reshape(-1, 2).T
        return masks.sum(1).numpy(), share, score
