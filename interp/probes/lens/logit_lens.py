"""The logit lens: what a model would answer if it stopped at a layer.

    logits_at(stream) = ln_final(stream) W_U + b_U         the norm's scale is the stream's own

is computed at the queries, with the right answer in place (teacher forcing). For every stream and target:

    accuracy       share of problems whose right digit has the largest logit
    probability    probability of the right digit
    kl             KL(final || here) = sum p_final ln(p_final / p_here), nats: 0 at the last stream

``control`` is the accuracy on the shuffled answers of other problems: what one gets by knowing only how common each
digit is.

Limits. The lens sees only what already lies in the directions that ``W_U`` reads: a stream may hold the answer in
another basis (:mod:`interp.probes.lens.linear_probes` looks for that). Norms that follow the sums (post-norm) rescale
the stream on its way, which the lens leaves out. Source: nostalgebraist (2020), "interpreting GPT: the logit lens"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from scipy.special import log_softmax

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.key_roles import target_labels
from interp.core.named_places import stream_points
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import bootstrap_interval, clopper_pearson, clustered_proportion
from interp.core.task_checks import resolve_task
from interp.core.views import Grid, Picture
from interp.probes.lens.residual_points import read
from models.calls import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import in_percent, in_percent_with
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name


@dataclass(frozen=True, eq=False)
class LogitLens(Result):
    """``table`` is a Dataset over (point, target): ``accuracy`` with ``accuracy_low``, ``accuracy_high``
    (Clopper-Pearson) and ``control``; ``probability`` and ``kl`` with their ``_spread`` over problems and bootstrap
    ``_low`` and ``_high``; and over (point): ``overall`` accuracy on all targets with ``overall_low``, ``overall_high``
    (problems are clusters) and ``overall_control``. Points are in order of depth."""

    name: str
    table: xr.Dataset
    provenance: Provenance

    @property
    def _largest_rise(self) -> tuple[str, str, float, float]:
        """(point before, point, accuracy before, accuracy) where the accuracy on all targets rises most, or falls
        least."""
        overall = self.table.overall.values
        i = 1 + int(np.diff(overall).argmax())
        points = self.table.point.values
        return str(points[i - 1]), str(points[i]), float(overall[i - 1]), float(overall[i])

    def sentence(self) -> str:
        before, after, low, high = self._largest_rise
        t = self.table.overall, self.table.overall_low, self.table.overall_high
        end = in_percent_with(*(float(x[-1]) for x in t))
        first = float(self.table.kl.mean("target")[0])
        points = self.table.point.values
        told = (
            f"{in_percent(low)} of the answers at {before} and in {in_percent(high)} at {after}, the largest rise"
            if high > low
            else f"{in_percent(float(t[0][0]))} of the answers at {points[0]} and rises at no later stream"
        )
        return (
            f"{self.name}: read by the final norm and W_U, the right token leads in {told}; at the end it "
            f"leads in {end}. The first stream is "
            f"{first:.2f} nats from the final distribution. As a control, the answers of other problems lead in at "
            f"most {in_percent(float(self.table.overall_control.max()))}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per point and target."""
        kept = [name for name in self.table.data_vars if "target" in self.table[name].dims]
        return self.table[kept].to_dataframe().reset_index()


