"""The start of every question about edges: pairs of problems, a metric and a masked model.

noise      kept edges carry the clean run, cut edges the replacement: shows what the model needs
denoise    kept edges carry the corrupted run, cut edges the clean one: shows what is enough to restore the answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.edges.edge_graph import EdgeGraph
from interp.causal.edges.masked_model import MaskedModel
from interp.causal.metrics import Metric, resolve_metrics
from interp.core.batches import slices
from models.errors import UserError, known_name
from models.tasks import ProblemPairs
from models.transformer import HookedModel, model_name

DIRECTIONS = ("denoise", "noise")
#: Entries of the masks that are made at once.
MASKS_AT_ONCE = 2**24


class EdgeExperiment:
    """``experiment(masks)`` is the metric of every pair under every mask, [metric, variant, n].

    ``forwards`` and ``backwards`` count the passes over all pairs so far.

    Args:
        model: a model of this project, or a stock TransformerLens model.
        pairs: clean and corrupted problems.
        metrics: names or :class:`interp.causal.metrics.Metric`; they say which positions are read.
        replacement: what cut edges carry: "corrupted", "resample", "mean" or "zero"
            (:mod:`interp.causal.edges.masked_model`). Statistics are taken over the clean problems.
        direction: "denoise" or "noise"; default denoise if the replacement is "corrupted", else noise, which is then
            the only direction.
        groups: split every edge by groups of positions.
        seed: seed of the resampling.

    Raises:
        UserError: bad names, or a replacement that equals the run itself everywhere (cutting would change nothing).
    """

    def __init__(
        self,
        model: HookedModel,
        pairs: ProblemPairs,
        metrics: str | Metric | Sequence[str | Metric] = "logit_diff",
        replacement: str = "corrupted",
        direction: str | None = None,
        groups: Mapping[str, Sequence[int]] | None = None,
        seed: int = 0,
    ):
        if direction is None:
            direction = "denoise" if replacement == "corrupted" else "noise"
        known_name("direction", direction, DIRECTIONS)
        if direction == "denoise" and replacement != "corrupted":
            raise UserError(
                f"Denoising puts clean values into the corrupted run; the replacement {replacement!r} belongs to noise."
            )
        self.name, self.pairs, self.direction, self.kind = model_name(model), pairs, direction, replacement
        self.seed, self.forwards, self.backwards = seed, 0.0, 0.0
        self.metrics = resolve_metrics(model, pairs, metrics)
        self.masked = MaskedModel(model, _positions(self.metrics, pairs), groups, pairs.task)
        self.graph: EdgeGraph = self.masked.graph
        clean, corrupted = pairs.clean_tokens, pairs.corrupted_tokens
        self.tokens, other = (clean, corrupted) if direction == "noise" else (corrupted, clean)
        if replacement != "corrupted":
            other = clean
        self.replacement = self.masked.replacement(replacement, other, seed)
        self.values = self.masked.values(self.tokens)
        batches = self.masked.batches(len(self))
        if all(torch.equal(self.values[:, at], self.replacement[:, at]) for at in batches):
            raise UserError(
                "What cut edges carry equals what the run itself writes everywhere: cutting changes nothing."
            )
        length = self.masked.length
        self._wide = torch.promote_types(self.masked.model.dtype, torch.float32)
        places = [range(length) if m.positions is None else [p % length for p in m.positions] for m in self.metrics]
        self._columns = [[self.graph.read.index(p) for p in some] for some in places]

    def __len__(self) -> int:
        return len(self.pairs)

    @torch.no_grad()
    def __call__(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, "metric variant n"]:
        """The metrics under every mask. Cost: at most one forward pass per mask, less if it cuts only late edges."""
        self.forwards += len(masks)
        out = torch.full((len(self.metrics), len(masks), len(self)), float("nan"), dtype=self._wide)
        for which, rows, logits in self.masked.chunks(self.tokens, masks, self.replacement):
            for values, found in zip(out, self.judge(logits, rows), strict=True):
                values[which, rows] = found.to(out)
        return out

    def without_each(self, part: Int[Tensor, " edge"], parts: int) -> Float[Tensor, "metric part n"]:
        """The metrics with all edges of one part cut at a time; ``part`` says of every edge to which it belongs."""
        blocks = slices(parts, max(1, MASKS_AT_ONCE // len(self.graph)))
        return torch.cat([self(part != torch.arange(parts)[at, None]) for at in blocks], 1)

    def judge(self, logits: Float[Tensor, "*variant batch read d_vocab"], rows: slice) -> list[Tensor]:
        """Each metric [*variant, batch], from logits at the positions that the graph reads; those of a model in half
        precision are judged in float32."""
        logits = logits.to(self._wide)
        return [
            metric(logits[..., columns, :], rows) for metric, columns in zip(self.metrics, self._columns, strict=True)
        ]

    def room(self, variants: int) -> Float[Tensor, "metric variant n"]:
        """Room for the metrics of so many variants."""
        return torch.full((len(self.metrics), variants, len(self)), float("nan"), dtype=self._wide)

    def judged(self, logits: Float[Tensor, "*variant batch read d_vocab"], rows: slice) -> Float[Tensor, "metric ..."]:
        """:meth:`judge` as one tensor, on the CPU."""
        return torch.stack([values.cpu() for values in self.judge(logits, rows)]).to(self._wide)

    @cached_property
    def full(self) -> Float[Tensor, "metric n"]:
        """The metrics with every edge kept: those of the run itself.

        Raises:
            UserError: a metric is NaN in some pair.
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
        """The metrics with every edge cut."""
        return self(torch.zeros(1, len(self.graph), dtype=torch.bool))[:, 0]


def _positions(metrics: Sequence[Metric], pairs: ProblemPairs) -> list[int] | None:
    """The positions that any of the metrics reads; None means all."""
    length, found = pairs.clean_tokens.shape[1], set()
    for metric in metrics:
        if metric.positions is None:
            return None
        for position in metric.positions:
            if not -length <= position < length:
                raise UserError(f"The metric {metric.name!r} reads position {position} of {length}.")
            found.add(position % length)
    return sorted(found)
