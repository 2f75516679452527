"""Pairs of problems, a metric and a masked model: what every question about edges starts from.

noise      edges that are kept carry the clean run, edges that are cut the alternative: what the model needs
denoise    edges that are kept carry the corrupted run, edges that are cut the clean one: what is enough to mend it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.edges.graph import EdgeGraph
from interp.causal.edges.masked import MaskedModel
from interp.core.metrics import Metric, resolve_metrics
from interp.core.model import HookedModel
from interp.core.sites import model_name
from models.errors import UserError, known_name
from models.tasks.pairs import ProblemPairs

DIRECTIONS = ("denoise", "noise")


class EdgeExperiment:
    """``experiment(masks)`` is the metric of every pair under every mask, [metric, variant, n].

    Args:
        model: of this project, or a stock TransformerLens model. pairs: clean and corrupted problems. metrics: names or
            :class:`interp.core.metrics.Metric`; they say which positions are read. alternative: what cut edges carry:
            "corrupted", "resample", "mean" or "zero" (:mod:`interp.causal.edges.masked`). Statistics are taken over the
            clean problems.
        direction: "denoise" or "noise". Unless given, denoise where cut edges carry the corrupted problem, and noise
            where they carry any other alternative, which knows no other direction.
        groups: split every edge by groups of positions.
        target: the task's target to judge, if not the pairs' own.
        seed: of the resampling.

    Raises:
        UserError: bad names, an alternative that equals the run itself everywhere (cutting would change nothing).
    """

    def __init__(
        self,
        model: HookedModel,
        pairs: ProblemPairs,
        metrics: str | Metric | Sequence[str | Metric] = "logit_diff",
        alternative: str = "corrupted",
        direction: str | None = None,
        groups: Mapping[str, Sequence[int]] | None = None,
        target: int | None = None,
        seed: int = 0,
    ):
        if direction is None:
            direction = "denoise" if alternative == "corrupted" else "noise"
        known_name("direction", direction, DIRECTIONS)
        if direction == "denoise" and alternative != "corrupted":
            raise UserError(
                f"Denoising puts clean values into the corrupted run; the alternative {alternative!r} belongs to noise."
            )
        self.name, self.pairs, self.direction, self.kind = model_name(model), pairs, direction, alternative
        self.seed = seed
        self.metrics = resolve_metrics(model, pairs, metrics, target)
        self.masked = MaskedModel(model, _positions(self.metrics, pairs), groups, pairs.task)
        self.graph: EdgeGraph = self.masked.graph
        clean, corrupted = pairs.clean_tokens, pairs.corrupted_tokens
        self.tokens, other = (clean, corrupted) if direction == "noise" else (corrupted, clean)
        if alternative != "corrupted":
            other = clean
        self.alternative = self.masked.alternative(alternative, other, seed)
        self.values = self.masked.values(self.tokens)
        if torch.equal(self.values, self.alternative):
            raise UserError(
                "What cut edges carry equals what the run itself writes everywhere: cutting changes nothing."
            )
        length = self.masked.length
        places = [range(length) if m.positions is None else [p % length for p in m.positions] for m in self.metrics]
        self._columns = [[self.graph.read.index(p) for p in some] for some in places]

    def __len__(self) -> int:
        return len(self.pairs)

    @torch.no_grad()
    def __call__(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, "metric variant n"]:
        """The metrics under every mask. Cost: at most one forward pass a mask, less where it cuts late edges only."""
        out = torch.full((len(self.metrics), len(masks), len(self)), float("nan"), dtype=self.masked.model.dtype)
        for which, rows, logits in self.masked.chunks(self.tokens, masks, self.alternative):
            for values, found in zip(out, self.judge(logits, rows), strict=True):
                values[which, rows] = found.to(out)
        return out

    def judge(self, logits: Float[Tensor, "*variant batch read d_vocab"], rows: slice) -> list[Tensor]:
        """Each metric [*variant, batch] of logits at the positions that the graph reads."""
        return [
            metric(logits[..., columns, :], rows) for metric, columns in zip(self.metrics, self._columns, strict=True)
        ]

    @cached_property
    def full(self) -> Float[Tensor, "metric n"]:
        """Every edge kept: the metrics of the run itself.

        Raises:
            UserError: a metric that is NaN in some pair, so that no effect on it is a number.
        """
        values = self(torch.ones(1, len(self.graph), dtype=torch.bool))[:, 0]
        for metric, undefined in zip(self.metrics, values.isnan().sum(1).tolist(), strict=True):
            if undefined:
                raise UserError(
                    f"The metric {metric.name!r} is NaN in {undefined:,} of {len(self):,} pairs without any edge cut; "
                    "do the weights hold NaN or infinity?"
                )
        return values

    @cached_property
    def empty(self) -> Float[Tensor, "metric n"]:
        """Every edge cut."""
        return self(torch.zeros(1, len(self.graph), dtype=torch.bool))[:, 0]


def _positions(metrics: Sequence[Metric], pairs: ProblemPairs) -> list[int] | None:
    """Positions that any of the metrics reads; None: all."""
    length, found = pairs.clean_tokens.shape[1], set()
    for metric in metrics:
        if metric.positions is None:
            return None
        for position in metric.positions:
            if not -length <= position < length:
                raise UserError(f"The metric {metric.name!r} reads position {position} of {length}.")
            found.add(position % length)
    return sorted(found)
