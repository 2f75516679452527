"""Two layers of attention as tables over (place, token), and how far float32 moves what they compute.

The first layer reads embeddings alone, so that its scores and what each key would write are tables. With ``x_i`` the
stream after it, the second layer scores key k by ``x_q M x_k + m x_k`` (what all keys share is left out) and writes
``x_k V``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.numbers.enclosure import stretch_of
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import EXP_ULPS, LARGEST, OWN, OWN_OF_RADII, OWN_OF_TABLES, is_moderate
from models import ArithmeticTransformer


@dataclass(frozen=True, eq=False)
class _FirstLayer:
    """Bounds of the stream after the first layer, up to a query.

    ``error`` is how far any of its vectors may be off in Euclidean length, ``error_at_query`` the query's; ``length``
    is that of the longest one, ``entries`` [d] bound the computed stream's entries, and ``largest`` partial sums.
    """

    error: Tensor
    error_at_query: float
    length: float
    entries: Float[Tensor, " d"]
    largest: list[Tensor]


@dataclass(frozen=True, eq=False)
class _Reading:
    """The second layer's queries, keys or values of each head: what they round themselves, how far they may be off with
    the stream's error, and how long they are."""

    own: Float[Tensor, " head"]
    error: Float[Tensor, " head"]
    length: Float[Tensor, " head"]


