"""Faithfulness, completeness and minimality of a circuit, with bootstrap intervals, and how a found circuit is judged.

All three are ratios of means over the same examples, and their intervals resample the examples of numerator and
denominator together (percentile bootstrap):

    faithfulness   F(C) = (m(C) - m(ablated)) / (m(full) - m(ablated))     1: the circuit does it all
    completeness   F of the complement, with the circuit's edges ablated and all others kept; 0: nothing was left out.
                   Wang et al. (2023) ask this of every subset of the circuit; here it is asked of the whole circuit
    minimality     the drop F(C) - F(C without e) of each kept edge e. An edge is needed if the whole interval of its
                   drop lies above zero. Intervals are for one edge at a time

If cut edges carry the corrupted run, m(ablated) is that run's metric, and F is the share of the difference between the
two runs that the circuit carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_search import FoundCircuit
from interp.causal.circuits.circuit_space import CircuitSpace, without_each
from interp.causal.edges import EdgeExperiment
from interp.core.stats import difference_bounds, proportion, ratio_interval
from models.errors import UserError

PARTS = ("full", "circuit", "complement", "ablated")
STATS = ("value", "low", "high")
_CURVE_POINTS = 30
_RANDOM_A_SIZE = 20


def compute_faithfulness(
    values: Float[Tensor, "*variant n"], full: Float[Tensor, " n"], empty: Float[Tensor, " n"], seed: int = 0
) -> tuple[Float[np.ndarray, " *variant"], Float[np.ndarray, " *variant"], Float[np.ndarray, " *variant"]]:
    """F of every circuit with its interval, from each example's metric under the circuit, in full and ablated."""
    above, below = (values.double() - empty.double()), (full.double() - empty.double())
    return ratio_interval(above.numpy(), below.numpy(), seed)


