"""From the attention scalar to the answer: the margin of the right token as a function of s.

Behind the attention, a class is one curve: ``y = x + s B + e + b_O``, MLP, last norm, logits. ``F`` is the right
token's lead over the best other one. :func:`float_margins` draws the curves, to find where they come lowest;
:class:`Decision` encloses them in balls, and bisection proves that they stay above a level on all of [low, high].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from flint import arb, arb_mat
from jaxtyping import Float, Int
from scipy.special import erf

from interp.proofs.balls import UNDERFLOW, Arithmetic, Ball, BallMatrix, Weights, around_zero, upper
from interp.proofs.columns import Classes
from interp.proofs.constant_attention import BITS, ScalarAttention
from interp.proofs.normed_stream import stream
from interp.proofs.one_layer import OneLayerAdder

#: Pieces of one class's interval before its proof is given up: it is then undecided, and never certified.
MOST_PIECES = 4096
#: Pieces tried before cuts are looked at themselves: most classes are proved by fewer, and need no look.
_EASY = 8
_AT_ONCE = 2**13  # points of float margins, whose logits take a megabyte


def float_margins(
    adder: OneLayerAdder, attention: ScalarAttention, classes: Classes, points: int
) -> Float[np.ndarray, "n point"]:
    """Margins in float64 on an even grid over each class's range of s, both ends included.

    Not a bound: what lies between two points is not looked at. Cost: classes x points x (d_mlp + vocabulary).
    """
    share = np.linspace(0.0, 1.0, points)
    found = np.empty((len(classes), points))
    for rows in np.array_split(np.arange(len(classes)), max(1, len(classes) * points // _AT_ONCE)):
        low, high = (classes.ends[rows] * 2.0**-BITS).T
        s = low[:, None] * (1 - share) + high[:, None] * share
        stream = stream_behind(adder, attention, classes.target[rows], classes.token[rows], s)
        found[rows] = lead_of(logits_behind(adder, stream), classes.answer[rows, None])
    return found


def stream_behind(
    adder: OneLayerAdder,
    attention: ScalarAttention,
    target: Int[np.ndarray, " n"],
    token: Int[np.ndarray, " n"],
    s: Float[np.ndarray, "n point"],
) -> Float[np.ndarray, "n point d"]:
    """The stream behind an attention that writes ``s direction`` without any error, in float64."""
    positions = np.array(adder.layout.queries)[target]
    x = adder.W_E[token] + adder.W_pos[positions] + adder.b_O
    return x[:, None] + s[..., None] * attention.direction


def logits_behind(adder: OneLayerAdder, y: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows vocab"]:
    """Logits in float64 of streams behind the attention (``b_O`` added)."""
    pre = adder.normed(y, adder.ln2, adder.ln2_b) @ adder.W_in + adder.b_in
    post = pre / 2 * (1 + erf(pre / np.sqrt(2))) if adder.activation == "gelu" else np.maximum(pre, 0)
    y = y + post @ adder.W_out + adder.b_out
    return adder.normed(y, adder.ln_final, adder.ln_final_b) @ adder.W_U + adder.b_U


def lead_of(logits: Float[np.ndarray, "*rows vocab"], answer: Int[np.ndarray, "*#rows"]) -> Float[np.ndarray, "*rows"]:
    """The answers' logits less the best other ones."""
    answer = np.broadcast_to(answer, logits.shape[:-1])[..., None]
    right = np.take_along_axis(logits, answer, -1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, answer, -np.inf, -1)
    return right - others.max(-1)


@dataclass(frozen=True)
class Proof:
    """What bisection found on one class.

    Attributes:
        proved: whether the margin is above the level on the whole range.
        lowest: a lower bound of the margin where it was proved, NaN elsewhere.
        cuts: where the range was cut, in units of 2^-BITS; with them the proof is checked without search. (For branch
            and bound, which windows were split.)
        counts: how many of the class's problems were certified, refuted and left open, where a method can tell.
        wrong: a problem of those refuted.
    """

    proved: bool
    lowest: float
    cuts: tuple[int, ...]
    counts: tuple[int, int, int] | None = None
    wrong: tuple[int, int] | None = None


