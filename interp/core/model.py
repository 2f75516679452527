"""The part of a model that a probe may use: :class:`models.hooked.Hooked`."""

from models.hooked import Hooked, HookedModel

__all__ = ["Hooked", "HookedModel"]
