"""Losses of a stack of seeds: both parameters and losses have a leading seed axis.

:class:`GeneralObjective` runs the model's own forward under ``torch.func.vmap`` and serves every model. Others compute
the same function faster if a model allows it; :mod:`models.training.choose_objective` chooses.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.func import functional_call, vmap

from models.errors import UserError, unknown_name
from models.training.native.compiled_kernels import LANES
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.parts.weights import Weights

Parameters = dict[str, Tensor]  # name -> [seed, ...]
Tokens = Integer[Tensor, "seed pos row"]
Targets = Integer[Tensor, "seed target row"]
Logits = Float[Tensor, "seed vocab target row"]
PerSeed = Float[Tensor, " seed"]
Theta = Float[Tensor, "seed parameter"]


class ParameterLayout:
    """Free parameters of a weight map as one row of numbers, in the order of ``named_parameters()``."""

    def __init__(self, model: ArithmeticTransformer):
        named = dict(model.weight_map.named_parameters())
        self.shapes = {name: tuple(p.shape) for name, p in named.items()}
        self.sizes = [p.numel() for p in named.values()]
        self.n = sum(self.sizes)
        mask = model.weight_map.decay_mask()
        self.decays = torch.cat([torch.full((p.numel(),), float(mask[name])) for name, p in named.items()])

    def places(self, name: str) -> slice:
        """Where the numbers of a parameter ("norm_w"), or one of them ("norm_w[4]"), stand in a row.

        Raises:
            UserError: an unknown parameter, or an index that it does not have.
        """
        parameter, _, index = name.removesuffix("]").partition("[")
        if parameter not in self.shapes:
            raise unknown_name("parameter", parameter, self.shapes)
        which = list(self.shapes).index(parameter)
        start, size = sum(self.sizes[:which]), self.sizes[which]
        if not index:
            return slice(start, start + size)
        if not index.isdecimal() or int(index) >= size:
            raise UserError(f"{parameter} has the numbers 0 to {size - 1}, not {index!r}.")
        return slice(start + int(index), start + int(index) + 1)

    def flatten(self, model: ArithmeticTransformer) -> Float[Tensor, " parameter"]:
        return torch.cat([p.detach().reshape(-1) for p in model.weight_map.parameters()])

    def unflatten(self, theta: Float[Tensor, "*seed parameter"]) -> Parameters:
        parts = theta.split(self.sizes, dim=-1)
        lead = theta.shape[:-1]
        return {
            name: part.reshape((*lead, *shape)) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def load_into(self, model: ArithmeticTransformer, theta: Float[Tensor, " parameter"]) -> None:
        values = self.unflatten(theta)
        with torch.no_grad():
            for name, parameter in model.weight_map.named_parameters():
                parameter.copy_(values[name])


class GeneralObjective:
    """Mean cross-entropy over the task's targets, through the model's own forward, for any model."""

    #: Seeds to stack on a CPU: enough to hide overheads, few enough for the cache.
    group_size = 16
    #: The same on a GPU.
    cuda_group_size = 256
    #: The native kernel that does most of the work, if there is one.
    kernel: Any = None

    def __init__(self, model: ArithmeticTransformer):
        self.model = model
        self.queries = list(model.task.query_positions)

    def compile(self) -> None:
        """Compile the loss with torch.compile (seconds to a minute, once per shape)."""
        self.loss = torch.compile(self.loss, dynamic=False)  # type: ignore[method-assign]

    @property
    def has_kernel(self) -> bool:
        return self.kernel is not None

    def takes_kernel(self, tokens: Tensor) -> bool:
        """Whether the kernel can take these rows, [..., row]."""
        return (
            self.kernel is not None
            and not tokens.is_cuda
            and tokens.dtype == torch.uint8
            and tokens.shape[-1] % LANES == 0
            and tokens.shape[-2:].numel() < 2**31  # the kernels count in 32 bits
            and self.model.dtype == torch.float32
        )

    def effective_weights(self, parameters: Parameters) -> Weights:
        """Effective weights with a leading seed axis."""
        return vmap(lambda p: functional_call(self.model.weight_map, p, ()))(parameters)

    def logits(self, parameters: Parameters, tokens: Tokens) -> Logits:
        def one_seed(p: Parameters, rows: Tensor) -> Tensor:
            weights = functional_call(self.model.weight_map, p, ())
            residual = self.model.embed_tokens(rows.T.long(), weights)
            out = self.model(residual, start_at_layer=0, weights=weights)
            return out[:, self.queries].permute(2, 1, 0)

        return vmap(one_seed, randomness="different")(parameters, tokens)

    def predictions(self, parameters: Parameters, tokens: Tokens) -> Targets:
        """The most likely token for every target."""
        return self.logits(parameters, tokens).argmax(1)

    def loss(self, parameters: Parameters, tokens: Tokens, targets: Targets) -> PerSeed:
        return cross_entropy(self.logits(parameters, tokens), targets)


def cross_entropy(logits: Logits, targets: Targets) -> PerSeed:
    """Mean cross-entropy of each seed, in nats."""
    return cross_entropies(logits, targets).mean((1, 2))


def cross_entropies(logits: Logits, targets: Targets) -> Float[Tensor, "seed target row"]:
    """Cross-entropy of each target, in nats."""
    # A comparison instead of a gather: its gradient is a fused product and not a scatter.
    classes = torch.arange(logits.shape[1], device=logits.device)[:, None, None]
    right = torch.where(targets[:, None] == classes, logits, 0.0).sum(1)
    return logits.logsumexp(1) - right
