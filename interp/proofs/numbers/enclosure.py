"""Balls around the entries of tensors, and the known matrices that they are multiplied with.

Radii are sums and products of numbers that are not negative, computed in float64 with a relative error of a few hundred
times 2^-53 at most; :func:`~interp.proofs.numbers.rounding_errors.up` makes up for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.numbers.rounding_errors import DOUBLE, LEAST, OWN, OWN_OF_RADII, up


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Balls: every entry of what is enclosed is within ``rad`` of ``mid``, and every vector along the last axis within
    ``norm`` of its midpoint, in Euclidean length. All are float64.

    The second radius makes deep models possible: a matrix stretches a vector of errors by at most its spectral norm,
    which is many times less than sums of magnitudes allow for the entries one by one. Each of the two radii is made as
    small as the other allows.
    """

    mid: Float[Tensor, "*shape d"]
    rad: Float[Tensor, "*shape d"]
    norm: Float[Tensor, "*shape"]

    @classmethod
    def of(cls, mid: Tensor, rad: Tensor, norm: Tensor | None = None) -> Enclosure:
        length = up(rad.norm(dim=-1), rad.shape[-1])
        if norm is None:
            return cls(mid, rad, length)
        norm = torch.minimum(norm, length)
        return cls(mid, torch.minimum(rad, norm[..., None]), norm)

    @classmethod
    def apart(cls, mid: Tensor, rad: Tensor) -> Enclosure:
        """An enclosure entry by entry only, where the length is not needed."""
        return cls(mid, rad, rad.new_full((), torch.inf).expand(rad.shape[:-1]))

    @classmethod
    def exact(cls, value: Tensor) -> Enclosure:
        """An enclosure of numbers that are known exactly."""
        value = value.double()
        return cls(value, torch.zeros_like(value), value.new_zeros(value.shape[:-1]))

    @property
    def low(self) -> Tensor:
        return self.mid - self.rad - DOUBLE * 2 * (self.mid.abs() + self.rad)

    @property
    def high(self) -> Tensor:
        return self.mid + self.rad + DOUBLE * 2 * (self.mid.abs() + self.rad)

    @property
    def size(self) -> Tensor:
        """Upper bounds of the magnitudes."""
        return up(self.mid.abs() + self.rad)

    @property
    def length(self) -> Tensor:
        """Upper bounds of the vectors' lengths."""
        return up(self.mid.norm(dim=-1) + self.norm, self.mid.shape[-1])

    def __getitem__(self, at: Any) -> Enclosure:
        """Some vectors, by an index of all axes but the last."""
        return Enclosure(self.mid[at], self.rad[at], self.norm[at])

    def with_errors(self, errors: list[Tensor]) -> Enclosure:
        """The same enclosure with these magnitudes added to its radii."""
        rad, norm = self.rad, self.norm
        for error in errors:
            rad, norm = rad + error, norm + up(error.norm(dim=-1), error.shape[-1])
        return Enclosure.of(self.mid, up(rad), up(norm))

    def heads_first(self) -> Enclosure:
        """[node, head, d] as [head, node, d]."""
        mid, rad, norm = (part.transpose(0, 1).contiguous() for part in (self.mid, self.rad, self.norm))
        return Enclosure(mid, rad, norm)


def smallest_lead(logits: Enclosure, target: Int[Tensor, " case"]) -> float:
    """The smallest lead of the target's logit over all others, over all cases; -inf if it is not a number."""
    low = logits.low.gather(1, target[:, None])[:, 0]
    others = logits.high.scatter(1, target[:, None], -torch.inf).amax(1)
    lead = low - others - 2 * DOUBLE * (low.abs() + others.abs())
    return float(lead.nan_to_num(nan=-torch.inf).min())


@dataclass(frozen=True, eq=False)
class Normed:
    """A ball, with errors that all entries of a vector share: ``ball + sum_m t_m along_m``, ``|t_m| <= reach_m``.

    A matrix maps each of these directions to one vector, and does not stretch it as it may stretch the worst one.
    """

    ball: Enclosure
    along: tuple[tuple[Float[Tensor, "*shape d"], Float[Tensor, "*shape 1"]], ...]

    def __getitem__(self, rows: Tensor) -> Normed:
        """Some rows along the first axis."""
        along = tuple((vector[rows], reach[rows]) for vector, reach in self.along)
        return Normed(self.ball[rows], along)

    @property
    def whole(self) -> Enclosure:
        """The same enclosure as one ball."""
        return self.ball.with_errors([up(vector.abs() * reach) for vector, reach in self.along])


