"""Where every head looks in one problem: its attention pattern, query by key, as the model computes it.

    weight[layer, head, query, key], whose rows sum to 1; a query sees keys up to its own position

It describes one problem. What a head does over problems is :func:`interp.probes.attention_by_role.attention_by_role`'s
answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from interp.core.results import Provenance
from interp.core.runs import read_patterns
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.wording import listed
from models.errors import UserError
from models.number_format import in_percent
from models.tasks import Task
from models.transformer import HookedModel, head_name

KEYS = ("layer", "head", "query", "key")
MEASURES = (Measure("weight", "share"),)


def attention_pattern(model: HookedModel, problem: Any, *, task: Task | None = None) -> TableResult:
    """The attention patterns of one problem, with its right answer read in: ``attention_pattern(adder, "57+48")``. A
    row of the table is a query and a key that it sees, named by position and token.

    Args:
        model: any model with TransformerLens hooks.
        problem: one problem, in any form that the task takes.
        task: what the tokens mean, default ``model.task``.

    Raises:
        UserError: no problem or several, or a problem that the task does not take.
    """
    task = resolve_task(model, task)
    given = [problem] if isinstance(problem, (str, tuple)) else problem
    own = task.for_problems(given)
    problems = own.as_problems(given)
    if len(problems) != 1:
        raise UserError(f"attention_pattern is about one problem, not {len(problems)}.")
    tokens = own.encode(problems)
    patterns = next(read_patterns(model, tokens))[0]
    labels = [f"{at} {own.token_text(token[None])}" for at, token in enumerate(tokens[0])]
    seen = np.where(np.tri(len(labels), dtype=bool), patterns, np.nan)
    coords = dict(zip(KEYS, (*map(range, patterns.shape[:2]), labels, labels), strict=True))
    table = xr.DataArray(seen, coords, KEYS).to_series().rename("weight").dropna().reset_index()
    last = patterns[:, :, -1]
    looks = [
        f"{head_name(*at)} gives {in_percent(float(last[at].max()))} to position {last[at].argmax()}"
        for at in np.ndindex(*last.shape[:2])
    ]
    said = f"In {own.problem_text(own.numbers(problems)[0])}, from the last token, {listed(looks, most=3)}."
    return TableResult(said, table, Provenance(1, None, "problem that was given"), KEYS, MEASURES)
