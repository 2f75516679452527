"""How often a model is right by the length of the longest carry or borrow chain: uniform problems have no long ones."""

from __future__ import annotations

from typing import Any

from interp.core.probe import Summary, chains, probe
from interp.core.samples import of_every_chain_length
from interp.core.task_checks import resolve_task
from interp.probes.score import score
from interp.probes.score_result import Scores, worst_stratum
from models.calls import Count, Seed
from models.tasks import Task, TaskLike
from models.transformer import HookedModel


def _few(model: Any, task: Task, n: int, seed: int) -> dict[str, Any]:
    return {"n_per_length": max(2, n // 5)}


@probe(
    "How often is it right, by the length of the carry chain?",
    needs=[chains],
    summary=Summary("right, by carry chain (worst)", "share", worst_stratum, 0.01, _few),
)
def accuracy_by_chain(
    model: HookedModel, *, task: TaskLike | None = None, n_per_length: Count = 1000, seed: Seed = 0
) -> Scores:
    """Share of whole answers right on ``n_per_length`` problems of every length of the longest chain (in a comparison,
    of equal digits).

    Cost: that of :func:`interp.score`; for a ten-digit adder 11,000 forward passes of 33 tokens at the default.

    Raises:
        UserError: a model without hooks or task, a task without chains, or n below 1.
    """
    task = resolve_task(model, task)
    sample = of_every_chain_length(task, n_per_length, seed)
    found = score(model, task=task, problems=sample.problems, seed=seed)
    return Scores.of(found.model, found.table, sample.provenance, errors=True)