@dataclass(frozen=True, eq=False)
class Attended:
    """Keys or values [head, node, d] with the bounds that attention needs; :meth:`at` gathers [head, query, key, d].

    ``wide`` are radii, of values with the roundings of a sum of products (``norm`` too). They may be one bound for all
    entries of a vector, [head, node, 1].
    """

    mid: Tensor
    wide: Tensor
    norm: Tensor
    length: Tensor

    def at(self, above: Int[Tensor, "query key"]) -> Attended:
        return Attended(*(getattr(self, field.name)[:, above] for field in fields(self)))


@dataclass(frozen=True)
class TrimmedMatrix:
    """A matrix [input, output] of known numbers, without the rows of zeros at its start and end.

    Attributes:
        used: which entries of the input it reads.
        sizes: magnitudes. columns: lengths of the columns. filled: how many entries of each column are not zero.
        stretch: spectral norms, one for each head's columns.
    """

    values: Float[Tensor, "input output"]
    used: slice
    sizes: Float[Tensor, "input output"]
    columns: Float[Tensor, " output"]
    filled: Float[Tensor, " output"]
    stretch: Float[Tensor, " head"]

    @classmethod
    def of(cls, values: Tensor, heads: int = 1) -> TrimmedMatrix:
        values = values.double()
        rows = values.any(1).nonzero()[:, 0].tolist() or [0]
        used = slice(rows[0], rows[-1] + 1)
        values = values[used].contiguous()
        stretch = [stretch_of(part) for part in values.chunk(heads, 1)]
        filled = (values != 0).sum(0).double()
        columns = up(values.norm(dim=0), len(values))
        return cls(values, used, values.abs(), columns, filled, torch.tensor(stretch, dtype=torch.float64))


def stretch_of(values: Float[Tensor, "input output"]) -> float:
    """An upper bound of a matrix's spectral norm, at most 1% above it.

    ``|W|^2 = |G|`` with G = W W^T, and ``|G|^m = |G^m|``, which is at most the Frobenius norm of G^m. Powers are
    squared in float64, ``G^m = 2^bits (power + E)``, and ``off`` bounds the Frobenius norm of E.
    """
    values = values.double()
    power = values @ values.T if len(values) <= values.shape[1] else values.T @ values
    n, trace = len(power), float(power.trace())
    if not trace > LEAST:  # squares vanish, and nothing is stretched by more than the sum of all magnitudes
        return float(values.abs().sum()) * (1 + OWN_OF_RADII)
    bits, m, off = math.log2(trace), 1, 4 * max(values.shape) * DOUBLE
    power = power / trace
    found = math.inf
    for _ in range(10):
        length = float(power.norm()) * (1 + OWN)
        found = min(found, (bits + math.log2(length + off)) / m)
        off = (2 * length * off + off**2 + 4 * n * DOUBLE * length**2) / length**2 * (1 + OWN_OF_RADII)
        power, bits, m = power @ power / length**2, 2 * (bits + math.log2(length)), 2 * m
    return 2 ** (found / 2) * (1 + OWN_OF_RADII) if found < math.inf else math.inf


@dataclass(frozen=True, eq=False)
class Chosen:
    """Which keys surely take part, and which surely do not. The others may."""

    sure: Bool[Tensor, "*query key"]
    out: Bool[Tensor, "*query key"]

    @classmethod
    def of(cls, scores: Enclosure, top_k: int | None) -> Chosen:
        """Keys with at least ``top_k`` certainly larger scores are out, those with fewer possibly larger ones in."""
        low, high, n = scores.low, scores.high, scores.mid.shape[-1]
        out = torch.zeros_like(low, dtype=torch.bool)
        if top_k is None or top_k >= n:
            return cls(~out, out)
        out = (low[..., None, :] > high[..., :, None]).sum(-1) >= top_k
        return cls((high[..., None, :] >= low[..., :, None]).sum(-1) - 1 < top_k, out)  # - 1 for the key itself

    @property
    def open(self) -> Bool[Tensor, "*query key"]:
        return ~(self.sure | self.out)
