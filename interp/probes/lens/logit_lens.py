"""The logit lens: what a model would answer if it stopped at a layer.

    logits_at(stream) = ln_final(stream) W_U + b_U         the norm's scale is the stream's own

is computed at the queries, with the right answer in place (teacher forcing). For every stream and target:

    accuracy       share of problems whose right digit has the largest logit
    probability    probability of the right digit
    kl             KL(final || here) = sum p_final ln(p_final / p_here), nats: 0 at the last stream

``accuracy_shuffled`` is the accuracy on the shuffled answers of other problems: what one gets by knowing only how
common each digit is.

Limits. The lens sees only what already lies in the directions that ``W_U`` reads: a stream may hold the answer in
another basis (:mod:`interp.probes.lens.linear_probes` looks for that). Norms that follow the sums (post-norm) rescale
the stream on its way, which the lens leaves out. Source: nostalgebraist (2020), "interpreting GPT: the logit lens"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from scipy.special import log_softmax

from interp.core.estimate import Estimate
from interp.core.key_roles import ALL_TARGETS
from interp.core.named_places import stream_points
from interp.core.probe import Summary, at_most, probe
from interp.core.results import Provenance
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.stats import bootstrap_interval, clopper_pearson, clustered_proportion
from interp.core.table_result import Measure, TableResult
from interp.probes.lens.residual_points import read
from models.calls import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import in_percent
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name

MEASURES = (
    Measure("accuracy", "share", ("shuffled",), "right token leads"),
    Measure("probability", "share", title="probability of the right token"),
    Measure("kl", "nats", title="KL to the final distribution"),
)


def by_point(found: TableResult, **keys: Any) -> Estimate:
    """The share of right answers at the last stream but one; its parts are those of all streams."""
    parts = found.estimates("accuracy", target=ALL_TARGETS, **keys)
    before = parts[max(0, len(parts) - 2)]
    return replace(before, note=f"read at {before.name}", parts=tuple(parts))


def compute_logit_lens(
    logits: Iterable[Float[np.ndarray, "point _ target d_vocab"]],
    right: Int[np.ndarray, "n target"],
    points: list[str],
    targets: list[str],
    name: str,
    provenance: Provenance,
) -> TableResult:
    """The measures of the module from logits read at each point; the last point is the end of the model.

    Args:
        logits: chunks of problems, or a list of one array. Only the measures are kept, not the logits.

    Raises:
        UserError: labels that do not fit, or logits that are not finite.
    """
    each = measured(logits, right, points, targets)
    table = lens_table(each, right, points, targets, provenance.resampling_seed)
    found = TableResult("", table, provenance, ("point", "target"), MEASURES)
    parts = by_point(found).parts
    rises = np.diff([part.value for part in parts])
    after = 1 + int(rises.argmax())
    before, at = parts[after - 1], parts[after]
    said = (
        f"the right token leads in {before} of the answers at {before.name} and in {at} at {at.name}, the largest rise"
    )
    if not rises.max() > 0:
        said = f"no stream gives more right tokens than the one before it; the first, {parts[0].name}, {parts[0]}"
    control = in_percent(max(part.control or 0.0 for part in parts))
    return found.saying(f"{name}: read by the final norm and W_U, {said} (shuffled answers: at most {control}).")


class Measures(NamedTuple):
    """Of every point, problem and target: the token with the largest logit, the right one's probability, and the
    divergence of the reading from the last point's."""

    answer: Int[np.ndarray, "point n target"]
    probability: Float[np.ndarray, "point n target"]
    kl: Float[np.ndarray, "point n target"]


def measured(
    logits: Iterable[Float[np.ndarray, "point _ target d_vocab"]],
    right: Int[np.ndarray, "n target"],
    points: Sequence[str],
    targets: Sequence[str],
) -> Measures:
    """The measures of logits, chunk by chunk.

    Raises:
        UserError: as :func:`compute_logit_lens`.
    """
    parts, done = [], 0
    for chunk in logits:
        if (len(points), len(targets)) != (len(chunk), chunk.shape[2]):
            raise UserError(
                f"{len(points)} points and {len(targets)} targets do not fit logits of {list(chunk.shape)}."
            )
        require_finite(dict(zip(points, chunk, strict=True)))
        log_p, wanted = log_softmax(chunk.astype(np.float64), -1), right[done : done + chunk.shape[1]]
        probability = np.exp(np.take_along_axis(log_p, wanted[None, ..., None], -1)[..., 0])
        kl = (np.exp(log_p[-1]) * (log_p[-1] - log_p)).sum(-1)
        parts.append((log_p.argmax(-1).astype(np.int32), probability, kl))
        done += len(wanted)
    return Measures(*(np.concatenate(each, 1) for each in zip(*parts, strict=True)))


