"""Metrics that judge an intervention: one number per example, read off the logits of a few positions.

A :class:`Metric` says which positions' logits it reads, so a sweep computes no others. It keeps one value per example,
so means get spreads and intervals. The factories bind a metric to pairs of problems and their right answers
(:mod:`models.tasks.paired.problem_pairs`):

    logit_diff     logit of the clean answer minus logit of the corrupted one
    probability    probability of the clean answer
    exact_match    1 where the clean answer has the largest logit
    kl             KL(clean run || this run) of the answer's distribution, nats
    loss           cross-entropy of the clean answer, nats

Any other function of logits will do: ``Metric("mine", (23,), lambda logits, rows: ...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.batches import chunks, right_tokens
from interp.core.samples import Sample
from interp.core.task_checks import check_targets, require_able
from models.errors import UserError, unknown_name
from models.tasks import ProblemPairs, Task
from models.transformer import HookedModel, model_name

ALL_ROWS = slice(None)


@dataclass(frozen=True, eq=False)
class Metric:
    """``compute(logits [*variant, batch, read, d_vocab], rows) -> [*variant, batch]``.

    ``positions`` are those whose logits it reads, in that order (negative ones count from the end); None means all.
    ``rows`` is the slice of examples that the batch holds, for metrics that know something about each example.
    Leading axes are variants of the run (patches), so many can be judged in one call.
    """

    name: str
    positions: tuple[int, ...] | None
    compute: Callable[[Tensor, slice], Tensor]

    def __call__(
        self, logits: Float[Tensor, "*variant batch read d_vocab"], rows: slice = ALL_ROWS
    ) -> Float[Tensor, "*variant batch"]:
        """The metric of every example.

        Raises:
            UserError: the function did not return one number per example.
        """
        values = self.compute(logits, rows)
        if not isinstance(values, Tensor) or values.shape != logits.shape[:-2]:
            got = list(values.shape) if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise UserError(
                f"The metric {self.name!r} must return one number per example, {list(logits.shape[:-2])}, and returned "
                f"{got}."
            )
        return values

    def of(self, logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, " batch"]:
        """The metric of a whole run's logits."""
        return self(logits if self.positions is None else logits[..., list(self.positions), :])


def _asked(pairs: ProblemPairs, target: int | None) -> tuple[int, Int[Tensor, " n"], Int[Tensor, " n"]]:
    """(query position, clean answer, corrupted answer) at the pairs' target, or at another."""
    (target,) = check_targets(pairs.task, [pairs.target if target is None else target])
    return pairs.task.query_positions[target], pairs.clean_targets[:, target], pairs.corrupted_targets[:, target]


def _pick(logits: Tensor, tokens: Int[Tensor, " batch"]) -> Tensor:
    """Entry ``tokens[i]`` of the last axis in example i; leading axes are variants."""
    index = tokens.to(logits.device).expand(logits.shape[:-1])[..., None]
    return logits.gather(-1, index)[..., 0]


def spoken(metric: str) -> str:
    """A metric's name in words: "logit difference" for ``logit_diff``."""
    return {"logit_diff": "logit difference", "kl": "KL divergence"}.get(metric, metric.replace("_", " "))


def logit_diff(pairs: ProblemPairs, target: int | None = None) -> Metric:
    """Logit of the clean answer minus logit of the corrupted answer.

    Raises:
        UserError: some pairs have the same answer in both problems there, so their difference would be zero.
    """
    position, clean, corrupted = _asked(pairs, target)
    if same := int((clean == corrupted).sum()):
        raise UserError(
            f"{same:,} of {len(clean):,} pairs have the same answer in both problems there, so that a logit difference "
            "says nothing about them; choose a target that differs."
        )
    return Metric(
        "logit_diff",
        (position,),
        lambda logits, rows: _pick(logits[..., 0, :], clean[rows]) - _pick(logits[..., 0, :], corrupted[rows]),
    )


def probability(pairs: ProblemPairs, target: int | None = None) -> Metric:
    """Probability of the clean answer."""
    position, clean, _ = _asked(pairs, target)
    return Metric("probability", (position,), lambda logits, rows: _pick(logits[..., 0, :].softmax(-1), clean[rows]))


def exact_match(pairs: ProblemPairs, target: int | None = None) -> Metric:
    """1 where the clean answer has the largest logit, else 0; 0 where any logit is NaN."""
    position, clean, _ = _asked(pairs, target)

    def compute(logits: Tensor, rows: slice) -> Tensor:
        highest, token = logits[..., 0, :].max(-1)  # max returns NaN if any logit is NaN
        return ((token == clean[rows].to(logits.device)) & ~highest.isnan()).to(logits.dtype)

    return Metric("exact_match", (position,), compute)


def loss(pairs: ProblemPairs, target: int | None = None) -> Metric:
    """Cross-entropy of the clean answer, nats."""
    position, clean, _ = _asked(pairs, target)
    return Metric("loss", (position,), lambda logits, rows: -_pick(logits[..., 0, :].log_softmax(-1), clean[rows]))


