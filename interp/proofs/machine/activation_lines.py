"""Lines above and below the activations of neurons, on the intervals of what they read.

For a slope k, the best line ``k z + c`` below f on [low, high] has ``c = min (f(z) - k z)``
(:meth:`interp.proofs.numbers.activation_functions.OnIntervals.beside`).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.machine.post_attention import AfterAttention
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.rounding_errors import OWN

CELLS = 32


def lines(
    name: str, low: Float[Tensor, "*n"], high: Float[Tensor, "*n"], middle: Float[Tensor, "*n"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(slope below, constant below, slope above, constant above), each [kind, *n]: several pairs of lines that enclose
    the activation on [low, high]. ``middle`` says where values are to be expected."""
    kind, middle = ACTIVATIONS[name], torch.minimum(torch.maximum(middle, low), high)
    on = kind.on(low.numpy(), high.numpy(), CELLS)
    away = on.z - on.z.mean(0)
    fitted = (on.f * away).sum(0) / (away**2).sum(0).clip(1e-18)
    slopes = on.chord(), fitted, kind.slope(middle).numpy()
    below, above = zip(*on.beside(*slopes), strict=True)
    under, over = (2, 1, 0, 2), (0, 1, 0, 2)
    pick = lambda parts, at: torch.from_numpy(np.stack([parts[n] for n in at]))  # noqa: E731
    return pick(slopes, under), pick(below, under), pick(slopes, over), pick(above, over)


