"""Maps from another model's activations to a model's own, fitted on problems that are used for nothing else.

For a part with activations y_t of the model and x_t of its counterpart, at position t, the map is

    y_t  ~  mean(y_t) + (x_t - mean(x_t)) W             least squares over problems and positions, one W for all of them

with means over the fit's problems at each position. What is the same for all problems is thus the model's own, and all
that depends on the problem has to pass through W: with W = 0 the part is ablated to its mean. Attention patterns are
taken as they are; they have no basis, and the positions are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.compare.swapped_parts import PATTERNS, SwappedPart
from interp.core.batches import chunks
from interp.core.runs import Activations, passes, require_finite
from models import ArithmeticTransformer

_ROUNDING = 1e-6  # directions in which x varies by less than this share of its size are float32 rounding


@dataclass(frozen=True, eq=False)
class PartMap:
    """One part's map. ``weight`` is None for patterns and for parts without a counterpart. ``rank``: in how many
    directions the other's activation varies."""

    places: tuple[int, ...]
    mean: Float[Tensor, "place d"] | None = None
    mean_other: Float[Tensor, "place d_other"] | None = None
    weight: Float[Tensor, "d_other d"] | None = None
    rank: int = 0

    @property
    def fitted(self) -> int:
        """How many numbers of the map were fitted, not counting the means."""
        return 0 if self.weight is None else self.rank * self.weight.shape[1]

    def ablated(self, batch: int) -> Float[Tensor, "batch place d"]:
        assert self.mean is not None
        return self.mean.expand(batch, -1, -1)

    def __call__(self, other: Float[Tensor, "batch pos d_other"]) -> Float[Tensor, "batch place d"]:
        """The activation that replaces the part: its mean if it has no counterpart."""
        assert self.mean is not None
        if self.weight is None or self.mean_other is None:
            return self.ablated(len(other))
        return self.mean + (other[:, list(self.places)].double() - self.mean_other) @ self.weight


def activations(
    model: ArithmeticTransformer, tokens: Int[Tensor, "n pos"], hooks: Iterable[str]
) -> tuple[Tensor, Activations]:
    """Logits and the activations at these hooks, for one batch. Raises UserError if the model has diverged."""
    hooks = list(dict.fromkeys(hooks))
    _, logits, kept = zip(*passes(model, tokens, keep=hooks), strict=True)
    found = {name: torch.cat([part[name] for part in kept]).detach() for name in hooks}
    require_finite(found | {"the model's logits": torch.cat(logits)})
    return torch.cat(logits), found


def places_of(part: SwappedPart, queries: Sequence[int], length: int, layers: int) -> tuple[int, ...]:
    """Where a part is replaced: at the queries if nothing else of it is read or it goes by role, else everywhere."""
    last = part.layer == layers - 1 and part.kind != "values"
    return tuple(queries) if last or part.kind == "pattern by role" else tuple(range(length))


@torch.no_grad()
def fit_maps(
    a: ArithmeticTransformer,
    b: ArithmeticTransformer,
    parts: Sequence[SwappedPart],
    tokens: Int[Tensor, "n pos"],
    queries: Sequence[int],
) -> dict[str, PartMap]:
    """The maps from b's parts to a's, by part. Cost: one run of each model, and least squares of d_b numbers per part.

    Memory: the parts' activations on all problems.
    """
    wanted = [part for part in parts if part.kind not in PATTERNS]
    own, others = [], []
    for batch in chunks(tokens, a):
        _, mine = activations(a, batch, [part.place.hook for part in wanted])
        own.append({part.name: part.of(mine) for part in wanted})
        matched = [part for part in wanted if part.source is not None]
        _, theirs = activations(b, batch.to(b.cfg.device), [part.source.hook for part in matched if part.source])
        others.append({part.name: part.counterpart(theirs) for part in matched})
    found = {}
    for part in parts:
        places = places_of(part, queries, tokens.shape[1], a.cfg.n_layers)
        if part.kind in PATTERNS:
            found[part.name] = PartMap(places)
            continue
        y = torch.cat([each[part.name] for each in own])[:, list(places)].double()
        if part.source is None:
            found[part.name] = PartMap(places, y.mean(0))
            continue
        x = torch.cat([each[part.name] for each in others])[:, list(places)].double().to(y.device)
        weight, rank = least_squares((x - x.mean(0)).flatten(0, 1), (y - y.mean(0)).flatten(0, 1), float(x.norm()))
        found[part.name] = PartMap(places, y.mean(0), x.mean(0), weight, rank)
    return found


def least_squares(
    x: Float[Tensor, "row d_other"], y: Float[Tensor, "row d"], size_of_x: float
) -> tuple[Float[Tensor, "d_other d"], int]:
    """The W of minimum norm that minimises |x W - y|, and its rank, ignoring directions in which x only rounds."""
    u, size, v = np.linalg.svd(x.cpu().numpy(), full_matrices=False)
    kept = size > _ROUNDING * max(size_of_x, 1e-300)
    weight = v[kept].T @ ((u[:, kept].T @ y.cpu().numpy()) / size[kept, None])
    return torch.from_numpy(weight).to(y.device), int(kept.sum())
