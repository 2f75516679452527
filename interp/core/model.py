"""What a probe may use of a model: :class:`models.hooked.Hooked`."""

from models.hooked import Hooked, HookedModel

__all__ = ["Hooked", "HookedModel"]
