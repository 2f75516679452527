"""Keep a weight map's output as long as everything that it depends on stays the same.

Computing MicroAdder's weights from its 57 parameters takes a third of a forward pass at batch 1. What a map depends on
is compared by value, bit for bit, and not by version counters, which ``parameter.data`` and NumPy's views bypass, so
that a kept output is never stale. A kept output has no graph. With gradients on, each call gets its own graph, whose
backward pass computes the weights again.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch._utils import _flatten_dense_tensors
from torch.autograd import forward_ad
from torch.func import functional_call

from models.transformer.parts.weights import Weights
from models.weight_maps.weight_map import WeightMap

MOST_NUMBERS = 10_000  # with more, comparing takes as long as computing the weights
_PLAIN = (Tensor, nn.Parameter)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class _State:
    """Everything that a map's output depends on: its modules' forwards and attributes, kinds of tensors, and the
    numbers as bits, joined by kind."""

    attributes: list[Any]
    kinds: list[Any]
    numbers: list[Tensor]

    def equals(self, other: _State) -> bool:
        return (
            self.kinds == other.kinds
            and len(self.attributes) == len(other.attributes)
            and all(a is b for a, b in zip(self.attributes, other.attributes, strict=True))
            and all(map(torch.equal, self.numbers, other.numbers))
        )


@dataclass(frozen=True, eq=False)
class _Kept:
    """``weights`` without a graph. Those with keys in ``differentiable`` get one if gradients are on (None: not known
    yet). ``same`` has the keys whose weight is a module's parameter or buffer itself, with module and name."""

    made_of: _State
    weights: Weights
    differentiable: list[str] | None
    same: dict[str, tuple[dict[str, Any], str]]
    parameters: list[str]

    @property
    def is_worthless(self) -> bool:
        """Whether the map computes nothing."""
        return len(self.same) == len(self.weights)


_known: WeakKeyDictionary[WeightMap, _Kept] = WeakKeyDictionary()
_swapping = RLock()


def cached_weights(weight_map: WeightMap) -> Weights:
    """``weight_map()``, or its last output if nothing that it depends on has changed.

    The tensors are shared between calls; to write into them, call ``weight_map()``. Nothing is kept under
    ``torch.compile``, ``torch.func`` and dispatch modes, with hooks on the map, and for large maps.
    """
    if torch.compiler.is_compiling():
        return weight_map()
    known = _known.get(weight_map)
    if known is not None and known.is_worthless:
        return weight_map()
    modules: list[nn.Module] = list(weight_map.modules()) if weight_map._modules else [weight_map]
    tables = [table for module in modules for table in (module._parameters, module._buffers)]
    tensors = [x for table in tables for x in table.values() if x is not None]
    if not _may_keep(modules, tensors):
        return weight_map()
    learns = torch.is_grad_enabled()
    made_of = _state(modules, tensors)
    if known is None or not known.made_of.equals(made_of) or (learns and known.differentiable is None):
        known = _known[weight_map] = _make(weight_map, made_of, learns)
    weights = dict(known.weights)
    if learns and known.differentiable:
        outputs = [weights[key] for key in known.differentiable]
        found = _Remade.apply(weight_map, known.parameters, known.differentiable, outputs, *weight_map.parameters())
        weights.update(zip(known.differentiable, found, strict=True))  # pyright: ignore[reportArgumentType]
    for key, (table, name) in known.same.items():
        weights[key] = table[name]
    return weights


def _may_keep(modules: list[nn.Module], tensors: list[Tensor]) -> bool:
    """Whether the map's inputs can be read, and its output is not known to depend on anything else."""
    if peek_interpreter_stack() is not None or forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack():
        return False
    if torch.is_grad_enabled() and not any(x.requires_grad for x in tensors):
        return False  # a map of constants makes a graph of its own
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        return False
    return sum([x.numel() for x in tensors]) <= MOST_NUMBERS and all(
        [type(x) in _PLAIN and not x.is_meta and not x.is_sparse for x in tensors]
    )


def _state(modules: list[nn.Module], tensors: list[Tensor]) -> _State:
    kinds = [(x.dtype, x.device, x.shape, x.requires_grad) for x in tensors]
    groups: dict[Any, list[Tensor]] = {}
    for x, kind in zip(tensors, kinds, strict=True):
        groups.setdefault(kind[:2], []).append(x)
    with torch.no_grad():
        joined = [_copied(parts) for parts in groups.values()]
    numbers = [x.view(_BITS[x.element_size()]) if x.element_size() in _BITS else x for x in joined]
    return _State(
        [value for module in modules for value in (type(module).forward, *vars(module).values())], kinds, numbers
    )


def _copied(parts: list[Tensor]) -> Tensor:
    """The numbers of all tensors in a row, by one call of torch, which copies none that is alone."""
    return _flatten_dense_tensors(parts) if len(parts) > 1 else parts[0].flatten().clone()


@torch.inference_mode(False)
def _make(weight_map: WeightMap, made_of: _State, learns: bool) -> _Kept:
    with torch.set_grad_enabled(learns):
        weights = weight_map()
    places = {
        id(value): (table, name)
        for module in weight_map.modules()
        for table in (module._parameters, module._buffers)
        for name, value in table.items()
    }
    same = {key: places[id(value)] for key, value in weights.items() if id(value) in places}
    differentiable = [key for key, value in weights.items() if value.requires_grad and key not in same]
    return _Kept(
        made_of,
        {key: value.detach() for key, value in weights.items()},
        differentiable if learns else None,
        same,
        [name for name, _ in weight_map.named_parameters()],
    )


class _Remade(torch.autograd.Function):
    """Kept weights as functions of the parameters; the backward pass computes them again."""

    @staticmethod
    def forward(
        ctx: Any, weight_map: WeightMap, names: list[str], keys: list[str], kept: list[Tensor], *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.weight_map, ctx.names, ctx.keys = weight_map, names, keys
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*parameters)
        return tuple(value.detach() for value in kept)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        parameters, again = ctx.saved_tensors, torch.is_grad_enabled()
        with torch.enable_grad(), _swapping:  # which puts these numbers in the map's place for a while
            weights = functional_call(ctx.weight_map, dict(zip(ctx.names, parameters, strict=True)), ())
        asked = [(weights[key], g) for key, g in zip(ctx.keys, gradients, strict=True) if g is not None]
        wanted = [p for p in parameters if p.requires_grad]
        if not asked:
            return (None,) * (4 + len(parameters))
        outputs, given = zip(*asked, strict=True)
        found = iter(torch.autograd.grad(outputs, wanted, given, create_graph=again, allow_unused=True))
        return None, None, None, None, *(next(found) if p.requires_grad else None for p in parameters)