class Neurons:
    """The neurons of an MLP on some nodes: lines around their activations.

    Attributes:
        low, high: bounds of what they read, [node, reader]. act_range: bounds of their activations.
        least, most: bounds of what they write by, which is the activation, or its product with another reading.
    """

    def __init__(
        self,
        layers: AfterAttention,
        low: Float[Tensor, "node reader"],
        high: Float[Tensor, "node reader"],
        z: Float[Tensor, "node sample reader"],
    ):
        """``z`` is what they read on some sampled paths, from which guesses come."""
        self.layers, self.low, self.high, self.z = layers, low, high, z
        name, m = layers.config.act_fn, layers.config.d_mlp
        self.lines = lines(name, low[:, :m], high[:, :m], z[..., :m].mean(1))
        ends = ACTIVATIONS[name].on(low[:, :m].numpy(), high[:, :m].numpy()).range()
        least, most = map(torch.from_numpy, ends)
        slack = OWN * (low[:, :m].abs() + high[:, :m].abs() + 1)  # for products in float64
        self.act_range = self.least, self.most = least - slack, most + slack
        if layers.config.gated_mlp:
            corners = torch.stack([a * other for a in self.act_range for other in (low[:, m:], high[:, m:])])
            self.least, self.most = corners.amin(0) + layers.b_in, corners.amax(0) + layers.b_in

    def linear(self, A: Float[Tensor, "node row neuron"]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Lower bounds of ``A . hidden`` as ``slopes . z + constant``: (slopes [node, row, reader], constant, size) of
        several choices of lines, for z without what the biases add."""
        layers = self.layers
        if self.layers.config.gated_mlp:
            return self._gated(A)
        found = [self._of_lines(A, k) for k in range(len(self.lines[0]))]
        found.append(self._of_lines(A, self._closest()))
        return [(s, c + s @ layers.g, size + s.abs() @ layers.g.abs()) for s, c, size in found]

    def _closest(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For each neuron, the lines that are closest to its activation on average over the samples."""
        z = self.z[..., : self.layers.config.d_mlp]
        middle = z.mean(1)
        below, c_below, above, c_above = self.lines
        lower, upper = (below * middle + c_below).argmax(0), (above * middle + c_above).argmin(0)
        pick = lambda x, at: x.gather(0, at[None])[0]  # noqa: E731
        return pick(below, lower), pick(c_below, lower), pick(above, upper), pick(c_above, upper)

    def _of_lines(self, A: Tensor, which: int | tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        below, c_below, above, c_above = (x[which] for x in self.lines) if isinstance(which, int) else which
        up, down = A.clamp_min(0.0), A.clamp_max(0.0)
        slopes = up * below[:, None] + down * above[:, None]
        constant = (up @ c_below[..., None] + down @ c_above[..., None])[..., 0]
        size = (up @ c_below.abs()[..., None] - down @ c_above.abs()[..., None])[..., 0]
        return slopes, constant, size

    def _gated(self, A: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For a gated neuron: ``act(z) y`` lies above a plane of its two factors on the box of their ranges.

        With (p, q) any point, ``a y = p y + q a - p q + (a - p)(y - q)``, whose last term is bounded by the corners of
        the box. At a corner it has one sign (McCormick); at the middle the smallest size.
        """
        layers, m = self.layers, self.layers.config.d_mlp
        low, high = self.act_range
        y_low, y_high = self.low[:, m:], self.high[:, m:]
        a_mean = ACTIVATIONS[layers.config.act_fn].value(self.z[..., :m]).mean(1)
        y_mean = self.z[..., m:].mean(1)
        closest = self._closest()
        found = []
        middle = ((low + high) / 2, (y_low + y_high) / 2)
        mean = (torch.minimum(torch.maximum(a_mean, low), high), torch.minimum(torch.maximum(y_mean, y_low), y_high))
        corners = ((low, y_low), (high, y_high), (low, y_high), (high, y_low))
        remainder = lambda p, q: torch.stack(  # noqa: E731
            [(a - p) * (y - q) for a in (low, high) for y in (y_low, y_high)]
        )
        planes = []
        for p, q in (middle, mean, *corners):
            rest = remainder(p, q)
            planes.append((p, q, -p * q + rest.amin(0), -p * q + rest.amax(0)))
        at = torch.stack([p * y_mean + q * a_mean + c for p, q, c, _ in planes])
        under = at.argmax(0)
        over = torch.stack([p * y_mean + q * a_mean + c for p, q, _, c in planes]).argmin(0)
        stacked = [torch.stack(part) for part in zip(*planes, strict=True)]
        pick = lambda k, which: stacked[k].gather(0, which[None])[0]  # noqa: E731
        best = (pick(0, under), pick(1, under), pick(2, under), pick(0, over), pick(1, over), pick(3, over))
        choices = [best, *((p, q, c, p, q, e) for p, q, c, e in planes[:2])]
        up, down = A.clamp_min(0.0), A.clamp_max(0.0)
        for p, q, c, p2, q2, c2 in choices:
            on_linear = up * p[:, None] + down * p2[:, None]
            on_gate = up * q[:, None] + down * q2[:, None]
            constant = (up @ c[..., None] + down @ c2[..., None])[..., 0] + A @ layers.b_in
            size = (up @ c.abs()[..., None] - down @ c2.abs()[..., None])[..., 0] + A.abs() @ layers.b_in.abs()
            for which in (closest, 0, 1):
                slopes, more, other = self._of_lines(on_gate, which)
                slopes = torch.cat((slopes, on_linear), -1)
                constants = constant + more + slopes @ layers.g
                found.append((slopes, constants, size + other + slopes.abs() @ layers.g.abs()))
        return found

    def looseness(self, row: Tensor) -> Tensor:
        """[node, reader]: what the lines lose at each neuron, over the width of what it reads."""
        m, (below, c_below, above, c_above) = self.layers.config.d_mlp, self._closest()
        gate_low, gate_high = self.low[:, :m], self.high[:, :m]
        middle = (gate_low + gate_high) / 2
        gap = (above - below) * middle + c_above - c_below
        if not self.layers.config.gated_mlp:
            return row * gap / (gate_high - gate_low).clamp_min(1e-9)
        wide = self.act_range[1] - self.act_range[0]
        other = self.high[:, m:] - self.low[:, m:]
        size = torch.maximum(self.high[:, m:].abs(), self.low[:, m:].abs())
        on_gate = row * (gap * size + wide * other / 4) / (gate_high - gate_low).clamp_min(1e-9)
        return torch.cat((on_gate, row * wide / 4), 1)
