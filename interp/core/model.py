"""The part of a model that a probe may use: :class:`models.transformer.hooked.Hooked`."""

from models.transformer.hooked import Hooked, HookedModel

__all__ = ["Hooked", "HookedModel"]
