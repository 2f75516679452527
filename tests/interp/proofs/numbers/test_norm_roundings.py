"""What a proof says that norms round, held against float32; and the bases that scales are measured in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from interp.proofs.machine.lead_roundings import Counted, normed_off, products_off
from interp.proofs.machine.margin_bounds import directions
from interp.proofs.machine.post_attention import NormOf
from interp.proofs.numbers.rounded_operations import FLOAT32, Rounding

D, N = 24, 64


@dataclass
class Shared:
    centred: bool
    rounding: Rounding = FLOAT32
    eps_outside: bool = False
    lost: float = 0.0


def normed(x: torch.Tensor, norm: NormOf, centred: bool) -> torch.Tensor:
    """A norm in the dtype of ``x``, as the models' forward computes it."""
    x = x - x.mean(-1, keepdim=True) if centred else x
    scale = (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return x / scale * norm.gain.to(x.dtype) + norm.bias.to(x.dtype)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("mean", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("gain", [0.01, 30.0])
def test_float32_rounds_a_norm_by_no_more_than_is_said(centred: bool, mean: float, gain: float) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    x, matrix = draw(N, D) + mean, draw(D, 9)
    norm = NormOf(draw(D).double() * gain, draw(D).double() * 0.1)
    norm = NormOf(norm.gain.float().double(), norm.bias.float().double())
    exact = normed(x.double(), norm, centred)
    centre = x.double() - x.double().mean(-1, keepdim=True) if centred else x.double()
    scale = (centre.pow(2).mean(-1) + 1e-5).sqrt()
    computed = normed(x, norm, centred).double()
    for read, unit in (
        (Counted(x.double().abs(), scale * 0.99), 1.0),
        (Counted(x.double().abs(), scale * 0.99, scale[:, None] * 1.01), scale[:, None]),
    ):
        size, off = normed_off(Shared(centred), norm, read)
        assert ((computed - exact).abs() * unit <= off).all() and (computed.abs() * unit <= size + off).all()
        size, off = products_off(Shared(centred), norm, read, matrix.double())
        moved = ((computed - exact) @ matrix.double()).abs() * unit
        assert (moved <= off).all() and ((exact.abs() * unit) @ matrix.double().abs() <= size * (1 + 1e-9)).all()
        assert moved.max() > 0  # float32 does round


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("size", [0.0, 1e-17, 1.0])
def test_a_basis_measures_every_vector_that_the_norm_sees_whatever_the_mean_is(centred: bool, size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    cent = torch.eye(D, dtype=torch.float64) - (1 / D if centred else 0)
    samples = draw(3, 5, D) @ cent
    samples = samples - samples.mean(1, keepdim=True) + size * torch.ones(D, dtype=torch.float64)
    basis, mean = directions(samples, centred)
    assert basis.shape == (3, D - centred, D) and torch.equal(mean, samples.mean(1))
    vectors = draw(3, 50, D) @ cent
    along = (vectors @ basis.mT).pow(2).sum(-1).sqrt()
    assert torch.allclose(along, vectors.norm(dim=-1), rtol=1e-12)
    assert math.isclose(float(basis[0, 0].norm()), 1.0, rel_tol=1e-12)
