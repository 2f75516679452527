"""How surprised a model is by the right answers: -ln p(right token), teacher forced, in nats a token.

A uniform guess has ln(d_vocab).
"""

from __future__ import annotations

import math

import pandas as pd

from interp.core import runs
from interp.core.probe import Scalar, probe
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.stats import mean_interval
from interp.core.table_result import Measure, TableResult, at
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name

ALL = "all tokens"
MEASURES = (Measure("loss", "nats a token", ("uniform_guess",)),)


@probe(
    "How surprised is it by the right answers?",
    scalar=Scalar("loss", "nats a token", at("loss", target=ALL), 1e-3, asked_by=("training_dynamics",)),
)
def loss(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> TableResult:
    """Cross-entropy of the right tokens, with 95% intervals of the means over problems. Cost: one run of them.

    Args:
        problems: problems to answer; by default ``n`` are drawn with ``seed`` from the task's own distribution.
    """
    sample = prepare(model, task, problems, n, seed)
    logits = runs.run(model, sample.tokens, (), sample.queries).cpu()
    nats = -logits.log_softmax(-1).gather(-1, sample.right[..., None])[..., 0].double().numpy()
    rows = [(ALL, *mean_interval(nats.mean(1)))]
    rows += [(label, *mean_interval(nats[:, target])) for target, label in enumerate(sample.labels)]
    table = pd.DataFrame(rows, columns=["target", "loss", "loss_low", "loss_high"])
    table["loss_uniform_guess"] = math.log(sample.task.d_vocab)
    found = TableResult("", table, sample.provenance, ("target",), MEASURES)
    mean = found.cell("loss", target=ALL)
    return found.saying(f"{model_name(model)}: a right token costs {mean} nats on average ({mean.against}).")
