"""What the families have in common: what a family is, and pieces of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.importers.board.objects import Instance
from models.importers.board.reading import Submission
from models.parts.weights import Weights

EPS = 1e-6


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        name: what it is called in tables.
        what: what characterises it.
        recognises: whether a file is of it.
        config: the fields of the config that are not shapes of the task.
        weights: (file, ``like``, length of the context) -> effective weights, of the dtype of ``like``.
    """

    name: str
    what: str
    recognises: Callable[[Submission], bool]
    config: Callable[[Submission], dict[str, Any]]
    weights: Callable[[Submission, Tensor, int], Weights]


def per_head(matrix: Float[Tensor, "d out"], heads: int, copies: int = 1) -> Float[Tensor, "head d e"]:
    """A projection's columns by head; ``copies`` query heads share a key head."""
    split = matrix.reshape(len(matrix), heads, -1).permute(1, 0, 2)
    return split.repeat_interleave(copies, 0)


def gain_of(s: Submission, part: str, width: int, like: Tensor) -> Float[Tensor, " width"]:
    """The gains of a norm."""
    holder = s.get(part)
    weight = holder.values.get("weight") if isinstance(holder, Instance) else None
    if isinstance(weight, Tensor) and weight.shape == (width,):
        return weight
    scale = holder.values.get("scale", 1.0)
    return like.new_full((width,), float(scale))


def eps_of(s: Submission, *parts: str) -> float:
    """What the norms add to the mean square. Raises UserError where they differ."""
    found = {float(s.get(part).values.get("eps", EPS)) for part in parts if s.has(part)}
    if len(found) > 1:
        raise UserError("its norms differ in what they add to the mean square")
    return found.pop() if found else EPS


def one_head(w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> Weights:
    """The weights of a layer with one head, from its matrices [d, d_head] and [d_head, d]."""
    return {f"blocks.0.attn.W_{x}": w[None] for x, w in zip("QKVO", (w_q, w_k, w_v, w_o), strict=True)}


def unit_norms(like: Tensor, d: int, names: tuple[str, ...] = ("ln1", "ln2")) -> Weights:
    """Gains of norms that multiply by nothing."""
    return {f"blocks.0.{name}.w": like.new_ones(d) for name in names}
