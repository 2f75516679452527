"""The backward lens: which token a step of gradient descent would write, layer by layer.

A model is asked to learn another answer: at the query of target t, the token g that another problem has there. With

    loss = -log p(g at the query of t)          delta = d loss / d stream at that query

the gradient of the weights that write to the stream there is the outer product of what they read and ``delta`` (for an
MLP, ``d loss / d W_out = post^T delta``). So a step of gradient descent adds a multiple of ``-delta`` to what they
write, and ``-delta W_U`` says which tokens that promotes. For every stream and target:

    promoted    share of problems in which g has the largest of these readings
    forgotten   share in which the token that the model answers has the smallest
    norm        mean length of delta

Only problems are counted whose g is not the model's answer; a target where all problems have the same token (an end) is
left out. ``control`` is ``promoted`` for the token of a third problem, where it is neither g nor the answer, which a
step pushes down: what one gets by knowing how common each token is. With two tokens there is none (NaN).

Limits. A reading says what a step would write in the directions that ``W_U`` reads, not that the step would make the
model answer g: the final norm and later layers change with it. It is large wherever the residual stream passes
gradients on unchanged, so that a model with small random weights has 100% at every stream: what is small, or falls from
stream to stream, is due to later layers, and a large share alone is no sign of training.

Source: Katz et al. (2024), "Backward Lens: Projecting Language Model Gradients into the Vocabulary Space"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.measured import Measured, MeasuredPart
from interp.core.places import Replacement
from interp.core.probe import Scalar, probe
from interp.core.problems import N_PROBLEMS, draw, resolve_task, target_labels
from interp.core.results import Provenance, Result
from interp.core.runs import passes
from interp.core.stats import clopper_pearson, clustered_proportion
from interp.core.views import Grid, Picture
from interp.probes.lens.residual_points import stream_points
from models.errors import UserError
from models.number_format import in_percent, in_percent_with
from models.tasks import Task
from models.transformer import HookedModel, model_name

_ENDS = ("", "_low", "_high")


@dataclass(frozen=True, eq=False)
class BackwardLens(Result):
    """``table`` is a Dataset over (point, target): ``promoted`` with ``promoted_low`` and ``promoted_high``
    (Clopper-Pearson), ``control``, ``forgotten`` and ``norm`` as in the module, and over (target) ``counted``, the
    number of problems; over (point) ``overall``, the share of ``promoted`` on all targets, with ``overall_low`` and
    ``overall_high`` (problems are clusters) and ``overall_control``. Points are in order of depth."""

    name: str
    table: xr.Dataset
    provenance: Provenance

    def sentence(self) -> str:
        table, points = self.table, self.table.point.values
        first = in_percent_with(*(float(table[f"overall{end}"][0]) for end in _ENDS))
        last = in_percent_with(*(float(table[f"overall{end}"][-1]) for end in _ENDS))
        control = float(table.overall_control.max())
        return (
            f"{self.name}: a step of gradient descent towards another token, read by W_U, promotes that token most in "
            f"{first} of the answers at {points[0]} and in {last} at {points[-1]}. "
            + (
                "There is no third token to compare it with."
                if np.isnan(control)
                else f"As a control, a third token is promoted most in at most {in_percent(control)}."
            )
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per point and target."""
        kept = [name for name in self.table.data_vars if "point" in self.table[name].dims]
        kept = [name for name in kept if "target" in self.table[name].dims]
        return self.table[kept].to_dataframe().reset_index()


def _by_stream(found: BackwardLens) -> Measured:
    """The share of promoted tokens by point; the value is the first stream's."""
    names = [str(point) for point in found.table.point.values]
    rows = zip(names, *(found.table[f"overall{end}"].values.tolist() for end in _ENDS), strict=True)
    parts = tuple(MeasuredPart(*row) for row in rows)
    first = parts[0]
    control = float(found.table.overall_control[0])
    control = None if np.isnan(control) else control
    note = "a third token" if control is not None else ""
    return Measured(first.value, first.low, first.high, control=control, control_note=note, parts=parts)


