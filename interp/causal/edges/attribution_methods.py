"""Estimates of every edge's effect from a few gradients, one formula a method.

Sender s writes ``value_s`` in the run and ``other_s`` in the replacement; ``g_r`` is the gradient of the metric with
respect to what receiver r reads, all paths after r included:

    eap           (other_s - value_s) . g_r, g_r of the run itself: the first-order term of cutting the edge s -> r
                  (attribution patching, Nanda 2023; Syed et al. 2023)
    eap-ig        (other_s - value_s) . mean of g_r over k = 1 .. steps, taken in runs whose *embeddings* are
                  other + k / steps (value - other), all else computed: EAP-IG (Hanna et al. 2024) by inputs. k = steps
                  is the run itself, k = 0 is left out; one step is "eap"
    ends          (other_s - value_s) . mean of g_r in the run itself and in the run with every edge cut; elsewhere
                  it is called "clean-corrupted"
    qk-fix        "eap", but for edges into queries and keys: the change of what the head writes when its query or key
                  input alone has other_s, which passes through the softmax exactly, times the gradient with respect to
                  it (AtP*'s QK fix, Kramar et al. 2024, for edges)
    atp-star      the mean of the absolute values of "qk-fix" without the gradients through one sublayer (a layer's
                  attention, or its MLP) at a time: effects that cancel along two paths show (AtP* with GradDrop, Kramar
                  et al. 2024, which drops those of whole layers; most models here have one). It has no sign. The sum is
                  divided by the number of sublayers less one, as an edge has no effect without those of its receiver
    gim           "eap" with other gradients (Gradient Interaction Modifications, Edin et al. 2025, arXiv 2505.17630):
                  the scales of norms are constants; the softmax passes on what one of twice the temperature would,
                  times two; factors of a product share its gradient: queries and keys get 1/4 of it, values and the
                  two branches of a gated MLP 1/2
    conductance   - sum over k of (value_s(k) - value_s(k - 1)) . (g_r(k) + g_r(k - 1)) / 2 along the same runs, k = 0
                  included: the path integral of each edge (conductance, Dhamdhere et al. 2018; for edges CEAP, Wu et
                  al. 2026, arXiv 2606.16920)

Products are summed over positions (of the edge's group) and d_model.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.edges.edge_graph import EdgeGraph, part_and_input
from interp.causal.edges.receiver_gradients import gradients, interactions
from models.transformer import in_block

METHODS = ("eap", "eap-ig", "ends", "qk-fix", "atp-star", "gim", "conductance")
ONE_STEP = ("eap", "ends", "qk-fix", "atp-star", "gim")
#: Methods whose numbers rank edges and estimate no effect: "atp-star" has no sign, "gim" takes other gradients.
SCORES = ("atp-star", "gim")
#: An estimate is complete if the sums out of the embeddings miss the difference of the two runs by at most this share
#: of it (means over pairs of the absolute values).
TOLERANCE = 0.05
FIRST_STEPS, MOST_STEPS = 5, 640


def incompleteness(sums: Float[np.ndarray, " n"], difference: Float[np.ndarray, " n"]) -> float:
    """How far sums of estimates are off, as a share of the difference they should give."""
    size = float(np.abs(difference).mean())
    return float(np.abs(sums - difference).mean()) / size if size else float("nan")


def estimates(experiment: EdgeExperiment, method: str, steps: int | None) -> tuple[int, Float[Tensor, "metric edge n"]]:
    """The estimates, and the number of steps that they took."""
    if method in ONE_STEP or steps is not None:
        steps = 1 if method in ONE_STEP or steps is None else steps
        return steps, compute_attribution(experiment, method, steps)
    return complete_estimate(experiment, method)


def complete_estimate(experiment: EdgeExperiment, method: str) -> tuple[int, Float[Tensor, "metric edge n"]]:
    """(steps, estimates), with steps doubled until the first metric's are complete, or there are 640."""
    steps, difference = FIRST_STEPS, (experiment.empty - experiment.full)[0].double().cpu().numpy()
    out = [edge.sender in ("embed", "pos_embed") for edge in experiment.graph.edges]
    while True:
        estimate = compute_attribution(experiment, method, steps)
        error = incompleteness(estimate[0, out].double().cpu().sum(0).numpy(), difference)
        if error <= TOLERANCE or 2 * steps > MOST_STEPS or not difference.any():
            return steps, estimate
        steps *= 2


