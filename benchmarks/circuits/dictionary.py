"""Sparse autoencoders and transcoders of activations, by eai-sparsify (the extra ``sae``).

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
    """``decoder``: a direction for each latent, of length one in a sparse autoencoder."""

    coder: Any
    middle: Float[Tensor, " width"]
    scale: Float[Tensor, ""]
    out_scale: Float[Tensor, ""]

    @property
    def decoder(self) -> Float[Tensor, "width latent"]:
        return self.coder.W_dec.detach().T

    @torch.no_grad()
    def latents(self, x: Float[Tensor, "n width"]) -> Float[Tensor, "n latent"]:
        """How strongly each latent is on; all but the 8 strongest are zero."""
        active, which, all_of_them = self.coder.encode((x - self.middle) / self.scale)
        return torch.zeros_like(all_of_them).scatter(1, which, active)

    @torch.no_grad()
    def explained(self, x: Float[Tensor, "n width"], y: Float[Tensor, "n width"] | None = None) -> float:
        """The share of the variance of activations, or of what a transcoder is to write, that is given back."""
        inputs = (x - self.middle) / self.scale
        return 1 - float(self.coder(inputs, inputs if y is None else (y - y.mean(0)) / self.out_scale).fvu)


def train_dictionary(
    x: Float[Tensor, "n width"], steps: int, seed: int = 0, y: Float[Tensor, "n width"] | None = None, latents: int = 0
) -> Dictionary:
    """Four latents a number, or as many as are asked for, 8 of them on at a time, trained by Adam on batches of 256
    activations, centred and scaled. With ``y``, a transcoder, which is to write that.

    Raises:
        UserError: eai-sparsify is not installed, or activations that do not differ.
    """
    try:
        from sparsify import SparseCoder, SparseCoderConfig
    except ImportError:
        raise UserError(
            "Sparse autoencoders need eai-sparsify, which the extra `sae` brings: pip install 'carrylens[sae]'."
        ) from None
    (inputs, middle, scale), (wanted, _, out_scale) = _scaled(x), _scaled(x if y is None else y)
    generator = torch.Generator().manual_seed(seed)
    config = SparseCoderConfig(
        expansion_factor=LATENTS_A_NUMBER, num_latents=latents, k=ACTIVE, transcode=y is not None
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        coder = SparseCoder(x.shape[1], config)
    optimiser = torch.optim.Adam(coder.parameters(), lr=LR)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (BATCH,), generator=generator)
        loss = coder(inputs[rows], wanted[rows]).fvu
        optimiser.zero_grad()
        loss.backward()
        if y is None:
            coder.remove_gradient_parallel_to_decoder_directions()
        optimiser.step()
        if y is None:
            coder.set_decoder_norm_to_unit_norm()
    return Dictionary(coder, middle, scale, out_scale)


def _scaled(x: Float[Tensor, "n width"]) -> tuple[Tensor, Tensor, Tensor]:
    """(centred and with a mean length of one, the middle, the scale)"""
    middle = x.mean(0)
    scale = (x - middle).norm(dim=1).mean()
    if not scale > 0:
        raise UserError("A sparse autoencoder needs activations that differ.")
    return (x - middle) / scale, middle, scale
