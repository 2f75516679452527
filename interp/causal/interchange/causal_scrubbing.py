"""Causal scrubbing: how much of the loss is kept when everything is resampled that a hypothesis calls irrelevant.

A hypothesis is a set of claims "this site matters only through these variables" (of the column whose digit is
predicted; without variables the site is irrelevant). Each claimed site's activation is taken from another problem with
the same values of its variables, drawn again for each claim; all claims are scrubbed in one run. With mean losses

    recovered = (scrambled - scrubbed) / (scrambled - clean)

``clean`` is the model's own loss and ``scrambled`` that of its logits for another problem drawn at random (everything
resampled). The share is 1 if the hypothesis explains the loss, 0 if nothing is left, below 0 if it is worse than
random. ``unmatched`` is the share of resamplings that found no other problem with the same values and kept their own
activation, which flatters the hypothesis. The control scrubs the same sites as if all were irrelevant: if a hypothesis
claims too little, its control recovers as much. Sites that no claim names stay untouched, which also flatters it: claim
them all.

Problems are drawn once and serve as bases and sources, as in the original. Intervals are a bootstrap over problems
(1,000 resamples) that keeps the columns of a problem together. Source: causal scrubbing, Chan et al. (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch.nn import functional as F

from interp.causal.interchange.interchange_pairs import distinct_problems
from interp.causal.interchange.scrubbing_hypothesis import Claim, run_column
from interp.core.drawings import drawing
from interp.core.model_checks import with_writable_stream
from interp.core.probe import probe
from interp.core.recovered_share import recovered_share
from interp.core.results import Provenance, Result
from interp.core.table_result import ENDS
from interp.core.task_checks import require_able, resolve_task
from interp.core.views import Curves, Line, Picture, Series
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError
from models.number_format import counted, in_percent, in_percent_with
from models.tasks import Algorithm, TaskLike, TaskVariables, causal_model
from models.transformer import HookedModel, model_name

RUNS = ("clean", "scrubbed", "all irrelevant", "scrambled")


@dataclass(frozen=True, eq=False)
class CausalScrubbing(Result):
    """``outcomes``: Dataset over (run, column, problem) of ``loss`` (nats) and ``right``; runs are "clean", "scrubbed",
    "all irrelevant" and "scrambled". ``unmatched``: share of resamplings that kept their own activation."""

    model: str
    algorithm: str
    claims: tuple[str, ...]
    outcomes: xr.Dataset
    unmatched: float
    provenance: Provenance

    def loss(self, run: str = "scrubbed") -> float:
        """Mean loss of a run, nats."""
        return float(self.outcomes.loss.sel(run=run).mean())

    def recovered(self, run: str = "scrubbed") -> tuple[float, float, float]:
        """Share of the loss that is recovered, with its interval."""
        return recovered_share(
            *(self.outcomes.loss.sel(run=name).mean("column").values for name in (run, "scrambled", "clean")),
            seed=self.provenance.resampling_seed,
        )

    def sentence(self) -> str:
        (share, low, high), control = self.recovered(), self.recovered("all irrelevant")
        right = {run: float(self.outcomes.right.sel(run=run).mean()) for run in RUNS}
        claims = (
            f"{counted(len(self.claims), 'claim')} in terms of {self.algorithm} allow{'s' * (len(self.claims) == 1)}"
        )
        return (
            f"{self.model}: resampling what {claims} recovers {in_percent_with(share, low, high)} of the loss (clean "
            f"{self.loss('clean'):.4f}, scrubbed {self.loss():.4f}, scrambled {self.loss('scrambled'):.3f} nats) and "
            f"keeps {in_percent(right['scrubbed'])} of the digits right (clean {in_percent(right['clean'])}). As a "
            f"control, resampling the same sites from any problem recovers {in_percent_with(*control)} and keeps "
            f"{in_percent(right['all irrelevant'])} right. {in_percent(self.unmatched)} of the resamplings found no "
            "matching problem."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per run and column (and one for all): n, mean loss, share of digits right, and the share of the
        loss that is recovered, with its interval."""
        rows = []
        columns = self.outcomes.column.values.tolist()
        for run in RUNS:
            for column in ("all", *columns):
                chosen = self.outcomes.sel(column=columns if column == "all" else [column])
                losses = [chosen.loss.sel(run=name).mean("column").values for name in (run, "scrambled", "clean")]
                share, low, high = recovered_share(*losses, seed=self.provenance.resampling_seed)
                here = chosen.sel(run=run)
                row = {"run": run, "column": column, "n": here.loss.size, "loss": float(here.loss.mean())}
                rows.append(row | {"right": float(here.right.mean()), "recovered": share, "low": low, "high": high})
        return pd.DataFrame(rows)


