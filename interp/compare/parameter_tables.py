"""Tables of free parameters."""

from __future__ import annotations

import pandas as pd

from interp.causal.ablation.parameter_variants import places
from models.transformer import HookedModel


def parameter_table(model: HookedModel) -> pd.DataFrame:
    """One row per free parameter: name, index within its tensor, value."""
    rows = [
        {"parameter": name, "index": index, "value": value}
        for name, tensor in model.weight_map.named_parameters()
        for index, value in zip(places(tuple(tensor.shape)), tensor.detach().reshape(-1).tolist(), strict=True)
    ]
    return pd.DataFrame(rows)


def parameters_beside(a: HookedModel, b: HookedModel) -> pd.DataFrame | None:
    """Two models' free parameters next to each other: parameter, index, a, b, difference (a minus b).

    None unless both have parameters of the same names and shapes. Equal models may have different numbers: weight maps
    have symmetries (a sign or a scale moved from one factor to the next), which are not taken out here.
    """
    maps = [getattr(model, "weight_map", None) for model in (a, b)]
    shapes = [[(k, v.shape) for k, v in m.named_parameters()] if m is not None else [] for m in maps]
    if not shapes[0] or shapes[0] != shapes[1]:
        return None
    left, right = parameter_table(a), parameter_table(b)
    joined = left.rename(columns={"value": "a"}).assign(b=right["value"])
    return joined.assign(difference=joined["a"] - joined["b"])
