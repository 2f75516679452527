"""A ternary language model that is small enough to count by hand."""

from __future__ import annotations

import torch

from models import TransformerConfig
from models.tasks.named.shakespeare import CharacterLanguage
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.ternary import TernaryWeights


def small(**changes: object) -> ArithmeticTransformer:
    shape = {"n_layers": 2, "d_model": 24, "n_heads": 2, "d_head": 12, "d_mlp": 16, "d_vocab": 65, "n_ctx": 40}
    switches = {"act_fn": "relu", "normalization_type": "LN", "attn_scores": "neg_l1", "attn_scale": 1.0}
    weight_map = TernaryWeights(TransformerConfig(**(shape | switches | {"attn_top_k": 4} | changes)))
    weight_map.initialise(torch.Generator().manual_seed(0))
    return ArithmeticTransformer(weight_map, CharacterLanguage(), name="small")
