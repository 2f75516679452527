"""The definition of a family, and helpers that build weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.transformer.parts.weights import Weights, under
from studies.adderboard.reading import Submission

EPS = 1e-6
#: The fields of a config that are not shapes of the task (one layer unless they say otherwise), and effective weights.
Read = tuple[dict[str, Any], Weights]


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        name: its name in tables; docs/board.md describes it.
        needs: parts of the model or of its ``model``, or names of the file, by which it is recognised.
        read: (file, ``like``, length of the context) -> config and weights, of the dtype of ``like``.
    """

    name: str
    needs: tuple[str, ...]
    read: Callable[[Submission, Tensor, int], Read]

    def recognises(self, s: Submission) -> bool:
        return all(s.has(need) or s.has(f"model.{need}") or need in s.names for need in self.needs)


def family(name: str, *needs: str) -> Callable[[Callable[[Submission, Tensor, int], Read]], Family]:
    """A decorator that makes a family from the function that reads a file."""
    return lambda read: Family(name, needs, read)


def per_head(matrix: Float[Tensor, "d out"], heads: int, copies: int = 1) -> Float[Tensor, "head d e"]:
    """A projection's columns split by head; ``copies`` query heads share each key head."""
    split = matrix.reshape(len(matrix), heads, -1).permute(1, 0, 2)
    return split.repeat_interleave(copies, 0)


def gain_of(s: Submission, part: str, width: int, like: Tensor) -> Float[Tensor, " width"]:
    """The gains of a norm."""
    weight = getattr(s.get(part), "weight", None)
    if isinstance(weight, Tensor) and weight.shape == (width,):
        return weight
    return like.new_full((width,), float(getattr(s.get(part), "scale", 1.0)))


def eps_of(s: Submission, *parts: str) -> float:
    """The eps that the norms add to the mean square. Raises UserError if they differ."""
    found = {float(getattr(s.get(part), "eps", EPS)) for part in parts if s.has(part)}
    if len(found) > 1:
        raise UserError("its norms differ in what they add to the mean square")
    return found.pop() if found else EPS


def one_head(w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> Weights:
    """The weights of a layer with one head, from its matrices [d, d_head] and [d_head, d]."""
    return under("blocks.0.attn", W_Q=w_q[None], W_K=w_k[None], W_V=w_v[None], W_O=w_o[None])


def unit_norms(like: Tensor, d: int, *names: str) -> Weights:
    """Gains of 1 for the norms before the sublayers and for ``names``."""
    return {f"blocks.0.{name}.w": like.new_ones(d) for name in ("ln1", "ln2", *names)}
