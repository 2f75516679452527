"""What attention reads: the normed stream of one token at one position, in ball arithmetic."""

from __future__ import annotations

from flint import arb

from interp.proofs.balls import Arithmetic, Ball
from interp.proofs.one_layer import OneLayerAdder


def stream(adder: OneLayerAdder, arithmetic: Arithmetic, token: int, position: int) -> list[Ball]:
    """``W_E[token] + W_pos[position]``: exact, or the float that it is stored as."""
    if arithmetic.unit:
        return [arb(value) for value in adder.stream(token, position).tolist()]
    both = zip(adder.W_E[token].tolist(), adder.W_pos[position].tolist(), strict=True)
    return [arb(a) + arb(b) for a, b in both]


def normed_stream(adder: OneLayerAdder, arithmetic: Arithmetic, token: int, position: int) -> list[Ball]:
    """``ln1`` of a token at a position, d balls: ``x / scale * w (+ b)``, after subtracting the mean for LayerNorm.

    Rounding: the quotient is off by a unit in the last place (2 u), the product by one rounding, the bias's sum by one.
    """
    x = stream(adder, arithmetic, token, position)
    if adder.centred:
        x = arithmetic.centred(x)
    scale = arithmetic.rms(x, adder.eps, adder.eps_outside)
    normed = [arithmetic.rounded(v / scale * w, 3) for v, w in zip(x, adder.ln1.tolist(), strict=True)]
    biased = zip(normed, adder.ln1_b.tolist(), strict=True)
    return [arithmetic.rounded(v + b) if b else v for v, b in biased]
