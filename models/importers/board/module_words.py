"""This project's own versions of the library modules that public AdderBoard models use, as text.

``TORCH``, ``MLX`` and ``QWEN3`` are evaluated by the same interpreter as the files themselves. Methods that no text
defines (``parameters``, ``load_state_dict``) are in :func:`method`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.importers.board import words
from models.importers.board.interpreter import Interpreter
from models.importers.board.objects import Class, Instance, Scope, Words

_COMMON = """
class Module:
    def __init__(self):
        pass

class Identity(Module):
    def forward(self, x):
        return x

class ReLU(Module):
    def forward(self, x):
        return F.relu(x)

class GELU(Module):
    def forward(self, x):
        return F.gelu(x)

class SiLU(Module):
    def forward(self, x):
        return F.silu(x)

class Linear(Module):
    def __init__(self, in_features, out_features, bias=True, **options):
        self.weight = Parameter(torch.zeros(out_features, in_features))
        self.bias = Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

class Embedding(Module):
    def __init__(self, rows, width, **options):
        self.weight = Parameter(torch.zeros(rows, width))

    def forward(self, tokens):
        return self.weight[tokens]

    def as_linear(self, x):
        return x @ self.weight.T

class RMSNorm(Module):
    def __init__(self, width, eps=1e-6):
        self.weight = Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
"""
TORCH = """
class ModuleList(Module):
    def __init__(self, parts):
        self.items_ = list(parts)

class ModuleDict(Module):
    def __init__(self, parts):
        for name in parts:
            set_value(self, name, parts[name])
"""
MLX = """
class RoPE(Module):
    def __init__(self, dims, traditional=False, base=10000.0, scale=1.0):
        self.rotary = (dims, base, scale)
        assert not traditional

    def forward(self, x, offset=0):
        return rotary(x, *self.rotary)

def initialize_rope(dims, base, traditional, scaling_config=None, max_position_embeddings=None):
    factor = 1.0
    if scaling_config is not None:
        assert scaling_config["type"] == "linear"
        factor = scaling_config["factor"]
    return RoPE(dims, traditional, base, 1.0 / factor)
"""
QWEN3 = """
class ModelArgs:
    def __init__(self, **given):
        self.given = given

class Attention(Module):
    def __init__(self, a):
        d, h, kv, e = a["hidden_size"], a["num_attention_heads"], a["num_key_value_heads"], a["head_dim"]
        self.shape = (h, kv, e)
        self.q_proj = Linear(d, h * e, bias=False)
        self.k_proj = Linear(d, kv * e, bias=False)
        self.v_proj = Linear(d, kv * e, bias=False)
        self.o_proj = Linear(h * e, d, bias=False)
        self.q_norm = RMSNorm(e, a["rms_norm_eps"])
        self.k_norm = RMSNorm(e, a["rms_norm_eps"])
        self.rope = RoPE(e, base=a["rope_theta"])

    def forward(self, x):
        h, kv, e = self.shape
        b, n, d = x.shape
        q = self.q_norm(self.q_proj(x).reshape(b, n, h, e)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).reshape(b, n, kv, e)).transpose(1, 2)
        v = self.v_proj(x).reshape(b, n, kv, e).transpose(1, 2)
        out = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(b, n, h * e))

