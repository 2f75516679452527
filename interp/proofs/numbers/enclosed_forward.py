"""A model's weights as enclosures, and what a forward pass does with them but for attention and leads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Int
from torch import Tensor

from interp.proofs.numbers.enclosure import Enclosure, Normed, TrimmedMatrix
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import OWN
from models import TransformerConfig


@dataclass(frozen=True, eq=False)
class MLPRoute:
    """An MLP's way through a block: the stream that it is added to, what it reads, and its pre-activations."""

    x: Enclosure
    read: Normed
    pre: Enclosure

    def __getitem__(self, rows: Tensor) -> MLPRoute:
        return MLPRoute(self.x[rows], self.read[rows], self.pre[rows])


class EnclosedForward:
    """The hooked forward pass of :mod:`models.transformer.arithmetic_transformer` in balls: what all who
    run parts of it share.

    It keeps a model's config, its weights in float64, its matrices with their norms, and the rounding of its
    arithmetic.
    """

    def __init__(self, config: TransformerConfig, weights: dict[str, Tensor], rounding: Rounding):
        self.config, self.rounding = config, rounding
        kept = {name: value.detach().double() for name, value in weights.items()}
        # Adding zeros is exact.
        self.weights = {
            name: value for name, value in kept.items() if name.split(".")[-1][0] != "b" or bool(value.any())
        }
        self.matrices = {
            name: TrimmedMatrix.of(self._flat(name), config.n_heads if name.endswith(("W_Q", "W_K", "W_V")) else 1)
            for name in weights
            if self._is_matrix(name)
        }

    @staticmethod
    def _is_matrix(name: str) -> bool:
        return name.rsplit(".", 1)[1] in ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_gate", "W_out", "W_U")

    def _flat(self, name: str) -> Tensor:
        """A weight as a matrix [input, output], without its head axis."""
        value = self.weights[name]
        if value.ndim == 3:
            return value.flatten(0, 1) if name.endswith("W_O") else value.transpose(0, 1).flatten(1)
        return value

    def linear(self, x: Enclosure | Normed, matrix: str, bias: str | None = None) -> Enclosure:
        """The product with a weight, and the bias if there is one."""
        found = None if bias is None else self.weights.get(bias)
        return self.rounding.linear(x, self.matrices[matrix], None if found is None else found.flatten())

    def _normed(self, x: Enclosure, name: str) -> Normed:
        cfg = self.config
        gain, bias = self.weights[f"{name}.w"], self.weights.get(f"{name}.b")
        if (groups := cfg.norm_groups) > 1:  # RMS norms, each of its own part of the stream
            each = Enclosure.of(*(part.unflatten(-1, (groups, -1)) for part in (x.mid, x.rad)))
            each = self.rounding.normed(each, gain.view(groups, -1), None, cfg.eps, cfg.norm_eps_outside, False).whole
            return Normed(Enclosure.of(each.mid.flatten(-2), each.rad.flatten(-2)), ())
        return self.rounding.normed(x, gain, bias, cfg.eps, cfg.norm_eps_outside, cfg.normalization_type == "LN")

    def _before(self, x: Enclosure, name: str) -> Normed:
        """What a sublayer reads of the stream, by its norm if it has one in front of it."""
        return self._normed(x, name) if self.config.has_pre_norm else Normed(x, ())

    def embedded(
        self, tokens: Int[Tensor, " node"], ids: Int[Tensor, "node level"], position: Int[Tensor, " node"]
    ) -> Enclosure:
        """The stream before the first block. In float32, sums of stored numbers in a known order have one value."""
        kind, x = self.config.positional_embedding_type, self.weights["embed.W_E"][tokens]
        if kind not in ("standard", "coupled"):
            return Enclosure.exact(x)
        table = self.weights["pos_embed.W_pos"]
        places = [table[position]] if kind == "standard" else [rows[at] for rows, at in zip(table, ids.T, strict=True)]
        if self.rounding.unit32:
            return Enclosure.exact(x.float() + reduce(torch.add, (place.float() for place in places)))
        return self.rounding.add(Enclosure.exact(x), reduce(self.rounding.add, map(Enclosure.exact, places)))

    def mlp(self, block: str, x: Enclosure) -> tuple[Enclosure, MLPRoute]:
        """What the MLP that reads the stream x writes, and its way there."""
        name, gated, bias = f"{block}.mlp", self.config.gated_mlp, f"{block}.mlp.b_in"
        read = self._before(x, f"{block}.ln2")
        pre = self.linear(read, f"{name}.W_gate") if gated else self.linear(read, f"{name}.W_in", bias)
        hidden = self.rounding.activation(self.config.act_fn, pre)
        if gated:
            hidden = self.rounding.times(hidden, self.linear(read, f"{name}.W_in"))
            if (shift := self.weights.get(bias)) is not None:
                hidden = self.rounding.add(hidden, Enclosure.exact(shift))
        return self.linear(hidden, f"{name}.W_out", f"{name}.b_out"), MLPRoute(x, read, pre)

    def _queries_keys_values(self, name: str, x: Normed) -> list[Enclosure]:
        """Queries, keys and values, each [node, head, d_head]."""
        found = [self.linear(x, f"{name}.W_{c}", f"{name}.b_{c}") for c in "QKV"]
        if self.config.n_heads == 1:
            return [y[:, None] for y in found]
        return found

    @staticmethod
    def side_by_side(z: Enclosure) -> Enclosure:
        """Reshape [head, node, d] to [node, head x d]."""
        mid, rad = (part.transpose(0, 1).flatten(1) for part in (z.mid, z.rad))
        return Enclosure.of(mid, rad, z.norm.norm(dim=0) * (1 + OWN))


def turned(
    rounding: Rounding, config: TransformerConfig, vectors: tuple[Enclosure, ...], position: Int[Tensor, " node"]
) -> list[Enclosure]:
    """Rotary embedding of vectors [node, head, d_head], of the first ``config.rotated`` entries of each head."""
    n, found = config.rotated, []
    angles = rounding.angles(int(position.max()) + 1, config.rotary_base, n // 2, config.rotary_scaling_factor)
    cos, sin = (angle[position] for angle in angles)
    for x in vectors:
        part = Enclosure.of(x.mid[..., :n], x.rad[..., :n])
        new = rounding.rotated(part, cos, sin, config.rotary_adjacent_pairs)
        mid, rad = (torch.cat((turn, old[..., n:]), -1) for turn, old in ((new.mid, x.mid), (new.rad, x.rad)))
        found.append(Enclosure.of(mid, rad))
    return found