@probe(
    "Which token would a step of gradient descent write?",
    scalar=Scalar(
        "promoted by a step at the first stream", "share", _by_stream, 0.01, lambda _, __, n, ___: {"n": min(n, 256)},
        asked_by=(),
    ),
)  # fmt: skip
def backward_lens(
    model: HookedModel, *, task: Task | None = None, problems: Any = None, n: int = N_PROBLEMS, seed: int = 0
) -> BackwardLens:
    """The backward lens at the queries of every target; see the module.

    Args:
        model: any model with TransformerLens hooks and ``unembed``.
        task: what its tokens mean; default ``model.task``.
        problems: problems to read; by default ``n`` uniform ones, drawn with ``seed``.

    Cost: one forward pass and as many backward passes as the answer has tokens.

    Raises:
        UserError: as :func:`interp.logit_lens`; gradients that are not finite; answers of too few different tokens.
    """
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    points, right = stream_points(model), task.targets(sample.problems).cpu().numpy()
    varies = np.flatnonzero((right != right[:1]).any(0))
    if not len(varies):
        raise UserError("Every problem has the same answer, so that no other can be taught.")
    labels = [target_labels(task)[t] for t in varies]
    right, queries = right[:, varies], [list(task.query_positions)[t] for t in varies]
    rng = np.random.default_rng(sample.provenance.resampling_seed)
    goal, third = (rng.permutation(right) for _ in range(2))
    answer, promotes, demotes, norm = _read(model, sample.tokens, list(points.values()), queries, goal)
    counted = goal != answer  # [n, target]
    other = counted & (third != goal) & (third != answer)
    n_counted = counted.sum(0)
    if not n_counted.all():
        bare = labels[int(np.argmin(n_counted))]
        raise UserError(f"The problems have too few different tokens at {bare} for another to be taught; give more.")
    share = lambda hit: (hit & counted).sum(1) / n_counted  # noqa: E731
    hit = promotes == goal
    ends = np.array(
        [
            [clopper_pearson(int(k), int(m)) for k, m in zip(row, n_counted, strict=True)]
            for row in (hit & counted).sum(1)
        ]
    )
    cluster = np.nonzero(counted)[0]
    overall = [clustered_proportion(row[counted], cluster) for row in hit]
    axes = ("point", "target")
    data: dict[str, Any] = {
        "promoted": (axes, share(hit)),
        "promoted_low": (axes, ends[..., 0]),
        "promoted_high": (axes, ends[..., 1]),
        "control": (axes, ((promotes == third) & other).sum(1) / np.where(other.any(0), other.sum(0), np.nan)),
        "forgotten": (axes, share(demotes == answer)),
        "norm": (axes, (norm * counted).sum(1) / n_counted),
        "counted": ("target", n_counted),
        "overall": ("point", [each.value for each in overall]),
        "overall_low": ("point", [each.low for each in overall]),
        "overall_high": ("point", [each.high for each in overall]),
        "overall_control": (
            "point",
            [float(row[other].mean()) if other.any() else np.nan for row in promotes == third],
        ),
    }
    table = xr.Dataset(data, {"point": list(points), "target": labels})
    return BackwardLens(model_name(model), table, sample.provenance)


def _read(
    model: HookedModel,
    tokens: Int[Tensor, "n pos"],
    hooks: list[str],
    queries: list[int],
    goal: Int[np.ndarray, "n target"],
) -> tuple[
    Int[np.ndarray, "n target"],
    Int[np.ndarray, "point n target"],
    Int[np.ndarray, "point n target"],
    Float[np.ndarray, "point n target"],
]:
    """(the model's tokens, the tokens that ``-delta W_U`` promotes most and least, the lengths of delta).

    Where delta is 0, no token (-1) is promoted.

    Raises:
        UserError: a gradient that is not finite.
    """
    leaf = Replacement(hooks[0], lambda stream, rows: stream.detach().requires_grad_())  # the only one: no weight's
    parts = []
    w_u = model.W_U.detach()
    with torch.enable_grad():
        for rows, logits, kept in passes(model, tokens, [leaf], hooks, gradients=True):
            streams = [kept[hook] for hook in hooks]
            wanted = torch.from_numpy(goal[rows]).to(logits.device)
            log_p = logits[:, queries].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
            loss = -log_p.gather(-1, wanted[..., None])[..., 0].sum(0)  # [target]: problems do not touch each other
            delta = []
            for t, each in enumerate(loss):
                gradients = torch.autograd.grad(each, streams, retain_graph=t < len(loss) - 1)
                delta.append(torch.stack([gradient[:, queries[t]] for gradient in gradients]))
            found = torch.stack(delta, 2)  # [point, n, target, d_model]
            if not torch.isfinite(found).all():
                raise UserError(
                    "A gradient of a stream is not finite: the model has diverged, or its precision is too low."
                )
            reading, norm = -found @ w_u, found.float().norm(dim=-1)
            most, least = (at.where(norm > 0, -1) for at in (reading.argmax(-1), reading.argmin(-1)))
            parts.append((log_p.argmax(-1)[None], most, least, norm))
    answer, promotes, demotes, norm = (torch.cat(each, 1).cpu().numpy() for each in zip(*parts, strict=True))
    return answer[0], promotes, demotes, norm


@drawing(BackwardLens)
def backward_view(result: BackwardLens) -> Picture:
    """Promoted and forgotten tokens: streams from top to bottom, targets from left to right."""
    table, views = result.table, []
    for name, title in (("promoted", "token promoted most (share)"), ("forgotten", "answer demoted most (share)")):
        ends = {"low": table.promoted_low.values, "high": table.promoted_high.values} if name == "promoted" else {}
        x = "target" if name == "forgotten" else ""
        at = table[name].values, table.point.values, table.target.values
        views.append(Grid(x, "", title, *at, " ", "share", **ends))  # type: ignore[arg-type]
    control = float(table.overall_control.max())
    none = "There is no third token to compare with"
    note = none if np.isnan(control) else f"A third token is promoted most in at most {in_percent(control)}"
    return Picture(views, 1, note=note, shared="x")
