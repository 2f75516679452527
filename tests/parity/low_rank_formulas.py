"""The 456-parameter family as formulas, in float64 and one token at a time, from the numbers of a checkpoint.

Written from the paper (section 1.1, equations 1 and 2) and its description in FACTS, not from this project's model:
queries, keys and values are computed through their factors and W_Q, W_O and so on are never assembled.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import erf

Numbers = Mapping[str, np.ndarray]


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / np.sqrt(2.0)))


def through(x: np.ndarray, n: Numbers, name: str) -> np.ndarray:
    """x times a full matrix [in, out], or times its two factors one after the other."""
    return x @ n[name] if name in n else (x @ n[f"{name}.A"]) @ n[f"{name}.B"]


def norm(x: np.ndarray, n: Numbers, name: str) -> np.ndarray:
    """RMSNorm with eps 1e-8 in the root, or with a bias LayerNorm with eps 1e-5."""
    if f"{name}.b" not in n:
        return x / np.sqrt(np.mean(x**2) + 1e-8) * n[f"{name}.w"]
    x = x - x.mean()
    return x / np.sqrt(np.mean(x**2) + 1e-5) * n[f"{name}.w"] + n[f"{name}.b"]


def logits(n: Numbers, tokens: np.ndarray) -> np.ndarray:
    """Logits [pos, 14] of one sequence.

    ``n`` holds E [14, 7]; pos, out, up, down as matrices or ``.A`` and ``.B``; qkv likewise, or A, Bq and Bkv (K = V);
    ln1, ln2 and final, each ``.w`` and, with LayerNorm, ``.b``.
    """
    table = n["pos"] if "pos" in n else n["pos.A"] @ n["pos.B"]
    stream = [n["E"][token] + table[t] for t, token in enumerate(tokens)]
    queries, keys, values = [], [], []
    for x in stream:
        h = norm(x, n, "ln1")
        if "A" in n:
            q, k = h @ n["A"] @ n["Bq"], h @ n["A"] @ n["Bkv"]
            v = k
        else:
            q, k, v = np.split(through(h, n, "qkv"), 3)
        queries.append(q), keys.append(k), values.append(v)
    out = []
    for t, x in enumerate(stream):
        scores = np.array([queries[t] @ keys[j] for j in range(t + 1)]) / np.sqrt(7)
        weights = np.exp(scores - scores.max())
        attended = sum(w * v for w, v in zip(weights / weights.sum(), values[: t + 1], strict=True))
        y = x + through(attended, n, "out")
        y = y + through(gelu(through(norm(y, n, "ln2"), n, "up")), n, "down")
        out.append(n["E"] @ norm(y, n, "final"))
    return np.array(out)
