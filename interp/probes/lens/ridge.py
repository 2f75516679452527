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
        mean, scale = x.mean(0), x.std(0) + 1e-9
        x, intercept = (x - mean) / scale, y.mean(0)
        gram = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x.T @ (y - intercept) / len(x))
        predicted[test] = (activations[test] - mean) / scale @ weights + intercept
    return predicted