@probe("Does a hypothesis about the algorithm keep the loss?")
def causal_scrubbing(
    model: HookedModel,
    claims: Claim | Sequence[Claim],
    *,
    algorithm: str | Algorithm | TaskVariables | None = None,
    columns: int | Sequence[int] | None = None,
    task: TaskLike | None = None,
    n: Count = 1000,
    seed: Seed = 0,
) -> CausalScrubbing:
    """Share of the loss that a hypothesis recovers, for each column.

    Args:
        model: any model with TransformerLens hooks, in evaluation mode.
        claims: what each site holds; places such as "query" and "own operands" are those of the column predicted. A
            claim about a place that a column does not have (the last one has no digits) is left out there.
        algorithm: the causal model, as in :func:`interp.interchange_intervention`.
        columns: answer columns; default all, or from the second on where numbers are added column by column (there is
            no column before the units).
        n: problems, by default 1,000, as they are run three times for every column. Half of them are rich in carry
            chains if the task can draw them.

    Cost: three runs per column over the problems.

    Raises:
        UserError: a model that is wrong on half of the digits or more, no claim, no column, fewer than two problems, an
            unknown site or variable, two claims about one activation, claims that change no activation at all, a task
            that the algorithms do not fit, or a model in training mode.
    """
    task = resolve_task(model, task)
    causal, layout = causal_model(task, algorithm)
    claims = [claims] if isinstance(claims, Claim) else list(claims)
    if not claims:
        raise UserError("Give at least one claim; a hypothesis that says nothing is not scrubbed.")
    for claim in claims:
        for variable in claim.names:
            layout.require_variable(causal, variable)
    name, model = model_name(model), with_writable_stream(model, task, [claim.site.hook for claim in claims])
    first = min(1, len(layout) - 1) if isinstance(causal, Algorithm) else 0
    asked = range(first, len(layout)) if columns is None else [columns] if isinstance(columns, int) else columns
    chosen = [layout.require_column(k) for k in asked]
    for claim in claims:
        for variable in claim.names:
            for column in chosen:
                layout.require_variable(causal, variable, column)
    if not chosen:
        raise UserError("Scrubbing needs a column to predict.")
    problems = distinct_problems(layout, n, seed)
    tokens, targets = task.encode(problems), task.targets(problems)
    variables = layout.values(causal, problems)
    generator = torch.Generator().manual_seed(seed)
    losses, right, alone, moved = [], [], [], False
    for column in chosen:
        wanted = targets[:, layout.targets[column]]
        logits, kept, changed = run_column(model, layout, claims, tokens, variables, column, generator)
        moved |= changed
        alone.append(kept)
        answers = wanted.expand(len(logits), -1).to(logits.device)
        losses.append(F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none").view_as(answers))
        right.append(logits.argmax(-1) == answers)
    if not moved:
        raise UserError("The claims change no activation in any problem: what they name is the same in all that match.")
    able = float(torch.stack([found[RUNS.index("clean")] for found in right]).double().mean())
    require_able(name, able, f"the digits of {n:,} problems")
    data = {"loss": torch.stack(losses, 1), "right": torch.stack(right, 1)}
    outcomes = xr.Dataset(
        {name: (("run", "column", "problem"), values.cpu().numpy()) for name, values in data.items()},
        coords={"run": list(RUNS), "column": chosen},
    )
    return CausalScrubbing(
        model=name,
        algorithm=causal.name,
        claims=tuple(map(str, claims)),
        outcomes=outcomes,
        unmatched=float(np.mean(alone)),
        provenance=Provenance(n, seed, f"problems, {len(chosen)} columns each"),
    )


@drawing(CausalScrubbing)
def scrubbing_view(result: CausalScrubbing) -> Picture:
    """Share of the loss recovered by column: the hypothesis next to the same sites scrubbed as irrelevant."""
    table: Any = result.to_dataframe()
    table = table[table["column"] != "all"]
    series = [
        Series.of(
            table[table["run"] == run], "column", "recovered", f"resampled {name}", ENDS, ("loss", "right", "n"),
            control=run != "scrubbed",
        )
        for run, name in (("scrubbed", "as the hypothesis allows"), ("all irrelevant", "as if irrelevant"))
    ]  # fmt: skip
    note = "0 is another problem's logits, 1 the clean run. Intervals: 95% bootstrap"
    lines = (Line(0), Line(1))
    x, y = "column predicted (0 is the units)", "share of the loss recovered"
    return Picture([Curves(x, y, series=series, scale="share", lines=lines)], note=note)