class Decision:
    """Margins in ball arithmetic. The precision is Arb's: 53 bits."""

    def __init__(self, adder: OneLayerAdder, attention: ScalarAttention, arithmetic: Arithmetic):
        self.adder, self.arithmetic = adder, arithmetic
        self.direction = [arb(x) for x in attention.direction.tolist()]
        self.error = [[around_zero(e) for e in row] for row in attention.error]
        self.b_O = [arb(x) for x in adder.b_O.tolist()]
        gains = [arb(g) for g in adder.ln2.tolist()]
        columns = adder.W_in.T.tolist()
        # [unit][d], the norm's gain multiplied in; [d][unit]
        self.w_in = Weights.of([[g * arb(w) for g, w in zip(gains, column, strict=True)] for column in columns])
        self.b_in = [arb(x) for x in adder.b_in.tolist()]
        self.w_out = Weights.of([[arb(x) for x in column] for column in adder.W_out.T.tolist()])
        self.b_out = [arb(x) for x in adder.b_out.tolist()]
        self.b_U = upper(arb(float(np.abs(adder.b_U).max())))
        self.underflow = around_zero(UNDERFLOW)
        self.streams: dict[tuple[int, int], list[Ball]] = {}
        self.rivals: dict[int, tuple[BallMatrix, BallMatrix, list[Ball]]] = {}

    def stream(self, token: int, position: int) -> list[Ball]:
        key = (token, position)
        if key not in self.streams:
            self.streams[key] = stream(self.adder, self.arithmetic, token, position)
        return self.streams[key]

    def _rivals(self, answer: int) -> tuple[BallMatrix, BallMatrix, list[Ball]]:
        """``w (U_answer - U_other)`` [other, d], the largest ``w (|U_answer| + |U_other|)`` [1, d], bias leads."""
        if answer not in self.rivals:
            gain, unembed = self.adder.ln_final.tolist(), self.adder.W_U.T.tolist()
            own, bias = unembed[answer], self.adder.b_U.tolist()
            others = [k for k in range(len(unembed)) if k != answer]
            rows = [[arb(g) * (arb(a) - arb(b)) for g, a, b in zip(gain, own, unembed[k], strict=True)] for k in others]
            sizes = []
            for i, g in enumerate(gain):
                size = arb(0)
                for k in others:
                    size = size.max((upper(arb(g)) * (upper(arb(own[i])) + upper(arb(unembed[k][i])))).upper())
                sizes.append(size)
            leads = [arb(bias[answer]) - arb(bias[k]) for k in others]
            self.rivals[answer] = arb_mat(rows), arb_mat([sizes]), leads
        return self.rivals[answer]

    def margin(self, target: int, token: int, answer: int, s: Ball) -> Ball:
        """A lower bound of ``min over others of (logit_answer - logit_other)``, for every s in a ball.

        Precondition: attention writes ``s direction + e`` with e within the errors of the query. Postcondition: where
        the bound is a number, no input with such an s has a smaller margin; NaN says nothing.

        Both norms divide by one positive number, which is taken out of the sums: it is left undivided there, so that
        s's own cancellation survives, and multiplies biases instead. Roundings as in :mod:`models.parts`.
        """
        adder, arithmetic = self.adder, self.arithmetic
        position = adder.layout.queries[target]
        d = len(self.direction)
        y = []
        for x, b, e, bias in zip(
            self.stream(token, position), self.direction, self.error[target], self.b_O, strict=True
        ):
            written = s * b + e
            y.append(arithmetic.rounded(x + (arithmetic.rounded(written + bias) if bias != 0 else written)))
        scale = arithmetic.rms(y, adder.eps, adder.eps_outside)
        posts = []
        # Each term was divided (2 u) and multiplied by the gain (u) before the product.
        for undivided, bias in zip(arithmetic.products(self.w_in, y, extra=3), self.b_in, strict=True):
            pre = undivided / scale
            if arithmetic.unit:
                pre = pre + self.underflow
            posts.append(arithmetic.activation(adder.activation, arithmetic.rounded(pre + bias) if bias != 0 else pre))
        after = []
        for v, out, bias in zip(y, arithmetic.products(self.w_out, posts), self.b_out, strict=True):
            after.append(arithmetic.rounded(v + (arithmetic.rounded(out + bias) if bias != 0 else out)))
        last = arithmetic.rms(after, adder.eps, adder.eps_outside)
        differences, sizes, bias_leads = self._rivals(answer)
        leads = (differences * arb_mat(d, 1, after)).entries()
        if self.b_U:
            leads = [lead + bias * last for lead, bias in zip(leads, bias_leads, strict=True)]
        lowest = leads[0]
        for lead in leads[1:]:
            lowest = lowest.min(lead)
        if arithmetic.unit:
            size = (sizes * arb_mat(d, 1, [upper(v) for v in after]))[0, 0]
            error = arithmetic.growth(d + 3) * size + last * self.underflow.upper()
            if self.b_U:  # adding a bias rounds both logits
                error = error + arithmetic.growth(1) * 2 * (size * 2 + last * self.b_U)
            lowest = lowest - error
        return (lowest.lower() / last).lower()

    def prove(self, target: int, token: int, answer: int, low: int, high: int, level: float) -> Proof:
        """Bisect [low, high] (units of 2^-BITS) until the margin is above ``level`` on every piece.

        Postcondition: ``proved`` only if it is, everywhere on the range. Cost: one :meth:`margin` a piece tried and,
        behind the first few, one a cut: where the bound at a cut is too low, no smaller piece can help, and it ends.
        """
        pieces, cuts, lowest, tried = [(low, high)], [], None, 0
        while pieces:
            a, b = pieces.pop()
            tried += 1
            found = self.margin(target, token, answer, between(a, b))
            if found > level:
                lowest = found if lowest is None else lowest.min(found)
                continue
            if tried > MOST_PIECES or b - a < 2:
                return Proof(False, float("nan"), ())
            middle = (a + b) // 2
            if tried > _EASY and not self.margin(target, token, answer, between(middle, middle)) > level:
                return Proof(False, float("nan"), ())  # no piece around this point can be proved either
            cuts.append(middle)
            pieces += [(middle, b), (a, middle)]
        assert lowest is not None
        return Proof(True, below(lowest), tuple(sorted(cuts)))

    def verify(self, target: int, token: int, answer: int, ends: tuple[int, ...], level: float) -> bool:
        """Whether the margin is above ``level`` on every piece between neighbouring ends (units of 2^-BITS)."""
        if any(a > b for a, b in pairwise(ends)):
            return False
        return all(self.margin(target, token, answer, between(a, b)) > level for a, b in pairwise(ends))


def between(low: int, high: int) -> Ball:
    """The ball around [low, high], in units of 2^-BITS."""
    return arb(low).union(arb(high)) / 2**BITS


def below(x: Ball) -> float:
    """A float that is at most an exact ball."""
    return math.nextafter(float(x), -math.inf)
