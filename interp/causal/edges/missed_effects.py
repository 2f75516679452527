"""How large the effect of an edge may be that no estimate put among the strongest: a bound from random subsets.

The ten strongest edges by an estimate are patched one by one. Of the other edges, random subsets S are patched
together, each edge with probability p = 1/4 by itself. Let c(S) be the mean metric over the pairs, and

    e_i = mean of c(S with i) - c(S without i) over the subsets S of the others:   what edge i contributes on average

By the decomposition of a function of independent variables (Hoeffding 1948), Var c(S) >= p (1 - p) sum of e_i^2,
whatever interacts with what. So no unverified edge contributes more than

    bound = sqrt(Var c(S) / (p (1 - p))),

of which the upper 95% limit over the subsets is given. Where effects add up it is the root of the sum of their squares.
If no subset changes anything, the limit is 0. That says something of these subsets alone.

Limits. It bounds what an edge does on average next to others that are patched, not what it does alone: an edge whose
effect every patched quarter of the others takes away is not bounded. Source: the diagnostic of AtP* (Kramar et al.
2024), with the decomposition in place of the assumption that effects add up."""

from __future__ import annotations

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.core.stats import bootstrap_interval

VERIFIED = 10
SHARE = 0.25  # of the unverified edges that a subset has
FEWEST_SUBSETS = 30  # from which the variance over them is estimated


def missed_effects(
    experiment: EdgeExperiment, estimate: Float[Tensor, "metric edge n"], subsets: int, seed: int
) -> xr.Dataset:
    """``exact`` over (metric, edge) of the edges that the first metric's estimates put first, and ``bound`` over
    (metric) on what any other edge contributes. Cost: ``VERIFIED + subsets`` runs of the pairs."""
    graph, metrics = experiment.graph, [metric.name for metric in experiment.metrics]
    order = estimate[0].double().mean(-1).abs().argsort(descending=True, stable=True).cpu()
    first, rest = order[:VERIFIED], order[VERIFIED:]
    alone = torch.ones(len(first), len(graph), dtype=torch.bool)
    alone[torch.arange(len(first)), first] = False
    base = experiment.full.double().mean(-1)[:, None]
    exact = experiment(alone).double().mean(-1) - base if len(first) else base[:, :0]
    drawn = torch.rand(subsets, len(rest), generator=torch.Generator().manual_seed(seed)) < SHARE
    kept = torch.ones(subsets, len(graph), dtype=torch.bool)
    kept[:, rest] = ~drawn
    found = experiment(kept).double().mean(-1).cpu().numpy()
    return xr.Dataset(
        {
            "exact": (("metric", "edge"), exact.cpu().numpy()),
            "bound": ("metric", [largest_contribution(each, seed) for each in found]),
        },
        {"metric": metrics, "edge": [graph.names[i] for i in first.tolist()]},
        {"others": len(rest), "subsets": subsets},
    )


def largest_contribution(values: Float[np.ndarray, " subset"], seed: int) -> float:
    """The upper 95% limit of ``bound``, from c(S) of random subsets."""
    squares = (values - values.mean()) ** 2 * len(values) / (len(values) - 1)
    _, high = bootstrap_interval(squares, seed)
    return float(np.sqrt(max(float(high), 0.0) / (SHARE * (1 - SHARE))))


def missed_in_words(missed: xr.Dataset, metric: str) -> str:
    """What :func:`missed_effects` found, for a sentence."""
    bound, subsets, others = float(missed.bound.sel(metric=metric)), missed.attrs["subsets"], missed.attrs["others"]
    said = f"no edge contributes more than {bound:.3g} (95%, by {subsets} random subsets of the {others} others)"
    if not bound:  # which is no limit
        said = f"none of {subsets} random subsets of the {others} others changes anything"
    return f"besides the {missed.sizes['edge']} strongest, which were patched, {said}"
