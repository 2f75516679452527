"""Sparse autoencoders of activations, by eai-sparsify (the extra ``sae``).

Source: k-sparse autoencoders, Gao et al. (2024), arXiv 2406.04093.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError

ACTIVE, LATENTS_A_NUMBER, BATCH, LR = 8, 4, 256, 1e-3


@dataclass(frozen=True, eq=False)
class Dictionary:
    """``decoder``: a direction of length one for each latent."""

    coder: Any
    middle: Float[Tensor, " width"]
    scale: Float[Tensor, ""]

    @property
    def decoder(self) -> Float[Tensor, "width latent"]:
        return self.coder.W_dec.detach().T

    @torch.no_grad()
    def latents(self, x: Float[Tensor, "n width"]) -> Float[Tensor, "n latent"]:
        """How strongly each latent is on; all but the 8 strongest are zero."""
        active, which, all_of_them = self.coder.encode((x - self.middle) / self.scale)
        return torch.zeros_like(all_of_them).scatter(1, which, active)

    @torch.no_grad()
    def explained(self, x: Float[Tensor, "n width"]) -> float:
        """The share of the variance of activations that the dictionary gives back."""
        return 1 - float(self.coder((x - self.middle) / self.scale).fvu)


def train_dictionary(x: Float[Tensor, "n width"], steps: int, seed: int = 0) -> Dictionary:
    """Four latents a number, 8 of them on at a time, trained by Adam on batches of 256 activations, centred and scaled.

    Raises:
        UserError: eai-sparsify is not installed, or activations that do not differ.
    """
    try:
        from sparsify import SparseCoder, SparseCoderConfig
    except ImportError:
        raise UserError(
            "Sparse autoencoders need eai-sparsify, which the extra `sae` brings: pip install 'carrylens[sae]'."
        ) from None
    middle = x.mean(0)
    scale = (x - middle).norm(dim=1).mean()
    if not scale > 0:
        raise UserError("A sparse autoencoder needs activations that differ.")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        coder = SparseCoder(x.shape[1], SparseCoderConfig(expansion_factor=LATENTS_A_NUMBER, k=ACTIVE))
    optimiser = torch.optim.Adam(coder.parameters(), lr=LR)
    inputs = (x - middle) / scale
    for _ in range(steps):
        loss = coder(inputs[torch.randint(len(inputs), (BATCH,), generator=generator)]).fvu
        optimiser.zero_grad()
        loss.backward()
        coder.remove_gradient_parallel_to_decoder_directions()
        optimiser.step()
        coder.set_decoder_norm_to_unit_norm()
    return Dictionary(coder, middle, scale)
