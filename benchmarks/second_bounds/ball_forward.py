"""Leads of one problem in ball arithmetic: what the weights define over the reals, to 100 bits.

A ball (``flint.arb``) holds all that a number may be. Embeddings are added up as float32 does, which stores their sum;
all else is exact but for the library's radius. A number beyond the range of float32 raises :class:`Overflow`: what a
model computes there is no number.

Switches: those of models whose attention is a softmax of products over all keys that a causal mask shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flint
from flint import arb, arb_mat
from torch import Tensor

from models import UserError

LARGEST, BITS = 3.4e38, 100


class Overflow(Exception):
    """A number of the forward pass is no finite float32."""


def checked(x: arb) -> arb:
    if not abs(x).upper() < LARGEST:
        raise Overflow
    return x


class BallForward:
    """The forward pass of a model on one sequence of tokens.

    Args:
        config: a model's. weights: its effective weights.

    Raises:
        UserError: a switch that is not one of those above.
    """

    def __init__(self, config: Any, weights: Mapping[str, Tensor]):
        plain = {"attn_scores": "dot", "attn_window": None, "attn_top_k": None, "norm_groups": 1, "layer_mix": None}
        for name, value in plain.items():
            if getattr(config, name, value) not in (value, False, (), 0):
                raise UserError(f"{name}={getattr(config, name)!r} has no second implementation")
        if config.positional_embedding_type not in ("standard", "rotary", "none"):
            raise UserError(f"positions of kind {config.positional_embedding_type!r}")
        flint.ctx.prec = BITS
        self.config = config
        self.raw = {name: value.detach().cpu() for name, value in weights.items()}
        self.vectors: dict[tuple[str | int, ...], list[arb]] = {}
        self.matrices: dict[tuple[str, int | None], tuple[arb_mat, arb_mat]] = {}

    # ---- operations; vectors are lists of balls

    def vector(self, name: str, *at: int) -> list[arb] | None:
        """A stored vector, exactly; None for one that a model does not have."""
        if name not in self.raw:
            return None
        if (name, *at) not in self.vectors:
            self.vectors[name, *at] = [arb(value) for value in self.raw[name][at].double().tolist()]
        return self.vectors[name, *at]

    def product(self, x: Sequence[arb], name: str, head: int | None = None, bias: list[arb] | None = None) -> list[arb]:
        """``x W + bias``. No sum of magnitudes is beyond the range, so that no order of summation overflows."""
        if (name, head) not in self.matrices:
            table = (self.raw[name] if head is None else self.raw[name][head]).double().tolist()
            self.matrices[name, head] = arb_mat(table), arb_mat([[abs(value) for value in row] for row in table])
        W, size = self.matrices[name, head]
        found, sizes = arb_mat([list(x)]) * W, arb_mat([[abs(checked(value)) for value in x]]) * size
        out = []
        for i in range(W.ncols()):
            checked(sizes[0, i])
            out.append(found[0, i] if bias is None else checked(found[0, i] + bias[i]))
        return out

    def add(self, x: Sequence[arb], y: Sequence[arb] | None) -> list[arb]:
        return list(x) if y is None else [checked(a + b) for a, b in zip(x, y, strict=True)]

    def norm(self, x: Sequence[arb], gain: list[arb], bias: list[arb] | None, centred: bool) -> list[arb]:
        eps, n = arb(self.config.eps), len(x)
        if centred:
            mean = sum(x, arb(0)) / n
            x = [value - mean for value in x]
        square = checked(sum((value * value for value in x), arb(0))) / n
        scale = square.sqrt() + eps if self.config.norm_eps_outside else (square + eps).sqrt()
        found = [checked(value / scale * g) for value, g in zip(x, gain, strict=True)]
        return found if bias is None else self.add(found, bias)

    def activation(self, x: arb) -> arb:
        kind = self.config.act_fn
        if kind == "relu":
            return x.nonnegative_part()
        if kind == "gelu":
            return x * (1 + (x / arb(2).sqrt()).erf()) / 2
        if kind == "gelu_new":
            return x * (1 + ((2 / arb.pi()).sqrt() * (x + arb("0.044715") * x**3)).tanh()) / 2
        if kind == "silu":
            return x / (1 + (-x).exp())
        raise UserError(f"activation {kind!r}")

    # ---- the model

    def logits(self, tokens: Sequence[int], query: int) -> list[arb]:
        """The logits at a query's position."""
        cfg, raw = self.config, self.raw
        stream = []
        for position, token in enumerate(tokens[: query + 1]):
            x = raw["embed.W_E"][token]
            if cfg.positional_embedding_type == "standard":
                x = x + raw["pos_embed.W_pos"][position]  # stored numbers, whose float32 sum has one value
            stream.append([arb(float(value)) for value in x])
        for layer in range(cfg.n_layers):
            stream = self.block(f"blocks.{layer}", stream, [query] if layer + 1 == cfg.n_layers else range(query + 1))
        x = stream[-1]
        if cfg.final_gain:
            x = [checked(value * gain) for value, gain in zip(x, self._known("ln_final.w"), strict=True)]
        elif cfg.final_norm and cfg.normalization_type is not None:
            x = self._named_norm("ln_final", x)
        return self.product(x, "unembed.W_U", bias=self.vector("unembed.b_U"))

    def lead(self, tokens: Sequence[int], query: int, answer: int) -> arb:
        """The answer's logit minus the best other one's."""
        logits = self.logits(tokens, query)
        leads = [checked(logits[answer] - value) for i, value in enumerate(logits) if i != answer]
        least = leads[0]
        for one in leads[1:]:
            least = least.min(one)
        return least

    def block(self, name: str, stream: list[list[arb]], rows: Sequence[int]) -> list[list[arb]]:
        cfg, norms = self.config, self.config.normalization_type is not None
        pre, post = (norms and cfg.norm_placement in (one, "both") for one in ("pre", "post"))
        read = [self._named_norm(f"{name}.ln1", x) if pre else x for x in stream]
        out = []
        for row, written in zip(rows, self.attention(f"{name}.attn", read, rows), strict=True):
            before = stream[row]
            x = self.add(before, written)
            x = self._named_norm(f"{name}.ln1_post", x) if post else x
            if cfg.d_mlp:
                of = before if cfg.parallel_attn_mlp else x
                x = self.add(x, self.mlp(f"{name}.mlp", self._named_norm(f"{name}.ln2", of) if pre else of))
                x = self._named_norm(f"{name}.ln2_post", x) if post else x
            out.append(x)
        return out

    def attention(self, name: str, read: list[list[arb]], rows: Sequence[int]) -> list[list[arb]]:
        cfg = self.config
        written: list[list[arb] | None] = [None] * len(rows)
        for h in range(cfg.n_heads):
            q, k, v = (
                [self.product(x, f"{name}.W_{c}", h, self.vector(f"{name}.b_{c}", h)) for x in part]
                for c, part in (("Q", [read[row] for row in rows]), ("K", read), ("V", read))
            )
            if cfg.use_qk_norm:
                q, k = (
                    [self.norm(x, self._known(f"{name}.{c}_norm.w"), None, False) for x in part]
                    for part, c in ((q, "q"), (k, "k"))
                )
            if cfg.positional_embedding_type == "rotary":
                q = [self.turned(x, row) for x, row in zip(q, rows, strict=True)]
                k = [self.turned(x, at) for at, x in enumerate(k)]
            for i, row in enumerate(rows):
                z = self.mixed(name, h, row, q[i], k[: row + 1], v[: row + 1])
                out = self.product(z, f"{name}.W_O", h)
                written[i] = out if written[i] is None else self.add(written[i] or [], out)
        bias = self.vector(f"{name}.b_O")
        return [self.add(out or [], bias) for out in written]

    def mixed(
        self, name: str, h: int, row: int, q: list[arb], keys: list[list[arb]], values: list[list[arb]]
    ) -> list[arb]:
        cfg, scores = self.config, list[arb | None]()
        for at, key in enumerate(keys):
            score = checked(sum((checked(a * b) for a, b in zip(q, key, strict=True)), arb(0)))
            score = checked(score / arb(cfg.score_scale))
            if cfg.attn_bias:
                bias = float(self.raw[f"{name}.bias"][h, row, at])
                score = None if bias == float("-inf") else score + arb(bias)
            scores.append(score)
        shown = [score for score in scores if score is not None]
        if cfg.attn_softmax == "softmax1":
            shown.append(arb(0))
        top = max(shown, key=lambda score: float(score.mid()))  # any number that all share
        weights = [arb(0) if score is None else (score - top).exp() for score in scores]
        total = sum(weights, arb(0)) + ((-top).exp() if cfg.attn_softmax == "softmax1" else 0)
        return [
            sum((w * checked(value) for w, value in zip(weights, column, strict=True)), arb(0)) / total
            for column in zip(*values, strict=True)
        ]

    def turned(self, x: list[arb], position: int) -> list[arb]:
        cfg = self.config
        n = len(x) if cfg.rotary_dim is None else cfg.rotary_dim
        half, found = n // 2, list(x)
        for i in range(half):
            angle = arb(position) * arb(cfg.rotary_base) ** (arb(-2 * i) / n) / arb(cfg.rotary_scaling_factor)
            cos, sin = angle.cos(), angle.sin()
            first, second = (2 * i, 2 * i + 1) if cfg.rotary_adjacent_pairs else (i, i + half)
            a, b = x[first], x[second]
            found[first], found[second] = a * cos - b * sin, a * sin + b * cos
        return found

    def mlp(self, name: str, x: list[arb]) -> list[arb]:
        bias = self.vector(f"{name}.b_in")
        if self.config.gated_mlp:
            gate, linear = (self.product(x, f"{name}.{W}") for W in ("W_gate", "W_in"))
            hidden = self.add([checked(self.activation(a) * b) for a, b in zip(gate, linear, strict=True)], bias)
        else:
            hidden = [self.activation(value) for value in self.product(x, f"{name}.W_in", bias=bias)]
        return self.product(hidden, f"{name}.W_out", bias=self.vector(f"{name}.b_out"))

    def _named_norm(self, name: str, x: list[arb]) -> list[arb]:
        return self.norm(x, self._known(f"{name}.w"), self.vector(f"{name}.b"), self.config.normalization_type == "LN")

    def _known(self, name: str) -> list[arb]:
        found = self.vector(name)
        assert found is not None
        return found
