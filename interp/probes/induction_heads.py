"""Which heads look at the previous token, which at what followed the same token before, and which copy?

An induction head continues a pattern that it has seen: after ``a b ... a`` it expects ``b``. It takes two layers: a
head that looks at the previous token writes it into the stream, and a later head looks at the place whose previous
token is the present one, and copies what stands there (Elhage et al., "A Mathematical Framework for Transformer
Circuits", 2021; Olsson et al., "In-context Learning and Induction Heads", 2022). With A[q, k] the weight of query q on
key k,

    previous   = mean over queries q >= 1 of A[q, q - 1]
    matching   = mean over queries of the sum of A[q, k] over keys k <= q after a token equal to the query's:
                 token[k - 1] = token[q]                                            (prefix matching)
    copying    = sum of lambda / sum of |lambda|, over the eigenvalues of W_E W_V W_O W_U   [d_vocab, d_vocab]

The first two are shares of attention, over the queries that have such a key; TransformerLens' ``head_detector`` counts
the others as zero. Copying lies between -1 and 1: a head that raises the token which it looks at has positive
eigenvalues. Norms are folded into the weights that read them.

The controls are uniform attention over the keys up to each query, which knows the positions and not the tokens, and
untrained copies of the model. Copying of random matrices is 0 on average.

Limits. Repeated tokens must occur in the problems; of a task in which none does, matching is NaN. A high score says
where a head looks, not that the model uses it: patch it (:func:`interp.activation_patching`). The eigenvalues leave out
positions and what the layers in between do to the token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.controls import untrained_models
from interp.core.probe import Summary, probe, sums
from interp.core.runs import passes
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.stats import mean_interval
from interp.core.table_result import Measure, TableResult, largest
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, in_block

MATCHING = Measure("matching", "share", ("uniform_attention", "untrained"), "prefix matching")
PREVIOUS = Measure("previous", "share", ("uniform_attention", "untrained"), "looks at the previous token")
COPYING = Measure("copying", "", ("untrained",), "copying, from -1 to 1")


def matched_keys(tokens: Int[Tensor, "n pos"]) -> Bool[Tensor, "n query key"]:
    """Whether a key, up to the query, stands after an earlier token that equals the query's."""
    same = tokens[:, :, None] == tokens[:, None]
    place = torch.arange(tokens.shape[1], device=tokens.device)
    before = torch.nn.functional.pad(same, (1, 0))[..., :-1]  # [n, query, key]: is the token before the key the same?
    return before & (place <= place[:, None])


def attention_scores(
    model: HookedModel, tokens: Int[Tensor, "n pos"]
) -> tuple[Float[np.ndarray, "n layer head"], Float[np.ndarray, "n layer head"]]:
    """(previous, matching) of every problem and head; matching is NaN in problems without a repeated token."""
    names = [in_block(layer, "attn.hook_pattern") for layer in range(model.cfg.n_layers)]
    found: list[list[Tensor]] = [[], []]
    for rows, _, kept in passes(model, tokens, keep=names):
        pattern = torch.stack([kept[name].float().cpu() for name in names], 1)  # [n, layer, head, query, key]
        matched = matched_keys(tokens[rows].cpu())[:, None, None]
        queries = matched.any(-1)
        found[0].append(pattern.diagonal(-1, -2, -1).mean(-1))
        found[1].append((pattern * matched).sum((-2, -1)) / queries.sum(-1))  # 0 / 0 is NaN
    previous, matching = (torch.cat(each).double().numpy() for each in found)
    return previous, matching


def uniform_scores(tokens: Int[Tensor, "n pos"]) -> tuple[float, float]:
    """(previous, matching) of attention that is uniform over the keys up to each query; NaN without repeated tokens."""
    matched, seen = matched_keys(tokens).double(), torch.arange(1, tokens.shape[1] + 1)
    queries = matched.any(-1).sum(-1)
    matching = (matched.sum(-1) / seen).sum(-1)[queries > 0] / queries[queries > 0]
    return float((1 / seen[1:]).double().mean()), float(matching.mean()) if len(matching) else float("nan")


def copying_scores(model: HookedModel, task: Task) -> Float[np.ndarray, "layer head"]:
    """``sum of lambda / sum of |lambda|`` of each head's W_E W_V W_O W_U, from the d_head x d_head matrix with the same
    eigenvalues but for zeros; NaN for a head that writes nothing."""
    own = from_transformer_lens(model, task).fold_layer_norm()
    W_E, W_U, W_V, W_O = (getattr(own, name).detach().double().cpu() for name in ("W_E", "W_U", "W_V", "W_O"))
    if W_U.shape[1] != W_E.shape[0]:
        raise UserError("Copying asks that the tokens which are written are those which are read.")
    values = torch.linalg.eigvals(W_O @ (W_U @ W_E) @ W_V)  # [layer, head, d_head]
    return (values.real.sum(-1) / values.abs().sum(-1)).numpy()


@probe(
    "Which heads look at the previous token, and which at what followed an equal one?",
    needs=[sums],
    summary=Summary("prefix matching", "share", largest("matching"), 0.01, asked_by=()),
)
def induction_heads(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> TableResult:
    """Scores of every head: previous token, prefix matching and copying; see the module. Cost: three runs of the
    problems, two of them of untrained copies, whose scores are means over the heads of a layer.

    Args:
        model: any model with TransformerLens hooks whose residual stream is a sum.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``.

    Raises:
        UserError: fewer than 2 problems, or of one token; post-norms; a model that writes other tokens than it reads.
    """
    sample = prepare(model, task, problems, n, seed, least_tokens=2)
    subjects = (model, *untrained_models(model, 2, seed))
    previous, matching = zip(*(attention_scores(each, sample.tokens) for each in subjects), strict=True)
    copying = [copying_scores(each, sample.task) for each in subjects]
    uniform = uniform_scores(sample.tokens)
    rows = []
    for layer, head in np.ndindex(*copying[0].shape):
        row: dict[str, Any] = {"layer": layer, "head": head}
        for measure, scores, even in zip((PREVIOUS, MATCHING), (previous, matching), uniform, strict=True):
            own, controls = scores[0][:, layer, head], [each[:, layer] for each in scores[1:]]
            ends = mean_interval(own[~np.isnan(own)], (0.0, 1.0)) if not np.isnan(own).all() else (np.nan,) * 3
            row |= measure.cells(*ends, uniform_attention=even, untrained=_mean(controls))
        control = _mean([each[layer] for each in copying[1:]])
        rows.append(row | COPYING.cells(float(copying[0][layer, head]), untrained=control))
    measures = (MATCHING, PREVIOUS, COPYING)
    found = TableResult("", pd.DataFrame(rows), sample.provenance, ("layer", "head"), measures)
    if found.table["matching"].isna().all():
        return found.saying("Nothing is said of prefix matching: no token stands twice in these problems.")
    best = found.largest("matching")
    said = f"{best.name} looks most at what followed the same token"
    if best.low is None or not best.low > uniform[1]:
        said = f"No head looks more at what followed the same token than uniform attention; the most is {best.name}"
    return found.saying(f"{said}: {best} of its attention ({best.against}).")


def _mean(values: list[Float[np.ndarray, "..."]]) -> float:
    """The mean of the numbers that there are; NaN without any."""
    known = [each[~np.isnan(each)].ravel() for each in values]
    return float(np.concatenate(known).mean()) if sum(map(len, known)) else float("nan")
