"""The objective of models that are large enough to keep a core busy: seeds one after the other, by the cheap forward.

Stacking pays if a model is so small that overheads dominate
(:class:`models.training.stacked_objective.GeneralObjective`). From some ten thousand parameters on it only takes
memory. Then it matters more that no attention pattern is kept and that the last layer computes only the queries that
carry loss (:mod:`models.run`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from models.run import Formulas, has_formulas, hooked_logits, logits_by_formulas
from models.training.stacked_objective import GeneralObjective, Logits, Parameters, PerSeed, Targets, Tokens
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.weights import Weights

#: Below this many parameters stacked seeds are faster.
LARGE = 20_000


def response_logits(
    model: ArithmeticTransformer, tokens: Tensor, first: int, weights: Weights, position_ids: Tensor | None = None
) -> Float[Tensor, "batch query d_vocab"]:
    """Logits at positions from ``first`` on without hooks and patterns, with dropout and gradients."""
    return logits_by_formulas(Formulas(model, weights), tokens, first, position_ids)


class OneByOne:
    """The base of objectives that take one seed after the other through :func:`response_logits`, or through the hooked
    forward if the model's config has a switch that a run does not know."""

    model: ArithmeticTransformer
    group_size = 1  # one seed's matrix products fill a core; stacking would only take memory
    cuda_group_size = 1
    #: Whether lengths differ from call to call; torch.compile then takes them as symbols.
    dynamic_lengths = False
    _compiled: Callable[..., Tensor] | None = None

    @property
    def _logits(self) -> Callable[..., Tensor]:
        return self._compiled or (response_logits if has_formulas(self.model) else hooked_logits)

    def compile(self) -> None:
        """Compile the forward with torch.compile (a minute, once)."""
        self._compiled = torch.compile(self._logits, dynamic=self.dynamic_lengths)

    def weights_of(self, parameters: Parameters, seed: int) -> Weights:
        """One seed's effective weights."""
        return functional_call(self.model.weight_map, {name: value[seed] for name, value in parameters.items()}, ())


class UnstackedObjective(OneByOne, GeneralObjective):
    """Mean cross-entropy over the task's targets, one seed at a time, with the general objective's value and gradient.

    It requires that the task's queries are consecutive.
    """

    def __init__(self, model: ArithmeticTransformer):
        super().__init__(model)
        self.first, self.stop = self.queries[0], self.queries[-1] + 1  # what follows the last query is not computed

    @staticmethod
    def applies_to(model: ArithmeticTransformer) -> bool:
        queries = list(model.task.query_positions)
        large = sum(p.numel() for p in model.weight_map.parameters()) >= LARGE
        return large and has_formulas(model) and queries == list(range(queries[0], queries[-1] + 1))

    def _seed_logits(
        self, parameters: Parameters, seed: int, tokens: Integer[Tensor, "pos row"]
    ) -> Float[Tensor, "row target vocab"]:
        rows = tokens[: self.stop].T.long()
        return self._logits(self.model, rows, self.first, self.weights_of(parameters, seed))

    def logits(self, parameters: Parameters, tokens: Tokens) -> Logits:
        return torch.stack([self._seed_logits(parameters, i, rows).permute(2, 1, 0) for i, rows in enumerate(tokens)])

    def loss(self, parameters: Parameters, tokens: Tokens, targets: Targets) -> PerSeed:
        losses = []
        for i, (rows, right) in enumerate(zip(tokens, targets, strict=True)):
            logits = self._seed_logits(parameters, i, rows)
            losses.append(F.cross_entropy(logits.flatten(0, 1).float(), right.T.flatten().long()))
        return torch.stack(losses)
