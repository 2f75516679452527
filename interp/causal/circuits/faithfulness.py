"""Faithfulness, completeness and minimality of a circuit, with bootstrap intervals.

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

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_space import Space
from interp.core.stats import difference_bounds, ratio_interval
from models.errors import UserError


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


def without_each(mask: Bool[Tensor, " edge"]) -> Bool[Tensor, "kept edge"]:
    """The circuit without each of its edges in turn, in the order of the edges."""
    kept = mask.nonzero()[:, 0]
    return mask.expand(len(kept), -1) & ~torch.eye(len(mask), dtype=torch.bool)[kept]


def random_circuits(space: Space, size: int, n: int, generator: torch.Generator) -> Bool[Tensor, "n edge"]:
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
