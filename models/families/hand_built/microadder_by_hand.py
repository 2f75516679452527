"""MicroAdder's 57 and 67 parameters set by hand: a few values of at most three digits, all others 0, 1 or -1.

The parametrisation is that of :mod:`models.families.microadder`, so that trained and hand-set numbers can be compared
(``interp compare``). Algorithm and signs are those of :mod:`models.families.hand_built.adders`, whose docstring
derives them; this one says how MicroAdder's numbers relate to them. The values were solved from these relations and
then moved on a grid of two to three digits until the smallest margin over all 10^20 problems was largest.

Token plane. The arc is centred on 45 degrees, ``start = 45 - 4.5 stride``: along ``r = (1, 1) / sqrt 2`` lies
``A cos psi_d``, along ``t = (1, -1) / sqrt 2`` lies ``-A sin psi_d``, with ``psi_d = (d - 4.5) stride``. Every matrix
that reads or writes the plane is [[a, b], [b, a]]: it keeps r and t apart, and commutes with d -> 9 - d, as addition
does. All norm gains are 1: ``n(x) = x sqrt(5) / |x|``.

Attention. ``W_qk`` is k, k, ks on the axes, and its fourth row is zero. The rotation by ``q_angle`` turns both the
circle's rows and the slope's row (whose partner is the empty row, so that it is left with ks cos q_angle). Between
columns i and j the score is

    5 / (2 |x_i| |x_j|) (k^2 3.5^2 cos(36 (j - i) - angle) + ks^2 cos(angle) 0.15^2 i j),
    |x_i|^2 = A^2 + 3.5^2 + (0.15 i)^2

The next column weighs ten times the own one if the circle's part differs by ln 10: the larger k is, the less the angle
exceeds half a column (18 degrees). The slope serves one query only: after Z_9, columns 10 and 0 are the same place
on the circle, and equals, at half a column before the first, must win over X_0 and Y_0. It also makes far columns
look farther the more to the right the query is: the ratio drifts from 9 to 12 over the columns.

Values. ``H o_A = (h1 - h2) sqrt 2 t``, so ``2 o (h1 - h2) sqrt(5) / |x|`` is how much attention writes of the weighed
tangents it reads: beta = 11.5 would be exact for a ratio of 10 (see there), against the previous answer's own.

Units. Both read the tangent, with opposite signs: one is on with, the other without a carry out of the column.

    p = c sqrt(2) n(y)_t,  gelu(p) - gelu(-p) = p,  gelu(p) + gelu(-p) = p erf(p / sqrt 2) ~ |p|
    tangent += (h1 - h2) / sqrt 2 p                       slope += s |p|                       F = H
    tan(angle) = (h1 - h2) (tau + (h1 - h2) / sqrt 2 p) / (sqrt 2 s (s |p| + 0.15 i) + (h1 + h2) (...))

which is the tooth of a saw: its sign steps with tau, at digit sums of 9.5, and its flank is linear in |y|, which
passes ``|h1 - h2| c sqrt 5`` where the answer is 4.5. ``s`` makes the slope dimension, of which no more than 1.35 is
position, the radial reading. ``h1 + h2``, small, is the only number whose size was not derived.

EOS. ``z_hi`` lies far up the slope: the query after Z_10 sees nothing but itself, token 0 or 1, and writes ten times
what it holds, as without a carry; and 40 s makes the radial reading negative, so that the lowest digit wins.

67 has W_fc2 of its own. It is set to W_head, which costs 57 nothing.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from models.families.microadder import MicroAdderWeights
from models.families.microadder_ladder import rung
from models.registry import ModelSpec, register

#: The numbers that were chosen. Angles are degrees.
A, STRIDE, ANGLE = 9.8, 6.3, 21.2
K, KS = 14.9, 10.7
EQUALS = (3.54, -1.11, -0.1)
Z_HI = 40.0
OUT, C = 3.0, 1.4
H1, H2, S = -5.0, 4.4, -8.2


def by_hand() -> dict[str, list]:
    """Every free number of 67 (and, without W_fc2, of 57), by name."""
    head = [[H1, H2, 0, 0, S], [H2, H1, 0, 0, S]]
    return {
        "arc_A": [A],
        "arc_start": [math.radians(45 - 4.5 * STRIDE)],
        "arc_stride": [math.radians(STRIDE)],
        "pos_equals": [*EQUALS],
        "pos_z_hi": [0, 0, Z_HI],
        "q_angle": [math.radians(ANGLE)],
        "W_qk": [[K, 0, 0], [0, K, 0], [0, 0, KS], [0, 0, 0]],
        "out_A": [1, -1, 0, 0, 0],
        "out_B": [OUT, -OUT, 0, 0, 0],
        "W_fc1": [[C, -C, 0, 0, 0], [-C, C, 0, 0, 0]],
        "W_fc2": head,
        "W_head": head,
        "norm_w": [1] * 5,
    }


class MicroAdderByHand(MicroAdderWeights):
    """A MicroAdder that has the numbers of :func:`by_hand` for every seed."""

    def initialise(self, generator: torch.Generator) -> None:
        """Set the numbers; nothing is random."""
        numbers = by_hand()
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(torch.tensor(numbers[name], dtype=torch.float64).reshape(parameter.shape))


for _n in (57, 67):
    register(
        ModelSpec(
            name=f"microadder-{_n}-by-hand",
            weight_map=partial(MicroAdderByHand, rung(_n).options),
            task=rung(_n).options.task,
            recipe=None,
            source="this project, in the parametrisation of MicroAdder (Zarechnev 2026), section 2",
        )
    )
