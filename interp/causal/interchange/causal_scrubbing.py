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
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch.nn import functional as F

from interp.causal.interchange.interchange_pairs import distinct_problems
from interp.causal.interchange.scrubbing_hypothesis import Claim, run_column
from interp.core.estimate import SHARE
from interp.core.model_checks import with_writable_stream
from interp.core.probe import probe
from interp.core.recovered_share import recovered_share
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import require_able, resolve_task
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError
from models.number_format import counted, number
from models.tasks import Algorithm, TaskLike, TaskVariables, causal_model
from models.transformer import HookedModel, model_name

RUNS = ("clean", "scrubbed", "irrelevant", "scrambled")


ALL = "all"
MEASURES = (
    Measure("recovered", SHARE, ("irrelevant",), "share of the loss recovered"),
    Measure("loss", "nats", ("clean", "irrelevant", "scrambled")),
    Measure("right", SHARE, ("clean", "irrelevant", "scrambled"), "digits right"),
)


def tabulate(
    loss: Float[np.ndarray, "run column n"],
    right: Bool[np.ndarray, "run column n"],
    columns: Sequence[int],
    seed: int,
) -> pd.DataFrame:
    """A row for all columns and one for each, from the losses (nats) and the right digits of each of :data:`RUNS`."""
    rows = []
    for at, column in enumerate((ALL, *columns)):
        chosen = slice(None) if column == ALL else slice(at - 1, at)
        losses, digits = (dict(zip(RUNS, each[:, chosen], strict=True)) for each in (loss, right))
        row: dict[str, Any] = {"column": column, "predictions": losses["clean"].size}
        for run in RUNS:
            suffix = "" if run == "scrubbed" else f"_{run}"
            if run in ("scrubbed", "irrelevant"):
                three = (losses[each].mean(0) for each in (run, "scrambled", "clean"))
                row |= Measure(f"recovered{suffix}").cells(*recovered_share(*three, seed=seed))
            row |= {f"loss{suffix}": float(losses[run].mean()), f"right{suffix}": float(digits[run].mean())}
        rows.append(row)
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
) -> TableResult:
    """Share of the loss that a hypothesis recovers, for each column, with 95% intervals; next to it, the share where
    the same sites are resampled from any problem. ``unmatched`` is the share of resamplings that kept their own
    activation.

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
    found, digits = (torch.stack(each, 1).cpu().numpy() for each in (losses, right))
    table = tabulate(found, digits, chosen, seed).assign(unmatched=float(np.mean(alone)))
    provenance = Provenance(n, seed, f"problems, {len(chosen)} columns each")
    result = TableResult("", table, provenance, ("column",), MEASURES)
    return result.saying(_finding(result, name, f"{counted(len(claims), 'claim')} in terms of {causal.name}"))


def _finding(result: TableResult, model: str, claims: str) -> str:
    recovered, loss = (result.cell(name, column=ALL) for name in ("recovered", "loss"))
    row = result.rows_at(column=ALL).iloc[0]
    control = Measure("recovered_irrelevant", SHARE).estimate(row)
    return (
        f"{model}: resampling all that is free under {claims} recovers {recovered} of the loss (clean "
        f"{number(row['loss_clean'])} nats, resampled {number(loss.value)}, everything resampled "
        f"{number(row['loss_scrambled'])}); resampling the same sites from any problem recovers {control}."
    )
