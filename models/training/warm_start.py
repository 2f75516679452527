"""Starts of seeds near given parameters, in place of random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.training.stacked_objective import ParameterLayout


@dataclass(frozen=True)
class Start:
    """Named parameters, and how far around them the seeds are spread.

    Seed s starts at ``p (1 + noise z_s)`` with z_s standard normal, one draw per number. ``origin`` says in words where
    the parameters come from, and ``command`` repeats the run; cards show both.
    """

    parameters: Mapping[str, Tensor]
    origin: str
    command: str
    noise: float = 0.003

    def row(self, layout: ParameterLayout, seed: int) -> Float[Tensor, " parameter"]:
        """One seed's parameters, flattened.

        Raises:
            UserError: names or shapes are not the model's.
        """
        shapes = {name: tuple(value.shape) for name, value in self.parameters.items()}
        if shapes != layout.shapes:
            raise UserError(f"The start has the parameters {shapes}; the model has {layout.shapes}.")
        flat = torch.cat([self.parameters[name].detach().reshape(-1).float() for name in layout.shapes])
        return flat * (1 + self.noise * torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed)))

    def to_dict(self) -> dict[str, Any]:
        """What a run folder keeps, to check that a second call means the same start."""
        digest = hashlib.sha256()
        for name in sorted(self.parameters):
            digest.update(name.encode() + self.parameters[name].detach().float().contiguous().numpy().tobytes())
        return {"origin": self.origin, "command": self.command, "noise": self.noise, "sha256": digest.hexdigest()}
