"""The arc decoders: trained ten-digit adders of 15 and of 16 numbers that others published in July 2026.

One layer, one head, three dimensions, on the digits as tokens. The numbers are as published in
Tencent-Hunyuan/Hyra-results (AI4Science/smallest_adder); nothing was trained here. The weight map follows their
formula, in which many entries share one number:

    stream     x = E[token],  E[d] = [R cos(s + d t), R sin(s + d t), 0];  no table of positions
    norms      n(x) = x / sqrt(mean x^2 + 1e-6) * g, with one gain g for all three
    heads      h = n(x) Q^T with Q [4, 3]: queries h, keys h turned pair by pair by 1/2, values h, written with Q
    scores     of both after an RMS norm with the gain [f, -1, 0, 3.6], at rotary positions of base 3
    MLP        (silu(n(x) G^T) * (n(x) U^T)), its pair turned by 1.8, times U, with G and U [2, 3]
    logits     n(x) E^T

The free numbers fill g, f, Q, G and U. Their makers do not count the eight in ``CONSTANTS``, which act like weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from models.registry import ModelSpec, Published, register
from models.tasks.named.addition import PairAddition
from models.tasks.number_digits import DIGITS
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, under
from models.weight_maps.weight_map import WeightMap

CONSTANTS: Mapping[str, float] = {
    "arc's radius": 160.0,
    "arc's start": 1.0,
    "arc's stride": math.pi / 48,
    "angle of keys": 0.5,
    "angle of the MLP": 1.8,
    "second gain of queries and keys": -1.0,
    "fourth gain of queries and keys": 3.6,
    "rotary base": 3.0,
}
#: Which number stands in which entry of a matrix, by row; entries without a number are 0.
Places = Mapping[int, int]


@dataclass(frozen=True)
class ArcDecoder:
    """Published numbers, and which of them stands where in g, f, Q, G and U."""

    numbers: Sequence[float]
    g: Sequence[int]
    f: int
    Q: Places
    G: Places
    U: Places
    published: Published | None = None
    constants: Mapping[str, float] = field(default_factory=lambda: CONSTANTS)
    eps: float = 1e-6


def _places_of_q(*numbers: int) -> Places:
    """All entries but the third of the first and of the last row."""
    return dict(zip((0, 1, 3, 4, 5, 6, 7, 8, 9, 10), numbers, strict=True))


_TEST = "the 10,010 test problems themselves, on which the best step was kept"
DECODERS: Mapping[str, ArcDecoder] = {
    "arc-decoder-15": ArcDecoder(
        (27.10511016845703, 63.809837341308594, 0.3948841691017151, 0.9940125346183777, -4.16915225982666,
         1.406166434288025, -1.3576298952102661, 19.130640029907227, 4.9790191650390625, -0.328948050737381,
         0.30185666680336, -0.47672614455223083, 13.129644393920898, -18.78693389892578, -72.52423095703125),
        g=(7, 0, 1), f=12, Q=_places_of_q(2, 6, 3, 4, 5, 6, 5, 7, 6, 8),
        G=dict(enumerate((9, 10, 11, 11, 3, 6))), U=dict(enumerate((12, 13, 0, 14, 12, 13))),
        published=Published("warm", "the 16 numbers of arc-decoder-16, two of which became one", _TEST, True),
    ),
    "arc-decoder-16": ArcDecoder(
        (26.91269302368164, 62.17556381225586, 0.3892700672149658, -1.325366497039795, 0.9513347148895264,
         -4.1257123947143555, 1.6053067445755005, -1.700096607208252, 17.06768035888672, 4.8576836585998535,
         -0.3430210053920746, 0.2950766086578369, -0.4748355448246002, 13.06541919708252, -18.303936004638672,
         -73.43175506591797),
        g=(8, 0, 1), f=13, Q=_places_of_q(2, 3, 4, 5, 6, 7, 6, 8, 3, 9),
        G=dict(enumerate((10, 11, 12, 12, 4, 3))), U=dict(enumerate((13, 14, 0, 15, 13, 14))),
        published=Published("warm", "a model of 19 numbers, by sharing one more number at a time", _TEST, True),
    ),
}  # fmt: skip


class ArcDecoderWeights(WeightMap):
    """The published numbers, ``phi``, as the only free parameters."""

    def __init__(self, decoder: ArcDecoder):
        super().__init__(
            TransformerConfig(
                n_layers=1,
                d_model=3,
                n_heads=1,
                d_head=4,
                d_mlp=2,
                d_vocab=10,
                n_ctx=35,
                act_fn="silu",
                gated_mlp=True,
                normalization_type="RMS",
                eps=decoder.eps,
                positional_embedding_type="rotary",
                rotary_base=decoder.constants["rotary base"],
                rotary_adjacent_pairs=True,
                use_qk_norm=True,
            )
        )
        self.decoder = decoder
        self.phi = nn.Parameter(torch.zeros(len(decoder.numbers)))

    @property
    def constants(self) -> Mapping[str, float]:
        return self.decoder.constants

    def initialise(self, generator: torch.Generator) -> None:
        """The published numbers, for every seed."""
        with torch.no_grad():
            self.phi.copy_(torch.tensor(self.decoder.numbers))

    def forward(self) -> Weights:
        of, phi, known = self.decoder, self.phi, self.decoder.constants
        zero = torch.zeros_like(phi[0])

        def matrix(rows: int, places: Places) -> Tensor:
            return torch.stack([phi[places[i]] if i in places else zero for i in range(3 * rows)]).reshape(rows, 3)

        Q, G, U = matrix(4, of.Q), matrix(2, of.G), matrix(2, of.U)
        gain = phi[list(of.g)]
        fixed = (zero + known.get(f"{place} gain of queries and keys", 0.0) for place in ("second", "third", "fourth"))
        norm = torch.stack((phi[of.f], *fixed))
        angle = known["arc's start"] + known["arc's stride"] * torch.arange(10, dtype=phi.dtype, device=phi.device)
        E = known["arc's radius"] * torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), 1)
        keys = turned(Q.T.unflatten(1, (2, 2)), known["angle of keys"]).flatten(1)
        return {
            "embed.W_E": E,
            "blocks.0.ln1.w": gain,
            **under("blocks.0.attn", W_Q=Q.T[None], W_K=keys[None], W_V=Q.T[None], W_O=Q[None]),
            "blocks.0.attn.q_norm.w": norm,
            "blocks.0.attn.k_norm.w": norm,
            "blocks.0.ln2.w": gain,
            **under("blocks.0.mlp", W_gate=G.T, W_in=U.T, W_out=turned(U.T, -known["angle of the MLP"]).T),
            "ln_final.w": gain,
            "unembed.W_U": E.T,
        }


def turned(pairs: Tensor, angle: float) -> Tensor:
    """The last axis' pairs, each turned by an angle."""
    x, y = pairs.unbind(-1)
    return torch.stack((x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)), -1)


def arc_decoder_task() -> PairAddition:
    """``0 a 0 0 b 0 s``, all numbers units first, and no end token."""
    format = f"0{{a:{DIGITS}r}}00{{b:{DIGITS}r}}0{{s:{DIGITS + 1}r}}"
    name = "ten-digit-addition-framed-1-2-1-upup-0000"
    return PairAddition(format, name, vocabulary="0123456789", held_out="AdderBoard")


for _name, _decoder in DECODERS.items():
    register(
        ModelSpec(
            name=_name,
            weight_map=partial(ArcDecoderWeights, _decoder),
            task=arc_decoder_task,
            recipe=None,
            source="Tencent-Hunyuan/Hyra-results, AI4Science/smallest_adder (July 2026)",
            published=_decoder.published,
        )
    )
