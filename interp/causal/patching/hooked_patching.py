"""Patching through the model's own hooks: the reference for the engine, and the method for all other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model_checks import require_hook
from interp.core.places import Place
from interp.core.stats import ROUNDING
from models.errors import UserError
from models.transformer import HookedModel


class PlainPatcher:
    """Runs ``base`` through the model with one activation taken from ``source`` (hook name -> activation).

    ``changes``: whether any patch so far has changed an activation by more than rounding.
    """

    def __init__(self, model: HookedModel, base: Int[Tensor, "batch pos"], source: Mapping[str, Tensor] | Any):
        self.model, self.base, self.source = model, base, source
        self.changes = False

    def logits(self) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits of the unpatched run."""
        return self.model(self.base)

    def patched(self, places: Sequence[Place | None]) -> Float[Tensor, "variant batch pos d_vocab"]:
        """Logits with each of the places, which are of one hook point, taken from the source; None changes nothing.
        All are stacked in one run.

        Raises:
            UserError: there is no such hook, or it does not fire.
        """
        fired: list[str] = []
        name = next(place.hook for place in places if place is not None)

        def patch(value: Tensor, hook: Any) -> Tensor:
            fired.append(hook.name)
            stacked, other = value.clone(), self.source[name]
            for new, place in zip(stacked.split(len(self.base)), places, strict=True):
                if place is not None:
                    new[place.index] = other[place.index]
            if not self.changes:
                self.changes = not (stacked - value).abs().max() <= ROUNDING * value.abs().max()
            return stacked

        many = self.base.repeat(len(places), 1) if len(places) > 1 else self.base
        try:
            logits = self.model.run_with_hooks(many, fwd_hooks=[(name, patch)])
        except Exception:
            require_hook(self.model, name)  # only now: a stock model takes a tenth of a run to list its hooks
            raise
        if not fired:
            require_hook(self.model, name)
            raise UserError(f"The hook {name} did not fire, so that a patch there changes nothing.")
        return logits.unflatten(0, (len(places), -1))
