"""The words of :mod:`models.importers.board.interpreter`: tensor operations under the names of three libraries.

All tables are torch tensors, whichever library a file names. A file's float32 is ``Kind.float32``, which the reader
sets to float64 to compare forward passes, so that rounding plays no part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from models.errors import UserError
from models.importers.board.interpreter import Interpreter
from models.importers.board.objects import MOST_ENTRIES, Class, Words

_DROPPED = ("device", "requires_grad", "persistent", "dtype", "non_blocking", "memory_format", "stream")
_RENAMED = {"axis": "dim", "keepdims": "keepdim", "axes": "dim"}


_KINDS = ((float, torch.float64), (int, torch.int64), (bool, torch.bool))


class Kind:
    """The dtype that a file's float32 stands for while it is evaluated."""

    float32: torch.dtype = torch.float32


def kind_of(dtype: Any, default: torch.dtype | None = None) -> torch.dtype | None:
    """The dtype for a file's word."""
    dtype = next((ours for word, ours in _KINDS if dtype is word), dtype)
    if dtype is None:
        return default
    if not isinstance(dtype, torch.dtype):
        raise UserError("it has a kind of number that is not known")
    return Kind.float32 if dtype is torch.float32 else dtype


def _named(named: dict[str, Any]) -> dict[str, Any]:
    """Named arguments under torch's names."""
    found = {_RENAMED.get(name, name): value for name, value in named.items() if name not in _DROPPED}
    if isinstance(found.get("dim"), list):
        found["dim"] = tuple(found["dim"])
    return found


def _size(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)):
        shape = tuple(shape[0])
    size = tuple(int(n) for n in shape)
    if math.prod(max(n, 0) for n in size) > MOST_ENTRIES:
        raise UserError(f"it makes a table of more than {MOST_ENTRIES:,} numbers")
    return size


def _made(function: Callable[..., Tensor], default: str = "float32") -> Callable[..., Tensor]:
    """``zeros`` and similar functions, which take a shape and a dtype."""

    def make(*shape: Any, **named: Any) -> Tensor:
        dtype = named.get("dtype")
        if shape and isinstance(shape[-1], torch.dtype):
            *shape, dtype = shape  # pyright: ignore[reportAssignmentType]
        return function(_size(tuple(shape)), dtype=kind_of(dtype, kind_of(getattr(torch, default))))

    return make


def _full(shape: Any, value: Any, **named: Any) -> Tensor:
    return torch.full(_size((shape,)), value, dtype=kind_of(named.get("dtype"), Kind.float32))


def numbers_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    return [numbers_of(part) for part in value] if isinstance(value, (list, tuple)) else value


def _array(value: Any, dtype: Any = None, default: torch.dtype | None = None, **named: Any) -> Tensor:
    """A table of literals; integers stay integers."""
    numbers = (
        torch.tensor(numbers_of(value), dtype=torch.float64) if _has_floats(value) else torch.tensor(numbers_of(value))
    )
    if dtype is None and not numbers.is_floating_point():
        return numbers
    if kind_of(dtype, default or Kind.float32) is torch.float64 and dtype in (None, torch.float32) and default is None:
        numbers = numbers.float()  # literals are stored as float32, whatever the dtype of later operations
    return numbers.to(kind_of(dtype, default or Kind.float32))