def kl(pairs: ProblemPairs, clean_logits: Float[Tensor, "n pos d_vocab"], target: int | None = None) -> Metric:
    """``sum p_clean ln(p_clean / p)`` over the answer's distribution in the clean run and in this one, nats.

    Raises:
        UserError: the number of clean runs is not the number of pairs.
    """
    position, clean, _ = _asked(pairs, target)
    if len(clean_logits) != len(clean):
        raise UserError(f"{len(clean):,} pairs need as many clean runs, not {len(clean_logits):,}.")
    reference = clean_logits[:, position].log_softmax(-1)

    def compute(logits: Tensor, rows: slice) -> Tensor:
        log_p = reference[rows].to(logits.device)
        p = log_p.exp()
        terms = p * (log_p - logits[..., 0, :].log_softmax(-1))
        return torch.where(p > 0, terms, torch.zeros_like(terms)).sum(-1)  # 0 ln 0 = 0

    return Metric("kl", (position,), compute)


FACTORIES: Mapping[str, Callable[..., Metric]] = {
    "logit_diff": logit_diff,
    "probability": probability,
    "exact_match": exact_match,
    "loss": loss,
    "kl": kl,
}


def resolve_metrics(
    model: HookedModel, pairs: ProblemPairs, metrics: str | Metric | Sequence[str | Metric]
) -> list[Metric]:
    """Metrics from names, bound to the pairs, or as given, such as ``logit_diff(pairs, target=3)`` of another token.

    "kl" costs a run of the model on the clean problems.

    Raises:
        UserError: an unknown name (the message has the closest), something that is neither a name nor a metric, and
            as :func:`require_metrics`.
    """
    asked = metrics if isinstance(metrics, (list, tuple)) else [metrics]
    found: list[Any] = []
    for metric in asked:
        if not isinstance(metric, str):
            found.append(metric)
        elif metric not in FACTORIES:
            raise unknown_name("metric", metric, FACTORIES)
        elif metric == "kl":
            with torch.no_grad():
                runs = torch.cat([model(batch) for batch in chunks(pairs.clean_tokens, model)])
                found.append(kl(pairs, runs))
        else:
            found.append(FACTORIES[metric](pairs))
    return require_metrics(found, pairs.clean_tokens.shape[1])


@torch.no_grad()
def require_pairs_answered(arguments: Mapping[str, Any]) -> None:
    """What questions about pairs presume: a model that answers more than half of the clean problems right.

    Metrics of one's own and "kl" compare the model with itself, and presume nothing.

    Raises:
        UserError: it does not.
    """
    metrics, pairs, model = arguments.get("metrics", "logit_diff"), arguments["pairs"], arguments["model"]
    asked = metrics if isinstance(metrics, (list, tuple)) else [metrics]
    if not {metric for metric in asked if isinstance(metric, str)} - {"kl"}:
        return
    right = exact_match(pairs)
    logits = torch.cat([model(batch)[:, right.positions] for batch in chunks(pairs.clean_tokens, model)])
    require_able(model_name(model), float(right(logits).double().mean()), f"the {len(pairs):,} clean problems")


def require_answered(model: HookedModel, task: Task, sample: Sample, targets: Sequence[int] | None = None) -> None:
    """What questions about problems presume: a model that gets more than half of the answer tokens right. One run.

    Raises:
        UserError: it does not.
    """
    chosen = check_targets(task, targets)
    queries, right = [task.query_positions[target] for target in chosen], task.targets(sample.problems)[:, chosen]
    logits = torch.cat([model(batch)[:, queries].cpu() for batch in chunks(sample.tokens, model)])
    share = float(right_tokens(logits, right).double().mean())
    require_able(model_name(model), share, f"the answer tokens of {len(right):,} problems")


def require_metrics(metrics: Any, n_pos: int) -> list[Metric]:
    """One or more metrics for runs of ``n_pos`` tokens, as a list.

    Raises:
        UserError: no metric, something that is not a Metric, two with one name, or one that reads a missing position.
    """
    found = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
    for metric in found:
        if not isinstance(metric, Metric):
            raise UserError(
                f"A metric is a Metric or the name of one ({', '.join(FACTORIES)}), not a {type(metric).__name__}; "
                "Metric(name, positions, function) makes one of a function."
            )
        for position in metric.positions or ():
            if not -n_pos <= position < n_pos:
                raise UserError(f"The metric {metric.name!r} reads position {position}; there are {n_pos}.")
        if metric.positions is not None and not metric.positions:
            raise UserError(f"The metric {metric.name!r} reads no position; None stands for all.")
    names = [metric.name for metric in found]
    if not found or len(set(names)) < len(names):
        raise UserError(f"Give one or more metrics with different names, not {', '.join(names) or 'none'}.")
    return found
