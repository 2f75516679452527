"""Ridge regression on held-out folds, the linear probe used by all probing.

w = argmin |X w - y|^2 / n + lambda |w|^2,   X standardised on the training folds, with intercept, lambda = 1e-3
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

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
