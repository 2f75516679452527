"""The largest weighted mean over places whose tokens are all different.

What a head writes, along one direction, is ``sum_j w_j(t_j) v_j(t_j) / sum_j w_j(t_j)`` over the places j and their
tokens t_j. Its largest value is near a level l at which ``F(l) = max sum_j w_j(t_j) (v_j(t_j) - l)`` is zero, and for
*any* level it is at most ``l + F(l) / min D`` where F(l) > 0, and ``l + F(l) / max D`` elsewhere, D being the sum of
weights (Dinkelbach, 1967).

That no token stands at two places makes F an assignment problem. By duality it is at most

    sum_b price_b + sum_j max_b (w_j(b) (v_j(b) - l) - price_b)          for any dual prices of at least zero,

so that levels and dual prices are guesses, which need no proof; they are made in float32. A price rises where several
places want one token, by what the second keenest of them would pay (an auction in steps).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.numbers.rounding_errors import DOUBLE, LEAST, OWN, VANISHED

#: Guesses of the level, and changes of dual prices at each.
How = tuple[int, int]
ROUGH, CLOSE = (2, 0), (4, 1)
NEVER = -1e30

Values = Float[Tensor, "row place token"]


def dual_prices_of(
    values: Values, free: Bool[Tensor, "row place"], dual_prices: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """(the dual prices after some steps [row, token], the token that each place wants then [row, place]).

    Only ``free`` places compete; the tokens of the others are no others'.
    """
    rows, places, tokens = values.shape
    apart = 1 + 1e-5 * torch.arange(places)  # of places that are as keen, one is first
    known = values > NEVER / 2
    span = torch.where(known, values, -torch.inf).amax((1, 2)) - torch.where(known, values, torch.inf).amin((1, 2))
    paid = free[..., None].to(values.dtype)
    for _ in range(steps):
        offer = values - paid * dual_prices[:, None]
        best, wanted = offer.max(-1)
        second = offer.scatter(-1, wanted[..., None], NEVER).amax(-1)
        keen = torch.where(free, torch.minimum(best - second, span[:, None]) * apart, -1.0)
        most = values.new_full((rows, tokens), -1.0).scatter_reduce(1, wanted, keen, "amax")
        others = torch.where(keen == most.gather(1, wanted), -1.0, keen)
        rise = values.new_full((rows, tokens), -1.0).scatter_reduce(1, wanted, others, "amax")
        nobody = torch.where(free[..., None], offer - best[..., None], NEVER).amax(1)
        dual_prices = (dual_prices + torch.where(most < 0, nobody, rise.clamp_min(0.0))).clamp_min(0.0)
    return dual_prices, (values - paid * dual_prices[:, None]).argmax(-1)


def most_assigned(
    values: Values, free: Bool[Tensor, "row place"], dual_prices: Float[Tensor, "row token"]
) -> Float[Tensor, " row"]:
    """An upper bound of the largest sum of values of one token at each place, different at free places."""
    paid = torch.where(free[..., None], dual_prices[:, None], 0.0)
    return (values - paid).amax(-1).sum(-1) + dual_prices.sum(-1)


def largest_mean(
    weights: Values, values: Values, allowed: Bool[Tensor, "row place token"], how: How = CLOSE
) -> Float[Tensor, " row"]:
    """Upper bounds, in float64 and with its rounding, of the largest weighted mean over strings of different tokens.

    ``weights`` are not negative; places with a single allowed token are known, and no other place may have it. With
    ``ROUGH`` dual prices are zero, and tokens may be the same.
    """
    free = allowed.sum(-1) > 1
    shown = torch.where(allowed, weights, 0.0)
    least = torch.where(allowed, weights, torch.inf).amin(-1).sum(-1)
    most = shown.amax(-1).sum(-1)
    level, dual_prices = _guesses(shown.float(), values.float(), allowed, free, how)
    scaled = torch.where(allowed, weights * (values - level[:, None, None]), NEVER)
    size = (shown * values.abs()).amax(-1).sum(-1) + most * level.abs() + dual_prices.sum(-1)
    off = (weights.shape[1] + weights.shape[2] + 8) * 8 * DOUBLE * size
    # Weights vanish in float64 beside the largest one of the row. What F loses by that is not relative to it, so that F
    # is positive wherever it may be; and where the least sum of weights may have lost its digits, it divides as zero.
    largest = torch.where(allowed, values.abs(), 0.0).amax((-1, -2))
    off = off + weights.shape[1] * VANISHED * (largest + level.abs() + 1)
    found = most_assigned(scaled, free, dual_prices) + off
    least = torch.where(least > LEAST, least * (1 - OWN), 0.0)
    bound = level + found / torch.where(found > 0, least, most * (1 + OWN) + VANISHED)
    # No mean exceeds its largest value. A bound is NaN (and no smaller than that) only where a value is, or where a
    # guessed level or price is infinite.
    cap = torch.where(allowed, values, NEVER).amax((-1, -2))
    return torch.fmin(bound, cap) + 1e-13 * (level.abs() + cap.abs())


def _guesses(
    weights: Values, values: Values, allowed: Tensor, free: Tensor, how: How
) -> tuple[Float[Tensor, " row"], Float[Tensor, "row token"]]:
    """A level near the largest mean, and dual prices there."""
    levels, steps = how
    level = (weights * values).sum((-1, -2)) / weights.sum((-1, -2)).clamp_min(1e-30)
    dual_prices = weights.new_zeros(len(weights), weights.shape[-1])
    closed = torch.where(allowed, 0.0, NEVER)
    places = free.sum(1)
    competing = (free[..., None] & allowed).any(1)  # [row, token]
    for number in range(levels):
        scaled = weights * (values - level[:, None, None]) + closed
        if steps:
            other = _first_prices(scaled, free, places, competing)
            better = most_assigned(scaled, free, other) < most_assigned(scaled, free, dual_prices)
            dual_prices = torch.where(better[:, None], other, dual_prices)
        dual_prices, wanted = dual_prices_of(scaled, free, dual_prices, steps)
        if number + 1 < levels:
            total = most_assigned(scaled, free, dual_prices)
            weight = weights.gather(-1, wanted[..., None])[..., 0].sum(-1).clamp_min(1e-30)
            level = level + total / weight
    finite = level.isfinite() & dual_prices.isfinite().all(1)
    return torch.where(finite, level, 0.0).double(), torch.where(finite[:, None], dual_prices, 0.0).double()


def _first_prices(
    values: Values, free: Bool[Tensor, "row place"], places: Int[Tensor, " row"], competing: Bool[Tensor, "row token"]
) -> Float[Tensor, "row token"]:
    """The dual prices that were right if all free places valued tokens alike: by how much a token is better than the
    best one that is left over."""
    mean = torch.where(free[..., None], values, 0.0).sum(1) / places.clamp_min(1)[:, None]
    mean = torch.where(competing, mean, -torch.inf)
    ordered = mean.sort(1, descending=True).values
    left_over = ordered.gather(1, places.clamp_max(mean.shape[1] - 1)[:, None])
    least = torch.where(competing, mean, torch.inf).amin(1, keepdim=True)
    return (mean - torch.maximum(left_over, least)).clamp_min(0.0)
