"""Mode connectivity: does the loss stay low on the straight line between two models, as stored or aligned?

    loss(t), exact(t) of (1 - t) a + t b          t from 0 to 1, in the parameters of the weight map
    barrier = max over t of loss(t) - ((1 - t) loss(0) + t loss(1))

(Frankle et al. 2020; Entezari et al. 2022, who expect no barrier between seeds once permutations are taken out.) The
line runs between the models *as stored*, and *aligned*: a in canonical form, b moved along its symmetries
(:func:`studies.population.alignment.align`), which changes neither model.

The controls are the same aligned line to an *untrained* copy; to a copy of a *itself, moved* by a random element of the
symmetry group, which shows a barrier between equal models; and to that copy *moved back* by the same search, which has
no barrier if the search finds the element.

Limits. Sampled problems, teacher forced. A better alignment might remove a remaining barrier: the search is local. "No
barrier" means none at the sampled points of the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float

from interp.causal.ablation.parameter_variants import run_variants
from interp.core.bootstrap_draws import resampled_sums
from interp.core.controls import NO_CONTROL, untrained_copy
from interp.core.drawings import drawing
from interp.core.frames import as_frame
from interp.core.results import Provenance, Result
from interp.core.samples import draw
from interp.core.stats import bootstrap_interval, clopper_pearson, percentile_interval
from interp.core.task_checks import resolve_task
from interp.core.thresholds import ABLE
from interp.core.views import Curves, Picture, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed, Several
from models.calls.checked_calls import checked
from models.errors import UserError, known_name
from models.number_format import in_percent
from models.tasks.task_definitions import TaskLike
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.hooked import HookedModel
from models.transformer.unaltered import require_unaltered
from studies.population.alignment import Alignment, align, flat, parametrised
from studies.population.symmetries import symmetries_of

STORED, ALIGNED = "as stored", "aligned"
UNTRAINED, MOVED, BACK = "to an untrained copy", "to itself, moved", "to itself, moved back"


@dataclass(frozen=True, eq=False)
class ModeConnectivity(Result):
    """``table``: one row per path and point: path, t, loss (nats per token) with loss_low and loss_high (bootstrap over
    problems), exact (share of whole answers right) with exact_low and exact_high (Clopper-Pearson), correct, n.

    ``barriers``: one row per path: barrier with low and high (bootstrap), at (its t), lowest_exact. ``distances``: the
    two models' distances by component, before and after (:meth:`studies.population.alignment.Alignment.distances`).
    ``logit_change``: the largest change of a logit of either model by the alignment, which should be rounding.
    """

    names: tuple[str, str]
    table: pd.DataFrame
    barriers: pd.DataFrame
    distances: pd.DataFrame
    symmetries: tuple[str, ...]
    logit_change: float
    provenance: Provenance

    def barrier(self, path: str = ALIGNED) -> float:
        """The barrier in nats per token. Raises UserError for a path that does not exist."""
        return float(self._row(path)["barrier"])

    @property
    def worse_end(self) -> float:
        """The smaller share of whole answers that one of the two models has right."""
        ends = (self.table["path"] == ALIGNED) & self.table["t"].isin([0.0, 1.0])
        return float(self.table[ends]["exact"].min())

    @property
    def able(self) -> bool:
        """Whether both models answer more than half of the problems right: a line joins no solutions otherwise."""
        return self.worse_end > ABLE

    def _row(self, path: str) -> pd.Series:
        rows = self.barriers.set_index("path", drop=False)
        return rows.loc[known_name("path", path, rows.index)]

    def sentence(self) -> str:
        def said(path: str) -> str:
            row = self._row(path)
            return f"{row.barrier:.3g} [{row.low:.3g}, {row.high:.3g}]"

        lowest = self._row(ALIGNED)["lowest_exact"]
        everything = self.distances.set_index("component").loc["all"]
        text = (
            f"Between {self.names[0]} and {self.names[1]} the loss rises by {said(STORED)} nats a token above the "
            f"line as stored and by {said(ALIGNED)} once aligned"
        )
        present = set(self.barriers["path"])
        controls = [f"{path} {said(path)}" for path in (UNTRAINED, MOVED, BACK) if path in present]
        text += f" ({'; '.join(controls if UNTRAINED in present else [*controls, NO_CONTROL])})"
        worse = in_percent(self.worse_end)
        fall = f"exact match falls from {worse} at the worse end to {in_percent(float(lowest))} on the aligned line"
        if float(lowest) >= self.worse_end:
            fall = f"exact match stays at {worse} or above on the aligned line"
        if not self.able:
            fall = (
                f"the worse end answers {worse} of the problems right, no more than {ABLE:.0%}, so that the line joins "
                "no two solutions, with or without a barrier"
            )
        return (
            f"{text}; {fall}. Their parameters' distance is {everything.before:.3f} before and "
            f"{everything.after:.3f} after."
        )


@partial(checked, ready=True)
def mode_connectivity(
    a: HookedModel,
    b: HookedModel,
    *,
    task: TaskLike | None = None,
    points: Several = 11,
    problems: GivenProblems = None,
    n: Count = 256,
    seed: Seed = 0,
    controls: bool = True,
) -> ModeConnectivity:
    """Loss and accuracy on the line between two models of one architecture; see the module.

    Args:
        a, b: models with parameters of the same names and shapes: two seeds, or one model at two times.
        task: their task in the shape to look at; default ``a.task``.
        points: number of points of a path, including both ends.
        n, seed, problems: problems to look at; by default ``n`` are drawn with ``seed`` (256, as every point of every
            path is run on them), half of them rich in carries.
        controls: whether to run the three controls.

    Cost: ``points`` stacked runs of the problems per path (five paths with controls) and three alignments.

    Raises:
        UserError: models of different architectures or of one whose symmetries are not known, altered models (with
            hooks, for example), or fewer than 3 points.
    """
    if points < 3:
        raise UserError(f"A path needs at least 3 points, both ends and one between them, not {points}.")
    task = resolve_task(a, task)
    for model in (a, b):
        require_unaltered(model, "A path between parameters")
    a, b = parametrised(a, task), parametrised(b, task)
    alignment = align(a, b)
    sample = draw(task, problems, n, seed, carry_heavy=0.5)
    paths = {STORED: alignment.stored, ALIGNED: alignment.aligned}
    if controls:
        paths |= _control_paths(a, alignment, seed)
    of_class: Any = type(a)
    model = of_class(a.weight_map, task, name=a.name_or_path)
    shares = torch.linspace(0, 1, points, dtype=torch.float64)
    theta = torch.cat(
        [
            torch.stack([flat({k: torch.lerp(x[k], y[k], t) for k in x}, model) for t in shares])
            for x, y in paths.values()
        ]
    )
    right, losses, _ = run_variants(model, task, sample.problems, theta, list(range(len(task.query_positions))))
    return compute_mode_connectivity(
        right.all(2).numpy().reshape(len(paths), points, -1),
        losses.double().numpy().reshape(len(paths), points, -1),
        list(paths),
        alignment,
        _logit_change(model, sample.tokens[:32], theta[: 2 * points], points),
        sample.provenance,
    )


def compute_mode_connectivity(
    right: Bool[np.ndarray, "path point n"],
    losses: Float[np.ndarray, "path point n"],
    paths: list[str],
    alignment: Alignment,
    logit_change: float,
    provenance: Provenance,
) -> ModeConnectivity:
    """The result, from which problems are right and their losses, at evenly spaced points of every path."""
    points, n = right.shape[1:]
    share = np.linspace(0, 1, points)
    low, high = bootstrap_interval(losses, provenance.resampling_seed)
    correct = right.sum(-1)
    exact = np.array([[clopper_pearson(int(k), n) for k in row] for row in correct])
    data = {"loss": losses.mean(-1), "loss_low": low, "loss_high": high}
    data |= {"exact": correct / n, "exact_low": exact[..., 0], "exact_high": exact[..., 1], "correct": correct}
    table = xr.Dataset({name: (("path", "t"), each) for name, each in data.items()}, {"path": paths, "t": share})
    barriers = [
        {"path": path}
        | _barrier(losses[i], provenance.resampling_seed)
        | {"lowest_exact": float(right[i].mean(1).min())}
        for i, path in enumerate(paths)
    ]
    return ModeConnectivity(
        alignment.names,
        as_frame(table).assign(n=n),
        pd.DataFrame(barriers),
        alignment.distances(),
        alignment.symmetries,
        logit_change,
        provenance,
    )


def _barrier(losses: Float[np.ndarray, "point n"], seed: int) -> dict[str, float]:
    """The barrier, its bootstrap interval over problems, and its place."""
    n, points = losses.shape[1], len(losses)
    t = np.linspace(0, 1, points)[:, None]
    above = losses - ((1 - t) * losses[:1] + t * losses[-1:])  # for every problem; the mean is linear in them
    mean = above.mean(1)
    low, high = percentile_interval(mean.max(), resampled_sums(above, seed).max(0), n)
    low = max(0.0, float(low))  # a barrier is no less than its ends' height, which is zero
    return {"barrier": float(mean.max()), "low": low, "high": float(high), "at": float(t[mean.argmax(), 0])}


def _control_paths(a: Any, alignment: Alignment, seed: int) -> dict[str, tuple[Any, Any]]:
    symmetries, start = symmetries_of(a), alignment.aligned[0]
    moved = symmetries.random(start, torch.Generator().manual_seed(seed))
    paths = {MOVED: (start, moved), BACK: (start, symmetries.align(symmetries.canonical(moved), start))}
    fresh = untrained_copy(a, 1_000 + seed)
    if fresh is not None:
        paths = {UNTRAINED: align(a, fresh).aligned} | paths
    return paths


@torch.no_grad()
def _logit_change(model: ArithmeticTransformer, tokens: torch.Tensor, theta: torch.Tensor, points: int) -> float:
    """How far the alignment moved any logit of either model: the second path's ends compared with the first's."""
    from torch.func import functional_call

    from models.training.stacked_objective import ParameterLayout

    layout, queries = ParameterLayout(model), list(model.task.query_positions)

    def logits(row: torch.Tensor) -> torch.Tensor:
        weights = functional_call(model.weight_map, layout.unflatten(row), ())
        return model(tokens, weights=weights)[:, queries]

    ends = [(0, points), (points - 1, 2 * points - 1)]
    return max(float((logits(theta[i]) - logits(theta[j])).abs().max()) for i, j in ends)


_LOWEST = 1e-6  # nats: a logarithmic axis cannot show a loss of 0


@drawing(ModeConnectivity)
def connectivity_view(result: ModeConnectivity) -> Picture:
    """Loss (logarithmic) and share of right answers along every path."""
    views = []
    for quantity, title in (("loss", "loss, nats a token"), ("exact", "whole answers right")):
        series = []
        for path in (STORED, ALIGNED, UNTRAINED, MOVED, BACK):
            rows = result.table[result.table["path"] == path]
            control = path not in (STORED, ALIGNED)
            least = _LOWEST if quantity == "loss" else 0.0
            value, *ends = (np.maximum(rows[quantity + end].to_numpy(), least) for end in ("", "_low", "_high"))
            ends = [None, None] if control else ends
            series += [Series(path, rows["t"].to_numpy(), value, *ends, control=control)] if len(rows) else []
        scale = "log" if quantity == "loss" else "share"
        views.append(Curves("t: 0 is a, 1 is b", "", title, series=series, scale=scale))
    barriers = result.barriers.set_index("path")["barrier"]
    title = (
        f"{result.names[0]} to {result.names[1]}: a barrier of {barriers[ALIGNED]:.3g} nats a token once aligned, "
        f"{barriers[STORED]:.3g} as stored"
    )
    if not result.able:
        title += f"; no two solutions, since the worse end answers only {in_percent(result.worse_end)} right"
    return Picture(views, title=title, note="Bars: 95% intervals over problems. Controls in grey")
