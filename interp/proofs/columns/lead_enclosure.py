"""From what attention writes to the answer: bounds of the right token's lead, for many regions at once.

After the attention, a query's residual stream is ``y = x + b_O + attn_out``; MLP, last norm and logits follow. For a
region of attention outputs (a box in some directions, and an error) :meth:`LeadEnclosure.margins` bounds the margin
``min over others of (logit_answer - logit_other)`` from below and above over the whole region. It uses first-order
forms (:mod:`interp.proofs.numbers.affine_forms`), so that what the bounds lose falls with the square of the region's
radius. Both arithmetics of
:mod:`interp.proofs.numbers.rounded_operations` are enclosed, with the roundings of each operation of
:mod:`models.transformer.parts`.

Steps, for d-vectors y: the MLP reads ``y C diag(w2) W_in`` (C subtracts the mean, or is the identity) times one number
``1 / scale``; its units' activations and y itself go through ``C diag(w) (U_answer - U_other)``, each with one matrix,
so that what coordinates have in common is kept; and the leads are multiplied by the last ``1 / scale``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import singledispatch

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.numbers import affine_forms
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.affine_forms import EnclosedMatrix, Forms, centring, exactly, linear, multiply, scaled
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import (
    LARGEST,
    LARGEST_WEIGHT,
    LEAST,
    UNDERFLOW,
    UP,
    lost_by_underflow,
    roundings,
    scale_roundings,
)
from models import UserError

CHUNK = 2048  # regions at a time, so that their data stays within a processor's cache
#: Magnitudes whose squares and products stay finite in float64; beyond them there is no bound.
LARGEST_REAL = 2.0**200
#: ``sum_i (x_i / scale)^2 <= d`` holds up to rounding, if eps is far above what underflow can do to a square.
NORM_SLACK, LEAST_EPS = 1 + 2.0**-10, 2.0**-60


@dataclass(frozen=True, eq=False)
class Regions:
    """n regions: attention writes ``center + coeff basis + e`` before ``b_O``, ``|coeff| <= radius``, ``|e| <= error``.

    Attributes:
        target: 0 for the units digit and so on; the query stands at ``adder.layout.queries[target]``.
        token: the query's own token. answer: the right token to predict.
        basis: directions, per region or shared by all.
        error: everything else: rounding, and what is written outside the basis.
    """

    target: Int[np.ndarray, " n"]
    token: Int[np.ndarray, " n"]
    answer: Int[np.ndarray, " n"]
    center: Float[np.ndarray, "n d"]
    basis: Float[np.ndarray, "n r d"] | Float[np.ndarray, "r d"]
    radius: Float[np.ndarray, "n r"]
    error: Float[np.ndarray, "n d"]

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: Int[np.ndarray, " m"]) -> Regions:
        """Some of the regions, copied."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        shared = {"basis": self.basis} if self.basis.ndim == 2 else {}
        return Regions(**({name: value[rows] for name, value in own.items() if name not in shared} | shared))


@dataclass(frozen=True, eq=False)
class _Leads:
    """What the last norm's input is multiplied by, for one right answer, and the roundings of float32 there.

    Attributes:
        matrix: ``[C; W_out C]`` next to the leads' ``[D; W_out D]``, ``D = C diag(w) (U_answer - U_other)``.
        constant, error: what ``b_out`` adds through both, and its error.
        bias: the constant part of the leads, ``b (U_answer - U_other) + b_U,answer - b_U,other``, with its error.
        direct: ``|D|``, [d, other].
        gained: ``|w (U_answer - U_other)|``, [d, other]: the factor on an error of the centred residual stream.
        unembedded: ``|w| (|U_answer| + |U_other|)``, [d, other].
        offset: ``|b| (|U_answer| + |U_other|)``; biases: ``|b_U,answer| + |b_U,other|``.
    """

    matrix: EnclosedMatrix
    constant: Float[np.ndarray, " found"]
    error: Float[np.ndarray, " found"]
    bias: Float[np.ndarray, " other"]
    bias_error: Float[np.ndarray, " other"]
    direct: Float[np.ndarray, "d other"]
    gained: Float[np.ndarray, "d other"]
    unembedded: Float[np.ndarray, "d other"]
    offset: Float[np.ndarray, " other"]
    biases: Float[np.ndarray, " other"]