def _has_floats(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_floating_point()
    return any(map(_has_floats, value)) if isinstance(value, (list, tuple)) else isinstance(value, float)


def _arange(*ends: Any, dtype: Any = None, **named: Any) -> Tensor:
    found = torch.arange(*ends, dtype=kind_of(dtype, Kind.float32 if any(isinstance(e, float) for e in ends) else None))
    _size((len(found),))
    return found


def _stack(parts: Any, dim: int = 0, **named: Any) -> Tensor:
    return torch.stack(_few([torch.as_tensor(part) for part in parts]), _named(named).get("dim", dim))


def _cat(parts: Any, dim: int = 0, **named: Any) -> Tensor:
    return torch.cat(_few(list(parts)), _named(named).get("dim", dim))


def _few(parts: list[Tensor]) -> list[Tensor]:
    """``parts``, checked to have not too many numbers together."""
    if sum(part.numel() for part in parts) > MOST_ENTRIES:
        raise UserError(f"it makes a table of more than {MOST_ENTRIES:,} numbers")
    return parts


def renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch function that also takes the other libraries' names of its arguments."""

    def call(*values: Any, **named: Any) -> Any:
        return function(*values, **_named(named))

    call.__name__ = getattr(function, "__name__", "a word")
    return call


def _of_number(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """:func:`renamed` for a function whose argument may be a Python number."""

    def call(value: Any, *more: Any, **named: Any) -> Any:
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        return function(tensor, *more, **_named(named))

    call.__name__ = getattr(function, "__name__", "a word")
    return call


def _where(test: Tensor, one: Any, other: Any) -> Tensor:
    found = torch.where(test, one, other)
    return found.to(Kind.float32) if not isinstance(one, Tensor) and not isinstance(other, Tensor) else found


def _largest(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    return x.max() if axis is None else x.amax(axis, keepdims)


def _maximum(a: Tensor, b: Any) -> Tensor:
    return torch.maximum(a, b if isinstance(b, Tensor) else torch.tensor(b, dtype=a.dtype))


def transposed(x: Tensor, *order: Any) -> Tensor:
    order = tuple(order[0]) if len(order) == 1 and isinstance(order[0], (list, tuple)) else order
    if not order:
        return x.permute(*reversed(range(x.ndim)))
    return x.transpose(*order) if len(order) == 2 and x.ndim != 2 else x.permute(*order)


def _rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x if weight is None else x * weight


def _attend(q: Tensor, k: Tensor, v: Tensor, **named: Any) -> Tensor:
    """Causal attention [batch, head, pos, d]; a key head may serve several query heads."""
    heads, n = q.shape[1], q.shape[2]
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    scale = named.get("scale") or q.shape[-1] ** -0.5
    causal = named.get("is_causal") or named.get("mask") is not None
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v


def _rotary(x: Tensor, dims: int, base: float, scale: float) -> Tensor:
    """MLX's rotary positions for [batch, head, pos, d], which pair the two halves."""
    from models.config import TransformerConfig
    from models.parts.positions import rotate

    cfg = TransformerConfig(
        n_layers=1, d_model=1, n_heads=1, d_head=x.shape[-1], d_mlp=0, d_vocab=1, n_ctx=1, rotary_base=base,
        positional_embedding_type="rotary", rotary_adjacent_pairs=False, rotary_scaling_factor=1 / scale,
    )  # fmt: skip
    return rotate(x.transpose(1, 2), cfg).transpose(1, 2)


def _svd(x: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    u, s, vt = np.linalg.svd(x.float().numpy() if Kind.float32 is torch.float32 else x.numpy(), full_matrices)
    return torch.from_numpy(u.copy()), torch.from_numpy(s.copy()), torch.from_numpy(vt.copy())


def _tree_map(interpreter: Interpreter, function: Any, tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _tree_map(interpreter, function, value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_tree_map(interpreter, function, value) for value in tree]
    return interpreter.call(function, [tree])


def _parameter(value: Any = None, **named: Any) -> Tensor:
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    return torch.nn.Parameter(tensor.detach().clone(), requires_grad=False)


_SAME_TEXT = (
    "matmul einsum outer cos sin exp sqrt rsqrt abs log tril stack_ squeeze unsqueeze flip sum mean argmax "
    "argmin softmax relu gelu silu masked_fill polar view_as_complex view_as_real broadcast_to take_along_dim "
    "pow bmm allclose"
)
_SAME = _SAME_TEXT.split()


def torch_words() -> dict[str, Any]:
    found: dict[str, Any] = {name: renamed(getattr(torch, name)) for name in _SAME if hasattr(torch, name)}
    found |= {name: _of_number(getattr(torch, name)) for name in ("cos", "sin", "exp", "sqrt", "rsqrt", "abs", "log")}
    found |= {name: getattr(torch, name) for name in ("float32", "float64", "int64", "int32", "bool", "float16")}
    found |= {"float": torch.float32, "long": torch.int64, "double": torch.float64, "int": torch.int32}
    found |= {
        "triu": lambda x, diagonal=0, **named: torch.triu(x, named.get("k", diagonal)),
        "tensor": _array,
        "as_tensor": _array,
        "zeros": _made(torch.zeros),
        "ones": _made(torch.ones),
        "empty": _made(torch.zeros),
        "full": _full,
        "arange": _arange,
        "eye": lambda n, **named: torch.eye(_size((n,))[0], dtype=kind_of(named.get("dtype"), Kind.float32)),
        "zeros_like": lambda x, **named: torch.zeros_like(x),
        "ones_like": lambda x, **named: torch.ones_like(x),
        "empty_like": lambda x, **named: torch.zeros_like(x),
        "stack": _stack,
        "cat": _cat,
        "concat": _cat,
        "where": _where,
        "maximum": _maximum,
        "clamp": renamed(torch.clamp),
        "device": lambda *named: "cpu",
        "set_num_threads": lambda n: None,
        "manual_seed": lambda n: None,
        "from_numpy": lambda x: x,
        "Tensor": Tensor,
        "Size": tuple,
        "cuda": Words("torch.cuda", {"is_available": lambda: False}),
        "sparse_coo_tensor": _sparse,
        "inf": math.inf,
        "pi": math.pi,
    }
    return found


def _sparse(where: Tensor, values: Tensor, size: Any) -> Tensor:
    found = torch.zeros(_size((size,)), dtype=values.dtype)
    found[tuple(where)] = values
    return found


FUNCTIONAL = {
    name: renamed(getattr(F, name)) for name in ("softmax", "relu", "gelu", "silu", "linear", "rms_norm", "layer_norm")
} | {
    "embedding": lambda tokens, table: table[tokens],
    "scaled_dot_product_attention": _attend,
}


#: The torch words that NumPy has too.
_NUMPY_TEXT = (
    "cos sin exp sqrt abs log where stack einsum outer matmul triu tril float32 float64 int64 int32 zeros_like "
    "ones_like inf pi maximum allclose sum mean"
)


def _numpy() -> dict[str, Any]:
    double = torch.float64
    found = {name: word for name, word in torch_words().items() if name in _NUMPY_TEXT.split()}
    found |= {
        "array": lambda value, dtype=None, **named: _array(value, dtype, double),
        "asarray": lambda value, dtype=None, **named: _array(value, dtype, double),
        "arange": lambda *ends, dtype=None: _arange(*ends, dtype=dtype),
        "zeros": _made(torch.zeros, "float64"),
        "ones": _made(torch.ones, "float64"),
        "concatenate": _cat,
        "newaxis": None,
        "clip": lambda x, low, high: x.clamp(low, high),
        "max": _largest,
        "argmax": lambda x, axis=None: x.argmax(axis),
        "ndarray": Tensor,
        "linalg": Words("np.linalg", {"svd": _svd}),
    }
    return found


def _mlx() -> dict[str, Any]:
    found = {name: word for name, word in torch_words().items() if name not in ("tensor", "cuda", "sparse_coo_tensor")}
    return found | {
        "array": _array,
        "concatenate": _cat,
        "square": renamed(torch.square),
        "transpose": transposed,
        "eval": lambda *values: None,
        "max": _largest,
        "fast": Words("mx.fast", {"rms_norm": _rms_norm}),
    }


def modules(interpreter: Interpreter, prelude: dict[str, Any]) -> dict[str, Any]:
    """Everything that files can import, by module."""
    functional = Words("F", FUNCTIONAL)
    inits = ("kaiming_uniform_", "normal_", "zeros_", "ones_")
    torch_nn = prelude["torch"] | {
        "Parameter": _parameter,
        "functional": functional,
        "init": Words("nn.init", {name: lambda *given, **named: None for name in inits}),
    }
    nn = Words("torch.nn", torch_nn)
    base = {
        "BaseModelArgs": Class("BaseModelArgs", []),
        "create_attention_mask": lambda h, cache=None, **named: "causal",
        "scaled_dot_product_attention": _attend,
    }
    found = {
        "math": {name: getattr(math, name) for name in dir(math) if not name.startswith("_")}
        | {"factorial": None, "comb": None, "perm": None},
        "torch": torch_words() | {"nn": nn},
        "mlx.nn": prelude["mlx"],
        "mlx.utils": {"tree_map": partial(_tree_map, interpreter)},
        "mlx_lm.models.activations": {"swiglu": lambda gate, up: F.silu(gate) * up},
        "mlx_lm.models.base": base,
        "mlx_lm.models.rope_utils": prelude["rope"],
        "mlx_lm.models.qwen3": prelude["qwen3"],
        "typing": {name: list for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union", "Callable")},
        "dataclasses": {"dataclass": None, "field": None},
    }
    named = {name: Words(name.removeprefix("mlx_lm.models."), words) for name, words in found.items()}
    others = {"torch.nn": nn, "torch.nn.functional": functional}
    return named | others | {"numpy": Words("np", _numpy()), "mlx.core": Words("mx", _mlx())}
