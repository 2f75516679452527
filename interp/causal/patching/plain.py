"""Patching through the model's own hooks: the reference for the engine, and the method for all other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.patching.patch_sites import Site
from interp.causal.patching.run import as_slice
from interp.core.sites import require_hook
from models.errors import UserError
from models.transformer.hooked import HookedModel


class PatchedRun(NamedTuple):
    """One head, neuron or stream to replace at ``positions`` (for a pattern: its rows, and ``sources`` its columns)."""

    part: int
    positions: Bool[Tensor, " pos"]
    sources: Bool[Tensor, " pos"] | None = None


ROUNDING = 1e-5  # relative difference that rounding alone can cause
UNPATCHED = PatchedRun(0, torch.zeros(0, dtype=torch.bool))


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

    def patched(
        self, site: Site, layer: int, variants: Sequence[PatchedRun]
    ) -> Float[Tensor, "variant batch pos d_vocab"]:
        """Logits of every variant, all of them stacked in one run.

        Raises:
            UserError: there is no such hook, or it does not fire.
        """
        fired: list[str] = []
        places = [as_slice(positions.nonzero()[:, 0].tolist()) for _, positions, _ in variants]

        def patch(value: Tensor, hook: Any) -> Tensor:
            fired.append(hook.name)
            stacked, other = value.clone(), self.source[name]
            for new, where, (part, _, sources) in zip(stacked.split(len(self.base)), places, variants, strict=True):
                if site.pattern:
                    rows = other[:, part, where]
                    if sources is not None:
                        rows = torch.where(sources.to(value.device), rows, new[:, part, where])
                    new[:, part, where] = rows
                elif site.part is not None:
                    new[:, where, part] = other[:, where, part]
                else:
                    new[:, where] = other[:, where]
            if not self.changes:
                self.changes = not (stacked - value).abs().max() <= ROUNDING * value.abs().max()
            return stacked

        name = site.hook_name(layer)
        many = self.base.repeat(len(variants), 1) if len(variants) > 1 else self.base
        try:
            logits = self.model.run_with_hooks(many, fwd_hooks=[(name, patch)])
        except Exception:
            require_hook(self.model, name)  # only now: a stock model takes a tenth of a run to list its hooks
            raise
        if not fired:
            require_hook(self.model, name)
            raise UserError(f"The hook {name} did not fire, so that a patch there changes nothing.")
        return logits.unflatten(0, (len(variants), -1))
