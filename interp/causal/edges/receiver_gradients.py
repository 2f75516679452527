"""Gradients of metrics with respect to what every receiver reads, also with changes to how they are passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.edges.edge_experiment import EdgeExperiment
from models.errors import UserError

TEMPERATURE = 2.0
Hook = Callable[[Tensor, Any], Tensor | None]
Hooks = Sequence[tuple[str | Callable[[str], bool], Hook]]


def gradients(
    experiment: EdgeExperiment, embeddings: Tensor, at: slice, hooks: Hooks = ()
) -> tuple[Float[Tensor, "sender batch seen d_model"], Float[Tensor, "metric receiver batch seen d_model"]]:
    """What every sender writes in the run from these embeddings, and the gradients of the metrics with respect to what
    every receiver reads, as hooks on the model change them. Zero at positions that are not read. Hooks on points that
    the model lacks, such as norms, are left out."""
    masked, share = experiment.masked, embeddings.shape[1] / len(experiment)
    experiment.forwards += share
    experiment.backwards += share * len(experiment.metrics)
    points = masked.model.hook_dict
    there = [(name, hook) for name, hook in hooks if not callable(name) or any(map(name, points))]
    with torch.enable_grad(), masked.model.hooks(fwd_hooks=there):
        written, logits, inputs = masked.run_from_stage([embeddings.detach().requires_grad_()[None]], 0, record=True)
        read = [part for stage in inputs for part in stage.parts]
        found = []
        for metric, values in zip(experiment.metrics, experiment.judge(logits, at), strict=True):
            if not values.requires_grad:
                raise UserError(f"The metric {metric.name!r} has no gradient, so that nothing can be attributed by it.")
            slopes = torch.autograd.grad(values.sum(), read, retain_graph=True, materialize_grads=True)
            found.append(torch.cat([masked.at_all_positions(slope[0]) for slope in slopes]))
    return torch.cat([masked.at_all_positions(part[0].detach()) for part in written]), torch.stack(found)


def interactions(gated: bool) -> Hooks:
    """The hooks of Gradient Interaction Modifications (Edin et al. 2025)."""
    scores: dict[str, Tensor] = {}

    def shared(share: float) -> Hook:
        return lambda x, hook: share * x + ((1 - share) * x).detach()

    def keep(x: Tensor, hook: Any) -> None:
        scores[hook.name.replace("attn_scores", "pattern")] = x

    def softened(x: Tensor, hook: Any) -> Tensor:
        soft = TEMPERATURE * (scores[hook.name] / TEMPERATURE).softmax(-1)
        return x.detach() + soft - soft.detach()

    changes: dict[str, Hook] = {
        "hook_scale": lambda x, hook: x.detach(),
        "hook_q": shared(0.25),
        "hook_k": shared(0.25),
    }
    changes |= {"hook_v": shared(0.5), "hook_attn_scores": keep, "hook_pattern": softened}
    if gated:
        changes |= dict.fromkeys(("hook_pre", "hook_pre_linear"), shared(0.5))

    def named(last: str) -> Callable[[str], bool]:
        return lambda name: name.rpartition(".")[2] == last

    return tuple((named(last), change) for last, change in changes.items())
