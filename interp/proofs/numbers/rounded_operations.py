"""Many balls at once: float64 midpoints and radii in tensors, for forward passes too large for Arb.

An :class:`Enclosure` says of every entry x of a tensor that ``|x - mid| <= rad``. Here x is what the weights define
over the reals (``REAL``) or what a computer stores that rounds each operation to float32 (``FLOAT32``), in any order of
summation. What is assumed of both stands in :mod:`interp.proofs.numbers.rounding_errors`.

Midpoints are themselves computed in float64. Each operation here rounds as the one that it encloses does, by 2^-53 in
place of 2^-24; both roundings are in ``both``, so that one formula gives the radius of either arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.enclosure import Attended, Chosen, Enclosure, Normed, TrimmedMatrix
from interp.proofs.numbers.rounding_errors import (
    DOUBLE,
    EXP_ULPS,
    LARGEST,
    LEAST,
    LIBRARY_ULPS,
    TINY,
    TRIG_ULPS,
    UNIT,
    angle_roundings,
    growth,
    is_moderate,
    lost_by_underflow,
    scale_roundings,
    up,
)
from models.errors import known_name


@dataclass(frozen=True)
class Rounding:
    """Operations on enclosures whose results enclose what is computed with unit roundoff ``unit32`` (0: reals)."""

    unit32: float

    @property
    def both(self) -> float:
        """The unit roundoff of the enclosed operation plus that of the midpoint's own."""
        return self.unit32 + 2 * DOUBLE

    def growth(self, roundings: float | int) -> float:
        """A relative bound for n roundings one after the other."""
        return growth(self.both, roundings)

    @property
    def tiny(self) -> float:
        """What underflow adds to one term."""
        return TINY if self.unit32 else LEAST

    def rounded(self, mid: Tensor, rad: Tensor, norm: Tensor, roundings: float | int = 1) -> Enclosure:
        """``mid`` with the radii that it inherits (rad, norm) and the roundings of the enclosed operation."""
        size = mid.abs() + rad
        own = up(self.growth(roundings) * size + self.tiny)
        own = torch.where(size < LARGEST, own, torch.inf)
        length = up(own.norm(dim=-1), mid.shape[-1])
        return Enclosure.of(mid, up(rad + own), up(norm + length))

    # ---- arithmetic

    def add(self, x: Enclosure, y: Enclosure) -> Enclosure:
        return self.rounded(x.mid + y.mid, x.rad + y.rad, x.norm + y.norm)

    def scaled(self, x: Enclosure, divisor: float) -> Enclosure:
        """``x / divisor``, entry by entry: three roundings, the divisor's own and those of its reciprocal included."""
        if divisor == 1:
            return x
        mid, rad = x.mid / divisor, x.rad / abs(divisor)
        size = mid.abs() + rad
        own = torch.where((size < LARGEST) & is_moderate(divisor), self.growth(3) * size + self.tiny, torch.inf)
        return Enclosure.apart(mid, up(rad + own))

    def times(self, x: Enclosure, y: Enclosure) -> Enclosure:
        rad = x.mid.abs() * y.rad + x.rad * y.mid.abs() + x.rad * y.rad
        return self.rounded(x.mid * y.mid, rad, up(rad.norm(dim=-1), rad.shape[-1]))

    def linear(self, x: Enclosure | Normed, w: TrimmedMatrix, bias: Tensor | None = None) -> Enclosure:
        """``x w + bias``, the sum over the last axis of x and the bias in any order: [..., output], or [..., head,
        output].

        Lemma: m products p_i are each rounded, and m - 1 partial sums, or m with a bias, by at most u of themselves. A
        partial sum is at most the sum of all positive terms, or of all negative ones, in magnitude, whatever the order:
        the larger one of these is ``(sum |p_i| + |sum p_i|) / 2``, where the bias is one of the terms. What is zero
        adds no rounding. Over the reals float64 alone rounds,
        by so little that lengths are enough: ``sum |p_i|`` is at most |x| times the column's length.
        """
        whole, x, along = (x.whole, x.ball, x.along) if isinstance(x, Normed) else (x, x, ())
        n, values = len(w.values), x.mid[..., w.used] @ w.values
        # What the sum inherits of errors of x, by entries.
        inherited = up(x.rad[..., w.used] @ w.sizes, n)
        if self.unit32:
            off = up(whole.rad[..., w.used] @ w.sizes, n) if along else inherited
            values, own, within = self._rounding_of_sum(x, whole, w, bias, values, off)
        else:
            own = whole.length[..., None] * w.columns
            within = (whole.length[..., None] < LARGEST) & (own < LARGEST)
            own = self.growth(n) * own
        # Or by lengths, where that is less.
        inherited = torch.minimum(inherited, x.norm[..., None] * w.columns)
        own = torch.where(within, own.add_(n * self.tiny), torch.inf)
        errors = self._along_directions(along, w)
        if len(w.stretch) > 1:
            values, inherited, own, *errors = (
                part.unflatten(-1, (len(w.stretch), -1)) for part in (values, inherited, own, *errors)
            )
            bias = None if bias is None else bias.unflatten(0, (len(w.stretch), -1))
        stretched = x.norm[..., None] * w.stretch if len(w.stretch) > 1 else x.norm * w.stretch
        length = up(own.norm(dim=-1), own.shape[-1])
        found = Enclosure.of(values, up(inherited + own), up(stretched + length)).with_errors(errors)
        if bias is None or self.unit32:
            return found
        return self.add(found, Enclosure.exact(bias.expand_as(found.mid)))

    def _rounding_of_sum(
        self, x: Enclosure, whole: Enclosure, w: TrimmedMatrix, bias: Tensor | None, values: Tensor, off: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(The sums with the bias, what their products and partial sums round, and where nothing overflows).

        ``off`` is how far the sums may be off by what they inherit.
        """
        n, size = len(w.values), x.mid[..., w.used].abs().add_(whole.rad[..., w.used])
        # What overflowed is NaN also where it meets a zero of the matrix, and so where its row was left out.
        every = size if n == x.mid.shape[-1] else x.mid.abs() + whole.rad
        own, within = up(size @ w.sizes, n), every.amax(-1, keepdim=True) < LARGEST
        within = within & (own < LARGEST)
        terms = torch.minimum((size != 0).sum(-1, keepdim=True, dtype=torch.float64), w.filled)
        added, size_of_sum = terms.sub(1), values
        if bias is not None:
            added, size_of_sum, off = added + (bias != 0), values + bias, off + bias.abs()
            within = within & (bias.abs() < LARGEST)
        partial = (own + size_of_sum.abs()).add_(off).div_(2)
        own = own.add_(added.clamp_min_(0.0).mul_(partial)).mul_(self.growth(1) * (1 + 8 * (n + 1) * self.both))
        if bias is not None:  # what follows is exact up to float64
            values, own = values + bias, own + 2 * DOUBLE * (values.abs() + bias.abs())
        return values, own, within

    def _along_directions(self, along: Sequence[tuple[Tensor, Tensor]], w: TrimmedMatrix) -> list[Tensor]:
        """Bounds of the errors after a matrix that come from errors before it along known directions, each by at most
        ``reach`` times its vector."""
        errors = []
        for vector, reach in along:  # the product in float64 is off by about n 2^-53 of the magnitudes
            slack = 4 * (len(w.values) + 4) * DOUBLE * vector.norm(dim=-1, keepdim=True) * w.columns
            errors.append(reach * ((vector[..., w.used] @ w.values).abs() + slack))
        return errors

    # ---- norms

    def centred(self, x: Enclosure) -> tuple[Enclosure, Tensor]:
        """``x - mean(x)`` over the last axis, and the error that its entries share because the mean is rounded.

        Centring is a projection, so that it does not lengthen errors. The roundings of the mean are shared by all
        entries: n - 1 for its sum, as in :meth:`linear`, and two for its quotient. Each difference rounds once.
        """
        n = x.mid.shape[-1]
        mean = x.mid.mean(-1, keepdim=True)
        size, total = x.size.mean(-1, keepdim=True), mean.abs() + x.rad.mean(-1, keepdim=True)
        off = self.growth(n) * (1 + 8 * n * self.both) * (size + total) / 2 + self.growth(3) * size + self.tiny
        rad = (x.rad * (1 - 2 / n)).clamp_min(0.0) + x.rad.mean(-1, keepdim=True)
        found = self.rounded(x.mid - mean, up(rad, n), x.norm, 1 + 1e-3)
        return found, torch.where(size < LARGEST, up(off), torch.inf)

    def normed(
        self, x: Enclosure, gain: Tensor, bias: Tensor | None, eps: float, eps_outside: bool, centred: bool
    ) -> Normed:
        """``x / scale * gain + bias`` as :class:`models.transformer.parts.norms.Norm` computes it, over the last axis.

        Lemma: ``y(c) = c / s(c)`` with s as :meth:`scales` has it. Its derivative is ``1 / s`` across c and less
        along c, so that y moves by at most ``|e| / s_low`` for an error e, s_low being the least s on the way; s moves
        by at most |e| / sqrt n, so that y_i moves by at most ``(|e_i| + |y_i| |e| / sqrt n) / s_low``. The
        rounding k of the mean is orthogonal to c, up to c's own rounding: it moves y by ``-k / s``, the same for all
        entries, and makes s^2 larger by k^2, which is a factor within ``1 - (k / r)^2`` of all entries, r being the
        least ``|c| / sqrt n``.

        Rounding: the scale's roundings multiply all entries by one factor (``scale_roundings``), and so does what its
        squares lose to underflow (:meth:`scales`); the quotient (twice), the gain and the bias round each entry.
        """
        n, gain = x.mid.shape[-1], gain.double()
        x, off = self.centred(x) if centred else (x, torch.zeros_like(x.mid[..., :1]))
        least, middle, _, lost = self.scales(x.mid, x.norm, eps, eps_outside)
        mid = x.mid / middle
        rad = (x.rad + mid.abs() * x.norm[..., None] / math.sqrt(n)) / least
        norm = torch.where(least[..., 0] > 0, x.norm / least[..., 0], torch.inf)
        shortest = (x.mid.norm(dim=-1, keepdim=True) * (1 - (n + 8) * DOUBLE) - x.norm[..., None]).clamp_min(0.0)
        moved = torch.where(off > 0, off / shortest * math.sqrt(n), 0.0)
        shared = self.shared_by_entries(n, moved, lost)
        shift = torch.where(off > 0, off / least * (1 + shared), 0.0)
        unit = self.rounded(mid, torch.where(least > 0, up(rad), torch.inf), up(norm), 2 + 1e-3)
        mid, longest = unit.mid * gain, gain.abs().max()
        wide = (unit.rad * gain.abs()) * (1 + shared)
        found = self.rounded(mid, wide, unit.norm * longest * (1 + shared[..., 0]))
        if bias is not None:
            found = self.add(found, Enclosure.exact(bias.expand_as(found.mid)))
        # These two may have enlarged the numbers whose roundings are bounded above.
        more = (mid.abs() * shared + gain.abs() * shift) * self.growth(6)
        return Normed(found.with_errors([more]), ((mid, shared), (gain.expand_as(mid), up(shift))))

    def shared_by_entries(self, n: int, ratio: Tensor, lost: Tensor | float) -> Tensor:
        """The relative error of a norm's n entries that all of them share: the scale's roundings, what the mean's
        rounding does to it, which is at most ``ratio`` of the root mean square, and what is lost by underflow."""
        moved = ratio**2 + 2 * self.growth(2) * ratio
        return up((self.growth(scale_roundings(n)) * (1 + moved) + moved) * (1 + lost) + lost)

    def scales(self, mid: Tensor, norm: Tensor, eps: float, eps_outside: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of a norm that reads vectors within ``norm`` of ``mid``: its least scale, that at ``mid``, the largest, and a
        relative bound of what underflow may change in one over the scale.

        The scale is ``s = sqrt(|x|^2 / n + eps)``, or ``|x| / sqrt n + eps`` with eps outside the root. The least scale
        is called 0 where nothing is known of the computed one: where underflow may double one over it, as it may then
        be 0, and where squares or eps may overflow. Callers divide by it only to say that there is no bound.
        """
        n, length = mid.shape[-1], mid.norm(dim=-1, keepdim=True)
        scale = lambda s: s + eps if eps_outside else (s**2 + eps).sqrt()  # noqa: E731
        slack, off = (n + 8) * DOUBLE, norm[..., None] + 2.0**-450  # whose square float64 has
        shortest = (length * (1 - slack) - off).clamp_min(0.0) / math.sqrt(n)
        longest = (length * (1 + slack) + off) / math.sqrt(n)
        least, most = scale(shortest) * (1 - 16 * DOUBLE), scale(longest) * (1 + 16 * DOUBLE)
        lost = lost_by_underflow(shortest, least, eps_outside, self.tiny)
        known = (lost < 1) & (longest * math.sqrt(n) < LARGEST) & (eps < LARGEST)  # and not NaN
        return torch.where(known, least, 0.0), scale(length / math.sqrt(n)), most, torch.where(known, up(lost), 0.0)

    # ---- functions

    def activation(self, name: str, x: Enclosure) -> Enclosure:
        """An activation of :mod:`interp.proofs.numbers.activation_functions`. What is surely 0 after ReLU is exact."""
        kind = ACTIVATIONS[name]
        mid, (low, high) = kind.value(x.mid), map(torch.from_numpy, kind.on(x.low.numpy(), x.high.numpy()).range())
        rad, size = torch.maximum(high - mid, mid - low), x.size
        if not kind.rounds:
            return Enclosure.of(mid, torch.where(rad > 0, up(rad), rad), x.norm)
        own = kind.rounding(self.unit32) * size + (TINY if self.unit32 else 0.0) + LEAST
        own = torch.where(size < LARGEST, up(own), torch.inf)
        length = up(own.norm(dim=-1), own.shape[-1])
        return Enclosure.of(mid, up(rad + own), up(kind.steepest * x.norm + length))

    def softmax(self, scores: Enclosure, chosen: Chosen | None = None) -> Enclosure:
        """The softmax over the last axis, or over ``chosen`` keys only.

        Let e_j in [l_j, h_j] be the exponential of score j minus any number that all keys share. The weight of j is
        ``e_j / (e_j + sum of the others)``, rising in e_j and falling in the others, so that its ends are at theirs.
        torch subtracts the largest score (one rounding of a difference up to the spread of the scores), exponentiates,
        adds n terms in any order, and divides. A key that may or may not take part has l_j = 0.
        """
        n = scores.mid.shape[-1]
        chosen = Chosen.of(scores, None) if chosen is None else chosen
        sure, out = chosen.sure, chosen.out
        below, wide = self.exponents(scores)
        e_low = torch.where(sure, (below - wide).exp() * (1 - 16 * DOUBLE), 0.0)
        e_high = torch.where(out, 0.0, (below + wide).exp() * (1 + 16 * DOUBLE))
        sums = [e.sum(-1, keepdim=True) for e in (e_low, e_high)]
        others_low = (sums[0] - e_low - 2 * (n + 4) * DOUBLE * sums[0]).clamp_min(0.0)
        others_high = sums[1] - e_high + 2 * (n + 4) * DOUBLE * sums[1]
        slack = self.growth(n + 3) + 32 * DOUBLE
        p_low = torch.where(sure, e_low / (e_low + others_high) * (1 - slack), 0.0)
        p_high = torch.where(out, 0.0, e_high / (e_high + others_low) * (1 + slack))
        mid = (p_low + p_high) / 2
        rad = up(torch.maximum(p_high - mid, mid - p_low) + n * self.tiny + 2 * DOUBLE * mid)
        return Enclosure.apart(mid, torch.where(out, 0.0, rad))

    def exponents(self, scores: Enclosure) -> tuple[Tensor, Tensor]:
        """What the softmax exponentiates, and how far that may be off, an exponential's own rounding included."""
        below = scores.mid - scores.mid.amax(-1, keepdim=True)
        relative = self.both * (scores.high.amax(-1, keepdim=True) - scores.low) + 2 * EXP_ULPS * self.unit32
        relative = up(relative + 4 * LIBRARY_ULPS * DOUBLE + 4 * DOUBLE * below.abs())
        return below, up(scores.rad + relative + relative**2)

    def mixed(self, pattern: Enclosure, values: Attended) -> Enclosure:
        """``sum_j p_j v_j``: pattern [..., key], values [..., key, d].

        The weights add up to 1 whatever the scores are, up to their roundings. For any c, ``sum_j (p_j - m_j) v_j`` is
        ``sum_j (p_j - m_j)(v_j - c)`` plus c times ``sum p - sum m``; here c is the midpoint of the result. Over the
        reals the length of ``v_j - c`` is enough, from ``|v_j|^2 + |c|^2 - 2 v_j c``.
        """
        n, d = pattern.mid.shape[-1], values.mid.shape[-1]
        mid = (pattern.mid[..., None, :] @ values.mid)[..., 0, :]
        if self.unit32:
            away = (values.mid - mid[..., None, :]).abs()
            apart = up(away.norm(dim=-1), d)
        else:
            squares = values.length**2 + mid.norm(dim=-1, keepdim=True) ** 2
            apart = squares - 2 * (values.mid @ mid[..., None])[..., 0] + 8 * (d + 4) * DOUBLE * squares
            apart = apart.clamp_min_(0.0).sqrt_()
            away = apart[..., None]
        lost = (pattern.mid.sum(-1) - 1).abs() + self.growth(2 * n + 6) + n * self.tiny + (n + 8) * 2 * DOUBLE
        lost = torch.minimum(up(lost), up(pattern.rad.sum(-1), n))
        own, size = lost[..., None] * mid.abs() + n * self.tiny, pattern.size
        rad = (pattern.rad[..., None, :] @ away)[..., 0, :] + (size[..., None, :] @ values.wide)[..., 0, :]
        norm = (pattern.rad * apart).sum(-1) + (size * values.norm).sum(-1)
        return Enclosure.of(mid, up(rad + own, n), up(norm + up(own.norm(dim=-1), d), n))

    def scores(self, q: Enclosure, k: Attended, kind: str) -> Enclosure:
        """Unscaled scores of queries [..., d] and their keys [..., key, d]: [..., key]."""
        n = q.mid.shape[-1]
        if kind == "max_plus":
            mid, rad = q.mid[..., None, :] + k.mid, q.rad[..., None, :] + k.wide
            size = mid.abs() + rad
            rad = up(rad + torch.where(size < LARGEST, self.growth(2) * size + self.tiny, torch.inf))
            low, high = (mid - rad).amax(-1), (mid + rad).amax(-1)
            mid = (low + high) / 2
            return Enclosure.apart(mid, up(torch.maximum(high - mid, mid - low) + 2 * DOUBLE * mid.abs()))
        if kind == "dot":
            mid = (k.mid @ q.mid[..., None])[..., 0]
            norm = k.norm * q.length[..., None] + k.length * q.norm[..., None]
            rad = norm = norm + self.growth(n) * k.length * q.length[..., None]
            if self.unit32:
                own = (q.rad + self.growth(n) * q.size)[..., None]
                rad = (k.wide @ (q.mid.abs()[..., None] + own) + k.mid.abs() @ own)[..., 0]
            own = torch.where(k.length * q.length[..., None] < LARGEST, n * self.tiny, torch.inf)
        else:
            away, errors = (q.mid[..., None, :] - k.mid).abs(), q.rad[..., None, :] + k.wide
            mid, rad = -away.sum(-1), errors.sum(-1)
            norm = math.sqrt(n) * (q.norm[..., None] + k.norm)
            size = rad - mid
            own = torch.where(size < LARGEST, self.growth(n + 2) * size + n * self.tiny, torch.inf)
        return Enclosure.apart(mid, up(torch.minimum(rad, norm) + own, n))

    def scores_of_one(self, q: Enclosure, k: Enclosure, divisor: float) -> Enclosure:
        """Scaled dot products of one query [head, 1, d] with its keys [head, key, d], but for a number that all keys
        share, which a softmax does not see: [head, key].

        Lemma: ``q k = q m + q (k - m)`` for any m, here the key of the largest score. So an error of q counts by how
        far keys lie apart, and not by their size. A sum of d products rounds d times, the quotient three times, as in
        :meth:`scaled`.
        """
        n, mid = q.mid.shape[-1], (k.mid @ q.mid.mT)[..., 0]
        best = mid.nan_to_num(-torch.inf).argmax(-1)
        apart = k.mid - k.mid[torch.arange(len(best)), best][:, None]
        own = (k.rad @ q.mid.abs().mT)[..., 0]
        rad = own + ((apart.abs() + k.rad) @ q.rad.mT)[..., 0]
        rad = torch.minimum(rad, k.norm * q.length + up(apart.norm(dim=-1), n) * q.norm)
        size, sum_off = k.size, self.growth(n) * (k.size @ q.size.mT)[..., 0] + n * self.tiny
        score = mid.abs() + own + (size @ q.rad.mT)[..., 0] + sum_off
        rad = up(rad + sum_off + self.growth(3) * score + self.tiny, n) / abs(divisor)
        # ``size`` bounds each product's terms, and so does their quotient.
        largest = (size @ q.size.mT)[..., 0] * max(1.0, 1 / abs(divisor))
        known = (largest < LARGEST) & (score < LARGEST) & is_moderate(divisor)
        return Enclosure.apart(mid / divisor, torch.where(known, up(rad), torch.inf))

    def keys(self, k: Enclosure) -> Attended:
        """What :meth:`scores` needs to know of keys, before they are gathered. Over the reals lengths suffice."""
        return Attended(k.mid, k.rad if self.unit32 else k.norm[..., None], k.norm, k.length)

    def values(self, v: Enclosure, n: int) -> Attended:
        """What :meth:`mixed` needs to know of values for sums over up to n keys, computed before they are gathered."""
        own = self.growth(n) * v.size
        norm = up(v.norm + up(own.norm(dim=-1), own.shape[-1]))
        return Attended(v.mid, up(v.rad + own) if self.unit32 else norm[..., None], norm, v.length)

    def angles(self, n: int, base: float, half: int, factor: float = 1.0) -> tuple[Enclosure, Enclosure]:
        """Cosines and sines of ``t base^(-i / half) / factor`` for t below n and i below ``half``, [pos, half] each.

        The first angle is t itself if the factor is 1: base^0 is 1 in any library. Nothing is known where a number on
        the way may overflow or vanish, as an angle that is infinite or NaN has no cosine.
        """
        angle = [[t * base ** (-i / half) / factor for i in range(half)] for t in range(n)]
        exact = torch.tensor(angle, dtype=torch.float64)
        relative = angle_roundings(base) * self.both + 16 * (1 + abs(math.log(base))) * DOUBLE
        relative = torch.where((torch.arange(half) == 0) & (factor == 1), 0.0, relative)
        off = up(exact * relative + 2 * TRIG_ULPS * self.unit32 + 4 * LIBRARY_ULPS * DOUBLE)
        known = is_moderate(base) and is_moderate(factor)
        off = torch.where((exact < LARGEST) & known, off, torch.inf)
        return Enclosure.of(exact.cos(), off), Enclosure.of(exact.sin(), off)

    def rotated(self, x: Enclosure, cos: Enclosure, sin: Enclosure, adjacent_pairs: bool) -> Enclosure:
        """Rotary embedding of x [node, head, d] as in :func:`models.transformer.parts.positions.rotate`; cos, sin
        [node, d / 2].

        With exact angles it is an isometry: the error of x keeps its length, and the error of the angles acts on x.
        """
        half = x.mid.shape[-1] // 2
        parts = (slice(0, None, 2), slice(1, None, 2)) if adjacent_pairs else (slice(0, half), slice(half, None))
        first, second = (Enclosure.of(x.mid[..., part], x.rad[..., part]) for part in parts)
        cos, sin = _spread(cos), _spread(sin)
        turned = (
            self.add(self.times(first, cos), _negated(self.times(second, sin))),
            self.add(self.times(second, cos), self.times(first, sin)),
        )
        join = (lambda a: torch.stack(a, -1).flatten(-2)) if adjacent_pairs else (lambda a: torch.cat(a, -1))
        return Enclosure.of(join([part.mid for part in turned]), join([part.rad for part in turned]))


def _spread(x: Enclosure) -> Enclosure:
    """``x`` with a new axis before the last, to broadcast over."""
    return Enclosure(x.mid[..., None, :], x.rad[..., None, :], x.norm[..., None])


def _negated(x: Enclosure) -> Enclosure:
    return Enclosure(-x.mid, x.rad, x.norm)


REAL, FLOAT32 = Rounding(0.0), Rounding(UNIT)
#: The arithmetics of proofs by their names.
ROUNDINGS = {"interval": REAL, "float32": FLOAT32}


def rounding_named(arithmetic: str) -> Rounding:
    """The rounding of an arithmetic of proofs. Raises UserError for another one."""
    return ROUNDINGS[known_name("arithmetic of proofs", arithmetic, ROUNDINGS)]
