"""Do later heads read what earlier heads write? Composition scores of pairs of heads, from the weights alone.

A head writes ``x OV`` with OV = W_V W_O, and a later head multiplies what it reads by QK = W_Q W_K^T on the side of the
query or of the key, or by its own OV. The score of a pair is how much of both matrices is left in their product
(Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021), with Frobenius norms:

    query = |OV_1 QK_2| / (|OV_1| |QK_2|)
    key   = |OV_1 QK_2^T| / (|OV_1| |QK_2|)
    value = |OV_1 OV_2| / (|OV_1| |OV_2|)

The control is the same score of random matrices of the same shape: products of Gaussian factors of width d_head. Its
mean is close to 1 / sqrt(d_model); the framework subtracts it. Heads that read a subspace nobody writes score below it.
Norms are folded into the weights that read them.

Cost: products of d_head x d_head matrices.

Limits. Weights say what could be read, not what is: a head may write along a direction that hardly varies. What a model
uses is a question for :func:`interp.path_patching`. MLPs in between are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.probe import probe, sums
from interp.core.results import Provenance
from interp.core.significance import permutation_p
from interp.core.stats import TAILS
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from models.calls import Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.number_format import number
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, head_name

SIDES = ("query", "key", "value")
KEYS = ("side", "writer", "reader")
MEASURES = (Measure("score", "", ("random",), "composition score"),)
DRAWS = 1_000  # pairs of random matrices for the control
Matrix = Float[Tensor, "*pair d_model d_head"]


def two_layers(model: HookedModel, task: Any) -> str:
    """The model must have two layers."""
    return "" if model.cfg.n_layers > 1 else "heads of one layer do not read each other; ask a model of two layers"


def composition(left: tuple[Matrix, Matrix], right: tuple[Matrix, Matrix]) -> Float[Tensor, "*pair"]:
    """``|A B| / (|A| |B|)`` of A = a_1 a_2^T and B = b_1 b_2^T, given as pairs of factors [..., d_model, d_head]. Only
    d_head x d_head matrices are multiplied: ``|a M b^T|^2 = trace(a^T a M b^T b M^T)``."""

    def squared(outer: Tensor, middle: Tensor, inner: Tensor) -> Tensor:
        return torch.einsum("...ij,...jk,...kl,...il->...", gram(outer), middle, gram(inner), middle)

    def gram(factor: Tensor) -> Tensor:
        return factor.mT @ factor

    both = squared(left[0], left[1].mT @ right[0], right[1])
    alone = [torch.einsum("...ij,...ij->...", gram(a), gram(b)) for a, b in (left, right)]
    return (both.clamp_min(0) / (alone[0] * alone[1])).sqrt()


@probe("Do later heads read what earlier heads write?", needs=[two_layers, sums])
def composition_scores(model: HookedModel, *, task: TaskLike | None = None, seed: Seed = 0) -> TableResult:
    """Query, key and value composition of every pair of heads in different layers; see the module. ``p_value`` says how
    often random matrices score as high.

    Args:
        model: any model with TransformerLens' weights, of two or more layers, whose residual stream is a sum.
        task: what its tokens mean, which a stock model is copied with; default ``model.task``.
        seed: of the pairs of random matrices of the control, of which there are :data:`DRAWS`.

    Raises:
        UserError: one layer, or post-norms.
    """
    if why := two_layers(model, task):
        raise UserError(f"There is no composition: {why}.")
    own = from_transformer_lens(model, resolve_task(model, task)).fold_layer_norm()
    weights = {name: getattr(own, f"W_{name}").detach().double().cpu() for name in "QKVO"}
    shape = weights["Q"].shape[-2:]
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(DRAWS, *shape, generator=generator, dtype=torch.float64) for _ in range(4)]
    null = composition((drawn[0], drawn[1]), (drawn[2], drawn[3])).numpy()
    low, high = np.quantile(null, TAILS)
    rows = []
    layers, heads = weights["Q"].shape[:2]
    for side, (reads, then) in zip(SIDES, ("QK", "KQ", "VO"), strict=True):
        for one, head in np.ndindex(layers, heads):
            written = weights["V"][one, head], weights["O"][one, head].mT
            for two, other in np.ndindex(layers, heads):
                if two <= one:
                    continue
                factors = weights[reads][two, other], weights[then][two, other]
                right = factors if then != "O" else (factors[0], factors[1].mT)
                score = float(composition(written, right))
                rows.append((side, head_name(one, head), head_name(two, other), score))
    table = pd.DataFrame(rows, columns=["side", "writer", "reader", "score"])
    table = table.assign(score_random=null.mean(), score_random_low=low, score_random_high=high)
    table["p_value"] = permutation_p(table["score"].to_numpy(), null[:, None])
    found = TableResult("", table, Provenance(DRAWS, seed, "pairs of random matrices"), KEYS, MEASURES)
    best, above = found.largest("score"), int((table["score"] > high).sum())
    side, writer, reader = best.name.split(", ")
    return found.saying(
        f"{reader} reads what {writer} writes most of all on the side of its {side}: {best}, random matrices of the "
        f"same shape {number(null.mean())} [{number(low)}, {number(high)}]; {above} of {len(table)} scores lie above "
        "the middle 95% of random ones."
    )