class MLP(Module):
    def __init__(self, d, m):
        self.gate_proj = Linear(d, m, bias=False)
        self.up_proj = Linear(d, m, bias=False)
        self.down_proj = Linear(m, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

class Block(Module):
    def __init__(self, a):
        self.input_layernorm = RMSNorm(a["hidden_size"], a["rms_norm_eps"])
        self.post_attention_layernorm = RMSNorm(a["hidden_size"], a["rms_norm_eps"])
        self.self_attn = Attention(a)
        self.mlp = MLP(a["hidden_size"], a["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))

class Core(Module):
    def __init__(self, a):
        self.embed_tokens = Embedding(a["vocab_size"], a["hidden_size"])
        self.layers = [Block(a) for _ in range(a["num_hidden_layers"])]
        self.norm = RMSNorm(a["hidden_size"], a["rms_norm_eps"])

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

class Model(Module):
    def __init__(self, args):
        a = args.given
        self.args = args
        self.rms_norm_eps = a["rms_norm_eps"]
        args.rms_norm_eps = a["rms_norm_eps"]
        self.model = Core(a)
        self.tied = a["tie_word_embeddings"]
        if not self.tied:
            self.lm_head = Linear(a["hidden_size"], a["vocab_size"], bias=False)

    def forward(self, tokens, cache=None):
        x = self.model(tokens)
        return self.model.embed_tokens.as_linear(x) if self.tied else self.lm_head(x)
"""


def prelude(interpreter: Interpreter) -> dict[str, dict[str, Any]]:
    """The classes of these modules, by library."""

    def set_value(instance: Instance, name: str, value: Any) -> None:
        instance.values[name] = value

    shared = {
        "torch": Words("torch", words.torch_words()),
        "F": Words("F", words.FUNCTIONAL),
        "Parameter": words._parameter,
        "rotary": words._rotary,
        "set_value": set_value,
    }
    found: dict[str, dict[str, Any]] = {}
    for library, texts in (("torch", (_COMMON, TORCH)), ("mlx", (_COMMON, MLX)), ("qwen3", (_COMMON, MLX, QWEN3))):
        scope = Scope(Scope(interpreter.builtins, dict(shared)))
        for text in texts:
            interpreter.run(ast.parse(text).body, scope)
        found[library] = scope.names
        scope.names["Module"].members["library_"] = library
    # one class of modules for the files and for what they import
    found["rope"] = {"initialize_rope": found["mlx"]["initialize_rope"]}
    found["qwen3"] = {name: found["qwen3"][name] for name in ("Model", "ModelArgs")}
    return found


def named_parameters(instance: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield the tables that a module and its parts train, each once, by path; for MLX, all of its tables."""
    seen = set() if seen is None else seen
    if isinstance(instance, (list, tuple)):
        for i, part in enumerate(instance):
            yield from named_parameters(part, f"{prefix}{i}.", seen)
        return
    if not isinstance(instance, Instance) or id(instance) in seen:
        return
    if not instance.cls.is_a("Module"):
        return
    seen.add(id(instance))
    torch_like = instance.cls.find("library_") == "torch"
    for name, value in instance.values.items():
        if isinstance(value, Tensor) and (isinstance(value, torch.nn.Parameter) or not torch_like):
            if id(value) not in seen and not name.startswith("buffer:"):
                seen.add(id(value))
                yield prefix + name, value
        elif name == "items_":
            yield from named_parameters(value, prefix, seen)
        else:
            yield from named_parameters(value, f"{prefix}{name}.", seen)


def _tree(instance: Any) -> Any:
    """MLX's nested dictionary of tables."""
    if isinstance(instance, list):
        return [_tree(part) for part in instance]
    found: dict[str, Any] = {}
    for name, value in instance.values.items():
        if isinstance(value, Tensor):
            found[name] = value
        elif isinstance(value, list) or (isinstance(value, Instance) and value.cls.is_a("Module")):
            found[name] = _tree(value)
    return found


def _update(instance: Any, tree: Any) -> None:
    for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        holder = instance[name] if isinstance(instance, list) else instance.values.get(name)
        if isinstance(value, (dict, list)):
            _update(holder, value)
        elif isinstance(holder, Tensor):
            assert isinstance(instance, Instance)
            instance.values[name] = torch.nn.Parameter(value.detach().clone(), requires_grad=False)
        else:
            raise UserError(f"it sets {name}, which its model does not have")


def method(interpreter: Interpreter, instance: Instance, name: str) -> Any:
    """A method that the libraries define for all modules."""

    def same(*given: Any, **named: Any) -> Instance:
        return instance

    def double() -> Instance:
        for _, value in named_parameters(instance):
            value.data = value.data.double()
        return instance

    def register(key: str, value: Any, **named: Any) -> None:
        instance.values[key] = value

    def load(state: dict[str, Tensor], strict: bool = True) -> None:
        own = dict(named_parameters(instance))
        for key, value in own.items():
            if key in state and tuple(state[key].shape) == tuple(value.shape):
                value.data = state[key].to(value.dtype).clone()
            elif strict:
                raise UserError(f"its weights have no {key} of the shape that its model has")

    library = instance.cls.find("library_")
    found = {
        **{key: same for key in ("eval", "to", "train", "float", "requires_grad_", "cpu", "cuda", "freeze")},
        "double": double,
        "register_buffer": register,
        "register_parameter": register,
        "load_state_dict": load,
        "named_parameters": lambda: list(named_parameters(instance)),
        "parameters": (lambda: [value for _, value in named_parameters(instance)])
        if library == "torch"
        else (lambda: _tree(instance)),
        "update": lambda tree: _update(instance, tree),
        "buffers": lambda: [],
    }
    if name not in found:
        raise UserError(f"it asks for {name} of a {instance.cls.name}")
    return found[name]


def is_module(value: Any) -> bool:
    return isinstance(value, Class) and value.is_a("Module")
