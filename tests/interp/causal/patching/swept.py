"""One site's values between any two sets of tokens, by metrics of one's own: what a sweep is made of."""

from __future__ import annotations

from typing import Any

import xarray as xr
from torch import Tensor

from interp.causal.metrics import require_metrics
from interp.causal.patching.activation_patching import SweptSite, sweep
from interp.causal.patching.patching_values import PatchSpec


def swept(
    model: Any,
    base: Tensor,
    source: Tensor,
    metrics: Any,
    site: str = "resid_pre",
    by: str = "position",
    layers: Any = None,
    task: Any = None,
    target: int | None = None,
    **more: Any,
) -> SweptSite:
    bound = require_metrics(metrics, base.shape[-1])
    return sweep(model, PatchSpec.of(model, base, source, bound, site, by, layers, task, target, **more))


def labelled(found: SweptSite) -> xr.DataArray:
    """The values over (metric, layer, ..., pair)."""
    coords = {"metric": [metric.name for metric in found.asked.metrics]} | found.axes
    return xr.DataArray(found.values, dims=(*coords, "pair"), coords=coords)
