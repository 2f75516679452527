"""How surprised a model is by the right answers, and how large its parameters are: what training pushes down.

loss          -ln p(right token), teacher forced, in nats a token; a uniform guess has ln(d_vocab)
weight_norm   square root of the sum of the squared parameters
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import torch

from interp.core import runs
from interp.core.measured import Measured
from interp.core.probe import Scalar, parameters, probe
from interp.core.problems import N_PROBLEMS, draw, resolve_task
from interp.core.results import Findings, Provenance
from interp.core.sites import model_name
from interp.core.stats import mean_interval
from models.tasks.base import Task
from models.transformer.hooked import HookedModel

ALL = "all tokens"


def _mean_loss(found: Findings) -> Measured:
    row = found.table.set_index("target").loc[ALL]
    return Measured(row["value"], row["low"], row["high"], control=row["uniform guess"], control_note="a uniform guess")


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


def _norm(found: Findings) -> Measured:
    squares = found.table.set_index("parameter")["value"] ** 2
    return Measured(math.sqrt(squares.sum()), note=f"largest: {squares.idxmax()}")


@probe(
    "How large are its parameters?",
    needs=[parameters],
    scalar=Scalar("parameters", "norm", _norm, 1e-3, asked_by=("training_dynamics",)),
)
def weight_norm(model: HookedModel) -> Findings:
    """The Euclidean norm of every free parameter, and of all together. Exact up to float64."""
    with torch.no_grad():
        squares = {name: float(p.cpu().double().square().sum()) for name, p in model.named_parameters()}
    table = pd.DataFrame({"parameter": squares.keys(), "value": map(math.sqrt, squares.values())})
    table["low"] = table["high"] = table["value"]  # nothing is sampled
    count = sum(p.numel() for p in model.parameters())
    said = f"{model_name(model)}: its {count:,} parameters have norm {math.sqrt(sum(squares.values())):.4g}."
    return Findings(said, table, Provenance(count, None, "parameters", "exhaustive"))
