"""The temperatures eta at which the hand-built transformer works: a window, not "arbitrarily large".

**Below, attention leaks.** A key that differs from the query in d of the P signs scores ``eta (P - 2 d)`` and so weighs
``e^(-2 eta d)`` against 1 for a match. Codes are vertices of a hypercube and at most two tokens have the same pair of
ids (a digit of a_i and the same digit of b_{i-1}), so all wrong keys of heads 1, 2 and 4 together weigh at most

    E  = 2 ((1 + e^(-2 eta))^P - 1)

however long the sequence is. Head 3 sees level 1 only, where up to 2 m + 1 tokens share an id:

    E3 = (2 m + 1) ((1 + e^(-2 eta))^P1 - 1)

Leaked values are 3 NUM <= 27, so with x matched keys a digit sum moves up by at most 27 E / (x + E) and a carry by a
tenth of that; the sum of 18 moves down by at most 18 E / (x + E). ``g`` starts between 0.11 and 0.21 above the right
knot, and the right digit wins as long as it stays between -0.25 and 0.75:

    29.7 E / (1 + E) < 0.54        from the first rows, where BOS is the only match (x = 1)
    19.8 E / (3 + E) < 0.36        two digits to be added (x = 3)

PRE_ARROW is 1 / (1 + E3) after a last digit, and ">" (10 ARROW) must beat a digit's 1; "$" must beat ">" at the very
end, where PRE_EOS is 1 / (2 + E):

    t = E3 / (1 + E3) < 0.45
    180 t + 300 E / (2 + E) < 90

The lower end is the smallest eta that keeps all four. It grows with log P for heads 1, 2, 4 and with log m for head 3.

**Above, the tie with BOS breaks.** The score of a match is a sum of P rounded products of a rounded sqrt(eta), that of
BOS one product of a rounded sqrt(eta P). With unit roundoff u they differ by

    |d| <= eta P ((1 + u)^(P + 2) + (1 + u)^3 - 2)  ~  eta P (P + 5) u

in whatever order the sum is taken, and BOS weighs ``e^d`` instead of 1. The most sensitive place is a digit of b_m,
where PRE_EOS is 1/2 and EOS cancels to 0: an excess of d / 4 in PRE_EOS (and, with one operand, in PRE_ARROW, which is
1/2 there too) gives "$" the logit 100 (6 + 2) d / 4 against the digit's 1. Hence ``d < 1 / 200``. (A negative d makes
"$" less likely there, and at the end it fails only from 0.6 on.)

Both ends are bounds, so failures begin somewhat outside: at 30 x 30 the window of float32 is (3.54, 477), and wrong
answers were measured up to eta = 2.8 and, among integers, from 2997 on.

The upper end is sufficient for every eta below it. Beyond it a temperature can be right by luck, or because nothing is
rounded: sqrt(eta) is exact for powers of 4, and the score of BOS for ``bos_tie="split"``, so that the tie is exact
(:func:`tie_error` gives 0). In half precision only such temperatures work, such as the default, 16; the window itself
is empty (low > high).
"""

from __future__ import annotations

import math

import torch

from models.errors import UserError, unknown_name
from models.hand_built.position_coupling_addition import HEADS, HandBuiltOptions
from models.hooked import HookedModel

DTYPES = ("float32", "float64", "bfloat16", "float16")
LARGEST_TIE_ERROR = 1 / 200
_CEILING = 64.0  # leakage is below 1e-40 from here on, at any size


def eta_window(max_operands: int, max_digits: int, dtype: str = "float32") -> tuple[float, float]:
    """(low, high): every eta between them is right on every problem of the size in ``dtype``; the module says why.

    ``low > high`` means that rounding alone rules every general eta out (half precision).

    Raises:
        UserError: sizes or dtypes that the construction does not take.
    """
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    P1, P2 = HandBuiltOptions(max_operands, max_digits).position_bits
    low, high = 0.0, _CEILING
    for _ in range(60):  # bisection: leakage falls with eta
        middle = (low + high) / 2
        low, high = (low, middle) if leakage_is_harmless(middle, max_operands, P1, P2) else (middle, high)
    u, P = torch.finfo(getattr(torch, dtype)).eps / 2, P1 + P2
    relative = math.expm1((P + 2) * math.log1p(u)) + math.expm1(3 * math.log1p(u))
    return high, LARGEST_TIE_ERROR / (P * relative)


def leakage_is_harmless(eta: float, max_operands: int, P1: int, P2: int) -> bool:
    """Whether the module's four inequalities hold."""
    flip = math.log1p(math.exp(-2 * eta))
    E = 2 * math.expm1((P1 + P2) * flip)
    E3 = (2 * max_operands + 1) * math.expm1(P1 * flip)
    t = E3 / (1 + E3)
    return 29.7 * E / (1 + E) < 0.54 and 19.8 * E / (3 + E) < 0.36 and t < 0.45 and 180 * t + 300 * E / (2 + E) < 90


def tie_error(model: HookedModel) -> list[float]:
    """For each head, the computed score of BOS minus the computed score of a match: 0 where the tie is exact.

    Computed in the model's dtype by the same products and sums as in the forward pass.
    """
    weight_map = model.weight_map
    if not isinstance(getattr(weight_map, "options", None), HandBuiltOptions):
        raise UserError("Only the hand-built transformer has a tie between BOS and matching keys.")
    with torch.no_grad():
        weights = model.effective_weights()
        positions, dims = weights["pos_embed.W_pos"], weight_map.dims
        errors = []
        for head, (query1, level2, *_) in enumerate(HEADS):
            # Take a query and a key with the same codes: id 1 in whichever slots this head reads.
            query = weights["embed.W_E"][0] * 1.0
            key, code1, code2 = query * 1.0, positions[0, 1], positions[1, 1]
            move = lambda vector, code, source, slot: _with(vector, dims[slot], code[dims[source]])  # noqa: E731
            query, key = move(query, code1, "POS_1", query1), move(key, code1, "POS_1", "POS_1")
            if level2 is not None:
                query, key = move(query, code2, "POS_2", level2[0]), move(key, code2, "POS_2", level2[1])
            bos = weights["embed.W_E"][model.task.special]
            q = query @ weights["blocks.0.attn.W_Q"][head]
            k = torch.stack((bos, key)) @ weights["blocks.0.attn.W_K"][head]
            scores = (q[None] @ k.T)[0].double()
            errors.append(float(scores[0] - scores[1]))
    return errors


def _with(vector: torch.Tensor, where: slice, value: torch.Tensor) -> torch.Tensor:
    return torch.cat((vector[: where.start], value, vector[where.stop :]))
