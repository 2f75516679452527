"""The metric of every example of an ablation: which metrics are read, on which strata, and their values by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from interp.causal.ablation.carry_strata import ALL, carry_strata
from interp.causal.metrics import Metric, resolve_metrics
from interp.core.batches import right_tokens
from models.errors import UserError
from models.tasks import ProblemPairs
from models.transformer import HookedModel

ACCURACY = "accuracy"

#: Metrics that are 0 or 1 in every example.
PROPORTIONS = (ACCURACY, "exact_match")


def metrics_asked(model: HookedModel, pairs: ProblemPairs | None, metrics: Any) -> list[Metric]:
    """The metrics; accuracy is only a marker without a function of its own, since it reads several tokens."""
    if metrics is None:
        metrics = ACCURACY if pairs is None else "logit_diff"
    asked = [metrics] if isinstance(metrics, (str, Metric)) else list(metrics)
    if any(isinstance(metric, Metric) and metric.name == ACCURACY for metric in asked):
        raise UserError(f"{ACCURACY!r} is this table's own metric, of single answer tokens; give yours another name.")
    accuracy = Metric(ACCURACY, None, lambda logits, rows: logits)
    if pairs is not None:
        others = [metric for metric in asked if metric != ACCURACY]
        resolved = iter(resolve_metrics(model, pairs, others) if others else ())
        found = [accuracy if metric == ACCURACY else next(resolved) for metric in asked]
    else:
        if named := [metric for metric in asked if isinstance(metric, str) and metric != ACCURACY]:
            raise UserError(f"The metric {named[0]!r} compares two problems: pass pairs=, or use 'accuracy'.")
        found = [accuracy if isinstance(metric, str) else metric for metric in asked]
    names = [metric.name for metric in found]
    if not found or len(set(names)) < len(names):
        raise UserError(f"Give one or more metrics with different names, not {', '.join(names) or 'none'}.")
    return found


def strata_of(
    task: Any, problems: Any, pairs: ProblemPairs | None, metric: Metric, read: list[int]
) -> dict[str, np.ndarray]:
    """Masks [n, read] of the strata that suit a metric: without a target, only those of whole problems."""
    if metric.name == ACCURACY:
        masks = carry_strata(task, problems, read)
    elif pairs is not None:
        masks = carry_strata(task, problems, [pairs.target])
    else:
        masks = {k: v for k, v in carry_strata(task, problems, [0]).items() if k == ALL or k.startswith("chain")}
    return {name: mask.numpy() for name, mask in masks.items()}


class MetricReader:
    """Computes the metrics from each batch's logits and keeps one value per example."""

    def __init__(self, task: Any, problems: Any, metrics: list[Metric], read: list[int], components: int, kinds: int):
        self.metrics, self.read = metrics, read
        self.queries = [task.query_positions[target] for target in read]
        self.right: Tensor = task.targets(problems)[:, read]
        self.n = len(self.right)
        width = {metric.name: len(read) if metric.name == ACCURACY else 1 for metric in metrics}
        kind = {name: bool if name in PROPORTIONS else np.float64 for name in width}
        self.clean = {name: np.zeros((self.n, w), kind[name]) for name, w in width.items()}
        shape = (components, kinds, self.n)
        self.values = {name: np.zeros((*shape, w), kind[name]) for name, w in width.items()}
        self.controls = {name: np.zeros_like(values) for name, values in self.values.items()}

    def first(self, n_pos: int) -> int:
        """The first position that is read, in runs of so many."""
        places = [self.queries if each.name == ACCURACY else each.positions for each in self.metrics]
        return min(0 if place is None else min(p % n_pos for p in place) for place in places)

    def receive(self, component: int | None, kind: int, control: bool, rows: slice, logits: Tensor) -> None:
        for metric in self.metrics:
            if metric.name == ACCURACY:
                found = right_tokens(logits[:, self.queries], self.right[rows])
            else:
                read = logits if metric.positions is None else logits[:, list(metric.positions)]
                found = metric(read, rows)[:, None].cpu()
                if metric.name in PROPORTIONS and bool(((found != 0) & (found != 1)).any()):
                    raise UserError(
                        f"{metric.name} is 0 or 1 in every example; give a metric of other values a name of its own."
                    )
            kept = self.controls if control else self.values
            target = self.clean[metric.name] if component is None else kept[metric.name][component, kind]
            target[rows] = found.numpy()
