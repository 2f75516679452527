"""Attribution of attention scores: which parts of the query and of the key make a head look where it looks.

A score before the softmax is bilinear in the two residual streams. With the scales of the norms frozen at their values,
a stream is the sum of what was written to it, so that a score is a sum over pairs of sources:

    score[q, k] = sum over sources i, j of  (x_i[q] W_Q) . (x_j[k] W_K) / scale   (+ what is added to it by position)

    sources   embed, pos_embed, L0H1 (a head of an earlier layer), L0.mlp, and bias: all biases together (b_O, b_out,
              those of the norm, b_Q and b_K), so that "bias" by "bias" is the same for all keys

Norms' gains, the norms of queries and keys, and rotary positions are linear in what was written (a turn by position)
and are applied to every source. What is added to scores by position (FIRE, ``attn.bias``) is a part of its own.

A softmax sees only differences between keys. So by default a part is that of the *lead* of the keys that the head looks
at, the mean score of a role's keys minus the mean of the other keys that the query sees, and ``over="nothing"`` gives
the mean score of the role's keys itself. Parts add up to it exactly; the largest deviation found is stated.

Limits. Freezing the scales hides that a source also changes the norm of the stream. Parts are averaged over a role's
keys. A large part says what the score rests on, not that the model's answer does: patch it
(:func:`interp.activation_patching`). Sources: Elhage et al. (2021), "A Mathematical Framework for Transformer
Circuits"; "QK attributions" in Kamath et al. (2025), "Tracing Attention Computation Through Feature Interactions"."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.estimate import Estimate
from interp.core.key_roles import membership, target_labels, visible_roles
from interp.core.model_checks import require_head, require_layer
from interp.core.probe import Summary, probe, sums
from interp.core.runs import read_patterns
from interp.core.samples import prepare
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.probes.lens.attention_score_sources import score_parts, sources_of
from interp.probes.lens.direct_logit_attribution import moments
from models import ArithmeticTransformer
from models.calls import Count, GivenProblems, Index, Seed
from models.errors import UserError, known_name
from models.importers import from_transformer_lens
from models.number_format import number, small
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, head_name, model_name

#: How far the parts' sum may be from the model's own score, as a share of the largest; float32 rounding is far below.
TOLERANCE = 1e-3
OVER = {"others": "above those of the other keys", "nothing": "on average"}
KEYS = ("head", "target", "query_source", "key_source")
MEASURES = (Measure("part", "nats", title="part of the score"),)
RESAMPLES = 200  # of the problems, for every pair of sources of every head


def _largest(found: TableResult) -> Estimate:
    """The largest part in absolute mean."""
    row = found.table.loc[found.table["part"].abs().idxmax()]
    name = f"{row['head']}: {row['query_source']} by {row['key_source']}"
    return MEASURES[0].estimate(row.to_dict(), name, found.provenance.n)


def products(model: HookedModel, task: Any) -> str:
    """Scores must be products of queries and keys."""
    kind = getattr(getattr(model, "config", None), "attn_scores", "dot")
    return "" if kind == "dot" else f"its scores, of the kind {kind!r}, are no products of queries and keys"


@probe(
    "What makes each head look where it looks?",
    needs=[sums, products],
    summary=Summary("largest part of an attention score", "nats", _largest, 0.05, asked_by=()),
    control=True,
)
def attention_attribution(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    layer: Index | None = None,
    head: Index | None = None,
    role: str | None = None,
    over: str = "others",
    n: Count = 256,
    seed: Seed = 0,
) -> TableResult:
    """Attention scores by the sources of query and key; see the module.

    A row of the table has the mean ``part`` of one pair of sources with its bootstrap interval and ``spread`` over
    problems, in units of the scores (nats of a softmax). Of the head and target it says the ``role`` of the keys that
    are asked about, the mean ``weight`` that they get of the head's attention, their mean score, or its lead, ``score``
    with ``score_low``, ``score_high``, and the largest ``deviation`` of the sum of a problem's parts from it.

    Args:
        model: this project's, or a stock one that :func:`models.importers.stock.from_transformer_lens` can express.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` uniform ones, drawn with ``seed``. They are 256, as a number is
            kept for each of them and every pair of sources.
        layer, head: which heads to ask about; default all.
        role: the keys to ask about, a role of the task such as "own operands"; by default those that the head attends
            to most, for every target. Where a role has all keys, as in sequences, they are positions such as "x3".
        over: "others" or "nothing"; see the module.

    Cost: two passes, and for every head, answer digit and problem a product of [source, d_head] by [d_head, source];
    a head of layer l has about l (heads + 1) sources.

    Raises:
        UserError: post-norm (the parts do not add up), scores that are no products, an unknown role, no key of the role
            or no other key, or parts that do not add up.
    """
    known_name("thing to lead over", over, OVER)
    task = resolve_task(model, task)
    name, model = model_name(model), from_transformer_lens(model, task)
    layers = range(model.config.n_layers) if layer is None else [require_layer(model, layer)]
    heads = range(model.config.n_heads) if head is None else [require_head(model, head)]
    sample = prepare(model, task, problems, n, seed)
    asked = _asked(model, task, sample.tokens, role, over == "others")
    queries, labels = [sample.queries[target] for target in asked.targets], target_labels(task, asked.targets)
    tables = []
    for each in layers:
        with torch.no_grad():
            found = score_parts(model, sample.tokens, queries, each, asked.keys[each])
        values, own = (x.double().numpy()[heads] for x in found)
        off = np.abs(values.sum((2, 3)) - own).max(-1)  # [head, target]
        if not off.max() <= TOLERANCE * max(1.0, float(np.abs(own).max())):
            raise UserError(
                f"The parts do not add up to the scores (by {small(float(off.max()))}): the model has a part that this "
                "attribution does not know, or rounds to half precision, which model.to(torch.float32) does not."
            )
        sources, again = sources_of(model, each), (sample.provenance.resampling_seed, RESAMPLES)
        scores = moments(own, "score", *again)
        about = {"role": asked.role[each][heads], "weight": asked.weight[each][heads], "deviation": off}
        about |= {name: scores[name] for name in ("score", "score_low", "score_high")}
        cells = pd.MultiIndex.from_product([[head_name(each, one) for one in heads], labels, sources, sources])
        rows = {name: value.ravel() for name, value in moments(values, "part", *again).items()}
        rows |= {name: np.repeat(value.ravel(), len(sources) ** 2) for name, value in about.items()}
        tables.append(pd.DataFrame(rows, cells.set_names(KEYS)).reset_index())
    result = TableResult("", pd.concat(tables, ignore_index=True), sample.provenance, KEYS, MEASURES)
    part, top = _largest(result), result.table.loc[result.table["part"].abs().idxmax()]
    amount = f"{number(top['score'])} nats {OVER[over]}"
    if over == "others" and top["score"] < 0:
        amount = f"{number(-top['score'])} nats below those of the other keys"
    return result.saying(
        f"{name}: {top['head']} scores {top['role']} {amount} at {top['target']}; the largest part in size, {part} "
        f"nats, comes from {top['query_source']} of the query and {top['key_source']} of the keys."
    )


class _Asked(NamedTuple):
    """The answer digits, and for each head and digit the keys that are asked about."""

    targets: list[int]
    role: np.ndarray  # [layer, head, target], its name
    weight: Float[np.ndarray, "layer head target"]  # how much attention its keys get
    keys: Float[Tensor, "layer head target key"]  # with which weights scores are summed


def _asked(
    model: ArithmeticTransformer, task: Task, tokens: Int[Tensor, "n pos"], role: str | None, leads: bool
) -> _Asked:
    """The keys of a role (by default of the one that gets most attention), minus the mean of all others if it leads.

    Raises:
        UserError: an unknown role, or no answer digit with a key of the role and another key.
    """
    queries = list(task.query_positions)
    visible = [visible_roles(task, target) for target in range(len(queries))]
    if leads and all(max(map(len, each.values())) > q for each, q in zip(visible, queries, strict=True)):
        labels = [each.label for each in task.roles]  # roles tell no keys apart, but positions do
        visible = [{name: [k for k in range(q + 1) if labels[k] == name] for name in labels[: q + 1]} for q in queries]
    names, of_role = membership(visible, tokens.shape[1])
    if role is not None:
        known_name("role", role, names)
    pattern = np.concatenate([chunk.sum(0)[None] for chunk in read_patterns(model, tokens, queries)]).sum(0)
    weight = np.einsum("lhtk,trk->lhtr", pattern / len(tokens), of_role)
    sees = np.arange(tokens.shape[1]) <= np.array(queries)[:, None]  # [target, key]
    n_keys = of_role.sum(-1)  # [target, role]
    possible = (n_keys > 0) & ((n_keys < sees.sum(-1, keepdims=True)) | (not leads))
    possible &= np.array([role in (None, each) for each in names])
    targets = np.flatnonzero(possible.any(-1))
    if not len(targets):
        raise UserError(f"No answer digit can look at {role or 'keys of a role'} and at another key.")
    chosen = np.where(possible, weight, -1.0).argmax(-1)[:, :, targets]  # [layer, head, target]
    own = of_role[targets, chosen].astype(float)
    keys = own / own.sum(-1, keepdims=True)
    if leads:
        others = sees[targets] - own
        keys = keys - others / others.sum(-1, keepdims=True)
    given = np.take_along_axis(weight[:, :, targets], chosen[..., None], -1)[..., 0]
    return _Asked(targets.tolist(), np.array(names)[chosen], given, torch.from_numpy(keys))
