"""A hypothesis of causal scrubbing, as claims about sites, and the runs of one column that resample what it allows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.named_places import NoPositions, find_place
from interp.core.places import Place
from models.errors import UserError
from models.tasks import DELIMITERS, OWN, PREVIOUS, REST, ColumnPlaces
from models.transformer import HookedModel, in_block


@dataclass(frozen=True)
class Claim:
    """The claim that ``site`` matters for a column's digit only through ``variables`` (names, or one name), or not at
    all if there are none."""

    site: Place
    variables: str | tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The variables as a tuple."""
        return (self.variables,) if isinstance(self.variables, str) else self.variables

    def __str__(self) -> str:
        return f"{self.site}: {', '.join(self.names) or 'irrelevant'}"


def partners(
    values: Int[Tensor, "n variable"], generator: torch.Generator
) -> tuple[Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """A random other row with the same values for each row, and which rows are alone with theirs (and keep their own).

    Every row is some row's partner: each class of equal values is put in a random cycle.
    """
    n = len(values)
    _, kind = (
        values.unique(dim=0, return_inverse=True) if values.shape[1] else (None, torch.zeros(n, dtype=torch.int64))
    )
    shuffled = torch.randperm(n, generator=generator)
    order = shuffled[kind[shuffled].argsort(stable=True)]  # classes together, each in random order
    sizes = kind.bincount()
    starts = sizes.cumsum(0) - sizes
    place = torch.arange(n) - starts[kind[order]]
    following = starts[kind[order]] + (place + 1) % sizes[kind[order]]
    return torch.empty_like(order).index_copy(0, order, order[following]), sizes[kind] == 1


def run_column(
    model: HookedModel,
    layout: ColumnPlaces,
    claims: Sequence[Claim],
    tokens: Int[Tensor, "n pos"],
    variables: dict[str, Tensor],
    column: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "run n d_vocab"], float, bool]:
    """Logits of the four runs at one query, the share of unmatched resamplings, and whether any activation changed."""
    places, claims = _present(model, layout, claims, column)
    _no_overlap(places)
    queries = [layout.queries[column]]
    held, clean = runs.read(model, tokens, places, queries)
    nothing = torch.empty(len(tokens), 0, dtype=torch.int64)
    scrubbed, alone, moved = [], [], False
    for irrelevant in (False, True):
        sources = []
        for claim, activation in zip(claims, held, strict=True):
            names = () if irrelevant else claim.names
            values = torch.stack([variables[name][:, column] for name in names], 1) if names else nothing
            other, single = partners(values, generator)
            new = activation[other.to(activation.device)]
            sources.append(new)
            if not irrelevant:
                alone.append(float(single.float().mean()))
                moved |= bool((new != activation).any())
        replacements = [
            place.put(lambda _, rows, new=new: new[rows]) for place, new in zip(places, sources, strict=True)
        ]
        scrubbed.append(runs.run(model, tokens, replacements, queries)[:, 0])
    clean = clean[:, 0]
    scrambled = clean[partners(nothing, generator)[0].to(clean.device)]
    return torch.stack((clean, *scrubbed, scrambled)), float(np.mean(alone)), moved


def _present(
    model: HookedModel, layout: ColumnPlaces, claims: Sequence[Claim], column: int
) -> tuple[list[Place], list[Claim]]:
    """The sites and claims that have positions in this column (the last has no operands)."""
    found = []
    for claim in claims:
        with suppress(NoPositions):
            found.append((find_place(model, layout, claim.site, column), claim))
    if not found:
        raise UserError(f"None of the claims has a position in column {column}.")
    return [place for place, _ in found], [claim for _, claim in found]


def _no_overlap(places: Sequence[Place]) -> None:
    for i, one in enumerate(places):
        for other in places[:i]:
            heads = one.head is None or other.head is None or one.head == other.head
            neurons = one.neuron is None or other.neuron is None or one.neuron == other.neuron
            shared = set(one.positions or ()) & set(other.positions or ())
            if one.hook == other.hook and heads and neurons and shared:
                raise UserError(f"Two claims are about {one.hook!r} at position {min(shared)}; make them one.")


def scrubbing_hypothesis(layer: int = 0) -> tuple[Claim, ...]:
    """The chained algorithm as claims about one attention layer.

    Values of the column's digits matter through their sum, those of the previous column through theirs, and the query's
    own token through the output digit that it is; all other values do not matter. Queries and keys are not claimed,
    except the query's own, so where they depend on digits the hypothesis says less than it seems to.
    """
    values = Place(in_block(layer, "attn.hook_v"))
    return (
        Claim(replace(values, at=OWN), ("digit_sum",)),
        Claim(replace(values, at=PREVIOUS), ("previous_sum",)),
        Claim(replace(values, at=(DELIMITERS, REST))),
        Claim(Place(in_block(layer, "hook_resid_pre")), ("previous",)),
    )