def compute_drops(
    without: Float[Tensor, "edge n"],
    circuit: Float[Tensor, " n"],
    full: Float[Tensor, " n"],
    empty: Float[Tensor, " n"],
    seed: int = 0,
) -> tuple[Float[np.ndarray, " edge"], Float[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """The drop of F without each kept edge, with its interval: paired, so what the examples share cancels."""
    below = full.double() - empty.double()
    known = bool((below == 1).all())  # then F is itself a mean, of differences that may be of shares
    bounds = difference_bounds(circuit.numpy(), without.numpy()) if known else None
    return ratio_interval((circuit.double() - without.double()).numpy(), below.numpy(), seed, bounds=bounds)


def random_circuits(space: CircuitSpace, size: int, n: int, generator: torch.Generator) -> Bool[Tensor, "n edge"]:
    """``n`` random circuits of ``size`` edges that can all matter: the control for a circuit of that size.

    Edges are removed from the whole graph in a random order, each with those that then lie on no path, while at least
    ``size`` edges are left. (Random subsets would be a poor control: their edges hardly ever form a path.) Since a
    removal can take several edges, a random circuit can be larger than ``size``, but never smaller.

    Raises:
        UserError: ``size`` is larger than the number of edges.
    """
    if not 0 <= size <= int(space.everything().sum()):
        raise UserError(f"There are {int(space.everything().sum())} edges to draw {size} from.")
    turn = torch.rand(n, len(space), generator=generator).argsort(1).argsort(1)  # when each edge goes
    enough, too_many = torch.zeros(n, dtype=torch.long), torch.full((n,), len(space) + 1)
    while bool((too_many - enough > 1).any()):  # every removal leaves fewer edges, so bisection works
        turns = (enough + too_many) // 2
        fits = space.live(turn >= turns[:, None]).sum(1) >= size
        enough, too_many = torch.where(fits, turns, enough), torch.where(fits, too_many, turns)
    return space.live(turn >= enough[:, None])


def _parts(space: CircuitSpace, found: FoundCircuit) -> Bool[Tensor, "part edge"]:
    """Everything, the circuit, its complement and nothing, always with the edges that the ablation cannot see."""
    everything = space.everything()
    parts = torch.stack((everything, found.mask, everything & ~found.mask, torch.zeros_like(everything)))
    return parts | ~everything


def judge_parts(
    judges: Mapping[str, EdgeExperiment], space: CircuitSpace, found: FoundCircuit, seed: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """Faithfulness (of the first metric) and exact match of every part under every ablation."""
    faithful, exact = [], []
    for judge in judges.values():
        values = judge(_parts(space, found))
        right = values[[metric.name for metric in judge.metrics].index("exact_match")]
        of_parts = _stats(compute_faithfulness(values[0], values[0, 0], values[0, 3], seed))
        of_parts[0], of_parts[3] = 1.0, 0.0  # by definition
        faithful.append(of_parts)
        exact.append([(found.value, found.low, found.high) for found in map(proportion, right.numpy())])
    axes = {"replacement": list(judges), "part": list(PARTS)}
    return _labelled(np.stack(faithful), **axes), _labelled(np.array(exact), **axes)


def judge_edges(
    judge: EdgeExperiment, names: Sequence[str], space: CircuitSpace, found: FoundCircuit, seed: int
) -> tuple[xr.DataArray, xr.DataArray]:
    """The drop in every metric without each edge, and the faithfulness by size of the circuits that the search saw."""
    full, circuit, _, empty = _parts(space, found)
    shown = _spread(found.path, found.size)
    masks = torch.cat((torch.stack((full, circuit, empty)), without_each(found.mask), shown))
    drops, curve = [], []
    for values in judge(masks | ~space.everything())[: len(names)]:
        whole, kept, nothing, without, by_size = values.split((1, 1, 1, found.size, len(shown)))
        drops.append(_stats(compute_drops(without, kept[0], whole[0], nothing[0], seed)))
        curve.append(_stats(compute_faithfulness(by_size, whole[0], nothing[0], seed)))
    return (
        _labelled(np.stack(drops), metric=list(names), edge=list(space.names(found.mask))),
        _labelled(np.stack(curve), metric=list(names), size=shown.sum(1).tolist()),
    )


def judge_chance(
    judge: EdgeExperiment, space: CircuitSpace, found: FoundCircuit, sizes: Sequence[int], n: int, seed: int
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " circuit"], xr.DataArray]:
    """Faithfulness in the first metric of ``n`` random circuits of the found one's size, of each different one among
    them that is not the found one, and of some of each of ``sizes``."""
    generator = torch.Generator().manual_seed(seed)
    counts = [n] + [_RANDOM_A_SIZE] * len(sizes)
    drawn = [random_circuits(space, k, count, generator) for k, count in zip((found.size, *sizes), counts, strict=True)]
    different, which = torch.unique(torch.cat(drawn), dim=0, return_inverse=True)
    ends = torch.stack((space.everything(), torch.zeros(len(space), dtype=torch.bool)))
    values = judge(torch.cat((ends, different)) | ~space.everything())[0]
    by_chance = compute_faithfulness(values[2:], values[0], values[1], seed)[0][which.numpy()]
    random, *others = np.split(by_chance, np.cumsum(counts)[:-1])
    rows = [[draws.mean(), *np.quantile(draws, (0.025, 0.975))] for draws in others]
    _, first = np.unique(which[:n].numpy(), return_index=True)
    apart = (drawn[0][first] != found.mask).any(1).numpy()
    return random, random[first[apart]], _labelled(np.array(rows), size=list(sizes))


def _stats(ends: tuple[np.ndarray, ...]) -> Float[np.ndarray, "*variant stat"]:
    return np.stack(ends, -1)


def _labelled(values: np.ndarray, **axes: list[Any]) -> xr.DataArray:
    return xr.DataArray(values, dims=(*axes, "stat"), coords={**axes, "stat": list(STATS)})


def _spread(path: Bool[Tensor, "step edge"], size: int) -> Bool[Tensor, "point edge"]:
    """About 30 circuits of the path, closer together where they are small, including that of ``size``."""
    if len(path) <= _CURVE_POINTS:
        return path
    sizes, half = path.sum(1).float(), _CURVE_POINTS // 2
    above = torch.logspace(math.log10(half), math.log10(float(sizes[0])), half)
    wanted = [*range(half), size, *above.tolist()]
    return path[sorted({int((sizes - number).abs().argmin()) for number in wanted})]
