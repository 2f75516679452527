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

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.controls import NO_CONTROL, untrained_models
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, probe, sums
from interp.core.results import Provenance, Result
from interp.core.runs import passes
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import mean_interval
from interp.core.task_checks import resolve_task
from interp.core.views import Picture, Points, Series
from models.errors import UserError
from models.importers import from_transformer_lens
from models.number_format import in_percent, in_percent_with, number
from models.tasks import Task
from models.transformer import HookedModel, head_name, in_block

SHARE = (0.0, 1.0)  # the bounds of a share of attention
SCORES = ("previous", "matching", "copying")
_SAYS = {
    "previous": "looks most at the previous token",
    "matching": "looks most at what followed the same token",
    "copying": "copies most",
}
#: Where the best score is not above chance.
_SAYS_NO = {
    "previous": "no head looks more at the previous token than uniform attention does; the most is",
    "matching": "no head looks more at what followed the same token than uniform attention does; the most is",
    "copying": "no head copies; the most is",
}


@dataclass(frozen=True, eq=False)
class InductionHeads(Result):
    """``table``: a row for each head with ``previous``, ``matching`` and ``copying``; the first two have an interval
    over problems (``previous_low``, ...). ``previous_uniform`` and ``matching_uniform`` are what uniform attention
    gives, ``previous_untrained`` and so on the mean over the heads of that layer in ``copies`` untrained models (NaN
    without any)."""

    table: pd.DataFrame
    provenance: Provenance
    copies: int

    def best(self, score: str) -> pd.Series:
        """The row of the head with the largest score: "previous", "matching" or "copying".

        Raises:
            UserError: no head has that score, as no token stands twice in the problems.
        """
        known = self.table[score].dropna()
        if known.empty:
            raise UserError(f"No head has a score of {score}: no token stands twice in these problems.")
        return self.table.loc[known.idxmax()]

    def _above_chance(self, score: str) -> bool:
        """Whether the best head's score is above that of uniform attention, with all of its interval; for copying,
        which is exact and has no such control, whether it is above 0."""
        row = self.best(score)
        return bool(row[score] > 0 if score == "copying" else row[f"{score}_low"] > row[f"{score}_uniform"])

    def sentence(self) -> str:
        said = []
        for score in SCORES:
            if self.table[score].isna().all():
                said.append("no token stands twice in these problems")
                continue
            row = self.best(score)
            value, fresh = row[score], row[f"{score}_untrained"]
            control = (
                NO_CONTROL
                if np.isnan(fresh)
                else "untrained " + (number(fresh) if score == "copying" else in_percent(fresh))
            )
            head = f"{row['head']} {_SAYS[score]}" if self._above_chance(score) else f"{_SAYS_NO[score]} {row['head']}"
            if score == "copying":
                said.append(f"{head} ({number(value)} on a scale from -1 to 1; {control})")
            else:
                uniform = in_percent(row[f"{score}_uniform"])
                share = in_percent_with(value, row[f"{score}_low"], row[f"{score}_high"])
                said.append(f"{head} ({share}; uniform attention {uniform}, {control})")
        told = "; ".join(said)
        return told[:1].upper() + told[1:] + "."

    def to_dataframe(self) -> pd.DataFrame:
        return self.table.assign(n=self.provenance.n)


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


def copying_scores(model: HookedModel, task: Task) -> Float[np.ndarray, "layer head"]:
    """``sum of lambda / sum of |lambda|`` of each head's W_E W_V W_O W_U, from the d_head x d_head matrix with the same
    eigenvalues but for zeros; NaN for a head that writes nothing."""
    own = from_transformer_lens(model, task).fold_layer_norm()
    W_E, W_U, W_V, W_O = (getattr(own, name).detach().double().cpu() for name in ("W_E", "W_U", "W_V", "W_O"))
    if W_U.shape[1] != W_E.shape[0]:
        raise UserError("Copying asks that the tokens which are written are those which are read.")
    values = torch.linalg.eigvals(W_O @ (W_U @ W_E) @ W_V)  # [layer, head, d_head]
    return (values.real.sum(-1) / values.abs().sum(-1)).numpy()


