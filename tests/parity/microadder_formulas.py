"""MicroAdder as formulas, in float64 and one token at a time, from its free numbers.

Written from the paper (sections 2 and 4) and from measurements of the public code, not from this project's model:
the weights are never assembled into W_Q, W_O and so on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import erf

Numbers = Mapping[str, np.ndarray]


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / np.sqrt(2.0)))


def position_table(n: Numbers) -> np.ndarray:
    """Positions of a0..a9 + b0..b9 = s0..s9 s10 EOS, [34, 3]."""
    spiral = []
    for i in range(10):
        angle = 2 * np.pi * i / 10 + n["phase"]
        spiral.append([n["amp"] * np.cos(angle), n["amp"] * np.sin(angle), n["slope"] * i + n["offset"]])
    zero = [[0.0, 0.0, 0.0]]
    return np.array([*spiral, *zero, *spiral, n["equals"], *spiral, n["z_hi"], *zero], dtype=np.float64)


def logits(n: Numbers, tokens: np.ndarray) -> np.ndarray:
    """Logits [pos, 10] of one sequence.

    ``n`` holds A, start, stride; amp, phase, slope, offset; equals, z_hi [3]; theta; W [qk, 3]; o_A, o_B [5];
    W1 [2, 5]; H [2, 5]; F [2, 5] (H itself in the 57-parameter model); w [5].
    """
    n = {key: np.asarray(value, dtype=np.float64) for key, value in n.items()}
    angle = n["start"] + n["stride"] * np.arange(10)
    digits = n["A"] * np.stack((np.cos(angle), np.sin(angle)), -1)
    positions = position_table(n)
    norm = lambda x: x / np.sqrt(np.mean(x**2) + 1e-5) * n["w"]  # noqa: E731

    stream = [np.concatenate((digits[token], positions[t])) for t, token in enumerate(tokens)]
    keys = [n["W"] @ norm(x)[2:] for x in stream]
    values = [norm(x)[:2] @ n["H"] for x in stream]
    cos, sin = np.cos(n["theta"]), np.sin(n["theta"])
    out = []
    for t, x in enumerate(stream):
        query = keys[t].copy()
        for i in (0, 2):
            query[i], query[i + 1] = cos * keys[t][i] - sin * keys[t][i + 1], sin * keys[t][i] + cos * keys[t][i + 1]
        scores = np.array([query @ keys[j] for j in range(t + 1)]) / np.sqrt(len(query))
        weights = np.exp(scores - scores.max())
        attended = sum(a * v for a, v in zip(weights / weights.sum(), values[: t + 1], strict=True))
        y = x + (attended @ n["o_A"]) * n["o_B"]
        y = y + gelu(n["W1"] @ norm(y)) @ n["F"]
        out.append(digits @ (n["H"] @ norm(y)))
    return np.array(out)
