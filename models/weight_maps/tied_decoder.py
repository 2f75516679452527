"""The decoder of the Position Coupling paper: free matrices, no biases, unembedding tied to the token embedding."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.weight_map import WeightMap, fill_, normal_, uniform_


class TiedDecoderWeights(WeightMap):
    """T5-like weights (appendix B, with the initialisation of the public code).

    The unembedding is ``W_U = W_E^T / sqrt(d_model)``. With coupled positions every level has its own table, of
    ``position_limits[level] + 1`` rows (id 0 included); shorter ones are padded with zero rows that nothing reads.
    """

    def __init__(self, cfg: TransformerConfig, position_limits: tuple[int, ...] = ()):
        super().__init__(cfg)
        self.position_limits = position_limits
        made = ("unembed.W_U", "pos_embed.W_pos")  # computed from the others
        self.add_parameters({k: s for k, s in weight_shapes(cfg).items() if k not in made and not is_bias(k)})
        tables = {f"pos_embed.W_pos_{level + 1}": limit + 1 for level, limit in enumerate(position_limits)}
        self.add_parameters({key: (rows, cfg.d_model) for key, rows in tables.items()})

    def forward(self) -> Weights:
        weights = self.own()
        levels = [weights.pop(f"pos_embed.W_pos_{level + 1}") for level in range(len(self.position_limits))]
        if levels:
            rows = self.config.position_rows
            weights["pos_embed.W_pos"] = torch.stack([F.pad(t, (0, 0, 0, rows - t.shape[0])) for t in levels])
        weights["unembed.W_U"] = weights["embed.W_E"].T * self.config.d_model**-0.5
        return weights

    def initialise(self, generator: torch.Generator) -> None:
        """Standard deviations: W_Q (d_model d_head)^-1/2, W_K, W_V, W_in, W_gate d_model^-1/2, W_O (heads d_head)^-1/2,
        W_out d_mlp^-1/2, embeddings 1; norms 1; FIRE's MLP as torch's linear layers."""
        cfg = self.config
        std = {
            "W_Q": (cfg.d_model * cfg.d_head) ** -0.5,
            "W_O": (cfg.n_heads * cfg.d_head) ** -0.5,
            "W_out": max(1, cfg.d_mlp) ** -0.5,
            "W_E": 1.0,
        }
        for name, parameter in self.named_parameters():
            kind = name.rsplit("/", 1)[1]
            if name.startswith("fire/"):
                fan_in = {"in": 1, "mid": 32, "out": 32}[kind.split("_")[1]]
                uniform_(parameter, fan_in**-0.5, generator)
            elif kind.startswith("W_pos"):
                normal_(parameter, 1.0, generator)
            elif kind == "w":
                fill_(parameter, 1.0)
            else:
                normal_(parameter, std.get(kind, cfg.d_model**-0.5), generator)

    def decay_mask(self) -> dict[str, bool]:
        """The paper trains without weight decay; in a recipe with decay, it applies to the matrices only."""
        return {name: name.rsplit("/", 1)[1] != "w" for name, _ in self.named_parameters()}