def compute_logit_lens(
    logits: Iterable[Float[np.ndarray, "point _ target d_vocab"]],
    right: Int[np.ndarray, "n target"],
    points: list[str],
    targets: list[str],
    name: str,
    provenance: Provenance,
) -> LogitLens:
    """The measures of the module from logits read at each point; the last point is the end of the model.

    Args:
        logits: chunks of problems, or a list of one array. Only the measures are kept, not the logits.

    Raises:
        UserError: labels that do not fit, or logits that are not finite.
    """
    found, seed = measured(logits, right, points, targets), provenance.resampling_seed
    return LogitLens(name, lens_table(found, right, points, targets, seed), provenance)


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
    """Their means with intervals; see :class:`LogitLens`."""
    n, (answer, probability, kl) = len(right), found
    hit = answer == right
    dealt = answer == np.random.default_rng(seed).permutation(right)
    ends = np.array([[clopper_pearson(int(k), n) for k in row] for row in hit.sum(1)])
    cluster = np.repeat(np.arange(n), len(targets))
    overall = [clustered_proportion(row.reshape(-1), cluster) for row in hit]
    axes = ("point", "target")
    data: dict[str, Any] = {
        "accuracy": (axes, hit.mean(1)),
        "accuracy_low": (axes, ends[..., 0]),
        "accuracy_high": (axes, ends[..., 1]),
        "control": (axes, dealt.mean(1)),
        "overall": ("point", [found.value for found in overall]),
        "overall_low": ("point", [found.low for found in overall]),
        "overall_high": ("point", [found.high for found in overall]),
        "overall_control": ("point", dealt.mean((1, 2))),
    }
    for label, values in (("probability", probability), ("kl", kl)):
        by_cell = values.transpose(0, 2, 1)
        low, high = bootstrap_interval(by_cell, seed)
        data[label] = (axes, by_cell.mean(-1))
        data[f"{label}_spread"] = (axes, by_cell.std(-1))
        data |= {f"{label}_low": (axes, low), f"{label}_high": (axes, high)}
    return xr.Dataset(data, {"point": points, "target": targets})


def _first_stream(found: LogitLens) -> Estimate:
    """The accuracy of every stream as parts; the value is that of the last stream but one."""
    names = [str(point) for point in found.table.point.values]
    value, low, high = (found.table[f"overall{end}"].values.tolist() for end in ("", "_low", "_high"))
    parts = [Estimate(*row[:3], name=row[3]) for row in zip(value, low, high, names, strict=True)]
    before = parts[max(0, len(parts) - 2)]
    return Estimate(before.value, before.low, before.high, note=f"read at {before.name}", parts=tuple(parts))


@probe(
    "What would each stream answer?",
    scalar=Scalar(
        "right before the last sublayer",
        "share",
        _first_stream,
        0.01,
        lambda _, __, n, ___: {"n": min(n, 256)},
        asked_by=(),
    ),
)
def logit_lens(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> LogitLens:
    """The logit lens at the queries of every target; see the module.

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
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    points = stream_points(model)
    right = task.targets(sample.problems).cpu().numpy()
    labels = target_labels(task)
    chunks = (
        found["logit lens"]
        for found in read_out(model, sample.tokens, points, task.query_positions, {"logit lens": None})
    )
    return compute_logit_lens(chunks, right, list(points), labels, model_name(model), sample.provenance)


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


@drawing(LogitLens)
def lens_view(result: LogitLens) -> Picture:
    """Accuracy, probability and divergence: streams from top to bottom, targets from left to right."""
    at, views = (result.table.point.values, result.table.target.values), []
    for name, title, colours in (
        ("accuracy", "right token leads (share)", "share"),
        ("probability", "probability of the right token", "share"),
        ("kl", "KL to the final distribution (nats)", "range"),
    ):
        values, low, high = (result.table[name + end].values for end in ("", "_low", "_high"))
        x = "target" if name == "kl" else ""
        views.append(Grid(x, "", title, values, *at, " ", colours, low=low, high=high))  # type: ignore[arg-type]
    end, low, high = (float(result.table[f"overall{name}"][-1]) for name in ("", "_low", "_high"))
    control = in_percent(float(result.table.overall_control.max()))
    note = f"Right at the end: {in_percent_with(end, low, high)}; answers of other problems lead in at most {control}"
    before, after, least, most = result._largest_rise
    title = f"{result.name}: no stream gives more right tokens than the one before"
    if most > least:
        least, most = in_percent(least), in_percent(most)
        title = f"{result.name}: the right token leads in {least} of the answers at {before}, in {most} at {after}"
    return Picture(views, 1, title, note, "x")
