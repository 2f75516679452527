"""Losses and validation on sequences of many lengths, the counterparts of the fixed-length ones in this folder."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from models.run import has_formulas, hooked_logits
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.tasks.task import Task
from models.training.data_parallel import Share
from models.training.sequence_problems import Bucket, SequenceSource, make_buckets
from models.training.stacked_objective import ParameterLayout, Parameters, PerSeed, Theta
from models.training.unstacked_objective import OneByOne, response_logits
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.weights import Weights


class SequenceStream:
    """``batch(step)`` returns, per seed, this process's part of the buckets and how many tokens count in all of them.

    The count is divided by the number of processes, so that the mean of their losses is the loss of the whole batch.
    """

    def __init__(
        self,
        task: Task,
        source: SequenceSource,
        rows: int,
        seeds: list[int],
        device: torch.device,
        share: Share | None = None,
    ):
        assert isinstance(task, SequenceTask)
        self.task, self.source, self.rows, self.seeds, self.device = task, source, rows, seeds, device
        self.share = share or Share()

    def batch(self, step: int) -> tuple[list[list[Bucket]], list[Tensor]]:
        whole = [self._one(seed, step) for seed in self.seeds]
        counts = [torch.stack([(b.targets >= 0).sum() for b in bs]).sum() / self.share.size for bs in whole]
        if self.share.size > 1:
            whole = [[b.share(self.share.rank, self.share.size) for b in buckets] for buckets in whole]
        return whole, counts

    def _one(self, seed: int, step: int) -> list[Bucket]:
        source, task = self.source, self.task
        moved = lambda tokens: source.offsets(task.position_ids(tokens), seed, step, self.rows)  # noqa: E731
        ids_of = moved if source.position_limits else None
        return make_buckets(task, source.draw(seed, step, self.rows, self.device), source.buckets, ids_of)


class SequenceObjective(OneByOne):
    """Mean cross-entropy over the response tokens of a batch, seed by seed."""

    dynamic_lengths = True

    def __init__(self, model: ArithmeticTransformer):
        self.model = model

    def loss(self, parameters: Parameters, batches: list[list[Bucket]], counts: list[Tensor]) -> PerSeed:
        """The summed cross-entropy of each seed's response tokens, divided by its count."""
        totals = [self._total(self.weights_of(parameters, i), b) for i, b in enumerate(batches)]
        return torch.stack(totals) / torch.stack(counts)

    def _total(self, weights: Weights, buckets: list[Bucket]) -> Float[Tensor, ""]:
        total = torch.zeros((), device=buckets[0].tokens.device)
        for bucket in buckets:
            logits = self._logits(self.model, bucket.tokens, bucket.first, weights, bucket.position_ids)
            total = total + F.cross_entropy(logits.flatten(0, 1).float(), bucket.targets.flatten(), reduction="sum")
        return total


class SequenceValidator:
    """Teacher-forced accuracy on held-out problems of the training distribution, with all ids starting at 1."""

    def __init__(self, task: Task, source: SequenceSource, n: int, device: torch.device):
        assert isinstance(task, SequenceTask)
        self.buckets = make_buckets(task, source.held_out(n, device), -(-n // 64))

    @torch.no_grad()
    def measure(self, objective: SequenceObjective, layout: ParameterLayout, theta: Theta) -> dict[str, PerSeed]:
        """Accuracies: exact over whole responses, token over response tokens."""
        parameters = layout.unflatten(theta.detach())
        report = torch.tensor([self._one(objective, objective.weights_of(parameters, i)) for i in range(len(theta))])
        exact, token = report.unbind(1)
        return {"exact": exact, "token": token, "exact_uniform": exact, "token_uniform": token}

    def _one(self, objective: SequenceObjective, weights: Weights) -> tuple[float, float]:
        forward = response_logits if has_formulas(objective.model) else hooked_logits
        exact = token = rows = tokens = 0
        for bucket in self.buckets:
            logits = forward(objective.model, bucket.tokens, bucket.first, weights)
            counted = bucket.targets >= 0
            right = (logits.argmax(-1) == bucket.targets) & counted
            exact += int((right == counted).all(1).sum())
            token += int(right.sum())
            rows, tokens = rows + len(counted), tokens + int(counted.sum())
        return exact / rows, token / tokens
