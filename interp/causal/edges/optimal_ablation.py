"""Optimal ablation: a circuit's cut edges carry the constants with which it is closest to the model.

Every sender s has one constant ``c_s`` [position, d_model] in each circuit, which it carries wherever the circuit cuts
it. The constants minimise the mean over problems of ``KL(model || circuit)`` at the positions read, nats, by Adam from
the means over the problems; of all steps the best is kept, so that on the problems they are fitted on they are never
worse than the means. What a sender writes alike in every problem stays as it is.

Source: Li and Janson (2024), arXiv 2409.09951.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.edges.masked_model import MaskedModel
from interp.core.batches import slices

STEPS = 100
_RATE = 0.1  # of the constants' scale
_NUMBERS_AT_ONCE = 2**24


def optimal_values(
    experiment: EdgeExperiment, masks: Bool[Tensor, "variant edge"], tokens: Int[Tensor, "n pos"]
) -> Float[Tensor, "metric variant other"]:
    """The experiment's metrics under every mask, with each mask's own constants, fitted on the problems of ``tokens``.

    Cost: ``STEPS`` forward and backward passes of each circuit.
    """
    masked, n = experiment.masked, len(tokens)
    experiment.forwards += (STEPS + 2) * len(masks)
    experiment.backwards += STEPS * len(masks)
    _, _, places, width = masked.shape(1)
    a_variant = len(masked.graph.receivers) * 4 * n * places * width
    parts = []
    for at in slices(len(masks), max(1, _NUMBERS_AT_ONCE // a_variant)):
        constants = fit_constants(masked, masks[at], tokens)
        embeddings = masked.embeddings(experiment.tokens).expand(len(constants), -1, -1, -1, -1)
        with torch.no_grad():
            logits = masked.run_from_stage([embeddings], 0, masked.table(masks[at]), constants)[1]
        parts.append(torch.stack(experiment.judge(logits, slice(None))))
    return torch.cat(parts, 1)


def fit_constants(
    masked: MaskedModel, masks: Bool[Tensor, "variant edge"], tokens: Int[Tensor, "n pos"], steps: int = STEPS
) -> Float[Tensor, "variant sender 1 seen d_model"]:
    """Each circuit's constants; with no step the means."""
    values = masked.values(tokens)[:, : len(tokens)]
    means = values.mean(1, keepdim=True)
    varies = ((values - values[:, :1]).abs().amax((1, 3), keepdim=True) > 0).to(means)
    embeddings = masked.embeddings(tokens)
    with torch.no_grad():
        right = masked.run_from_stage([embeddings[None]], 0)[1][0].log_softmax(-1)
    embeddings, table = embeddings.expand(len(masks), -1, -1, -1, -1), masked.table(masks)
    moved = torch.zeros((len(masks), *means.shape), dtype=means.dtype, device=means.device, requires_grad=True)
    optimiser = torch.optim.Adam([moved], lr=_RATE * float(means.std(unbiased=False).clamp_min(1e-3)))
    best, least = means.expand_as(moved).clone(), torch.full((len(masks),), torch.inf, device=means.device)
    for step in range(steps + 1):
        with torch.enable_grad():
            constants = means + varies * moved
            found = masked.run_from_stage([embeddings], 0, table, constants)[1].log_softmax(-1)
            terms = right.exp() * (right - found)
            losses = torch.where(right > -torch.inf, terms, torch.zeros_like(terms)).sum(-1).mean((1, 2))
            better = (losses < least).detach()
            least = torch.where(better, losses.detach(), least)
            best = torch.where(better[:, None, None, None, None], constants.detach(), best)
            if step < steps:
                optimiser.zero_grad()
                losses.sum().backward()
                optimiser.step()
    return best
