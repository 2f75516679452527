"""Distances between seeds of one architecture, in their parameters and in what they compute.

For every pair, this gives the distance of each component's parameters as stored and after alignment
(:mod:`studies.population.alignment`), and of the functions, on the same problems and teacher-forced tokens:

    divergence   mean Jensen-Shannon divergence of the answers' distributions, bits, from 0 to 1
    logits       |a - b| / sqrt(|a|^2 + |b|^2) of logits with centred rows: 0 equal, 1 orthogonal
    agreement    share of problems whose whole answers are the same, right or wrong

The null is pairs of untrained copies, aligned in the same way. If a component of two trained models is as far apart as
that of two random draws, these symmetries show nothing that training left in common there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.batches import chunks
from interp.core.controls import NO_CONTROL, untrained_models
from interp.core.drawings import drawing
from interp.core.frames import leading
from interp.core.results import Provenance, Result
from interp.core.samples import draw
from interp.core.stats import bootstrap_interval, clopper_pearson, js_divergence
from interp.core.task_checks import resolve_task
from interp.core.views import Grid, Picture, Points, Series, View
from models.calls.argument_kinds import Count, GivenProblems, Index, Seed
from models.calls.checked_calls import checked
from models.errors import UserError
from models.tasks.task_definitions import TaskLike
from models.transformer import model_name
from models.transformer.hooked import HookedModel
from studies.population.alignment import align, parametrised

CONTROLS = 3


@dataclass(frozen=True, eq=False)
class SeedDistances(Result):
    """``table``: one row per pair and component: a, b, component ("all" for everything), numbers, before, after, and
    the mean over untrained pairs: untrained_before, untrained_after (with untrained_low and untrained_high, the
    extremes of the latter).

    ``functions``: one row per pair: divergence with low and high (bootstrap over problems), logits, agreement with
    agreement_low and agreement_high (Clopper-Pearson), n. ``untrained_functions``: the same for untrained pairs.
    """

    names: tuple[str, ...]
    table: pd.DataFrame
    functions: pd.DataFrame
    untrained_functions: pd.DataFrame
    symmetries: tuple[str, ...]
    provenance: Provenance

    def matrix(self, column: str = "after", component: str = "all") -> Float[np.ndarray, "model model"]:
        """A column of ``table`` or ``functions`` as a symmetric matrix with 0 on the diagonal (1 for agreement).

        Raises:
            UserError: there is no such component or column.
        """
        rows = self.functions if column in self.functions else self.table[self.table["component"] == component]
        if rows.empty or column not in rows:
            raise UserError(f"There is no {column!r} of {component!r}.")
        found = np.eye(len(self.names)) * (column == "agreement")
        for a, b, value in zip(rows["a"], rows["b"], rows[column], strict=True):
            i, j = self.names.index(a), self.names.index(b)
            found[i, j] = found[j, i] = value
        return found

    def sentence(self) -> str:
        rows = self.table[self.table["component"] == "all"]
        pairs = len(rows)
        text = (
            f"{len(self.names)} models of one architecture, {pairs} pair{'s' if pairs > 1 else ''}: parameters are "
            f"{_range(rows['before'])} apart as stored and {_range(rows['after'])} once aligned"
        )
        if rows["untrained_after"].notna().any():
            text += f" (untrained copies {_range(rows['untrained_before'])} and {_range(rows['untrained_after'])})"
        else:
            text += f" ({NO_CONTROL})"
        text += (
            f"; their answers' distributions are {_range(self.functions['divergence'])} bits apart, and they give "
            f"the same whole answer in {_range(self.functions['agreement'])} of problems"
        )
        parts = self.table[self.table["component"] != "all"].groupby("component", sort=False)[["before", "after"]]
        mean = parts.mean()["after"]
        mean = mean[mean > 0]  # components that alignment makes equal by definition say nothing
        if len(mean) > 1:
            text += f"; closest are {mean.idxmin()} ({mean.min():.3f}), farthest {mean.idxmax()} ({mean.max():.3f})"
        return text + "."


def _range(values: pd.Series) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"


@partial(checked, ready=True)
def seed_distances(
    models: Sequence[HookedModel],
    *,
    names: Sequence[str] | None = None,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 256,
    seed: Seed = 0,
    untrained: Index = CONTROLS,
) -> SeedDistances:
    """Distances of every pair of models of one architecture; see the module.

    Args:
        models: two or more models whose parameters have the same names and shapes.
        names: what to call them; default their own names, numbered where they are the same.
        task, problems, n, seed: where functions are compared; by default on 256 problems, as every model and every
            copy is run on them. Half of the drawn problems are rich in carries.
        untrained: number of fresh copies of the first model; each pair is a draw of the null. 0 or 1: no null.

    Cost: one alignment per pair, of models and of copies; a run of the problems per model.

    Raises:
        UserError: fewer than two models, names that do not fit, models of different architectures, or of one whose
            symmetries are not known.
    """
    models = list(models)
    if len(models) < 2:
        raise UserError(f"Distances are between models: give at least two, not {len(models)}.")
    called = _numbered([model_name(model) for model in models]) if names is None else [str(name) for name in names]
    if len(called) != len(models) or len(set(called)) < len(called):
        raise UserError(f"{len(models)} models need as many different names, not {', '.join(called)}.")
    task = resolve_task(models[0], task)
    models = [parametrised(model, task) for model in models]
    sample = draw(task, problems, n, seed, carry_heavy=0.5)
    rows, words = [], ()
    for i, j in combinations(range(len(models)), 2):
        alignment = align(models[i], models[j])
        words = alignment.symmetries
        rows.append(alignment.distances().assign(a=called[i], b=called[j]))
    table = pd.concat(rows, ignore_index=True)
    copies = untrained_models(models[0], untrained, seed)
    null = [align(a, b).distances() for a, b in combinations(copies, 2)]
    table = table.merge(_null_columns(null), how="left", on="component")
    table = leading(table, ("a", "b", "component", "numbers", "before", "after"))
    provenance = sample.provenance
    labels = _numbered(["untrained"] * len(copies))
    return SeedDistances(
        tuple(called),
        table,
        _functions(models, called, task, sample.tokens, provenance.resampling_seed),
        _functions(copies, labels, task, sample.tokens, provenance.resampling_seed),
        words,
        provenance,
    )


def _numbered(names: list[str]) -> list[str]:
    """Names, with a number after those that occur more than once."""
    return [f"{name} ({names[:i].count(name) + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def _null_columns(null: list[pd.DataFrame]) -> pd.DataFrame:
    columns = ["component", "untrained_before", "untrained_after", "untrained_low", "untrained_high"]
    if not null:
        return pd.DataFrame({name: pd.Series(dtype=object if name == "component" else float) for name in columns})
    groups = pd.concat(null).groupby("component", sort=False)
    found = groups.agg(
        untrained_before=("before", "mean"),
        untrained_after=("after", "mean"),
        untrained_low=("after", "min"),
        untrained_high=("after", "max"),
    )
    return found.reset_index()[columns]


# ---- distances between functions


@torch.no_grad()
def _functions(
    models: Sequence[HookedModel], names: Sequence[str], task: Any, tokens: Tensor, seed: int
) -> pd.DataFrame:
    queries = list(task.query_positions)
    logits = [
        torch.cat([model(batch)[:, queries].double().cpu() for batch in chunks(tokens, model)]) for model in models
    ]
    rows = []
    for i, j in combinations(range(len(models)), 2):
        divergence = js_divergence(*(x.softmax(-1).numpy() for x in (logits[i], logits[j]))).mean(1)
        low, high = bootstrap_interval(divergence[None], seed)
        same = int((logits[i].argmax(-1) == logits[j].argmax(-1)).all(1).sum())
        ends = clopper_pearson(same, len(tokens))
        row = (names[i], names[j], float(divergence.mean()), float(low[0]), float(high[0]))
        rows.append((*row, centred_distance(logits[i], logits[j]), same / len(tokens), *ends, len(tokens)))
    columns = ["a", "b", "divergence", "low", "high", "logits", "agreement", "agreement_low", "agreement_high", "n"]
    return pd.DataFrame(rows, columns=columns)


def centred_distance(a: Float[Tensor, "*batch d_vocab"], b: Float[Tensor, "*batch d_vocab"]) -> float:
    """|a - b| / sqrt(|a|^2 + |b|^2), with each row minus its mean, which no softmax sees."""
    a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
    size = float((a.square().sum() + b.square().sum()).sqrt())
    return float((a - b).norm()) / size if size > 0 else 0.0


@drawing(SeedDistances)
def seed_distances_view(result: SeedDistances) -> Picture:
    """Every pair's distances by component, before and after alignment, with untrained pairs, and matrices of pairs."""
    null = result.table.drop_duplicates("component")
    said = ("a", "b")
    ends = ("untrained_low", "untrained_high")
    series = [
        Series.of(result.table, "component", "before", "as stored", said=said),
        Series.of(result.table, "component", "after", "aligned", said=said),
        Series.of(null, "component", "untrained_after", "untrained copies, aligned (mean)", ends, control=True),
    ]
    views: list[View] = [Points("", "distance of parameters", series=series, across=True)]
    for quantity, title in (
        ("before", "parameters as stored"),
        ("after", "parameters aligned"),
        ("divergence", "answers, bits (JS divergence)"),
    ):
        if len(result.names) > 2:
            names = list(result.names)
            views.append(Grid(title=title, values=result.matrix(quantity), rows=names, columns=names, limit=1.5))
    rows = result.table[result.table["component"] == "all"]
    title = (
        f"{len(result.names)} models of one architecture: parameters {rows['before'].mean():.2f} apart as stored, "
        f"{rows['after'].mean():.2f} once aligned"
    )
    if rows["untrained_after"].notna().any():
        title += f", untrained copies {rows['untrained_after'].mean():.2f}"
    note = "Distance: 0 equal, 1 orthogonal, 1.41 opposite. Grey bars: from the nearest to the farthest untrained pair"
    return Picture(views, columns=1, title=title, note=note)
