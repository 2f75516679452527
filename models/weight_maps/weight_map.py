"""The base class of weight maps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights


class WeightMap(nn.Module):
    """A module that computes effective weights from parameters.

    Subclasses register their free parameters as Parameters and frozen constants as non-persistent buffers (so that
    a checkpoint holds the free parameters and nothing else), and implement :meth:`forward` and
    :meth:`initialise`. ``forward`` must be functional (no in-place writes): training stacks seeds by
    ``torch.func.vmap`` over it.
    """

    #: Set to t when, whatever the parameters are, tokens live in the first t residual dimensions and positions in
    #: the others, all token embeddings have one norm, queries and keys read positions only and values tokens only.
    #: Attention then cannot depend on token values, and training computes it once per step; see
    #: :mod:`models.training.split_stream_kernel`.
    split_stream: int | None = None

    #: Highest position id of each level, if levels have tables of different lengths; if empty, the config's for all.
    position_limits: tuple[int, ...] = ()

    #: What :meth:`initialise` does not draw but puts in place in every seed, in words; norms are not counted.
    placed: str = ""

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self.config = cfg

    def add_parameters(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Add free parameters under the names of weights, with slashes for dots, as a Parameter's name has no dots."""
        for key, shape in shapes.items():
            self.register_parameter(key.replace(".", "/"), nn.Parameter(torch.zeros(shape)))

    def own(self) -> Weights:
        """The parameters under the names that were passed to :meth:`add_parameters`."""
        return {name.replace("/", "."): parameter for name, parameter in self.named_parameters()}

    def forward(self) -> Weights:
        raise NotImplementedError

    def initialise(self, generator: torch.Generator) -> None:
        """Draw fresh parameters in place, as the paper's recipe says, from ``generator`` alone."""
        raise NotImplementedError

    @property
    def constants(self) -> Mapping[str, float] | None:
        """Constants in the code that act like weights, neither 0 nor copies of others; None if they are not listed."""
        return None

    def decay_mask(self) -> dict[str, bool]:
        """Which parameters weight decay applies to; everything, unless a recipe says otherwise."""
        return {name: True for name, _ in self.named_parameters()}


def normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    with torch.no_grad():
        tensor.normal_(0.0, std, generator=generator)


def uniform_(tensor: Tensor, bound: float, generator: torch.Generator) -> None:
    with torch.no_grad():
        tensor.uniform_(-bound, bound, generator=generator)


def xavier_uniform_(tensor: Tensor, generator: torch.Generator) -> None:
    """Glorot's uniform initialisation, bound sqrt(6 / (rows + columns))."""
    uniform_(tensor, (6.0 / (tensor.shape[-1] + tensor.shape[-2])) ** 0.5, generator)


def fill_(tensor: Tensor, value: float) -> None:
    with torch.no_grad():
        tensor.fill_(value)