def _best_matching(found: InductionHeads) -> Estimate:
    row = found.best("matching")
    parts = tuple(Estimate(float(each.matching), name=each.head) for each in found.table.itertuples())
    control = float(row["matching_uniform"])
    ends = float(row["matching_low"]), float(row["matching_high"])
    return Estimate(
        float(row["matching"]), *ends, control=control, control_note="uniform attention", note=row["head"], parts=parts
    )


@probe(
    "Which heads look at the previous token, and which at what followed the same token?",
    needs=[sums],
    scalar=Scalar("prefix matching", "share", _best_matching, 0.01, asked_by=()),
)
def induction_heads(
    model: HookedModel,
    *,
    task: Task | None = None,
    problems: Any = None,
    n: int = N_PROBLEMS,
    seed: int = 0,
) -> InductionHeads:
    """Previous-token, prefix-matching and copying scores of every head; see the module.

    Args:
        model: any model with TransformerLens hooks whose residual stream is a sum.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``.

    Raises:
        UserError: fewer than 2 problems, or of one token; post-norms; a model that writes other tokens than it reads.
    """
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    if sample.tokens.shape[1] < 2:
        raise UserError(f"A problem of {task.name} is one token: there is no previous one.")
    copies = untrained_models(model, 2, seed)
    of_all = [(*attention_scores(each, sample.tokens), copying_scores(each, task)) for each in (model, *copies)]
    matched = matched_keys(sample.tokens).double()
    seen = torch.arange(1, sample.tokens.shape[1] + 1)
    uniform = {"previous": float((1 / seen[1:]).double().mean()), "matching": float("nan")}
    if (queries := matched.any(-1)).any():
        counted = queries.any(-1)
        each = (matched.sum(-1) / seen).sum(-1)[counted] / queries.sum(-1)[counted]
        uniform["matching"] = float(each.mean())
    rows = []
    for layer, head in np.ndindex(*of_all[0][2].shape):
        row: dict[str, Any] = {"head": head_name(layer, head), "layer": layer}
        for i, score in enumerate(SCORES[:2]):
            values = of_all[0][i][:, layer, head]
            values = values[~np.isnan(values)]
            ends = mean_interval(values, SHARE) if len(values) else (float("nan"),) * 3
            row |= dict(zip((score, f"{score}_low", f"{score}_high"), ends, strict=True))
            row[f"{score}_uniform"] = uniform[score]
            fresh = np.array([one[i][:, layer] for one in of_all[1:]])
            fresh = fresh[~np.isnan(fresh)]
            row[f"{score}_untrained"] = float(fresh.mean()) if len(fresh) else float("nan")
        row["copying"] = float(of_all[0][2][layer, head])
        row["copying_untrained"] = float(np.mean([one[2][layer] for one in of_all[1:]])) if copies else float("nan")
        rows.append(row)
    return InductionHeads(pd.DataFrame(rows), sample.provenance, len(copies))


@drawing(InductionHeads)
def scores_of_heads(result: InductionHeads) -> Picture:
    """The three scores by head, with uniform attention and untrained copies beside them."""
    views = []
    for score, title in zip(SCORES, ("looks at the previous token", "prefix matching", "copying"), strict=True):
        ends = (f"{score}_low", f"{score}_high") if score != "copying" else ()
        series = [Series.of(result.table, "head", score, "trained", ends)]
        controls = [name for name in ("uniform", "untrained") if f"{score}_{name}" in result.table]
        series += [Series.of(result.table, "head", f"{score}_{name}", name, control=True) for name in controls]
        unit = "from -1 to 1" if score == "copying" else "share of attention"
        views.append(Points("head", unit, title, series, scale="" if score == "copying" else "share"))
    return Picture(views, 3)