def compute_attribution(experiment: EdgeExperiment, method: str, steps: int) -> Float[Tensor, "metric edge n"]:
    """The estimates of a method; see the module."""
    n_inputs = 1 + experiment.graph.has_positions
    columns = []
    for at in experiment.masked.batches(len(experiment)):
        value, other = experiment.values[:, at], experiment.replacement[:, at]
        ends = other[:n_inputs], value[:n_inputs]
        if method == "conductance":
            total, before = torch.zeros(()), None
            for k in range(steps + 1):
                written, slope = gradients(experiment, ends[0] + k / steps * (ends[1] - ends[0]), at)
                if before is not None:
                    change = before[0] - written
                    total = total + _products(experiment, change, (before[1] + slope) / 2)
                before = written, slope
            columns.append(total)
        elif method == "ends":
            slopes = sum((gradients(experiment, end, at)[1] for end in ends), torch.zeros(()))
            columns.append(_products(experiment, other - value, slopes / 2))
        elif method == "qk-fix":
            slopes = gradients(experiment, ends[1], at)[1]
            estimate = _products(experiment, other - value, slopes)
            columns.append(_through_the_softmax(experiment, estimate, other - value, slopes, at))
        elif method == "atp-star":
            columns.append(_with_dropped_gradients(experiment, other - value, at))
        elif method == "gim":
            slopes = gradients(experiment, ends[1], at, interactions(experiment.masked.model.config.gated_mlp))[1]
            columns.append(_products(experiment, other - value, slopes))
        else:
            slopes = torch.zeros(())
            for k in range(1, steps + 1):
                slopes = slopes + gradients(experiment, ends[0] + k / steps * (ends[1] - ends[0]), at)[1]
            columns.append(_products(experiment, other - value, slopes / steps))
    return torch.cat(columns, -1)


def _with_dropped_gradients(
    experiment: EdgeExperiment, change: Float[Tensor, "sender batch seen d_model"], at: slice
) -> Float[Tensor, "metric edge batch"]:
    """The estimates of "atp-star"."""
    graph = experiment.graph
    embeddings = experiment.values[: 1 + graph.has_positions, at]
    dropped = [stage for stage in range(2 * graph.n_layers) if graph.reads(stage)]
    total = torch.zeros(())
    for stage in dropped:
        name = in_block(stage // 2, "mlp.hook_post" if stage % 2 else "attn.hook_z")
        slopes = gradients(experiment, embeddings, at, ((name, lambda x, hook: x.detach()),))[1]
        products = _products(experiment, change, slopes)
        fixed = _through_the_softmax(experiment, products, change, slopes, at)
        total = total + torch.where((graph.stages == stage)[:, None], 0.0, fixed).abs()
    return total / max(1, len(dropped) - 1)


@torch.no_grad()
def _through_the_softmax(
    experiment: EdgeExperiment,
    estimate: Float[Tensor, "metric edge batch"],
    change: Float[Tensor, "sender batch seen d_model"],
    slope: Float[Tensor, "metric receiver batch seen d_model"],
    at: slice,
) -> Float[Tensor, "metric edge batch"]:
    """``estimate`` with the edges into queries and keys taken through the attention exactly.

    Cost: the attention of one layer for each such edge.
    """
    graph, masked = experiment.graph, experiment.masked
    embeddings = masked.embeddings(experiment.tokens[at])
    _, _, inputs = masked.run_from_stage([embeddings[None]], 0, record=True)
    groups = list(graph.groups.values()) if graph.groups is not None else [tuple(range(graph.n_positions))]
    found = estimate.clone()
    for stage in inputs:
        if stage.stage % 2 or stage.stage == 2 * graph.n_layers:
            continue
        names = [receivers for receivers, _ in graph.reads(stage.stage)]
        own = masked.at_all_positions(masked.attention(stage.stage // 2, stage.parts))[0]
        for letter in (0, 1):
            for head, receiver in enumerate(names[letter]):
                after = sum((slope[:, i] for i in _readers(graph, part_and_input(receiver)[0])), torch.zeros(()))
                for i, (group, to, sender) in enumerate(graph.edge_index.tolist()):
                    if graph.receivers[to] != receiver:
                        continue
                    moved = torch.zeros_like(change[sender])
                    moved[:, list(groups[group])] = change[sender][:, list(groups[group])]
                    moved = moved if stage.parts[letter].shape[-2] == graph.n_positions else moved[:, list(graph.read)]
                    parts = list(stage.parts)
                    only = (torch.arange(len(names[letter])) == head)[:, None, None, None].to(moved)
                    parts[letter] = parts[letter] + only * moved
                    now = masked.at_all_positions(masked.attention(stage.stage // 2, parts))[0]
                    found[:, i] = ((now - own)[head] * after).sum((-1, -2))
    return found


def _readers(graph: EdgeGraph, head: str) -> list[int]:
    """The receivers that read what a head writes."""
    first = graph.senders.index(head)
    return [i for i, name in enumerate(graph.receivers) if graph.senders_before(graph.stage_of[name]) > first]


def _products(
    experiment: EdgeExperiment,
    change: Float[Tensor, "sender batch seen d_model"],
    slope: Float[Tensor, "metric receiver batch seen d_model"],
) -> Float[Tensor, "metric edge batch"]:
    """``change_s . slope_r`` of every edge, summed over its positions and d_model."""
    graph = experiment.graph
    group, receiver, sender = graph.edge_index.to(change.device).T
    groups = list(graph.groups.values()) if graph.groups is not None else [tuple(range(graph.n_positions))]
    tables = [torch.einsum("sbpd,mrbpd->mrsb", change[:, :, list(g)], slope[:, :, :, list(g)]) for g in groups]
    return torch.stack(tables)[group, :, receiver, sender].transpose(0, 1)
