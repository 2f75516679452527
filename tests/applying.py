"""The questions of one model that apply to it."""

from __future__ import annotations

from collections.abc import Iterator

from interp.core.probe import Probe, registered
from models.transformer import HookedModel


def applying(model: HookedModel) -> Iterator[Probe]:
    """Those that need nothing but the model."""
    yield from (each for each in registered().values() if each.subjects == ("model",) and not each.why_not(model, None))
