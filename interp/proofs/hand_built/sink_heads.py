"""Heads of hand-built models, exactly: their scores see only positions and BOS, and BOS is the sink of every pattern.

Weights are exact rationals here (floats are dyadic), and so are scores. What is not rational, a softmax's exponentials,
is enclosed in ball arithmetic, around the hard-max limit in which a matching key has exactly the weight of BOS and all
others have zero. With :data:`~interp.proofs.numbers.rounded_operations.FLOAT32` the enclosures include what the forward
pass rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq

from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.numbers.arb_balls import Ball, around_zero, growth, hull, upper
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import FUSED_EXP


def exact(values: Any) -> np.ndarray:
    """Floats as Fractions, entry by entry, without rounding."""
    array = np.asarray(values, dtype=np.float64)
    return np.array([Fraction(x) for x in array.flat], dtype=object).reshape(array.shape)


def ball(x: Fraction) -> Ball:
    """A ball around the number."""
    return arb(fmpq(x.numerator, x.denominator))


@dataclass(frozen=True, eq=False)
class SinkWrites:
    """What a head can write whose ``x W_V`` does not depend on positions.

    Attributes:
        writes: [token, d_model], ``W_E[token] W_V W_O``, exactly.
        written_size: [token, d_model], a bound of the magnitudes that this is summed from, at any position.
        terms: the most roundings that go into it; adding an exact zero rounds nothing.
    """

    writes: np.ndarray
    written_size: np.ndarray
    terms: int

    @classmethod
    def of(cls, W_E: np.ndarray, W_pos: np.ndarray, W_V: np.ndarray, W_O: np.ndarray) -> SinkWrites:
        """Read it off one head's float weights; ``W_pos`` [id, d_model] has the ids of all levels.

        Raises:
            NotSeparated: values depend on the position.
        """
        rows, columns = W_V.any(1), W_V.any(0)  # Fractions are slow, and most of these weights are 0
        tokens, places, values, output = (
            exact(part) for part in (W_E[:, rows], W_pos[:, rows], W_V[rows][:, columns], W_O[columns])
        )
        if (places @ values).any():
            raise NotSeparated("values depend on the position")
        size = (abs(tokens) + abs(places).max(0)) @ abs(values) @ abs(output)
        terms = int((W_V != 0).sum(0).max() + (W_O != 0).sum(0).max()) + 4
        return cls(tokens @ values @ output, size, terms)


@dataclass(frozen=True, eq=False)
class SinkHead(SinkWrites):
    """A head whose ``x W_Q`` and ``x W_K`` do not depend on digits, nor its ``x W_V`` on positions.

    Attributes:
        gap: [query id, key id], the key's score minus that of BOS, exactly.
        size: [query id, key id], a bound of the magnitudes that the two scores are summed from.
    """

    gap: np.ndarray
    size: np.ndarray

    @classmethod
    def read(cls, weights: Mapping[str, np.ndarray], ids: int, bos: int, scale: float) -> SinkHead:
        """The first head of a model with one level of ids. Precondition: only BOS has id 0.

        Raises:
            NotSeparated: the weights couple digits and positions.
        """
        floats = [weights["embed.W_E"], weights["pos_embed.W_pos"][0][:ids]]
        own = {letter: weights[f"blocks.0.attn.W_{letter}"][0] for letter in "QKVO"}
        W_E, W_pos, W_Q, W_K = (exact(part) for part in (*floats, own["Q"], own["K"]))
        others = np.arange(len(W_E)) != bos
        query, key = W_E @ W_Q, W_E @ W_K
        for holds, what in (
            (not W_pos[0].any(), "BOS has a position code"),
            ((query[others] == query[others][0]).all(), "queries depend on the token"),
            ((key[others] == key[others][0]).all(), "keys depend on the digit"),
        ):
            if not holds:
                raise NotSeparated(what)
        q, k = query[others][0] + W_pos @ W_Q, key[others][0] + W_pos @ W_K
        score, at_bos = q @ k.T, q @ key[bos]
        magnitude = lambda tokens, W: abs(W_E[tokens]).max(0) @ abs(W) + abs(W_pos) @ abs(W)  # noqa: E731
        of_query, of_key = magnitude(others, W_Q), magnitude(others, W_K)
        of_bos = abs(W_E[bos]) @ abs(W_K)
        size = of_query @ of_key.T + (of_query @ of_bos)[:, None]
        divisor, written = Fraction(scale), SinkWrites.of(floats[0], floats[1], own["V"], own["O"])
        gap = (score - at_bos[:, None]) / divisor
        return cls(**vars(written), gap=gap, size=size / divisor)

    def weights(self, arithmetic: Rounding, widths: int) -> np.ndarray:
        """Balls [query id, key id] around a key's computed weight before normalisation, where BOS has weight 1.

        ``widths`` is the number of roundings in a score of magnitude 1: those of x, q, k and their product.
        """
        found = np.empty(self.gap.shape, dtype=object)
        known: dict[tuple[Fraction, Fraction], Ball] = {}
        for at, gap in np.ndenumerate(self.gap):
            key = gap, self.size.item(at)
            if key not in known:
                error = growth(arithmetic, widths) * ball(key[1]) + growth(arithmetic, 2) * abs(ball(gap))
                known[key] = (ball(gap) + around_zero(upper(error))).exp()
            found[at] = known[key]
        return found


@dataclass(frozen=True, eq=False)
class Pattern:
    """What one query attends to: balls for the shares of BOS and of the matches, and a bound for all other keys."""

    bos: Ball
    match: Ball
    rest: Ball
    keys: int

    @classmethod
    def of(cls, match: Ball | None, rest: Ball, keys: int, arithmetic: Rounding, matches: int = 1) -> Pattern:
        """The pattern from unnormalised weights, where BOS has 1; ``match`` (of up to ``matches`` keys) may be None.

        Lemma: ``fl(a + b)`` is off by at most ``min(|a|, |b|)``, since it could have been rounded to a or to b. In a
        sum of a few large terms and of n small ones that add up to s, in any order, the additions of small terms alone
        and those of their sums to something larger are therefore off by at most 2 s together (n < 2^20), and only the
        few others round by u of what they add up. :func:`lost` has this, or n u if that is less.
        """
        near = arb(0) if match is None else match
        leak = rest.upper()
        off = lost(leak, 1 + near + leak, keys, arithmetic)
        total = (1 + near - off).union(1 + near + leak + off)
        # roundings of exp, the sum over large keys, the quotient, and the products with values summed over large keys
        relative = growth(arithmetic, 2 * FUSED_EXP + 2 * (matches + 1) + 6)
        spread = 1 + around_zero(relative)
        return cls(1 / total * spread, near / total * spread, (leak / (1 + near - off) * spread).upper(), keys)

    def writes(self, head: SinkWrites, bos: int, match: Collection[int], arithmetic: Rounding) -> list[Ball]:
        """What the head adds to the residual stream; matches may be any of ``match``, the rest any token but BOS."""
        others = [token for token in range(len(head.writes)) if token != bos]
        found = []
        for column in range(head.writes.shape[1]):
            values, sizes = head.writes[:, column], head.written_size[:, column]
            if not sizes.any():
                found.append(arb(0))
                continue
            total, size = self.bos * ball(values[bos]), upper(self.bos) * ball(sizes[bos])
            if match:
                total += hull([self.match * ball(values[token]) for token in match])
                size += upper(self.match) * ball(max(sizes[token] for token in match))
            # All other keys are some mixture of tokens with this weight.
            total += hull([arb(0), *(ball(values[token]) * self.rest for token in others)])
            small = self.rest * ball(max(sizes[token] for token in others))
            size += small
            off = growth(arithmetic, head.terms) * size + lost(small, size, self.keys, arithmetic)
            found.append(total + around_zero(upper(off)))
        return found


def lost(small: Ball, size: Ball, terms: int, arithmetic: Rounding) -> Ball:
    """How much rounding small terms add to a sum, see :meth:`Pattern.of`; ``size`` is that of all terms."""
    if not arithmetic.unit32:
        return arb(0)
    either = 2 * small.upper(), growth(arithmetic, terms) * size.upper()
    return either[0] if either[0] < either[1] else either[1]
