"""Common parts of constructions after the Position Coupling paper: named dimensions, position codes, registration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.registry import ModelSpec, register
from models.tasks.task import Task
from models.transformer.config import TransformerConfig, check_choices
from models.transformer.parts.weights import Weights
from models.weight_maps.constant import ConstantWeights


class Construction(ConstantWeights):
    """A construction as effective weights. ``dims`` names the residual dimensions, ``dim_labels`` labels them."""

    def __init__(self, cfg: TransformerConfig, weights: Weights, options: Any, dims: dict[str, slice]):
        super().__init__(cfg, weights)
        self.options, self.dims, self.dim_labels = options, dims, dim_labels(dims)


def register_construction(
    name: str, weight_map: Callable[[Any], Construction], options: type, task: Callable[..., Task], source: str
) -> None:
    """Register ``weight_map(options(...))``; users may choose every field of ``options``."""
    register(
        ModelSpec(
            name=name,
            weight_map=lambda **chosen: weight_map(options(**chosen)),
            task=task,
            recipe=None,
            source=source,
            options={field.name: field.default for field in fields(options)},
        )
    )


def check_options(options: Any, *sizes: str) -> None:
    """Raise UserError unless temperature, sizes (integers of at least 1) and choices of a construction are valid."""
    check_choices(options)
    for name in sizes:
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{name} must be an integer from 1 on, not {value!r}.")
    if not 0 < options.eta < math.inf:
        raise UserError(f"The temperature eta must be positive and finite, not {options.eta}.")


def construction_config(options: Any, **sizes: Any) -> TransformerConfig:
    """The config that the constructions share: ReLU, no norms, coupled ids, and scores that are not scaled."""
    return TransformerConfig(
        act_fn="relu",
        normalization_type=None,
        positional_embedding_type="coupled",
        attn_scale=1.0,
        dtype=options.dtype,
        **sizes,
    )


def residual_dims(widths: Mapping[str, int]) -> dict[str, slice]:
    """Consecutive slices of the residual stream, one per name: ``{"NUM": 1, "SUM": 10}`` gives 0:1 and 1:11."""
    dims, start = {}, 0
    for name, width in widths.items():
        dims[name] = slice(start, start + width)
        start += width
    return dims


def dim_labels(dims: Mapping[str, slice]) -> list[str]:
    """One label per dimension, for axes: "NUM", and "SUM[0]" ... "SUM[9]" where a name has several."""
    labels = []
    for name, where in dims.items():
        width = where.stop - where.start
        labels += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
    return labels


def bits(ids: int) -> int:
    """How many bits tell ``ids`` ids apart: ceil(log2(ids)), and at least one."""
    return max(1, (ids - 1).bit_length())


def codes(n_bits: int) -> Float[Tensor, "id bit"]:
    """Row k - 1 is ``v_k``: component i is ``(-1)^b`` with b the i-th bit from the left of k - 1 (equation 3)."""
    shifts = torch.arange(n_bits - 1, -1, -1)
    ones = (torch.arange(2**n_bits)[:, None] >> shifts) & 1
    return (1 - 2 * ones).double()