class LeadEnclosure:
    """Bounds of margins downstream of the attention of one adder, in one arithmetic (``REAL`` or ``FLOAT32``).

    Raises:
        UserError: float32 roundings are asked for, but the model has another dtype.
    """

    def __init__(self, adder: AdderWeights, arithmetic: Rounding):
        if arithmetic.unit32 and adder.model.config.dtype != "float32":
            raise UserError(
                f"float32 rounding is bounded for float32 models, and this one is in {adder.model.config.dtype}."
            )
        self.adder, self.arithmetic = adder, arithmetic
        self.d, self.m = adder.W_in.shape
        self.written = self.d  # how many numbers attention writes
        self.gated = adder.W_gate is not None
        read = adder.W_in if adder.W_gate is None else np.hstack((adder.W_gate, adder.W_in))
        b_in = np.zeros(2 * self.m) if self.gated else adder.b_in  # a gated MLP adds b_in after the product
        self.read_by_mlp, self.read_by_logits = adder.group_of(read), adder.group_of(adder.W_U)
        self.unit, self.growth, self.tiny = arithmetic.unit32, arithmetic.growth, arithmetic.tiny
        self.largest = LARGEST / self.d if self.unit else LARGEST_REAL  # so that sums of squares are below LARGEST^2
        weights = [adder.W_E, adder.W_pos, read, adder.W_out, adder.W_U, adder.ln2, adder.ln_final]
        weights += [adder.b_O, adder.b_in, adder.b_out, adder.b_U, adder.ln2_b, adder.ln_final_b]
        #: Whether the weights and eps are small enough for the bounds; if not, every margin is NaN.
        self.moderate = adder.model.config.eps < LARGEST and max(float(np.abs(w).max(initial=0)) for w in weights) < (
            LARGEST_WEIGHT if self.unit else self.largest
        )
        self.centre = centring(self.d) if adder.centred else exactly(np.eye(self.d))
        self.gained_in = scaled(adder.ln2, read)
        self.read = self.centre @ self.gained_in
        self.b_in = np.abs(b_in)[:, None]
        self.pre_bias = (adder.ln2_b[None] @ read)[0] + b_in
        self.pre_offset = (np.abs(adder.ln2_b)[None] @ np.abs(read))[0] * UP
        self.pre_bias_error = roundings(self.d + 1) * (self.pre_offset + np.abs(b_in)) + LEAST
        norm = np.sqrt(self.d * (self.gained_in.size**2).sum(0))
        bounded = adder.has_norms and adder.model.config.eps >= LEAST_EPS
        self.most_pre = norm * NORM_SLACK if bounded else None
        #: A norm's quotient (2), gain and bias; without norms at most the final gain.
        self.norm_roundings = 4 if adder.has_norms else 1
        self._leads: dict[int, _Leads] = {}

    def margins(self, regions: Regions) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Lower and upper bounds of each region's margins, in logits.

        Postcondition: where both are numbers, the margin of every input whose attention output (at this target, with
        this token at the query) lies in the region is between them, as ``arithmetic`` computes it. So all are answered
        rightly if lower > 0, and all wrongly if upper < 0. A NaN says nothing; it stands for numbers that are not
        finite, or too large.

        Cost: proportional to ``n (d + d_mlp + vocabulary) (1 + r)``, with memory for ``CHUNK`` regions and the results.
        """
        lower, upper = np.full((2, len(regions)), np.nan)
        if not self.moderate:
            return lower, upper
        order = np.argsort(regions.answer, kind="stable")
        starts = np.flatnonzero(np.diff(regions.answer[order], prepend=-1))
        with np.errstate(all="ignore"):
            for group in np.split(order, starts[1:]):
                for start in range(0, len(group), CHUNK):
                    rows = group[start : start + CHUNK]
                    lower[rows], upper[rows] = self._chunk(regions.take(rows))
        return lower, upper

    def _chunk(self, regions: Regions) -> tuple[np.ndarray, np.ndarray]:
        """Bounds for regions that share one right answer."""
        leads = self._lead(int(regions.answer[0]))
        y = self.stream(regions)
        valid = (regions.error >= 0).all(1) & self._moderate(y.size())
        stacked, valid_mlp = self._with_mlp(y)
        return self._logits(stacked, leads, valid & valid_mlp)

    def _moderate(self, *sizes: np.ndarray) -> Bool[np.ndarray, " n"]:
        """For which regions all sizes are numbers and small enough."""
        return np.logical_and.reduce([(size < self.largest).all(0) for size in sizes])

    def stream(self, regions: Regions) -> Forms:
        """What the MLP reads, ``y = x + (attn_out + b_O)``."""
        adder = self.adder
        token, position = regions.token, np.array(adder.layout.queries)[regions.target]
        if self.unit:
            x = adder.W_E.astype(np.float32)[token] + adder.W_pos.astype(np.float32)[position]
            x = x.astype(np.float64)
        else:
            x = adder.W_E[token] + adder.W_pos[position]
        size = np.abs(adder.W_E[token]) + np.abs(adder.W_pos[position])
        return self.attended(Forms(x.T[:, None], np.zeros_like(x.T)), size.T, regions)

    def attended(self, x: Forms, size: Float[np.ndarray, "d n"], regions: Regions) -> Forms:
        """``x + (attn_out + b_O)``, where x has the regions' symbols or none; ``size`` bounds what x is a sum of."""
        adder, symbols = self.adder, regions.radius.shape[1]
        values = np.zeros((self.d, 1 + symbols, len(regions)))
        values[:, : x.values.shape[1]] = x.values
        center = regions.center
        values[:, 0] = (center + adder.b_O + x.values[:, 0].T).T
        values[:, 1:] += (regions.basis * regions.radius[..., None]).T
        size = (np.abs(center) + np.abs(adder.b_O)).T + size
        rad = x.rad + regions.error.T + roundings(4) * (size + np.abs(values[:, 1:]).sum(1))
        y = Forms(values, rad * UP + LEAST)
        if not self.unit:
            return y
        biased = self.growth(1) * ((adder.b_O != 0)[:, None] * (y.size() + x.size())) + self.tiny
        y = y.widened(biased)
        return y.widened(self.growth(1) * y.size() + self.tiny)

    def after_mlp(self, y: Forms) -> tuple[Forms, Bool[np.ndarray, " n"]]:
        """The stream after the MLP that reads y, and for which regions it is valid."""
        adder = self.adder
        both, valid = self._with_mlp(y)
        size = both.size()
        found = linear(both, exactly(np.vstack((np.eye(self.d), adder.W_out))), size)
        found = found.plus(adder.b_out, np.zeros(self.d))
        return found.widened(self._summed(size)[0]), valid & self._moderate(size)

    def _summed(self, size: Float[np.ndarray, "k n"]) -> tuple[Float[np.ndarray, "d n"], Float[np.ndarray, "d n"]]:
        """The roundings of W_out, b_out and the sum with the stream, and the size of that sum."""
        if not self.unit:
            return np.zeros_like(size[: self.d]), size[: self.d]
        out = np.abs(self.adder.W_out).T @ size[self.d :] + np.abs(self.adder.b_out)[:, None]
        lost = self.growth(self.m + 1) * out + self.tiny * (self.m + 1)
        return lost + self.growth(1) * (size[: self.d] + out + lost) + self.tiny, size[: self.d] + out

    def _centred(self, x: Forms, y: Forms, size: np.ndarray) -> tuple[Forms, np.ndarray]:
        """``x``, which is ``y`` minus its mean (or y itself), and the rounding of each of its entries in float32."""
        if not (self.unit and self.adder.centred):
            return x, np.zeros(1)
        mean = size.sum(0) / self.d
        lost = self.growth(self.d + 1) * mean + self.tiny
        lost = (lost + self.growth(1) * (x.size() + lost) + self.tiny) * UP
        return x.widened(lost), lost

    def inverse_scale(self, x: Forms, size: np.ndarray) -> tuple[Forms, np.ndarray, np.ndarray]:
        """``1 / scale`` of a norm with input x as a form, and its smallest and largest value."""
        if not self.adder.has_norms:
            one, ones = np.zeros((1, *x.values.shape[1:])), np.ones((1, x.values.shape[2]))
            one[:, 0] = 1.0
            return Forms(one, np.zeros_like(ones)), ones, ones
        eps, outside = self.adder.model.config.eps, self.adder.model.config.norm_eps_outside
        square, low = affine_forms.mean_square(x, size)
        if not outside:
            square, low = square.plus(np.array([eps]), np.zeros(1)), (low + eps) * (1 - roundings(1))
        least, high = square.ends()
        low, after = np.maximum(low, least), eps if outside else 0.0
        inverse = affine_forms.inverse_root(square, low, high, after)
        smallest = (1 - roundings(4)) / (np.sqrt(high) + after)
        biggest = (1 + roundings(4)) / (np.sqrt(low) + after)
        if self.unit:
            lost = lost_by_underflow(np.sqrt(low), 1 / biggest, outside, self.tiny)
            more = (self.growth(scale_roundings(len(size))) * (1 + lost) + lost) * biggest * UP
            inverse, smallest, biggest = inverse.widened(more), smallest - more, biggest + more
        return inverse, smallest, biggest

    def _with_mlp(self, y: Forms) -> tuple[Forms, np.ndarray]:
        """The residual stream, followed by the neurons' activations, [d + m]."""
        adder, grown = self.adder, self.growth
        pre, low, high, valid = self.read_by(y)
        gate = pre.rows(slice(0, self.m))
        post = affine_forms.activated(adder.model.config.act_fn, gate, low[: self.m], high[: self.m])
        if self.unit and (rounds := ACTIVATIONS[adder.model.config.act_fn].rounds):
            largest = np.maximum(np.abs(low), np.abs(high))[: self.m]
            post = post.widened(grown(rounds) * largest + self.tiny)
        if self.gated:  # the product and the sum with b_in are rounded
            post = multiply(post, pre.rows(slice(self.m, None)))
            post = post.widened(grown(1) * post.size() + self.tiny).plus(adder.b_in, np.zeros(self.m))
            post = post.widened(grown(1) * (adder.b_in != 0)[:, None] * post.size() + self.tiny)
        both = Forms(np.concatenate((y.values, post.values)), np.concatenate((y.rad, post.rad)))
        return both, valid & self._moderate(post.size())

    def read_by(self, y: Forms) -> tuple[Forms, np.ndarray, np.ndarray, Bool[np.ndarray, " n"]]:
        """What the units read of y, after the norm: forms, their least and largest values, and which are valid."""
        grown = self.growth
        size = y.size()
        x, lost = self._centred(linear(y, self.centre, size) if self.adder.centred else y, y, size)
        x_size = x.size() if self.adder.centred else size
        inverse, _, biggest = self.inverse_scale(x.rows(self.read_by_mlp), x_size[self.read_by_mlp])
        read = linear(y, self.read, size)
        # The division (2 u), the gain, the norm's bias and the product are rounded; b_in is one more term of its sum.
        if self.unit:
            terms = self.d + int(self.b_in.any())
            extra = lost + grown(terms + self.norm_roundings) * x_size
            read = read.widened(self.gained_in.size.T @ np.broadcast_to(extra, x_size.shape))
        pre = multiply(read, inverse)
        error = self.pre_bias_error + grown(self.d + 5) * self.pre_offset
        pre = pre.plus(self.pre_bias, error)
        if self.unit:
            pre = pre.widened(UNDERFLOW)
            pre = pre.widened(grown(self.d + 1) * self.b_in + self.tiny)
        low, high = pre.ends()
        if self.most_pre is not None:
            reach = self._reach(self.most_pre, error)[:, None]
            low = np.maximum(low, self.pre_bias[:, None] - reach)
            high = np.maximum(np.minimum(high, self.pre_bias[:, None] + reach), low)
        pre_size = np.maximum(np.abs(low), np.abs(high))
        return pre, low, high, self._moderate(x_size, biggest, biggest * x_size.max(0), pre_size)

    def _reach(self, most: Float[np.ndarray, " m"], error: np.ndarray) -> Float[np.ndarray, " m"]:
        """How far what a unit reads can be from its bias, whatever the norm's input is."""
        grown = self.growth
        if self.unit:
            most = most * (1 + grown(self.d + 9)) + grown(self.d + 9) * self.pre_offset + 2 * UNDERFLOW
            most = most + grown(self.d + 2) * self.b_in[:, 0]
        return (most + error + roundings(4) * (np.abs(self.pre_bias) + most)) * UP

    def _logits(self, both: Forms, leads: _Leads, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        adder, d, grown = self.adder, self.d, self.growth
        size = both.size()
        found = linear(both, leads.matrix, size).plus(leads.constant, leads.error)
        x, lead = Forms(found.values[:d], found.rad[:d]), Forms(found.values[d:], found.rad[d:])
        if self.unit:
            lost, after = self._summed(size)  # then their effect after the mean is subtracted
            x = x.widened(self.centre.size.T @ lost)
            x, more = self._centred(x, x, after + lost)
            x_size = x.size()
            rounded = leads.direct.T @ lost + leads.gained.T @ np.broadcast_to(more, lost.shape)
            lead = lead.widened(rounded + grown(d + self.norm_roundings) * (leads.unembedded.T @ x_size))
        else:
            x_size = x.size()
        inverse, smallest, biggest = self.inverse_scale(x.rows(self.read_by_logits), x_size[self.read_by_logits])
        margin = multiply(lead, inverse)
        low, high = margin.ends()
        # Bounding the leads and the scale separately is looser, but never wrong about the sign.
        lead_low, lead_high = lead.ends()
        low = np.maximum(low, lead_low * np.where(lead_low > 0, smallest, biggest) * _outwards(lead_low, -1))
        high = np.minimum(high, lead_high * np.where(lead_high > 0, biggest, smallest) * _outwards(lead_high, 1))
        error = leads.bias_error[:, None] + roundings(2) * (np.abs(low) + np.abs(high) + np.abs(leads.bias)[:, None])
        if self.unit:
            error = error + UNDERFLOW + grown(d + 4) * leads.offset[:, None]
            if adder.b_U.any():  # a bias is one more term of both logits
                logits = 2 * (leads.unembedded.T @ x_size) * biggest + (leads.offset + leads.biases)[:, None]
                error = error + grown(1) * 2 * logits + grown(self.d + 1) * leads.biases[:, None]
        error = error * UP + LEAST
        low, high = (low + leads.bias[:, None] - error).min(0), (high + leads.bias[:, None] + error).min(0)
        valid = valid & self._moderate(x_size, biggest, lead.size(), biggest * x_size.max(0))
        valid &= np.isfinite(low) & np.isfinite(high)
        return np.where(valid, low, np.nan), np.where(valid, high, np.nan)

    def _lead(self, answer: int) -> _Leads:
        if answer not in self._leads:
            adder = self.adder
            others = np.delete(np.arange(adder.W_U.shape[1]), answer)
            own, other = adder.W_U[:, [answer]], adder.W_U[:, others]
            unembedded = (np.abs(own) + np.abs(other)) * UP
            gain, shift = np.abs(adder.ln_final)[:, None], np.abs(adder.ln_final_b)[:, None]
            difference = EnclosedMatrix(own - other, roundings(1) * unembedded)
            gained = scaled(adder.ln_final, difference.value)
            gained = EnclosedMatrix(gained.value, gained.error + gain * difference.error * UP)
            direct = self.centre @ gained
            heads = EnclosedMatrix(
                *(np.hstack((getattr(self.centre, k), getattr(direct, k))) for k in ("value", "error"))
            )
            tail = exactly(adder.W_out) @ heads
            matrix = EnclosedMatrix(*(np.vstack((getattr(heads, k), getattr(tail, k))) for k in ("value", "error")))
            constant = exactly(adder.b_out[None]) @ heads
            offset = (shift * unembedded).sum(0) * UP
            biases = (np.abs(adder.b_U[answer]) + np.abs(adder.b_U[others])) * UP
            self._leads[answer] = _Leads(
                matrix,
                constant.value[0],
                constant.error[0],
                adder.ln_final_b @ difference.value + (adder.b_U[answer] - adder.b_U[others]),
                roundings(self.d + 4) * (offset + biases) + LEAST,
                direct.size,
                gained.size,
                gain * unembedded,
                offset,
                biases,
            )
        return self._leads[answer]


@singledispatch
def downstream_of(adder: AdderWeights, arithmetic: Rounding) -> LeadEnclosure:
    """What bounds the margins of such an adder."""
    return LeadEnclosure(adder, arithmetic)


def _outwards(x: np.ndarray, sign: int) -> np.ndarray:
    """A factor that moves x down (sign -1) or up (1) by more than a few roundings."""
    return 1 + sign * np.sign(x) * roundings(4)
