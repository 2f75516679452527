"""The interface of symmetry groups, and the closest element of each kind of group."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

Parameters = dict[str, Float[Tensor, "..."]]  # one model's, by name, float64 inside this package


class Symmetries(ABC):
    """The moves of one weight map's parameters that leave its logits unchanged.

    Scales that can be moved between factors make the group non-compact, and directions that nothing reads can hold any
    number. :meth:`canonical` fixes both by a rule for a single model. The rest (permutations, signs, rotations) is
    compact; :meth:`random` draws from it and :meth:`align` searches it.
    """

    #: The symmetries that are taken out, in words, for results and pages.
    words: tuple[str, ...]

    @abstractmethod
    def canonical(self, parameters: Parameters) -> Parameters:
        """Parameters of the same function, with balanced scales and zeros where nothing reads."""

    @abstractmethod
    def random(self, canonical: Parameters, generator: torch.Generator) -> Parameters:
        """Parameters of the same function, moved by a random element of the group."""

    @abstractmethod
    def align(self, canonical: Parameters, reference: Parameters) -> Parameters:
        """Parameters of the same function, moved close to a canonical reference.

        Closeness is :func:`closeness`. The search is coordinate descent or an enumeration; its result is an upper bound
        on the distance between the two orbits.
        """


def tensor_weight(a: Tensor, b: Tensor) -> float:
    """1 / (|a|^2 + |b|^2), or 0 if both are zero: every tensor counts the same, whatever its scale."""
    total = float(a.square().sum() + b.square().sum())
    return 1 / total if total > 0 else 0.0


def closeness(a: Parameters, b: Parameters) -> float:
    """``sum over tensors of 2 <a, b> / (|a|^2 + |b|^2)``: 1 per tensor if they are equal, 0 if orthogonal."""
    return float(sum(2 * tensor_weight(a[name], b[name]) * (a[name] * b[name]).sum() for name in a))


# ---- the closest element of a group: argmax over M of <M, C>, with C[i, j] = <i of the moving, j of the reference>


def closest_rotation(c: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Orthogonal Procrustes: the polar factor of C (reflections included)."""
    u, _, vh = torch.linalg.svd(c)
    return u @ vh


def closest_rotation_about_ones(c: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The closest rotation among those that keep (1, ..., 1) fixed, as LayerNorm's mean requires."""
    n = len(c)
    ones = torch.full((n, 1), n**-0.5, dtype=c.dtype)
    rest = perpendicular_to_ones(n, c.dtype)
    return ones @ ones.T + rest @ closest_rotation(rest.T @ c @ rest) @ rest.T


def perpendicular_to_ones(n: int, dtype: torch.dtype) -> Float[Tensor, "n rest"]:
    """An orthonormal basis of the vectors that sum to zero."""
    full, _ = torch.linalg.qr(torch.cat((torch.ones(n, 1, dtype=dtype), torch.eye(n, dtype=dtype)[:, 1:]), 1))
    return full[:, 1:]


def closest_phases(c: Float[Tensor, "n n"], adjacent: bool) -> Float[Tensor, "n n"]:
    """The closest rotation of the pairs that rotary positions rotate, each pair by an angle of its own."""
    n, found = len(c), torch.zeros_like(c)
    for pair in range(n // 2):
        i, j = (2 * pair, 2 * pair + 1) if adjacent else (pair, pair + n // 2)
        angle = torch.atan2(c[i, j] - c[j, i], c[i, i] + c[j, j])
        cos, sin = angle.cos(), angle.sin()
        found[i, i], found[i, j], found[j, i], found[j, j] = cos, sin, -sin, cos
    return found


def closest_unitary(c: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The closest unitary matrix, in real numbers, with pairs of axes as complex numbers; an odd last axis has a sign.

    These are the rotations that commute with rotating every pair by the same angle.
    """
    n = len(c)
    even = n // 2 * 2
    x, y = slice(0, even, 2), slice(1, even, 2)
    u, _, vh = torch.linalg.svd(torch.complex(c[x, x] + c[y, y], c[x, y] - c[y, x]))
    return unitary_in_reals(u @ vh, n, -1.0 if n % 2 and c[-1, -1] < 0 else 1.0)


def unitary_in_reals(u: Tensor, n: int, last: float) -> Float[Tensor, "n n"]:
    """The real M with ``x' = x M`` for ``z' = z u``, z = x_0 + i x_1, ...; ``last``: the entry of an odd last axis."""
    even = n // 2 * 2
    x, y = slice(0, even, 2), slice(1, even, 2)
    found = torch.zeros(n, n, dtype=torch.float64)
    found[x, x], found[y, y], found[x, y], found[y, x] = u.real, u.real, u.imag, -u.imag
    if n % 2:
        found[-1, -1] = last
    return found


def closest_turn(c: Float[Tensor, "3 3"]) -> Float[Tensor, "3 3"]:
    """The closest element that rotates the first two axes and keeps or reverses the third, as spirals allow."""
    found = torch.zeros_like(c)
    found[:2, :2] = closest_phases(c[:2, :2], adjacent=True)
    found[2, 2] = -1.0 if c[2, 2] < 0 else 1.0
    return found


def closest_permutation(c: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The closest permutation, by the Hungarian algorithm; cost cubic in n."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(c.numpy(), maximize=True)
    found = torch.zeros_like(c)
    found[rows, columns] = 1.0
    return found


def closest_signed_permutation(signed: Float[Tensor, "n n"], unsigned: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The closest permutation with a sign per axis, which acts on ``signed`` but not on ``unsigned`` (gains, gates)."""
    chosen = closest_permutation(signed.abs() + unsigned)
    return chosen * torch.where(signed < 0, -1.0, 1.0)


# ---- random elements


def random_permutation(n: int, generator: torch.Generator, signs: bool = False) -> Float[Tensor, "n n"]:
    found = torch.eye(n, dtype=torch.float64)[torch.randperm(n, generator=generator)]
    return found * (torch.randint(0, 2, (n,), generator=generator).double() * 2 - 1) if signs else found


# ---- canonical factors


def balanced(
    left: Float[Tensor, "*batch m k"], right: Float[Tensor, "*batch k n"]
) -> tuple[Float[Tensor, "*batch m k"], Float[Tensor, "*batch k n"]]:
    """Factors of the same product whose Gram matrices are equal and diagonal: U sqrt(S), sqrt(S) V^T.

    These have the smallest sum of squares; only a rotation of the k dimensions remains free.
    """
    k = left.shape[-1]
    u, s, vh = torch.linalg.svd(left @ right, full_matrices=False)
    kept = min(k, s.shape[-1])
    root = s[..., :kept].sqrt()
    first, second = u[..., :kept] * root[..., None, :], root[..., :, None] * vh[..., :kept, :]
    if kept < k:
        first = torch.nn.functional.pad(first, (0, k - kept))
        second = torch.nn.functional.pad(second, (0, 0, 0, k - kept))
    return first, second