def lens_table(
    found: Measures,
    right: Int[np.ndarray, "n target"],
    points: list[str],
    targets: list[str],
    seed: int,
) -> xr.Dataset:
    """Their means with intervals over (point, target); of :data:`~interp.core.key_roles.ALL_TARGETS` together, the last
    one, problems are the clusters."""
    n, (answer, probability, kl) = len(right), found
    hit = answer == right
    shuffled = answer == np.random.default_rng(seed).permutation(right)
    ends = np.array([[clopper_pearson(int(k), n) for k in row] for row in hit.sum(1)])
    cluster = np.repeat(np.arange(n), len(targets))
    overall = [clustered_proportion(row.reshape(-1), cluster) for row in hit]
    columns = {
        "accuracy": (hit.mean(1), [found.value for found in overall]),
        "accuracy_low": (ends[..., 0], [found.low for found in overall]),
        "accuracy_high": (ends[..., 1], [found.high for found in overall]),
        "accuracy_shuffled": (shuffled.mean(1), shuffled.mean((1, 2))),
    }
    for label, values in (("probability", probability), ("kl", kl)):
        by_target, together = values.transpose(0, 2, 1), values.mean(-1)
        (low, high), ends = (bootstrap_interval(each, seed) for each in (by_target, together))
        columns[label] = (by_target.mean(-1), together.mean(-1))
        columns[f"{label}_spread"] = (by_target.std(-1), together.std(-1))
        columns |= {f"{label}_low": (low, ends[0]), f"{label}_high": (high, ends[1])}
    data = {name: (("point", "target"), np.column_stack(each)) for name, each in columns.items()}
    return xr.Dataset(data, {"point": points, "target": [*targets, ALL_TARGETS]})


@probe(
    "What would each stream answer?",
    summary=Summary("right before the last sublayer", "share", by_point, 0.01, at_most(256), asked_by=()),
)
def logit_lens(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> TableResult:
    """The logit lens at the queries of every target; see the module.

    The table is a Dataset over (point, target), the points in order of depth, the last target "all targets":
    ``accuracy`` with its exact interval and its control, ``accuracy_shuffled``; ``probability`` and ``kl`` with
    bootstrap intervals and their ``_spread`` over problems.

    Args:
        model: any model with TransformerLens hooks, ``ln_final`` (if it has a final norm) and ``unembed``.
        task: what its tokens mean; default ``model.task``. For a task of many shapes, the task in one shape:
            ``task.at(6, 5)``.
        problems: problems to read; by default ``n`` uniform ones, drawn with ``seed``.

    The last stream read this way must give the model's own logits; otherwise the model is refused.

    Raises:
        UserError: a model without hooks, in training mode or for another task, fewer than 2 problems, or a model whose
            logits are not ``unembed(ln_final(last stream))``.
    """
    sample = prepare(model, task, problems, n, seed)
    points, right = stream_points(model), sample.right.cpu().numpy()
    chunks = (
        found["logit lens"] for found in read_out(model, sample.tokens, points, sample.queries, {"logit lens": None})
    )
    return compute_logit_lens(chunks, right, list(points), sample.labels, model_name(model), sample.provenance)


class Translators(NamedTuple):
    """An affine map of each point's stream into the last one's: ``x @ matrix[point] + bias[point]``."""

    matrix: Float[torch.Tensor, "point d_model d_model"]
    bias: Float[torch.Tensor, "point d_model"]


def read_out(
    model: HookedModel,
    tokens: torch.Tensor,
    points: Mapping[str, str],
    queries: Sequence[int],
    lenses: Mapping[str, Translators | None],
) -> Iterator[dict[str, Float[np.ndarray, "point _ target d_vocab"]]]:
    """The logits that each point's stream gives at the queries by each lens, chunk by chunk; None translates nothing.

    Raises:
        UserError: the last stream does not give the model's own logits.
    """
    for logits, streams in read(model, tokens, points.values(), queries):
        found = {}
        for name, lens in lenses.items():
            with torch.no_grad():
                read_streams = [streams[hook] for hook in points.values()]
                if lens is not None:
                    read_streams = [x @ m.to(x) + b.to(x) for x, m, b in zip(read_streams, *lens, strict=True)]
                logits_of = torch.stack([unembedded(model, stream) for stream in read_streams])
            if not torch.allclose(logits_of[-1], logits, rtol=1e-3, atol=1e-3 * max(1.0, float(logits.abs().max()))):
                raise UserError("The last stream read by ln_final and unembed does not give this model's logits.")
            found[name] = logits_of.float().cpu().numpy()
        yield found


def unembedded(model: HookedModel, stream: Float[torch.Tensor, "n target d_model"]) -> torch.Tensor:
    """Logits [n, target, d_vocab] of streams, by the model's own final norm and unembedding."""
    norm = getattr(model, "ln_final", None)
    return model.unembed(stream if norm is None else norm(stream))
