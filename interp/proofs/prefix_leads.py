"""Bounds of the right tokens' leads on given problems of a causal model, by their prefixes.

:mod:`interp.proofs.prefix_proof` uses them on all problems of a small domain. In a domain that is too large for that,
such as pairs of ten-digit numbers, :func:`lead_bounds` proves some problems one by one, which says nothing about the
others.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from interp.core.sites import model_name
from interp.proofs import enclosures
from interp.proofs.prefix_nodes import Rows, Tree
from interp.proofs.prefix_tree import EnclosedForward
from interp.proofs.verdict import ArithmeticName
from interp.proofs.watch import check_time, watched
from interp.proofs.wrong_answers import identify
from models.errors import UserError
from models.tasks.base import Task
from models.transformer import ArithmeticTransformer

ROUNDINGS = {"interval": enclosures.REAL, "float32": enclosures.FLOAT32}
SPLIT = 16  # problems at a time when they are proved by cases

Leads = Float[Tensor, "problem target"]


def not_enclosed(model: HookedModel) -> str | None:
    """Why the enclosures do not cover what a model computes, in words, or None if they do."""
    if not isinstance(model, ArithmeticTransformer):
        return "a prefix tree is proved of this project's models"
    config = model.config
    if config.positional_embedding_type == "fire":
        return "FIRE's biases are not enclosed by the prefix tree"
    if config.later_switches:
        return f"the prefix tree does not know {config.later_switches[0]}"
    if config.dtype != "float32" or model.dtype != torch.float32 or model.device.type != "cpu":
        return "the prefix tree is proved of models in float32 on the CPU"
    return None


def require_provable(model: HookedModel, arithmetic: str, reason: str | None) -> None:
    """Raises UserError for an arithmetic without roundings of its own, and for a ``reason`` not to judge a model."""
    if arithmetic not in ROUNDINGS:
        raise UserError(f"This is proved in 'interval' or 'float32' arithmetic, not {arithmetic!r}.")
    if reason is not None:
        raise UserError(f"{model_name(model)} cannot be judged: {reason}.")


def require_logits(model: HookedModel, targets: Tensor) -> None:
    """Raises UserError for right tokens that the model never predicts."""
    if (largest := int(targets.max())) >= (n := model.config.n_logits):
        raise UserError(f"The right tokens go up to {largest}, and {model_name(model)} predicts {n}, from 0 on.")


def leads_of(forward: EnclosedForward, part: Rows) -> tuple[Leads, Leads]:
    """Bounds of the right tokens' leads.

    Where queries attend to their best keys only, problems that are left open or have less than half of the usual bound
    are proved again, with one case per choice of keys. Each target is then treated separately, as only its own query's
    choices matter in the last layer.
    """
    low, high = bounds_of(forward, part)
    if forward.config.attn_top_k is None:
        return low, high
    weak = (low <= 0) | (low < low.amin(1).median() / 2)
    weak = weak & (high >= 0).all(1, keepdim=True)
    for target in range(low.shape[1]):
        again = weak[:, target].nonzero()[:, 0]
        for rows in again.split(SPLIT) if len(again) else ():
            check_time()
            least, most = bounds_of(forward, part[rows].asked(target), by_cases=True)
            low[rows, target] = torch.maximum(low[rows, target], least[:, 0])
            high[rows, target] = torch.minimum(high[rows, target], most[:, 0])
    return low, high


def bounds_of(forward: EnclosedForward, part: Rows, by_cases: bool = False) -> tuple[Leads, Leads]:
    """Bounds of the right tokens' leads, from one pass."""
    x, tree = forward.final(Tree.of(part, by_cases), part.queries)
    nodes = tree.nodes_at(part.queries)
    at = torch.full((len(tree.tokens),), -1)
    at[nodes] = torch.arange(len(nodes))
    low = torch.full(part.targets.shape, torch.inf, dtype=torch.float64)
    high = -low
    for target, query in enumerate(part.queries):
        # Rows that share a node mostly share its right token too, and so its bound.
        keys = torch.stack((at[tree.number[:, query]], part.targets[tree.problem, target]), 1)
        asked, of_row = keys.unique(dim=0, return_inverse=True)
        least, most = forward.margins(x[asked[:, 0]], asked[:, 1])
        low[:, target] = low[:, target].scatter_reduce(0, tree.problem, least[of_row], "amin")
        high[:, target] = high[:, target].scatter_reduce(0, tree.problem, most[of_row], "amax")
    return low, high


def lead_bounds(
    model: HookedModel,
    problems: Int[Tensor, "problem ..."],
    arithmetic: ArithmeticName = "float32",
    task: Task | None = None,
) -> tuple[Leads, Leads]:
    """Bounds [problem, target] of the right tokens' leads on given problems of a domain of any size.

    A problem is proved right if all of its lower bounds are positive. Cost: as for :func:`certify_prefixes`, per prefix
    of these problems.

    Raises:
        UserError: another arithmetic than "interval" and "float32", or a model that the enclosures do not cover.
    """
    task = resolve_task(model, task)
    require_provable(model, arithmetic, not_enclosed(model))
    identify(model, task)
    rows = Rows.given(task, problems)
    require_logits(model, rows.targets)
    low, high = (torch.full(rows.targets.shape, math.nan, dtype=torch.float64) for _ in range(2))
    with torch.inference_mode():
        weights = {name: value.detach().clone() for name, value in model.effective_weights().items()}
        forward = EnclosedForward(model.config, weights, ROUNDINGS[arithmetic])
        for part in watched(list(rows.parts()), "proving", "part"):
            low[part.index], high[part.index] = leads_of(forward, part)
    return low, high
