"""The few names of Apple's ``mlx`` and ``mlx_lm`` that public AdderBoard models use, made of PyTorch.

``mlx`` is no dependency and does not run everywhere. What a file computes itself is then computed by PyTorch's
operations. What it takes from the libraries (attention, rotary positions, Qwen3 blocks) is written out below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Module(nn.Module):
    """A module whose float tensors are parameters, and whose ``parameters()`` are nested dictionaries and lists."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, list) and value and all(isinstance(part, nn.Module) for part in value):
            value = nn.ModuleList(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            value = nn.Parameter(value, requires_grad=False)
        super().__setattr__(name, value)  # pyright: ignore[reportArgumentType]

    def parameters(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _tree(self)

    def update(self, tree: dict[str, Any]) -> None:
        _update(self, tree)


def _tree(part: nn.Module) -> Any:
    if isinstance(part, nn.ModuleList):
        return [_tree(one) for one in part]
    parts = {name: _tree(one) for name, one in part.named_children()}
    return {name: value for name, value in part._parameters.items() if value is not None} | parts


def _update(part: nn.Module, tree: Any) -> None:
    for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, (dict, list)):
            _update(part.get_submodule(str(name)), value)
        elif name not in part._parameters:
            raise ValueError(f"Module does not have parameter named {name!r}.")
        else:
            setattr(part, name, nn.Parameter(value, requires_grad=False))


class RoPE(Module):
    def __init__(self, dims: int, traditional: bool = False, base: float = 10000.0, scale: float = 1.0):
        super().__init__()
        if traditional:
            raise NotImplementedError("rotary positions of adjacent pairs")
        self.dims, self.base, self.scale = dims, base, scale

    def __call__(self, x: Tensor, offset: int = 0) -> Tensor:
        half = self.dims // 2
        speed = self.base ** -(torch.arange(half, dtype=x.dtype) / half)
        angle = (torch.arange(x.shape[-2], dtype=x.dtype) + offset)[:, None] * self.scale * speed
        one, other, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
        c, s = angle.cos(), angle.sin()
        return torch.cat((one * c - other * s, one * s + other * c, rest), -1)


def initialize_rope(
    dims: int, base: float, traditional: bool, scaling_config: Any = None, max_position_embeddings: Any = None
) -> RoPE:
    scaling = scaling_config or {"type": "linear", "factor": 1.0}
    if scaling["type"] != "linear":
        raise NotImplementedError(f"rotary scaling of type {scaling['type']}")
    return RoPE(dims, traditional, base, 1 / scaling["factor"])


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def attention(q: Tensor, k: Tensor, v: Tensor, cache: Any = None, scale: float = 1.0, mask: Any = None) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None, scale=scale)


class ModelArgs(SimpleNamespace):
    """The arguments of a :class:`Model`, as attributes."""


class _Attention(Module):
    q_proj: Any
    k_proj: Any
    v_proj: Any
    o_proj: Any
    rope: Any

    def __init__(self, a: ModelArgs):
        super().__init__()
        d, e, self.heads, self.shared = a.hidden_size, a.head_dim, a.num_attention_heads, a.num_key_value_heads
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(d, n * e, bias=False) for n in (self.heads, self.shared, self.shared)
        )
        self.o_proj, self.rope = nn.Linear(self.heads * e, d, bias=False), RoPE(e, base=a.rope_theta)
        self.q_norm, self.k_norm = nn.RMSNorm(e, a.rms_norm_eps), nn.RMSNorm(e, a.rms_norm_eps)

    def __call__(self, x: Tensor) -> Tensor:
        q = self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, -1))).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).unflatten(-1, (self.shared, -1))).transpose(1, 2)
        v = self.v_proj(x).unflatten(-1, (self.shared, -1)).transpose(1, 2)
        out = attention(self.rope(q), self.rope(k), v, scale=q.shape[-1] ** -0.5, mask="causal")
        return self.o_proj(out.transpose(1, 2).flatten(2))


class _MLP(Module):
    def __init__(self, d: int, m: int):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, m, bias=False), nn.Linear(d, m, bias=False)
        self.down_proj = nn.Linear(m, d, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class _Block(Module):
    def __init__(self, a: ModelArgs):
        super().__init__()
        self.self_attn, self.mlp = _Attention(a), _MLP(a.hidden_size, a.intermediate_size)
        self.input_layernorm = nn.RMSNorm(a.hidden_size, a.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(a.hidden_size, a.rms_norm_eps)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(Module):
    """Qwen3, as in ``mlx_lm.models.qwen3``."""

    model: Any

    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args, self.model = args, Module()
        self.model.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.model.layers = [_Block(args) for _ in range(args.num_hidden_layers)]
        self.model.norm = nn.RMSNorm(args.hidden_size, args.rms_norm_eps)
        if not args.tie_word_embeddings:
            self.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)

    def __call__(self, tokens: Tensor, cache: Any = None) -> Tensor:
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        x = self.model.norm(x)
        return x @ self.model.embed_tokens.weight.T if self.args.tie_word_embeddings else self.lm_head(x)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    return [tree_map(function, value) for value in tree] if isinstance(tree, (list, tuple)) else function(tree)


def array(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    found = torch.tensor(value, dtype=dtype)
    return found.to(torch.float32) if dtype is None and found.is_floating_point() else found


_CORE = {
    "array": array,
    "eval": lambda *values: None,
    "fast": SimpleNamespace(rms_norm=rms_norm),
    "maximum": lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype)),
    "transpose": lambda x: x.T,
    "__getattr__": lambda name: getattr(torch, name),  # the others have the same names and arguments
}
_BASE = {
    "BaseModelArgs": dataclass(type("BaseModelArgs", (), {})),
    "create_attention_mask": lambda h, cache=None, **options: "causal",
    "scaled_dot_product_attention": attention,
}
_MODULES = {
    "mlx": {},
    "mlx.core": _CORE,
    "mlx.nn": {"Module": Module, "RMSNorm": lambda dims, eps=1e-5: nn.RMSNorm(dims, eps), "RoPE": RoPE},
    "mlx.utils": {"tree_map": tree_map},
    "mlx_lm": {},
    "mlx_lm.models": {},
    "mlx_lm.models.activations": {"swiglu": swiglu},
    "mlx_lm.models.base": _BASE,
    "mlx_lm.models.qwen3": {"Model": Model, "ModelArgs": ModelArgs},
    "mlx_lm.models.rope_utils": {"initialize_rope": initialize_rope},
}


@cache
def install() -> None:
    """Make ``import mlx.core`` and the others give these, in this process."""
    for name, names in _MODULES.items():
        module = sys.modules[name] = module_from_spec(ModuleSpec(name, None, is_package=True))
        vars(module).update(names)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
    transpose = Tensor.transpose
    every = lambda x, *axes: x.permute(axes) if len(axes) > 2 else transpose(x, *axes)  # noqa: E731
    setattr(Tensor, "transpose", every)  # noqa: B010  whose own takes two axes
