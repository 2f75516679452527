"""Two layers of attention as tables over (place, token), and how far float32 moves what they compute.

The first layer reads embeddings alone, so that its scores and what each key would write are tables. With ``x_i`` the
stream after it, the second layer scores key k by ``x_q M x_k + m x_k`` (what all keys share is left out) and writes
``x_k V``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import EXP_ULPS, LARGEST, is_moderate
from models import ArithmeticTransformer

#: What float64 may lose in a sum of these sizes: some 10^4 operations of 2^-53 each, and more.
OWN = 2.0**-36


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
        x1 = _length(x0) + out_size
        off1 = (off1 + grown(2) * (x1 + off1))[: query + 1]  # [place, token]
        X = self.stream.abs().amax((0, 1)) + self.written.abs().amax((1, 2)).sum(0) + self.bias.abs()
        X = X + off1.max()  # bounds of the computed stream's entries
        long, at_query = float(x1[: query + 1].max()), float(off1[query].max())
        own = {name: self._own(1, name, X[None, None]).flatten() for name in "QKV"}  # [head]
        stretch = {name: _stretch(self._of(1, f"W_{name}")) for name in "QKVO"}
        reach = {name: stretch[name] * long + _length(self._of(1, f"b_{name}")) for name in "QKV"}
        q_off, k_off, v_off = (own[name] + stretch[name] * off1.max() for name in "QKV")
        # The stream's errors are counted through M, and the projections' own roundings through the other side's length.
        asking, asked = (self._longest_through(M) for M in (self.match, self.match.mT))
        score = (asking + _length(self.asked) + _stretch(self.match) * at_query) * off1.max() + asked * at_query
        score = score + (own["Q"] * (reach["K"] + k_off) + (reach["Q"] + q_off) * own["K"]) * self.scale
        score = score + (grown(e + 4) * (reach["Q"] + q_off) * (reach["K"] + k_off) + e * tiny) * self.scale
        scores = reach["Q"] * reach["K"] * self.scale + score
        difference = self._loose(2 * score, 2 * scores).max()
        difference = difference + OWN * ((X @ self.sums @ X).max() + (self.asked_sums @ X).max())
        columns = self.W_U.norm(dim=0)
        U, pair = 2 * self.W_U.abs().amax(1), float(columns.max() * 2)
        wrote = torch.einsum("h,hd->d", reach["V"] + v_off, self._of(1, "W_O").abs().amax(1) * math.sqrt(e))
        last = X + wrote + self._of(1, "b_O").abs()
        lead = pair * (at_query + float((stretch["O"] * (v_off + n * tiny * (1 + reach["V"]))).sum()))
        lead = lead + grown(3 * n + self.heads * (e + 1) + d + 12) * 2 * (last @ U + 2 * self.b_U.abs().max())
        own_sums = (X + (X @ self.moved.abs()).sum(0) + self.constant.abs()) @ U
        lead = lead + OWN * (own_sums + 2 * self.b_U.abs().max()) + d * tiny
        # No partial sum of any product is larger than these, each of which is one of magnitudes.
        largest += [self._own(0, name, x0).max() / grown(1) for name in "QKV"] + [x / grown(1) for x in own.values()]
        largest += [X, last, last @ U + self.b_U.abs().max(), reach["Q"] * reach["K"] * max(1.0, self.scale)]
        within = all(bool((x < LARGEST).all()) for x in largest) and is_moderate(self.scale)
        found = float(difference) * (1 + 1e-9), float(lead) * (1 + 1e-9)
        return found if within and all(map(math.isfinite, found)) else (math.inf, math.inf)

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
    return x.norm(dim=-1) * (1 + 1e-12)


def _stretch(matrix: Float[Tensor, "*shape a b"]) -> Float[Tensor, "*shape"]:
    """An upper bound of how much a matrix stretches a vector."""
    return torch.linalg.matrix_norm(matrix, 2) * (1 + 1e-9)


def _outer(a: Float[Tensor, "head i a"], b: Float[Tensor, "head j b"]) -> Float[Tensor, "head i a j b"]:
    return torch.einsum("hia,hjb->hiajb", a, b)
