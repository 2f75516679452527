"""A search over permutations, signs or rotations of the spaces in which the tensors' axes lie.

Every axis of every tensor lies in a space ("stream", "units of layer 0", ...), and one element per space moves all
tensors at once. With the other spaces fixed, the closest element of one is found exactly (Procrustes, Hungarian
algorithm), so no step makes anything worse. This is weight matching (Ainsworth et al. 2023, "Git Re-Basin", section
3.2) with rotations as well as permutations, as in Theus et al. (2025, "Generalized Linear Mode Connectivity for
Transformers").
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.compare.matching import match
from studies.population.symmetries.base import (
    Parameters,
    closeness,
    closest_permutation,
    closest_phases,
    closest_rotation,
    closest_rotation_about_ones,
    closest_signed_permutation,
    closest_turn,
    closest_unitary,
    random_permutation,
    tensor_weight,
)

Kind = Literal[
    "permutation",
    "signed permutation",
    "rotation",
    "rotation about ones",
    "phases",
    "phases of halves",
    "unitary",
    "turn",
]
Elements = dict[str, Tensor]  # space -> [n, n], or [head, n, n] if every head has its own
ROUNDS = 200
#: With more numbers than this, a search ends when a round gains less than a hundredth of one tensor's closeness.
LARGE = 20_000


@dataclass(frozen=True)
class Axis:
    """The space in which an axis lies; ``unsigned``: the axis is permuted but does not change sign (gains, gates)."""

    space: str
    unsigned: bool = False


@dataclass(frozen=True)
class SymmetrySpace:
    """A space and its kind of group. ``heads``: the space of heads if every head has a copy of this one, else ""."""

    kind: Kind
    size: int
    heads: str = ""


@dataclass(frozen=True)
class SymmetryLayout:
    """``axes[name]``: a tensor's axes, None for one that is not moved; an axis with a copy per head follows heads."""

    spaces: Mapping[str, SymmetrySpace]
    axes: Mapping[str, Sequence[Axis | None]]

    def identity(self) -> Elements:
        found = {}
        for name, space in self.spaces.items():
            one = torch.eye(space.size, dtype=torch.float64)
            found[name] = one.expand(self.spaces[space.heads].size, -1, -1).clone() if space.heads else one
        return found

    def random(self, generator: torch.Generator) -> Elements:
        found = {}
        for name, space in self.spaces.items():
            count = self.spaces[space.heads].size if space.heads else 1
            drawn = torch.stack([random_member(space, generator) for _ in range(count)])
            found[name] = drawn if space.heads else drawn[0]
        return found

    def apply(self, tensors: Parameters, elements: Elements) -> Parameters:
        """The moved tensors."""
        return {name: self._move(name, tensor, elements) for name, tensor in tensors.items()}

    def _move(self, name: str, tensor: Tensor, elements: Elements, leave: Container[int] = ()) -> Tensor:
        """One tensor moved, except along the axes in ``leave``."""
        moved = [(i, axis) for i, axis in enumerate(self.axes[name]) if axis is not None and i not in leave]
        for i, axis in moved:  # axes with a copy per head go first: afterwards heads are reordered
            if self.spaces[axis.space].heads:
                tensor = torch.einsum("hi...,hij->hj...", tensor.movedim(i, 1), elements[axis.space]).movedim(1, i)
        for i, axis in moved:
            if not self.spaces[axis.space].heads:
                element = elements[axis.space]
                tensor = (tensor.movedim(i, -1) @ (element.abs() if axis.unsigned else element)).movedim(-1, i)
        return tensor

    def search(self, moving: Parameters, reference: Parameters, starts: int = 1) -> Elements:
        """Elements that bring ``moving`` close to ``reference``, by coordinate descent from a start that determines one
        space after the other. With more ``starts``, the identity and random elements (seed 0) are tried too, and the
        closest result is returned.

        Cost: one decomposition or assignment per start, space and round; some ten rounds.
        """
        generator = torch.Generator().manual_seed(0)
        tried = [self._one_by_one(moving, reference)]
        if starts == 1:
            large = sum(tensor.numel() for tensor in moving.values()) > LARGE
            return self._descend(moving, reference, tried[0], 1e-2 if large else 1e-6)[0]
        tried += [self.identity()] + [self.random(generator) for _ in range(starts - 2)]
        ends = [self._descend(moving, reference, elements, 1e-4) for elements in tried]  # only the best goes further
        return self._descend(moving, reference, max(ends, key=lambda end: end[1])[0], 1e-12)[0]

    def _one_by_one(self, moving: Parameters, reference: Parameters) -> Elements:
        """A start: each space is determined by the tensors that have no axis in a space that is still open."""
        elements = self.identity()
        open_ = set(self.spaces)
        for name, space in self.spaces.items():
            if space.heads:
                continue
            own = [other for other, inner in self.spaces.items() if inner.heads == name]
            open_ -= {name, *own}
            weights = {
                tensor: tensor_weight(moving[tensor], reference[tensor])
                if not any(axis is not None and axis.space in open_ for axis in axes)
                else 0.0
                for tensor, axes in self.axes.items()
            }
            elements |= self._step(name, own, moving, reference, elements, weights)
        return elements

    def _step(
        self,
        name: str,
        own: Sequence[str],
        moving: Parameters,
        reference: Parameters,
        elements: Elements,
        weights: Mapping[str, float],
    ) -> Elements:
        if own:
            return self._closest_heads(name, own, moving, reference, elements, weights)
        products = self._products(name, moving, reference, elements, weights)
        return {name: closest(self.spaces[name].kind, *products)}

    def _descend(
        self, moving: Parameters, reference: Parameters, elements: Elements, gain: float
    ) -> tuple[Elements, float]:
        """Coordinate descent until a round gains less than ``gain``: the elements and the closeness they reach."""
        weights = {name: tensor_weight(moving[name], reference[name]) for name in moving}
        reached = closeness(self.apply(moving, elements), reference)
        twice = {axis.space for axes in self.axes.values() for axis in axes if axis and [*axes].count(axis) > 1}
        for _ in range(ROUNDS):
            before = reached
            for name, space in self.spaces.items():
                if space.heads:
                    continue  # found together with its heads
                own = [other for other, inner in self.spaces.items() if inner.heads == name]
                found = self._step(name, own, moving, reference, elements, weights)
                if name in twice:  # the step held one of two axes fixed, and may make things worse
                    both = [closeness(self.apply(moving, each), reference) for each in (elements, elements | found)]
                    if both[1] <= both[0]:
                        continue
                elements = elements | found
            reached = closeness(self.apply(moving, elements), reference)
            if reached <= before + gain:
                break
        return elements, reached

    def _products(
        self, name: str, moving: Parameters, reference: Parameters, elements: Elements, weights: Mapping[str, float]
    ) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n n"]]:
        """The products C of the signed and of the unsigned axes in a space, summed over tensors.

        If a tensor has the space twice, the other axis is moved by the current element.
        """
        size = self.spaces[name].size
        signed, unsigned = (torch.zeros(size, size, dtype=torch.float64) for _ in range(2))
        for tensor, axes in self.axes.items():
            for i, axis in enumerate(axes):
                if axis is not None and axis.space == name and weights[tensor]:
                    moved = self._move(tensor, moving[tensor], elements, (i,)).movedim(i, 0)
                    product = torch.einsum("i...,j...->ij", moved, reference[tensor].movedim(i, 0))
                    (unsigned if axis.unsigned else signed).add_(weights[tensor] * product)
        return signed, unsigned

    def _closest_heads(
        self,
        heads: str,
        own: Sequence[str],
        moving: Parameters,
        reference: Parameters,
        elements: Elements,
        weights: Mapping[str, float],
    ) -> Elements:
        """Which head becomes which, and each pair's elements: the best assignment given what every pair can reach."""
        n = self.spaces[heads].size
        products = {name: torch.zeros(n, n, *[self.spaces[name].size] * 2, dtype=torch.float64) for name in own}
        for tensor, axes in self.axes.items():
            for i, axis in enumerate(axes):
                if axis is not None and axis.space in own and weights[tensor]:
                    moved = self._move(tensor, moving[tensor], elements, (0, i)).movedim(i, 1)
                    fixed = reference[tensor].movedim(i, 1)
                    products[axis.space] += weights[tensor] * torch.einsum("ai...,bj...->abij", moved, fixed)
        zero = torch.zeros(1, dtype=torch.float64)
        best = {
            name: closest_rotation(every)
            if self.spaces[name].kind == "rotation"
            else torch.stack([torch.stack([closest(self.spaces[name].kind, c, zero) for c in row]) for row in every])
            for name, every in products.items()
        }
        value = sum((best[name] * products[name]).sum((2, 3)) for name in own)
        assert isinstance(value, Tensor)
        pairs = [(row, column) for column, row in match(-value.numpy())]
        order = torch.zeros(n, n, dtype=torch.float64)
        for i, j in pairs:
            order[i, j] = 1.0
        chosen = {name: torch.stack([best[name][i, j] for i, j in sorted(pairs)]) for name in own}
        return {heads: order} | chosen


def closest(kind: Kind, signed: Float[Tensor, "n n"], unsigned: Float[Tensor, "*n"]) -> Float[Tensor, "n n"]:
    """The closest element of a kind, given the products of :mod:`studies.population.symmetries.base`."""
    if kind == "permutation":
        return closest_permutation(signed + unsigned)
    if kind == "signed permutation":
        return closest_signed_permutation(signed, unsigned)
    return _CONTINUOUS[kind](signed)


_CONTINUOUS: dict[Kind, Callable[[Tensor], Tensor]] = {
    "rotation": closest_rotation,
    "rotation about ones": closest_rotation_about_ones,
    "phases": lambda c: closest_phases(c, adjacent=True),
    "phases of halves": lambda c: closest_phases(c, adjacent=False),
    "unitary": closest_unitary,
    "turn": closest_turn,
}


def random_member(space: SymmetrySpace, generator: torch.Generator) -> Float[Tensor, "n n"]:
    n = space.size
    if space.kind in ("permutation", "signed permutation"):
        return random_permutation(n, generator, signs=space.kind == "signed permutation")
    # The closest element to a matrix of independent normal numbers has no preferred direction.
    return closest(space.kind, torch.randn(n, n, generator=generator, dtype=torch.float64), torch.zeros(1))
