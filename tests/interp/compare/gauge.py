"""Models of random weights, and the same models in another basis, order or scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from models.tasks.named.addition import TenDigitAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights

TASK = TenDigitAddition()
CONFIG = TransformerConfig(
    n_layers=1, d_model=8, n_heads=3, d_head=4, d_mlp=5, d_vocab=10, n_ctx=34, dtype="float64", act_fn="gelu"
)
Change = Callable[[Mapping[str, Tensor]], None]


def dense(seed: int = 0, change: Change | None = None, config: TransformerConfig = CONFIG) -> ArithmeticTransformer:
    """A model of random weights with norm gains 1, changed in place by ``change``."""
    weights = DenseWeights(config).double()
    weights.initialise(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, parameter in weights.named_parameters():
            if "/W_" in name:
                parameter.mul_(20)
            elif "/b_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) / 3)
        table = dict(weights.named_parameters())
        if change is not None:
            change(table)
    return ArithmeticTransformer(weights, TASK)


def permute(table: Mapping[str, Tensor]) -> None:
    """Heads 0, 1, 2 become 2, 0, 1, and units are reversed, in every layer."""
    for name, value in table.items():
        if "/attn/" in name and value.shape[0] == 3:
            value.copy_(value[[1, 2, 0]].clone())
        elif name.endswith("mlp/W_out") or name.endswith("mlp/b_in"):
            value.copy_(value.flip(0).clone())
        elif name.endswith("mlp/W_in"):
            value.copy_(value.flip(1).clone())


def rotate(table: Mapping[str, Tensor]) -> None:
    """The residual stream in another orthonormal basis."""
    q = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)).Q
    for name, value in table.items():
        kind = name.rsplit("/", 1)[1]
        if kind in ("W_E", "W_pos", "W_O", "W_out", "b_O", "b_out"):
            value.copy_(value @ q)
        elif kind in ("W_Q", "W_K", "W_V", "W_in", "W_U"):
            value.copy_(q.T @ value)


def rescale(table: Mapping[str, Tensor]) -> None:
    """Scales moved from queries to keys and from values to outputs, head by head."""
    scale = torch.tensor([0.2, 3.0, 7.0], dtype=torch.float64)
    for name, value in table.items():
        kind = name.rsplit("/", 1)[1]
        factor = scale.reshape(-1, *[1] * (value.ndim - 1)) if "/attn/" in name and value.shape[0] == 3 else None
        if factor is not None and kind in ("W_Q", "b_Q", "W_V", "b_V"):
            value.mul_(factor)
        elif factor is not None and kind in ("W_K", "b_K", "W_O"):
            value.div_(factor)


def gauge_copy(model: ArithmeticTransformer) -> ArithmeticTransformer:
    """A one-layer RMSNorm model with equal answers: gains folded, stream rotated, values in another basis, units in
    reverse."""
    copy = model.fold_layer_norm()
    generator = torch.Generator().manual_seed(3)

    def rotation(size: int) -> Tensor:
        return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q

    q, mix = rotation(copy.cfg.d_model), rotation(copy.cfg.d_head)
    with torch.no_grad():
        for name, value in copy.weight_map.named_parameters():
            new, kind = value.double(), name.rsplit("/", 1)[-1]
            if kind in ("W_Q", "W_K", "W_V", "W_in", "W_U"):
                new = q.T @ new
            elif kind in ("W_E", "W_pos", "W_O", "W_out", "b_O", "b_out"):
                new = new @ q
            if kind in ("W_V", "b_V"):
                new = new @ mix
            elif kind == "W_O":
                new = mix.T @ new
            elif kind == "W_in":
                new = new.flip(1)
            elif kind in ("W_out", "b_in"):
                new = new.flip(0)
            value.copy_(new.to(value))
    return ArithmeticTransformer(copy.weight_map, model.task, name="gauge copy")
