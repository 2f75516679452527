"""Patching one variant at a time through the model's own hooks: the reference, and the way for any other model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.patching.sites import Site
from interp.sites import require_hook
from models.errors import UserError


class PlainPatcher:
    """Runs ``base`` through the model with one activation taken from ``source`` (hook name -> activation)."""

    def __init__(self, model: Any, base: Int[Tensor, "batch pos"], source: Mapping[str, Tensor] | Any):
        self.model, self.base, self.source = model, base, source

    def logits(self) -> Float[Tensor, "batch pos d_vocab"]:
        """Of the unpatched run."""
        return self.model(self.base)

    def patched(
        self,
        site: Site,
        layer: int,
        part: int,
        positions: Bool[Tensor, " pos"],
        sources: Bool[Tensor, " pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits with one head, neuron or stream replaced at ``positions`` (a pattern's rows; its columns ``sources``).

        Raises:
            UserError: there is no such hook, or it does not fire.
        """
        fired: list[str] = []

        def patch(value: Tensor, hook: Any) -> Tensor:
            fired.append(hook.name)
            new, other = value.clone(), self.source[name]
            if site.pattern:
                where = positions[:, None] if sources is None else positions[:, None] & sources
                new[:, part] = torch.where(where.to(value.device), other[:, part], value[:, part])
            elif site.part is not None:
                new[:, positions, part] = other[:, positions, part]
            else:
                new[:, positions] = other[:, positions]
            return new

        name = require_hook(self.model, site.hook_name(layer))
        logits = self.model.run_with_hooks(self.base, fwd_hooks=[(name, patch)])
        if not fired:
            raise UserError(f"The hook {name} did not fire, so that a patch there changes nothing.")
        return logits
