"""Ridge regression on held-out folds, the linear probe used by all probing, and one such probe with its controls.

w = argmin |X w - y|^2 / n + lambda |w|^2,   X standardised on the training folds, with intercept, lambda = 1e-3
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from interp.core.stats import clustered_proportion
from interp.probes.lens.probe_labels import Labels, row_folds
from interp.probes.separation import auroc

FOLDS = 5
RIDGE = 1e-3


def held_out_predictions(
    activations: Float[np.ndarray, "n feature"],
    labels: Float[np.ndarray, "n signal"],
    fold: Int[np.ndarray, " n"],
    ridge: float = RIDGE,
) -> Float[np.ndarray, "n signal"]:
    """The prediction for each row by a probe that was fitted without its fold. Signals share the factorisation.

    Cost: one product [feature, n] by [n, feature] and one solve per fold.
    """
    predicted = np.zeros_like(labels)
    for held_out in np.unique(fold):
        test = fold == held_out
        x, y = activations[~test], labels[~test]
        predicted[test] = (activations[test] - x.mean(0)) @ directions(x, y, ridge) + y.mean(0)
    return predicted


def directions(
    activations: Float[np.ndarray, "n feature"], labels: Float[np.ndarray, "n signal"], ridge: float = RIDGE
) -> Float[np.ndarray, "feature signal"]:
    """The weights of the probe of each signal, in units of the activations: the direction that reads it."""
    scale = activations.std(0) + 1e-9
    x = (activations - activations.mean(0)) / scale
    gram = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
    return np.linalg.solve(gram, x.T @ (labels - labels.mean(0)) / len(x)) / scale[:, None]


MEANS = ("accuracy_shuffled", "accuracy_memorised", "accuracy_untrained")
SCORES = ("score", "score_shuffled", "score_untrained")

SHUFFLES = 8  # how often the control's labels are shuffled per column; they share the probe's factorisation


def answerable(labels: Labels, fold: Int[np.ndarray, " n"]) -> bool:
    """Whether pairs can be held out: there are two pairs per fold, and both answers to yes or no in every training
    set. A column such as the last of a running sum, whose digits are {0, 0} or {0, 1}, has too few."""
    held_out = np.unique(fold)
    if len(np.unique(labels.pair)) < 2 * len(held_out):
        return False
    return labels.counted or all(len(np.unique(labels.value[fold != each])) > 1 for each in held_out)


def probed(
    x: Float[np.ndarray, "n feature"],
    labels: Labels,
    fold: Int[np.ndarray, " n"],
    rng: np.random.Generator,
    untrained: Float[np.ndarray, "n feature"] | None,
) -> dict[str, Any]:
    """Rows predicted right by the probe and by its controls, on unseen and on seen pairs (means of all shuffles), and
    all scores."""
    shuffled = [labels.shuffled(rng) for _ in range(SHUFFLES)]
    seen = row_folds(len(x), len(np.unique(fold)), rng)
    targets = np.stack([labels.targets(values) for values in (labels.value, *shuffled)], 1)
    predicted = held_out_predictions(x, targets, fold)
    by_heart = held_out_predictions(x, targets[:, 1:], seen)
    scores = [_score(predicted[:, i], targets[:, i], labels.counted) for i in range(1 + SHUFFLES)]
    nothing = np.full(len(x), np.nan)
    without = nothing if untrained is None else held_out_predictions(untrained, targets[:, :1], fold)[:, 0]
    return {
        "accuracy": labels.right(predicted[:, 0], labels.value),
        "accuracy_untrained": nothing if untrained is None else labels.right(without, labels.value),
        "score_untrained": math.nan if untrained is None else _score(without, targets[:, 0], labels.counted),
        "accuracy_shuffled": np.mean(
            [labels.right(predicted[:, i + 1], values) for i, values in enumerate(shuffled)], 0
        ),
        "accuracy_memorised": np.mean([labels.right(by_heart[:, i], values) for i, values in enumerate(shuffled)], 0),
        "counted": labels.counted,
        "score": scores[0],
        "score_shuffled": float(np.mean(scores[1:])),
        "pair": labels.pair,
    }


def _score(predicted: Float[np.ndarray, " n"], target: Num[np.ndarray, " n"], counted: bool) -> float:
    if counted:
        return float(1 - ((predicted - target) ** 2).sum() / ((target - target.mean()) ** 2).sum())
    return float(auroc(predicted[:, None], target[:, None] > 0)[0, 0])


def summary(each: list[dict[str, Any]], column: str) -> dict[str, Any]:
    """One row of the table from the probes of one or several columns: rows pooled, scores averaged."""
    right = np.concatenate([one["accuracy"] for one in each])
    problem = np.concatenate([np.arange(len(one["accuracy"])) for one in each])
    pair = np.concatenate([(1 + one["pair"].max()) * i + one["pair"] for i, one in enumerate(each)])
    by_problem, by_pair = clustered_proportion(right, problem), clustered_proportion(right, pair)
    means = {key: float(np.mean(np.concatenate([one[key] for one in each]))) for key in MEANS}
    scores = {key: float(np.mean([one[key] for one in each])) for key in SCORES}
    return (
        {
            "column": column,
            "counted": any(one["counted"] for one in each),
            "n": len(right),
            "accuracy": by_problem.value,
            "accuracy_low": by_pair.low,
            "accuracy_high": by_pair.high,
            "problem_low": by_problem.low,
            "problem_high": by_problem.high,
            "selectivity": by_problem.value - means["accuracy_shuffled"],
        }
        | means
        | scores
    )