class StackedWeights:
    """The tables of a model, in float64.

    Attributes:
        stream: the embeddings, [place, token, d]. scores: of the first layer, scaled, [head, query place, query token,
            key place, key token]. written: what its keys write, without their weight, [head, place, token, d].
        bias: what it writes to all. match: M, [head, d, d]. asked: m, [head, d]. moved: V, [head, d, d].
        constant: what the second layer writes to all. W_U, b_U: the unembedding.
    """

    def __init__(self, model: ArithmeticTransformer, weights: Mapping[str, Tensor], n: int, rounding: Rounding):
        self.n, self.rounding, self.heads = n, rounding, model.config.n_heads
        self.scale = 1 / model.config.score_scale
        found = {name: value.detach().double() for name, value in weights.items()}
        for layer in range(2):  # biases may be absent
            for name in "QKVO":
                W = found[f"blocks.{layer}.attn.W_{name}"]
                zeros = torch.zeros(W[0, 0].shape if name == "O" else W[:, 0].shape, dtype=torch.float64)
                found.setdefault(f"blocks.{layer}.attn.b_{name}", zeros)
        found.setdefault("unembed.b_U", torch.zeros_like(found["unembed.W_U"][0]))
        self._of = lambda layer, name: found[f"blocks.{layer}.attn.{name}"]
        self.embed, self.places = found["embed.W_E"], found["pos_embed.W_pos"][:n]
        self.W_U, self.b_U = found["unembed.W_U"], found["unembed.b_U"]
        self.stream = self.places[:, None] + self.embed[None]
        q, k, v = (self._read(0, name, self.stream) for name in "QKV")
        self.scores = torch.einsum("hiae,hjbe->hiajb", q, k) * self.scale
        self.written = torch.einsum("hjbe,hed->hjbd", v, self._of(0, "W_O"))
        self.bias = self._of(0, "b_O")
        W_Q, W_K, W_V, W_O = (self._of(1, f"W_{name}") for name in "QKVO")
        self.match = torch.einsum("hde,hfe->hdf", W_Q, W_K) * self.scale
        self.asked = torch.einsum("he,hfe->hf", self._of(1, "b_Q"), W_K) * self.scale
        #: M and m of magnitudes, to which float64 rounds those.
        self.sums = torch.einsum("hde,hfe->hdf", W_Q.abs(), W_K.abs()) * self.scale
        self.asked_sums = torch.einsum("he,hfe->hf", self._of(1, "b_Q").abs(), W_K.abs()) * self.scale
        self.moved = torch.einsum("hde,hef->hdf", W_V, W_O)
        self.constant = torch.einsum("he,hef->f", self._of(1, "b_V"), W_O) + self._of(1, "b_O")

    def _read(self, layer: int, name: str, x: Float[Tensor, "place token d"]) -> Float[Tensor, "head place token e"]:
        return (
            torch.einsum("jbd,hde->hjbe", x, self._of(layer, f"W_{name}")) + self._of(layer, f"b_{name}")[:, None, None]
        )

    def first_layer(self, strings: Int[Tensor, "n place"]) -> Float[Tensor, "n place d"]:
        """The stream after the first layer, in float64."""
        at = torch.arange(self.n)
        found = self.stream[at, strings] + self.bias
        ahead = torch.ones(self.n, self.n, dtype=torch.bool).triu(1)
        for scores, written in zip(self.scores, self.written, strict=True):
            own = scores[at[:, None], strings[:, :, None], at, strings[:, None, :]]
            found = found + own.masked_fill(ahead, -torch.inf).softmax(-1) @ written[at, strings]
        return found

    def leads(
        self, strings: Int[Tensor, "n place"], query: int, answer: int
    ) -> tuple[Float[Tensor, "n token"], Float[Tensor, "n token"]]:
        """(How far the answer's logit is ahead of each token's at a query, how far a change of weights can move that.)

        In float64. The second is the range of what each head may write for a lead. The answer's own lead is infinite.
        """
        x = self.first_layer(strings)[:, : query + 1]
        asked = torch.einsum("nd,hdf->nhf", x[:, query], self.match) + self.asked
        pattern = torch.einsum("nhf,nkf->nhk", asked, x).softmax(-1)
        logits = x @ (self.moved @ self.W_U)[:, None]  # [head, n, key, token], of each key
        own = logits[..., answer, None] - logits
        mixed = torch.einsum("nhk,hnkt->nt", pattern, own)
        rest = (x[:, query] + self.constant) @ self.W_U + self.b_U
        found = mixed + rest[:, answer, None] - rest
        found = found + torch.zeros(found.shape[1]).index_fill(0, torch.tensor(answer), torch.inf)
        return found, (own.amax(2) - own.amin(2)).sum(0)

    # ---- float32

    def float_errors(self, query: int) -> tuple[float, float]:
        """(How far a difference of two scores of the second layer, and how far a lead, may be off, for any string.)

        The lead is off by so much besides what the scores do to it. Over the reals both hold float64's rounding alone.
        Bounds of lengths go forward from the embeddings: a matrix stretches an error by its spectral norm at most.
        Where ratios of a softmax's weights are off by factors up to e^L, the weights move by at most 2 tanh(L / 4)
        <= L / 2 in all, and a mean by that times the values' distance from any point. Both are infinite where numbers
        may leave the range of float32.
        """
        first = self._error_of_first_layer(query)
        second = self._second_readings(first)
        difference = self._error_of_second_scores(first, second)
        lead, last = self._error_of_lead(first, second)
        found = float(difference) * (1 + OWN_OF_RADII), float(lead) * (1 + OWN_OF_RADII)
        within = self._within_range(first, second, last)
        return found if within and all(map(math.isfinite, found)) else (math.inf, math.inf)

    def _error_of_first_layer(self, query: int) -> _FirstLayer:
        """How far the stream after the first layer may be off, up to a query, and how large its numbers are."""
        grown, tiny, n, heads = self.rounding.growth, self.rounding.tiny, self.n, range(self.heads)
        d, e = self.embed.shape[1], self._of(0, "W_Q").shape[-1]
        x0 = self.stream.abs()
        off0 = _length(x0) * grown(1)
        read = {name: self._read(0, name, self.stream) for name in "QKV"}
        off = {
            name: self._own(0, name, x0) + _stretch(self._of(0, f"W_{name}"))[:, None, None] * off0 for name in "QKV"
        }
        size = {name: _length(x) for name, x in read.items()}
        products = torch.einsum("hiae,hjbe->hiajb", read["Q"].abs(), read["K"].abs())
        score = _outer(off["Q"], size["K"] + off["K"]) + _outer(size["Q"], off["K"])
        score = score + grown(e + 4) * (products + score)
        score = (score.amax((-1, -2)) + e * tiny) * self.scale  # [head, place, token]
        loose = self._loose(2 * score, 2 * self.scores.abs().amax((-1, -2)) + 2 * score).expm1()
        off1 = off0 + grown(2) * _length(x0) + n * d * tiny
        out_size, largest = _length(self.bias), [products.max() * max(1.0, self.scale)]
        for h in heads:
            written, W_O = self.written[h], _stretch(self._of(0, "W_O")[h])
            away = _length(written - written.mean((0, 1))).max() / 2
            most = _length(written).max()
            off1 = off1 + loose[h] * away + W_O * off["V"][h].max() * (1 + loose[h])
            sums = _stretch(self._of(0, "W_O")[h].abs()) * (size["V"][h].max() + off["V"][h].max())
            off1 = off1 + grown(2 * n + self.heads * (e + 1) + 12) * (sums + most + _length(self.bias)) * (1 + loose[h])
            off1 = off1 + n * tiny * (sums + most)  # weights that underflow beside the largest one of a string
            largest.append(sums)
            out_size = out_size + most
        largest += [self._own(0, name, x0).max() / grown(1) for name in "QKV"]
        x1 = _length(x0) + out_size
        off1 = (off1 + grown(2) * (x1 + off1))[: query + 1]  # [place, token]
        entries = self.stream.abs().amax((0, 1)) + self.written.abs().amax((1, 2)).sum(0) + self.bias.abs()
        entries = entries + off1.max()
        length = float(x1[: query + 1].max())
        return _FirstLayer(off1.max(), float(off1[query].max()), length, entries, largest)

    def _second_readings(self, first: _FirstLayer) -> dict[str, _Reading]:
        """What the second layer's queries, keys and values round, and how long they are, for each head."""
        found = {}
        for name in "QKV":
            stretch = _stretch(self._of(1, f"W_{name}"))
            own = self._own(1, name, first.entries[None, None]).flatten()
            length = stretch * first.length + _length(self._of(1, f"b_{name}"))
            found[name] = _Reading(own, own + stretch * first.error, length)
        return found

    def _score_size(self, second: dict[str, _Reading]) -> Float[Tensor, " head"]:
        """Bounds of scores of the second layer before they are scaled."""
        return second["Q"].length * second["K"].length

    def _error_of_second_scores(self, first: _FirstLayer, second: dict[str, _Reading]) -> Tensor:
        """How far a difference of two scores of the second layer may be off, with what the softmax makes of it."""
        grown, tiny, e = self.rounding.growth, self.rounding.tiny, self._of(0, "W_Q").shape[-1]
        q, k = second["Q"], second["K"]
        # The stream's errors are counted through M, and the projections' own roundings through the other side's length.
        asking, asked = (self._longest_through(M) for M in (self.match, self.match.mT))
        score = (asking + _length(self.asked) + _stretch(self.match) * first.error_at_query) * first.error
        score = score + asked * first.error_at_query
        score = score + (q.own * (k.length + k.error) + (q.length + q.error) * k.own) * self.scale
        score = score + (grown(e + 4) * (q.length + q.error) * (k.length + k.error) + e * tiny) * self.scale
        scores = self._score_size(second) * self.scale + score
        difference, entries = self._loose(2 * score, 2 * scores).max(), first.entries
        return difference + OWN_OF_TABLES * ((entries @ self.sums @ entries).max() + (self.asked_sums @ entries).max())

    def _error_of_lead(self, first: _FirstLayer, second: dict[str, _Reading]) -> tuple[Tensor, Tensor]:
        """(How far a lead may be off besides what scores do to it, bounds of the last stream's entries)."""
        grown, tiny, n, entries = self.rounding.growth, self.rounding.tiny, self.n, first.entries
        (d, e), v = self._of(0, "W_Q").shape[1:], second["V"]
        columns = self.W_U.norm(dim=0)
        U, pair = 2 * self.W_U.abs().amax(1), float(columns.max() * 2)
        wrote = torch.einsum("h,hd->d", v.length + v.error, self._of(1, "W_O").abs().amax(1) * math.sqrt(e))
        last = entries + wrote + self._of(1, "b_O").abs()
        through_heads = float((_stretch(self._of(1, "W_O")) * (v.error + n * tiny * (1 + v.length))).sum())
        lead = pair * (first.error_at_query + through_heads)
        lead = lead + grown(3 * n + self.heads * (e + 1) + d + 12) * 2 * (last @ U + 2 * self.b_U.abs().max())
        own_sums = (entries + (entries @ self.moved.abs()).sum(0) + self.constant.abs()) @ U
        return lead + OWN_OF_TABLES * (own_sums + 2 * self.b_U.abs().max()) + d * tiny, last

    def _within_range(self, first: _FirstLayer, second: dict[str, _Reading], last: Tensor) -> bool:
        """Whether all numbers are of float32's range: no partial sum of any product is larger than these bounds, since
        each is one of magnitudes."""
        largest = first.largest + [reading.own / self.rounding.growth(1) for reading in second.values()]
        logits = last @ (2 * self.W_U.abs().amax(1)) + self.b_U.abs().max()
        largest += [first.entries, last, logits, self._score_size(second) * max(1.0, self.scale)]
        return all(bool((x < LARGEST).all()) for x in largest) and is_moderate(self.scale)

    def _longest_through(self, matrix: Float[Tensor, "head d d"]) -> Float[Tensor, " head"]:
        """An upper bound of the length of ``x M`` for all streams after the first layer."""
        start = _length(torch.einsum("jbd,hdf->hjbf", self.stream + self.bias, matrix)).amax((1, 2))
        return start + _length(torch.einsum("gjbd,hdf->hgjbf", self.written, matrix)).amax((2, 3)).sum(1)

    def _own(self, layer: int, name: str, x: Float[Tensor, "place token d"]) -> Float[Tensor, "head place token"]:
        """The length of what ``x W + b`` rounds by itself, x having at most these magnitudes."""
        W, b = self._of(layer, f"W_{name}").abs(), self._of(layer, f"b_{name}").abs()
        terms = torch.einsum("jbd,hde->hjbe", x, W) + b[:, None, None]
        return _length(self.rounding.growth(len(self.embed.T) + 3) * terms + len(self.embed.T) * self.rounding.tiny)

    def _loose(self, difference: Tensor, spread: Tensor) -> Tensor:
        """How far the logarithm of a ratio of two weights of a softmax may be off: by their scores, by the subtraction
        of the largest, by the exponentials, and by the sum and the quotient."""
        unit = self.rounding.unit32
        return difference + 2 * unit * spread + 8 * EXP_ULPS * unit + self.rounding.growth(self.n + 4)


def _length(x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
    return x.norm(dim=-1) * (1 + OWN)


def _stretch(matrix: Float[Tensor, "*shape a b"]) -> Float[Tensor, "*shape"]:
    """An upper bound of how much a matrix stretches a vector."""
    found = [stretch_of(one) for one in matrix.reshape(-1, *matrix.shape[-2:])]
    return matrix.new_tensor(found).view(matrix.shape[:-2])


def _outer(a: Float[Tensor, "head i a"], b: Float[Tensor, "head j b"]) -> Float[Tensor, "head i a j b"]:
    return torch.einsum("hia,hjb->hiajb", a, b)
