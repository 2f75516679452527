"""Which models and tasks the benchmark has, what is known of each, and what a method is given.

A subject is a model of the zoo that is proved right on all its inputs (or right on all of them, counted), with one kind
of pairs. The truth is every circuit of the subject (:func:`interp.all_circuits`) under corrupted-run ablation, on pairs
of its own: the smallest, the only minimal one where there is one, and the faithfulness of whatever edges a method puts
first. A method sees other pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

import models
from interp.causal.circuits import AllCircuits, Criterion, Space, all_circuits, space_of
from interp.causal.circuits.every_circuit import METRICS
from interp.causal.circuits.split import halves
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.paths import compute_direct
from interp.core.stored_data import DATA
from models.errors import UserError
from models.files.checkpoint import assign_parameters
from models.tasks import problem_pairs
from models.tasks.algorithms import column_layout
from models.tasks.paired_problems import ProblemPairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer

N_TRUTH, N_METHOD = 256, 64
TRUTH_SEED = 10_000
#: Kinds of pairs; of a task without carries, the answer's last digit.
KINDS = ("made carry", "passed carry", "digit", "answer")
MOST_LISTED, MOST_LISTED_IF_LARGE = 2**13, 2**8
MOST_EDGES_FOR_SEARCH = 32


@dataclass(frozen=True)
class Subject:
    """A model by name (of the zoo, or a path) and a kind of pairs."""

    model: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.model} {self.kind}".replace("/", "_").replace(" ", "-")

    def pairs(self, task: Any, n: int, seed: int, column: int | None = None) -> ProblemPairs:
        """Pairs of the kind. Raises UserError where the task has none."""
        if self.kind == "answer":
            answer = task.variables(task.sample(1, torch.Generator().manual_seed(0))).get("s")
            if answer is None:
                raise UserError(f"{task.name} names no digits of its answer.")
            place = (0,) * (answer.ndim - 1)
            at = 0 if len(place) == 1 else place
            return problem_pairs(task, "variable", variable="s", column=at, n=n, seed=seed)
        middle = max(1, len(column_layout(task)) // 2) if column is None else column
        return problem_pairs(task, self.kind, column=middle, n=n, seed=seed)


def held_out() -> list[str]:
    """Adders of other seeds, drawn and proved after everything else here was fixed; they are not in the zoo."""
    return list(_held_out())


@cache
def _held_out() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("held_out_adders.json").read_text(encoding="utf-8"))


def load(name: str) -> Any:
    """A model of the zoo, of a path, or one that is held out."""
    if name not in _held_out():
        return models.load(name)
    stored = _held_out()[name]
    model = models.build(stored["model"])
    tensors = {key: torch.tensor(values, dtype=torch.float32) for key, values in stored["parameters"].items()}
    assign_parameters(model.weight_map, tensors, name)
    return ArithmeticTransformer(model.weight_map, model.task, name=name).eval()


def proved() -> list[str]:
    """The models of the zoo that are right on all inputs: proved, or counted one by one."""
    rows = json.loads((DATA / "models.json").read_text(encoding="utf-8"))["table"]["rows"]
    found = []
    for row in rows:
        said = row["all inputs"]
        right, _, of = said.removeprefix("exhaustive: ").partition(" of ")
        if said.startswith("certified") or (said.startswith("exhaustive") and right == of.split(" ")[0]):
            found.append(row["model"])
    return found


def subjects(names: list[str] | None = None) -> Iterator[Subject]:
    """The kinds of pairs that each proved model has, or each of the models named; models without any are left out.

    So are small domains whose pairs share problems, so that a circuit could not be judged on problems of its own.
    """
    for name in proved() if names is None else names:
        model = load(name)
        for kind in KINDS:
            subject = Subject(name, kind)
            try:
                pairs = halves(subject.pairs(model.task, N_TRUTH, TRUTH_SEED), 0)[0]
                EdgeExperiment(model, pairs.select(slice(8)), METRICS, "corrupted", "noise")
            except UserError:
                continue
            if kind != "answer" or "carry_in" not in model.task.variables(pairs.clean):
                yield subject


@dataclass(eq=False)
class Case:
    """What a method is given: a model, pairs, and masked runs of it, which are counted.

    A method returns one score for each of ``edges``. The larger it is, the more the edge belongs to the circuit; a
    negative score says that cutting it would raise the metric.
    """

    model: Any
    pairs: ProblemPairs
    seed: int

    @cached_property
    def experiment(self) -> EdgeExperiment:
        """Runs in which kept edges carry the clean problem and cut edges the corrupted one; the logit difference."""
        return EdgeExperiment(self.model, self.pairs, "logit_diff", "corrupted", "noise")

    @cached_property
    def _both(self) -> EdgeExperiment:
        return EdgeExperiment(self.model, self.pairs, METRICS, "corrupted", "noise")

    @cached_property
    def space(self) -> Space:
        return space_of(self.experiment)

    @property
    def edges(self) -> tuple[str, ...]:
        return self.space.labels

    @property
    def live(self) -> Bool[Tensor, " edge"]:
        """The edges that can matter; the others have the same value in both runs."""
        return self.space.everything()

    @cached_property
    def criterion(self) -> Criterion:
        both = self._both
        return Criterion(both.full, both.empty)

    def recovered(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, " variant"]:
        """The share of the logit difference that the kept edges restore: 1 with all, 0 with none. One pass a mask."""
        full, empty = (end[0].double().mean() for end in (self.experiment.full, self.experiment.empty))
        values = self.experiment(masks | ~self.live)[0].double().mean(-1)
        return (values - empty) / (full - empty)

    def score(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, " variant"]:
        """The least ``1 - |1 - F|`` of the logit difference and the right answers. One pass a mask."""
        return self.criterion.score(self._both(masks | ~self.live))

    @property
    def passes(self) -> tuple[float, float]:
        """(forward, backward) passes so far, each over all pairs."""
        used = [each for name in ("experiment", "_both") if (each := self.__dict__.get(name)) is not None]
        return sum(each.forwards for each in used), sum(each.backwards for each in used)


@dataclass(eq=False)
class Truth:
    """What is known of a subject, on pairs of its own. ``unique``: the edges of its only minimal circuit; ``found`` is
    None where the circuits were listed before (:meth:`again`)."""

    subject: Subject
    model: Any
    experiment: EdgeExperiment
    unique: Sequence[str] | None
    smallest: int | None  # the size of the smallest faithful circuit, or of the smallest that is known
    found: AllCircuits | None = None
    _seen: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    @staticmethod
    def of(subject: Subject, model: Any, n: int = N_TRUTH, seed: int = TRUTH_SEED) -> Truth:
        pairs = subject.pairs(model.task, n, seed)
        experiment = _judge(model, pairs)
        small = int(space_of(experiment).everything().sum()) <= MOST_EDGES_FOR_SEARCH
        found = all_circuits(model, pairs, most=MOST_LISTED if small else MOST_LISTED_IF_LARGE, bound=small, seed=0)
        size = found.at_most if found.size is None else found.size
        return Truth(subject, model, experiment, found.minimal[0] if found.unique else None, size, found)

    @staticmethod
    def again(subject: Subject, model: Any, known: Mapping[str, Any]) -> Truth:
        """The truth from what was stored of it, without listing the circuits again."""
        experiment = _judge(model, subject.pairs(model.task, N_TRUTH, TRUTH_SEED))
        return Truth(subject, model, experiment, known["minimal"][0] if known["unique"] else None, known["smallest"])

    @cached_property
    def space(self) -> Space:
        return space_of(self.experiment)

    @cached_property
    def live(self) -> Bool[Tensor, " edge"]:
        return self.space.everything()

    @cached_property
    def circuit(self) -> Bool[Tensor, " edge"] | None:
        """The only minimal circuit; None if there are several, or not all were listed."""
        return None if self.unique is None else self.space.mask(self.unique)

    @cached_property
    def exact(self) -> Float[np.ndarray, " edge"]:
        """What the logit difference loses without each edge."""
        lost = self.experiment.full[0] - compute_direct(self.experiment)[0]
        return lost.double().mean(-1).numpy()

    def judged(self, masks: Bool[Tensor, "variant edge"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sizes, F of the logit difference, least score of both metrics) of circuits; each is run once."""
        masks = self.space.live(masks)
        keys = [row.numpy().tobytes() for row in masks]
        found = self.found
        if not self._seen and found is not None and found.complete:
            rows = zip(found.masks, found.faithfulness[0], found.scores.min(0), strict=True)
            self._seen = {mask.numpy().tobytes(): (float(share), float(score)) for mask, share, score in rows}
        new = list({key: i for i, key in enumerate(keys) if key not in self._seen}.values())
        if new:
            criterion = Criterion(self.experiment.full, self.experiment.empty)
            values = self.experiment(masks[new] | ~self.live)
            shares = criterion.faithfulness(values)[0].tolist()
            scores = criterion.score(values).tolist()
            self._seen |= {keys[i]: both for i, both in zip(new, zip(shares, scores, strict=True), strict=True)}
        share, score = np.array([self._seen[key] for key in keys]).reshape(-1, 2).T
        return masks.sum(1).numpy(), share, score


def _judge(model: Any, pairs: ProblemPairs) -> EdgeExperiment:
    """Runs on the half of the pairs that circuits are listed on."""
    return EdgeExperiment(model, halves(pairs, 0)[0], METRICS, "corrupted", "noise")
