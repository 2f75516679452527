"""How surprised a model is by the right answers: -ln p(right token), teacher forced, in nats a token.

A uniform guess has ln(d_vocab).
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from interp.core import runs
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, probe
from interp.core.results import Findings
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import mean_interval
from interp.core.task_checks import resolve_task
from models.tasks import Task
from models.transformer import HookedModel, model_name

ALL = "all tokens"


def _mean_loss(found: Findings) -> Estimate:
    row = found.table.set_index("target").loc[ALL]
    return Estimate(row["value"], row["low"], row["high"], control=row["uniform guess"], control_note="a uniform guess")


@probe(
    "How surprised is it by the right answers?",
    scalar=Scalar("loss", "nats a token", _mean_loss, 1e-3, asked_by=("training_dynamics",)),
)
def loss(
    model: HookedModel, *, task: Task | None = None, problems: Any = None, n: int = N_PROBLEMS, seed: int = 0
) -> Findings:
    """Cross-entropy of the right tokens, with 95% intervals of the means over problems. Cost: one run of them.

    Args:
        problems: problems to answer; by default ``n`` are drawn with ``seed`` from the task's own distribution.
    """
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    logits = runs.run(model, sample.tokens, (), task.query_positions).cpu()
    right = task.targets(sample.problems)
    nats = -logits.log_softmax(-1).gather(-1, right[..., None])[..., 0].double().numpy()
    labels = [role.label for role in task.target_roles]
    rows = [(ALL, *mean_interval(nats.mean(1)))]
    rows += [(label, *mean_interval(nats[:, target])) for target, label in enumerate(labels)]
    table = pd.DataFrame(rows, columns=["target", "value", "low", "high"])
    table["uniform guess"] = math.log(task.d_vocab)
    mean, guess = rows[0][1], math.log(task.d_vocab)
    said = f"{model_name(model)}: a right token costs {mean:.4g} nats (a uniform guess {guess:.3g})."
    return Findings(said, table, sample.provenance)
