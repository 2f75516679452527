"""What a method is given: a model in the form that it likes, pairs of problems, and masked runs, which are counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from benchmarks.circuits.subjects import N_METHOD, Subject
from benchmarks.circuits.truth import CORRUPTED, METRICS, THRESHOLD, experiment_of
from interp.causal.circuits import CircuitSpace, Criterion, space_of
from interp.causal.edges import EdgeExperiment
from models.errors import UserError
from models.tasks import ProblemPairs

_HEAD = re.compile(r"L(\d+)H\d+")
_MLP = re.compile(r"L(\d+)\.mlp")


def role(edge: str, layers: int) -> str:
    """An edge without the number of its heads, layers counted as first or later: "embed->first head.v"."""

    def named(found: re.Match[str], kind: str) -> str:
        return f"{'first' if int(found[1]) == 0 else 'later'} {kind}" if layers > 1 else kind

    return _MLP.sub(lambda found: named(found, "mlp"), _HEAD.sub(lambda found: named(found, "head"), edge))


@dataclass(eq=False)
class Case:
    """A subject under one ablation, as a method sees it.

    A method returns one score for each of ``edges``, as a tensor or as a mapping from names; what is not named has
    zero. The larger a score is, the more the edge belongs to the circuit; a negative one says that cutting it would
    raise the metric.

    Attributes:
        model: of this project, with TransformerLens' hooks, cache and weight names.
        pairs: clean and corrupted problems; ``clean_tokens`` and ``corrupted_tokens`` are their tokens.
        prior: role of an edge -> how often it was in the circuits of the other families, out of how many live ones.
    """

    subject: Subject
    ablation: str = CORRUPTED
    seed: int = 0
    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        return self.subject.model

    @cached_property
    def pairs(self) -> ProblemPairs:
        return self.subject.pairs(N_METHOD, self.seed)

    # ---- the same in any framework

    @cached_property
    def hooked_transformer(self) -> Any:
        """A copy as a stock TransformerLens model: a HookedTransformer, or with TransformerLens 4 a TransformerBridge.
        Raises UserError for models that it cannot express."""
        try:
            return self.model.to_hooked_transformer()
        except UserError:
            return self.model.to_transformer_bridge()

    @property
    def module(self) -> nn.Module:
        """A plain module: ``module(tokens)`` gives logits [batch, position, token]."""
        return self.model

    @property
    def clean_tokens(self) -> Int[Tensor, "pair position"]:
        return self.pairs.clean_tokens

    @property
    def corrupted_tokens(self) -> Int[Tensor, "pair position"]:
        return self.pairs.corrupted_tokens

    @property
    def position(self) -> int:
        """Where the logits are read."""
        return self.pairs.task.query_positions[self.pairs.target]

    def metric(self, logits: Float[Tensor, "pair position token"]) -> Float[Tensor, " pair"]:
        """The logit of the clean answer minus that of the corrupted one."""
        at = logits[:, self.position]
        right, wrong = (
            side[:, self.pairs.target, None] for side in (self.pairs.clean_targets, self.pairs.corrupted_targets)
        )
        return (at.gather(1, right) - at.gather(1, wrong))[:, 0]

    # ---- masked runs

    @cached_property
    def experiment(self) -> EdgeExperiment:
        """Runs in which kept edges carry the clean problem, cut ones what the ablation says; the logit difference."""
        return experiment_of(self.subject, self.pairs, self.ablation, "logit_diff")

    @cached_property
    def _both(self) -> EdgeExperiment:
        return experiment_of(self.subject, self.pairs, self.ablation, METRICS)

    @cached_property
    def space(self) -> CircuitSpace:
        return space_of(self.experiment)

    @property
    def edges(self) -> tuple[str, ...]:
        return self.space.labels

    @cached_property
    def live(self) -> Bool[Tensor, " edge"]:
        """The edges that can matter; the others carry the same value in both runs wherever it is read."""
        return self.space.everything()

    @cached_property
    def criterion(self) -> Criterion:
        return Criterion(self._both.full, self._both.empty, THRESHOLD)

    def recovered(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, " variant"]:
        """The share of the logit difference that the kept edges restore: 1 with all, 0 with none. One pass a mask."""
        full, empty = (end[0].double().mean() for end in (self.experiment.full, self.experiment.empty))
        values = self.experiment(masks | ~self.live)[0].double().mean(-1)
        return (values - empty) / (full - empty)

    def score(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, " variant"]:
        """The least ``1 - |1 - F|`` of the logit difference and the right answers. One pass a mask."""
        return self.criterion.score(self._both(masks | ~self.live))

    def scored(self, found: Tensor | Mapping[str, float]) -> Float[Tensor, " edge"]:
        """What a method returned, one number for each edge. Raises UserError where it is not that."""
        if isinstance(found, Mapping):
            at = {name: i for i, name in enumerate(self.edges)}
            if unknown := set(found) - set(at):
                raise UserError(f"There is no edge {sorted(unknown)[0]!r}; case.edges has their names.")
            rows = torch.zeros(len(self.edges), dtype=torch.float64)
            rows[[at[name] for name in found]] = torch.tensor([float(x) for x in found.values()], dtype=torch.float64)
            return rows
        return torch.as_tensor(found).detach().double().cpu()

    @property
    def passes(self) -> tuple[float, float]:
        """(forward, backward) passes so far, each over all pairs."""
        used = [each for name in ("experiment", "_both") if (each := self.__dict__.get(name)) is not None]
        return sum(each.forwards for each in used), sum(each.backwards for each in used)
