"""Bounds of the right tokens' leads on problems of a causal model, by their prefixes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.listed.prefix_forward import PrefixForward
from interp.proofs.listed.prefix_tree import Rows, Tree
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.verdict.subject import not_float32
from interp.proofs.verdict.time_limit import check_time
from models import ArithmeticTransformer
from models.transformer import HookedModel
from models.transformer.config import ANY, PLAIN, uncovered

#: What the enclosures are stated for.
COVERS = PLAIN | {
    "act_fn": tuple(ACTIVATIONS),
    "gated_mlp": ANY,
    "normalization_type": ("LN", "RMS", None),
    "norm_placement": ANY,
    "norm_eps_outside": ANY,
    "final_norm": ANY,
    "positional_embedding_type": ("standard", "coupled", "rotary", "none"),
    "attn_scores": ("dot", "neg_l1", "max_plus"),
    "attn_top_k": ANY,
}
SPLIT = 16  # problems at a time when they are proved by cases

Leads = Float[Tensor, "problem target"]


def why_not_model(model: HookedModel) -> str | None:
    """Why the enclosures do not cover what a model computes, in words, or None if they do."""
    if not isinstance(model, ArithmeticTransformer):
        return "a prefix tree is proved of this project's models"
    if more := uncovered(model.config, COVERS):
        return f"the prefix tree does not know {', '.join(more)}"
    return not_float32(model)


def leads_of(forward: PrefixForward, part: Rows) -> tuple[Leads, Leads]:
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


def bounds_of(forward: PrefixForward, part: Rows, by_cases: bool = False) -> tuple[Leads, Leads]:
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
