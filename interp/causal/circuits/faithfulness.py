"""How much of the model a circuit is: faithfulness, completeness and minimality, with bootstrap intervals.

All three are ratios of means over the same examples, and their intervals resample the examples of numerator and
denominator together (percentile bootstrap):

    faithfulness   F(C) = (m(C) - m(ablated)) / (m(full) - m(ablated))     1: the circuit does it all
    completeness   F of the complement, the circuit's edges ablated and all others kept; 0: nothing was left out.
                   Wang et al. (2023) ask this of every subset of the circuit; here of the circuit as a whole
    minimality     the drop F(C) - F(C without e) of each kept edge e. An edge is needed if the whole interval of its
                   drop lies above zero. Intervals are of one edge at a time

Under resample ablation m(ablated) is the corrupted run's metric, so that F is the share of the difference between the
two runs that the circuit carries.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.space import Space
from interp.core.stats import ratio_interval
from models.errors import UserError


def compute_faithfulness(
    values: Float[Tensor, "*variant n"], full: Float[Tensor, " n"], empty: Float[Tensor, " n"], seed: int = 0
) -> tuple[Float[np.ndarray, " *variant"], Float[np.ndarray, " *variant"], Float[np.ndarray, " *variant"]]:
    """F of every circuit with its interval, from the metric of every example under the circuit, in full and ablated."""
    above, below = (values.double() - empty.double()), (full.double() - empty.double())
    return ratio_interval(above.numpy(), below.numpy(), seed)


def compute_drops(
    without: Float[Tensor, "edge n"],
    circuit: Float[Tensor, " n"],
    full: Float[Tensor, " n"],
    empty: Float[Tensor, " n"],
    seed: int = 0,
) -> tuple[Float[np.ndarray, " edge"], Float[np.ndarray, " edge"], Float[np.ndarray, " edge"]]:
    """What F falls by without each kept edge, with its interval: paired, so that what the examples share cancels."""
    below = full.double() - empty.double()
    return ratio_interval((circuit.double() - without.double()).numpy(), below.numpy(), seed)


def without_each(mask: Bool[Tensor, " edge"]) -> Bool[Tensor, "kept edge"]:
    """The circuit without each of its edges in turn, in the order of the edges."""
    kept = mask.nonzero()[:, 0]
    return mask.expand(len(kept), -1) & ~torch.eye(len(mask), dtype=torch.bool)[kept]


def random_circuits(space: Space, size: int, n: int, generator: torch.Generator) -> Bool[Tensor, "n edge"]:
    """``n`` random circuits of ``size`` edges that can all matter: the control for a circuit of that size.

    The edges of the whole graph are removed in a random order, each with what then hangs loose, for as long as ``size``
    edges are left. (Random subsets would be no control: their edges hardly ever make a path.) Where a removal takes
    several edges a random circuit can be larger than ``size``, never smaller.

    Raises:
        UserError: more edges asked for than there are.
    """
    if not 0 <= size <= int(space.everything().sum()):
        raise UserError(f"There are {int(space.everything().sum())} edges to draw {size} from.")
    turn = torch.rand(n, len(space), generator=generator).argsort(1).argsort(1)  # when each edge goes
    enough, too_many = torch.zeros(n, dtype=torch.long), torch.full((n,), len(space) + 1)
    while bool((too_many - enough > 1).any()):  # the edges left grow fewer with every turn: bisection
        turns = (enough + too_many) // 2
        fits = space.live(turn >= turns[:, None]).sum(1) >= size
        enough, too_many = torch.where(fits, turns, enough), torch.where(fits, too_many, turns)
    return space.live(turn >= enough[:, None])
